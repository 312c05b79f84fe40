//! Kill points: the daemon dies at a chosen system call, between a write and its sync, or between a commit
//! and its response.

use super::{Plan, Scene, Tally, strace};
use crate::{checker::Losses, daemon::Kind};

/// System calls between a request and its response, and the range of a thread's calls at which the daemon may
/// die: some occur during its start, the others under load.
type Points = &'static [(&'static str, u64, u64)];
const SQLITE: Points = &[("pwrite64", 5, 200), ("fdatasync", 2, 25), ("writev", 1, 20)];
const POSTGRES: Points = &[("sendto", 20, 150), ("recvfrom", 20, 150), ("writev", 1, 20)];

pub async fn run(kind: Kind, plan: &Plan) -> Result<Tally, String> {
    let mut scene = Scene::open("points", kind, plan)?;
    let points = match kind {
        Kind::Sqlite => SQLITE,
        Kind::Postgres => POSTGRES,
    };
    for _ in 0..plan.rounds {
        let (call, from, end) = points[scene.dice.below(points.len() as u64) as usize];
        let number = scene.dice.between(from, end);
        let trace = format!("trace={call}");
        let kill = format!("inject={call}:signal=KILL:when={number}");
        let wrapper = strace(&["-f", "-e", &trace, "-e", &kill], "/dev/null".as_ref());
        scene.home.wrapper = wrapper;
        scene.home.spawn()?.dies().await?;
        scene.tally.faults += 1;
        scene.home.wrapper.clear();
        let daemon = scene.restart().await?;
        scene.writes(plan.writes).await?;
        daemon.kill().map_err(|error| error.to_string())?;
    }
    let _daemon = scene.restart().await?;
    scene.end(Losses::Forbidden).await
}
