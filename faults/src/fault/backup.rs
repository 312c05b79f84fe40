//! Backups under load: each ends, and a ledger restored from it has every write that was acknowledged before
//! it.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_api::wire::{Backup, Disposition, Ingest, Source};

use super::{Plan, Scene, Tally, folder};
use crate::{
    checker::{Losses, check},
    collect,
    daemon::{Home, Kind},
    history::{now_us, until},
};

/// Larger than one step of a copy.
const WORKS: usize = 80;
const BYTES: usize = 100_000;
const ENDS_WITHIN: Duration = Duration::from_secs(30);

pub async fn run(plan: &Plan) -> Result<Tally, String> {
    let mut scene = Scene::open("backup", Kind::Sqlite, plan)?;
    let _daemon = scene.start().await?;
    let client = scene.home.client();
    for number in 0..WORKS {
        let source = Source { system: "manual".into(), id: format!("large-{number}"), run_id: String::new() };
        let new = Ingest::new(source, "large", Disposition::Rerunnable, json!("x".repeat(BYTES)));
        client.ingest(&new).await.map_err(|error| error.to_string())?;
    }
    for round in 0..plan.rounds {
        scene.writes(plan.writes).await?;
        let (asked_us, began) = (now_us(), Instant::now());
        let backup = Backup { name: format!("backup-{round}.db") };
        let made = tokio::time::timeout(ENDS_WITHIN, client.backup(&backup)).await;
        let made = made.map_err(|_| format!("a backup under load did not end within {ENDS_WITHIN:?}"))?;
        let made = made.map_err(|error| format!("a backup under load: {error}"))?;
        scene.tally.faults += 1;
        scene.tally.slowest = scene.tally.slowest.max(began.elapsed());
        restored(&mut scene, &made.path, asked_us).await?;
    }
    scene.end(Losses::Forbidden).await
}

async fn restored(scene: &mut Scene, backup: &str, asked_us: u64) -> Result<(), String> {
    let place = folder()?;
    let home = Home::sqlite(place.path())?;
    home.embedded(&["restore", backup])?;
    home.embedded(&["verify"])?;
    let _daemon = home.start().await?;
    let effects = scene.load.effects().into_iter().filter(|effect| effect.at_us < asked_us).collect();
    let history = until(&scene.load.history.records(), asked_us);
    let run = collect::read(&home.client(), history, effects).await?;
    let violations = check(&run, Losses::Forbidden).violations;
    scene.tally.problems.extend(violations.iter().map(|violation| format!("restored: {violation}")));
    Ok(())
}
