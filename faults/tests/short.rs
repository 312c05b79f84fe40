//! The short form of every fault: a few rounds each, on both databases where it applies.

use tenure_faults::{
    daemon::Kind,
    fault::{self, Plan},
};

fn few(name: &str, kind: Kind, rounds: u32) {
    let plan = Plan { seed: 17, rounds, writes: 40 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let done = runtime.block_on(fault::run(name, kind, &plan));
    let tally = done.unwrap_or_else(|why| panic!("{name} on {kind:?}: {why}")).expect("it applies there");
    println!("{tally:?}");
    assert_eq!(tally.problems, Vec::<String>::new(), "the files are in {:?}", tally.kept);
    assert!(tally.faults > 0 && tally.acknowledged > 0, "{tally:?}");
}

#[test]
fn kill_on_sqlite() {
    few("kill", Kind::Sqlite, 3);
}

#[test]
fn kill_on_postgres() {
    few("kill", Kind::Postgres, 3);
}

#[test]
fn kill_points_on_sqlite() {
    few("points", Kind::Sqlite, 3);
}

#[test]
fn kill_points_on_postgres() {
    few("points", Kind::Postgres, 3);
}

#[test]
fn cuts_around_commit() {
    few("commit", Kind::Postgres, 4);
}

#[test]
fn postgres_killed() {
    few("postgres", Kind::Postgres, 2);
}

#[test]
fn synchronous_failover() {
    few("failover-sync", Kind::Postgres, 1);
}

#[test]
fn asynchronous_failover() {
    few("failover-async", Kind::Postgres, 1);
}

#[test]
fn power_cuts() {
    few("power", Kind::Sqlite, 3);
}

#[test]
fn a_power_cut_after_a_failed_sync() {
    few("sync", Kind::Sqlite, 2);
}

#[test]
fn clock_jumps() {
    few("clock", Kind::Sqlite, 8);
}

#[test]
fn backup_under_load() {
    few("backup", Kind::Sqlite, 1);
}

#[test]
fn a_full_disk() {
    few("full", Kind::Sqlite, 1);
}
