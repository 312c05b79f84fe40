//! `kill -9` at random moments under load.

use super::{Plan, Scene, Tally};
use crate::{checker::Losses, daemon::Kind};

pub async fn run(kind: Kind, plan: &Plan) -> Result<Tally, String> {
    let mut scene = Scene::open("kill", kind, plan)?;
    let mut daemon = scene.start().await?;
    for _ in 0..plan.rounds {
        scene.writes(plan.writes).await?;
        daemon.kill().map_err(|error| error.to_string())?;
        scene.tally.faults += 1;
        daemon = scene.restart().await?;
    }
    scene.end(Losses::Forbidden).await
}
