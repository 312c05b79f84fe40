//! The disk becomes full and is freed again: acknowledged writes are still there, and the daemon serves
//! again.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{Plan, Scene, Tally};
use crate::{
    checker::Losses,
    daemon::Kind,
    history::{Outcome, Record},
};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long a daemon may take to notice the free space before it is restarted.
const HEALS_WITHIN: Duration = Duration::from_secs(15);

pub async fn run(plan: &Plan) -> Result<Tally, String> {
    let mut scene = Scene::open("full", Kind::Sqlite, plan)?;
    let disk = SmallDisk::mount(&scene.home.folder.join("data"))?;
    scene.home.wrapper = disk.enter();
    let mut daemon = scene.start().await?;
    for _ in 0..plan.rounds {
        scene.writes(plan.writes).await?;
        let before = scene.load.history.records().len();
        disk.fill()?;
        refused(&scene, before).await?;
        scene.tally.faults += 1;
        disk.free()?;
        let began = Instant::now();
        let healed = tokio::time::timeout(HEALS_WITHIN, scene.load.history.more(1)).await.is_ok();
        if healed {
            scene.tally.slowest = scene.tally.slowest.max(began.elapsed());
        } else {
            scene.tally.problems.push("space was freed, but it served again only after a restart".to_owned());
            daemon.kill().map_err(|error| error.to_string())?;
            daemon = scene.restart().await?;
        }
    }
    scene.writes(plan.writes).await?;
    scene.end(Losses::Forbidden).await
}

/// Waits until writes are no longer accepted.
async fn refused(scene: &Scene, since: usize) -> Result<(), String> {
    let began = Instant::now();
    let full = |record: &Record| match &record.outcome {
        Outcome::Refused(code) => code == "stopped" || code == "unavailable",
        Outcome::Unknown(_) => true,
        Outcome::Ok(_) => false,
    };
    while began.elapsed() < PATIENCE {
        if scene.load.history.records().iter().skip(since).any(full) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("the disk was full, but nothing was refused within {PATIENCE:?}"))
}

/// A file system of 8 MiB that only its own processes see. It ends with the process that keeps it.
struct SmallDisk {
    keeper: Child,
    folder: PathBuf,
}

impl SmallDisk {
    fn mount(folder: &std::path::Path) -> Result<Self, String> {
        let script = "mount -t tmpfs -o size=8m none \"$1\"; echo mounted; exec cat";
        let mut keeper = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut said = String::new();
        if let Some(stdout) = keeper.stdout.take() {
            BufReader::new(stdout).read_line(&mut said).map_err(|error| error.to_string())?;
        }
        let disk = Self { keeper, folder: folder.to_owned() };
        if said.trim() == "mounted" {
            Ok(disk)
        } else {
            Err("no small file system can be mounted".to_owned())
        }
    }

    /// The wrapper that runs the daemon inside of this file system.
    fn enter(&self) -> Vec<String> {
        let pid = self.keeper.id().to_string();
        let words = ["nsenter", "--preserve-credentials", "--user", "--mount", "--target", &pid, "--"];
        words.map(str::to_owned).to_vec()
    }

    /// The outside path of a file in it.
    fn ballast(&self) -> PathBuf {
        let seen = format!("/proc/{}/root{}/ballast", self.keeper.id(), self.folder.display());
        PathBuf::from(seen)
    }

    /// Leaves no byte free.
    fn fill(&self) -> Result<(), String> {
        let mut ballast = File::create(self.ballast()).map_err(|error| error.to_string())?;
        for size in [65_536, 4_096] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    fn free(&self) -> Result<(), String> {
        fs::remove_file(self.ballast()).map_err(|error| error.to_string())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ended = self.keeper.kill().and_then(|()| self.keeper.wait());
    }
}
