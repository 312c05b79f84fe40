//! Power cuts, with and without a failed sync before: the writes and syncs recorded by `strace` become images
//! of the disk at chosen moments, and a daemon on each image has every write that was acknowledged by then.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use tenure_testkit::{Change, Disk, FileCall};

use super::{Plan, Scene, Tally, folder, strace};
use crate::{
    checker::{Losses, check},
    collect,
    daemon::{Daemon, Home, Kind},
    history::{Record, until},
    run::{Effect, Run},
};

const PATIENCE: Duration = Duration::from_secs(60);
const DATABASE: &str = "ledger.db";

/// Cuts at random moments of one life.
pub async fn cut(plan: &Plan) -> Result<Tally, String> {
    let mut scene = Scene::open("power", Kind::Sqlite, plan)?;
    let daemon = recorded(&mut scene, "trace", &[])?;
    scene.writes(plan.writes).await?;
    daemon.kill().map_err(|error| error.to_string())?;
    let calls = FileCall::read(&scene.folder.path().join("trace"), DATABASE);
    images(scene, Disk::default(), &calls, plan).await
}

/// A sync fails, the daemon is restarted, and then the power is cut: writes acknowledged after the restart
/// are there, although the kernel marks the pages clean that never reached the disk.
pub async fn failed_sync(plan: &Plan) -> Result<Tally, String> {
    let mut scene = Scene::open("sync", Kind::Sqlite, plan)?;
    let fails = format!("inject=fdatasync:error=EIO:when={}", scene.dice.between(12, 30));
    let daemon = recorded(&mut scene, "trace-1", &["-e", &fails])?;
    let first = scene.folder.path().join("trace-1");
    injected(&first).await?;
    daemon.kill().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let daemon = recorded(&mut scene, "trace-2", &[])?;
    scene.serves_again(began).await?;
    scene.writes(plan.writes).await?;
    daemon.kill().map_err(|error| error.to_string())?;

    let before = FileCall::read(&first, DATABASE);
    if !before.iter().any(|call| call.change == Change::FailedSync) {
        return Err("the sync that failed was not one of the database".to_owned());
    }
    let mut disk = Disk::default();
    before.iter().for_each(|call| disk.play(call));
    let after = FileCall::read(&scene.folder.path().join("trace-2"), DATABASE);
    images(scene, disk, &after, plan).await
}

/// Starts the daemon under `strace`.
fn recorded(scene: &mut Scene, name: &str, more: &[&str]) -> Result<Daemon, String> {
    let args = [FileCall::STRACE, more].concat();
    scene.home.wrapper = strace(&args, &scene.folder.path().join(name));
    scene.home.spawn()
}

/// Waits until the injected failure has happened.
async fn injected(recording: &Path) -> Result<(), String> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if fs::read_to_string(recording).is_ok_and(|text| text.contains("(INJECTED)")) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("no sync failed within {PATIENCE:?}"))
}

/// Cuts the power at these calls, and checks the state that a daemon finds then.
async fn images(mut scene: Scene, mut disk: Disk, calls: &[FileCall], plan: &Plan) -> Result<Tally, String> {
    scene.load.stop().await?;
    let (history, effects) = (scene.load.history.records(), scene.load.effects());
    scene.tally.acknowledged = scene.load.history.acknowledged();
    let served = history.first().map_or(0, |record| record.answered_us);
    let start = calls.iter().position(|call| call.at_us > served).unwrap_or_default() as u64;
    let mut cuts: Vec<usize> =
        (1..plan.rounds).map(|_| scene.dice.between(start, calls.len() as u64) as usize).collect();
    // The last cut is at the kill.
    cuts.push(calls.len());
    cuts.sort_unstable();
    let mut played = 0;
    for cut in cuts {
        calls[played..cut].iter().for_each(|call| disk.play(call));
        played = cut;
        let moment = calls.get(cut).map_or(u64::MAX, |call| call.at_us);
        let run = image(&mut scene, &disk, moment, &history, &effects).await?;
        scene.tally.faults += 1;
        let violations = check(&run, Losses::Forbidden).violations;
        let told = violations.iter().map(|violation| format!("power cut at call {cut}: {violation}"));
        scene.tally.problems.extend(told);
        if !scene.tally.problems.is_empty() {
            return scene.tally.close(scene.folder, &run);
        }
    }
    scene.folder.disable_cleanup(false);
    Ok(scene.tally)
}

async fn image(
    scene: &mut Scene,
    disk: &Disk,
    moment: u64,
    history: &[Record],
    effects: &[Effect],
) -> Result<Run, String> {
    let place = folder()?;
    let home = Home::sqlite(place.path())?;
    let dice = &mut scene.dice;
    disk.cut(&place.path().join("data"), || dice.one_in(2)).map_err(|error| error.to_string())?;
    let failed = |why: String| format!("a daemon on the image of a power cut: {why}");
    let mut daemon = home.spawn().map_err(failed)?;
    let ready = daemon.ready().await;
    let took = match ready {
        Ok(took) => took,
        Err(why) => return Err(format!("{}; see {}", failed(why), place.keep().display())),
    };
    scene.tally.served_again(took);
    let effects = effects.iter().filter(|effect| effect.at_us < moment).cloned().collect();
    collect::read(&home.client(), until(history, moment), effects).await.map_err(failed)
}
