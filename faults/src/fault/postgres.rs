//! PostgreSQL is killed under load: the whole server like a crash, or one of its processes.

use std::{process::Command, sync::Arc, time::Instant};

use tenure_testkit::Cluster;

use super::{Plan, Scene, Tally, blocking, folder};
use crate::{checker::Losses, daemon::Home};

pub async fn run(plan: &Plan) -> Result<Tally, String> {
    let cluster = Arc::new(blocking(Cluster::start).await?);
    let folder = folder()?;
    let home = Home::postgres(folder.path(), &cluster.create_database())?;
    let mut scene = Scene::at("postgres", folder, home, plan)?;
    let _daemon = scene.start().await?;
    for _ in 0..plan.rounds {
        scene.writes(plan.writes).await?;
        let (server, whole) = (cluster.clone(), scene.dice.one_in(2));
        blocking(move || if whole { server.restart() } else { kill_one(&server) }).await?;
        scene.tally.faults += 1;
        scene.serves_again(Instant::now()).await?;
    }
    scene.writes(plan.writes).await?;
    scene.end(Losses::Forbidden).await
}

/// Kills one process that serves the daemon: the server stops all others with it, and recovers.
fn kill_one(cluster: &Cluster) {
    let sql = "select pid from pg_stat_activity where backend_type = 'client backend' \
               and pid <> pg_backend_pid() order by random() limit 1";
    let pid = cluster.psql("postgres", sql);
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.is_ok_and(|killed| killed.success()), "process {pid} of the server was there");
}
