//! A streaming standby takes over from its primary: with all acknowledged writes, or without the last of
//! them.

use std::{sync::Arc, time::Instant};

use tenure_testkit::Cluster;

use super::{Plan, Scene, Tally, blocking, folder};
use crate::{checker::Losses, daemon::Home};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    Synchronous,
    /// The standby is disconnected before the end: later acknowledged writes are lost, and counted.
    Asynchronous,
}

/// Each round has its own pair of servers.
pub async fn run(name: &str, replication: Replication, plan: &Plan) -> Result<Tally, String> {
    let mut all: Option<Tally> = None;
    for round in 0..plan.rounds {
        let plan = Plan { seed: plan.seed.wrapping_add(round.into()), ..plan.clone() };
        let tally = one(name, replication, &plan).await?;
        all = Some(match all {
            Some(all) => all.with(tally),
            None => tally,
        });
    }
    all.ok_or_else(|| "no rounds were asked for".to_owned())
}

async fn one(name: &str, replication: Replication, plan: &Plan) -> Result<Tally, String> {
    let pair = Arc::new(blocking(move || Pair::start(replication)).await?);
    let folder = folder()?;
    let home = Home::postgres(folder.path(), &pair.url())?;
    let mut scene = Scene::at(name, folder, home, plan)?;
    let _daemon = scene.start().await?;
    scene.writes(plan.writes).await?;
    if replication == Replication::Asynchronous {
        let cut = pair.clone();
        blocking(move || cut.standby.cut_off()).await?;
        scene.writes(plan.writes).await?;
    }
    let over = pair.clone();
    blocking(move || over.fail_over()).await?;
    scene.tally.faults += 1;
    scene.serves_again(Instant::now()).await?;
    scene.writes(plan.writes).await?;
    let losses = match replication {
        Replication::Synchronous => Losses::Forbidden,
        Replication::Asynchronous => Losses::Counted,
    };
    let mut tally = scene.end(losses).await?;
    if replication == Replication::Asynchronous && tally.lost == 0 {
        tally.problems.push("nothing was lost, so this run proves nothing".to_owned());
    }
    Ok(tally)
}

struct Pair {
    primary: Cluster,
    standby: Cluster,
    database: String,
}

impl Pair {
    fn start(replication: Replication) -> Self {
        let primary = Cluster::start();
        let standby = primary.standby();
        if replication == Replication::Synchronous {
            primary.psql("postgres", "alter system set synchronous_standby_names = '*'");
            primary.psql("postgres", "select pg_reload_conf()");
            let synchronous = "select count(*) from pg_stat_replication where sync_state = 'sync'";
            while primary.psql("postgres", synchronous) != "1" {}
        }
        let url = primary.create_database();
        let database = url.rsplit('/').next().unwrap_or_default().to_owned();
        Self { primary, standby, database }
    }

    /// A URL with both servers, the primary first.
    fn url(&self) -> String {
        let (one, other) = (self.primary.port(), self.standby.port());
        format!("postgres://tenure@127.0.0.1:{one},127.0.0.1:{other}/{}", self.database)
    }

    fn fail_over(&self) {
        self.primary.stop();
        self.standby.promote();
    }
}
