//! Checks this machine: its clock, how fast a ledger's disk syncs, the hooks of its terminal agents.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use super::{Finding, Verdict};

const SYNCS: u32 = 32;
/// A disk that syncs more slowly makes every commit slow.
const SLOW: u32 = 50;
/// A disk that syncs faster does not really sync.
const TOO_FAST: u32 = 50_000;
/// The allowed drift between two clocks during the check.
const DRIFT: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(250);
/// The files of terminal agents' hooks, in a project's folder or at home.
const HOOKS: [&str; 4] =
    [".claude/settings.json", ".claude/settings.local.json", ".codex/hooks.json", ".codex/config.toml"];

/// If the wall clock is being changed, every deadline is wrong.
pub async fn clock() -> Finding {
    let (wall, steady) = (SystemTime::now(), Instant::now());
    tokio::time::sleep(LOOK).await;
    let (wall, steady) = (wall.elapsed(), steady.elapsed());
    let fix = "use one time service that slews the clock, and none that steps it";
    match wall {
        Ok(wall) if wall.abs_diff(steady) <= DRIFT => Finding::ok("clock", "wall and monotonic clocks agree"),
        Ok(wall) => {
            Finding::bad("clock", Verdict::Warn, format!("they differ by {:?}", wall.abs_diff(steady)), fix)
        }
        Err(_) => Finding::bad("clock", Verdict::Warn, "the wall clock moved backwards", fix),
    }
}

fn folder(db: &Path) -> &Path {
    db.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub fn fsync(db: &Path) -> Finding {
    let scratch = folder(db).join(format!(".tenure-doctor-{}", std::process::id()));
    let measured = measure(&scratch);
    let _ = fs::remove_file(&scratch);
    match measured {
        Ok(rate) => {
            let detail = format!("{rate} syncs per second");
            if rate < SLOW {
                return Finding::bad("fsync", Verdict::Warn, detail, "put the ledger on a faster disk");
            }
            if rate > TOO_FAST {
                let fix =
                    "check that the disk really syncs: memory file systems and some virtual disks do not";
                return Finding::bad("fsync", Verdict::Warn, detail, fix);
            }
            Finding::ok("fsync", detail)
        }
        Err(error) => {
            Finding::bad("fsync", Verdict::Fail, error.to_string(), "make the ledger's folder writable")
        }
    }
}

fn measure(scratch: &Path) -> io::Result<u32> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(scratch)?;
    let start = Instant::now();
    for _ in 0..SYNCS {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
    }
    Ok((f64::from(SYNCS) / start.elapsed().as_secs_f64().max(1e-6)) as u32)
}

/// Terminal agents can maintain the ledger from their hooks. Most machines need none, so this is not a fault.
pub fn hooks() -> Finding {
    let folders = [env::current_dir().ok(), env::var_os("HOME").map(PathBuf::from)];
    let mut files = folders.into_iter().flatten().flat_map(|folder| HOOKS.map(|name| folder.join(name)));
    let of_ours = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| text.contains("tenure "));
    if let Some(file) = files.find(of_ours) {
        return Finding::ok("hooks", format!("installed in {}", file.display()));
    }
    let fix = "to show terminal agents of this machine in the ledger, let their hooks run its verbs ingest, \
               claim, renew and close-out: `tenure --help`";
    Finding::bad("hooks", Verdict::Info, "not installed", fix)
}
