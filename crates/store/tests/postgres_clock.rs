//! The server's clock is set while processes share its ledger.
#![cfg(feature = "postgres")]

use tenure_core::{
    Actor, State,
    action::Claimant,
    model::{Disposition, Worker},
    policy::Timeouts,
};
use tenure_store::{Ledger, NewWork, Options};
use tenure_testkit::shared;

const HOUR: i64 = 3_600_000;

/// A database in which `clock_timestamp()` is shifted by the value of the sequence `shift`.
fn database() -> (String, String) {
    let url = shared().create_database();
    let name = url.rsplit('/').next().unwrap().to_owned();
    shared().psql(
        &name,
        "CREATE SEQUENCE shift MINVALUE -1000000000 START 0; SELECT setval('shift', 0); \
         CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS \
         $$ SELECT pg_catalog.clock_timestamp() + (SELECT last_value FROM public.shift) * interval '1 millisecond' $$",
    );
    shared().psql(&name, &format!("ALTER DATABASE {name} SET search_path = public, pg_catalog"));
    (url, name)
}

fn set_clock(name: &str, ms: i64) {
    shared().psql(name, &format!("SELECT setval('shift', {ms})"));
}

async fn open(url: &str) -> Ledger {
    Ledger::open_postgres(url, Options { lanes: 1, ..Options::default() }).await.unwrap()
}

/// The difference between two times, in seconds.
fn apart(one: i64, other: i64) -> i64 {
    (one - other).abs() / 1_000
}

#[tokio::test(flavor = "multi_thread")]
async fn a_servers_clock_that_is_set_ends_no_work_early() {
    let (url, name) = database();
    let (one, other) = (open(&url).await, open(&url).await);
    let caller = one.caller(Actor::worker("w"));
    let worker = Worker { id: "w".into(), incarnation: "1".into(), liveness: Default::default() };
    let mut new = NewWork::new("manual", "held", "k", Disposition::Rerunnable, serde_json::json!({}));
    new.policy.timeouts = Some(Timeouts { execution_ms: Some(600_000), ..Timeouts::default() });
    new.claim = Some(Claimant { worker, request_id: "1".into(), defer_start: false });
    let held = caller.ingest(new).await.unwrap().lease.unwrap();
    let began = one.now().await.unwrap();
    assert_eq!(apart(other.now().await.unwrap(), began), 0);

    for shift in [2 * HOUR, 0, -2 * HOUR, 0] {
        set_clock(&name, shift);
        // By a group, by a read, and by a process that was not the first.
        caller.renew(&[(held.lease.clone(), None)]).await.unwrap().remove(0).outcome.expect("it goes on");
        for ledger in [&one, &other] {
            let now = ledger.now().await.unwrap();
            assert!((0..300).contains(&apart(now, began)) && now >= began, "{shift}: {}", now - began);
        }
        let late = open(&url).await;
        assert!(apart(late.now().await.unwrap(), one.now().await.unwrap()) < 5, "who comes later agrees");
        late.close().await.unwrap();
        let work = one.work(held.work.id).await.unwrap();
        assert_eq!(work.state, State::Running);
        let expires = work.lease.unwrap().expires_at;
        assert!(apart(expires, began) < 400, "renewed by the ledger's time: {}", expires - began);
    }
    assert!(one.stats().clock_jumps >= 4, "{:?}", one.stats());
    assert_eq!(one.verify().await.unwrap().faults, []);
}
