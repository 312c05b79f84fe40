//! A full disk or tablespace of the server: requests are refused and can be retried, and writing recovers by
//! itself once there is space.
#![cfg(feature = "postgres")]

use std::time::Duration;

use tenure_core::{
    Actor, Retryable,
    action::{ClaimFilter, Claimant},
    model::{Disposition, Worker},
};
use tenure_store::{Error, Ledger, NewWork, Options, WorkFilter};

/// What a server says that cannot extend a file.
const FILL: &str = "CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
     RAISE EXCEPTION 'could not extend file \"base/1/2\": No space left on device' USING ERRCODE = '53100'; END $$; \
     CREATE TRIGGER no_space BEFORE INSERT ON event FOR EACH STATEMENT EXECUTE FUNCTION no_space()";
const FREE: &str = "DROP TRIGGER no_space ON event; DROP FUNCTION no_space()";

fn new(id: &str) -> NewWork {
    NewWork::new("manual", id, "k", Disposition::Rerunnable, serde_json::json!({}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_that_returns_is_found_without_a_restart() {
    let url =
        tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.expect("a database");
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    let psql = |sql: &'static str| {
        let database = database.clone();
        tokio::task::spawn_blocking(move || tenure_testkit::shared().psql(&database, sql))
    };
    let options = Options { lanes: 2, sweep: false, ..Options::default() };
    let ledger = Ledger::open_postgres(&url, options).await.unwrap();
    let caller = ledger.caller(Actor::machine("m"));
    caller.ingest(new("before")).await.unwrap();

    psql(FILL).await.unwrap();
    for number in 0..5 {
        let error = caller.ingest(new(&format!("meanwhile-{number}"))).await.unwrap_err();
        assert!(matches!(&error, Error::Stopped(why) if why.contains("No space left")), "{error}");
        assert_eq!(error.retryable(), Retryable::Yes);
        let stop = ledger.stopped().expect("it is known at once");
        assert!(!stop.needs_restart(stop.since + Duration::from_secs(86_400)), "a restart makes no room");
    }
    let fault = ledger.health().await.fault().unwrap_or_default();
    assert!(fault.contains("the disk of the database is full"), "{fault}");
    let claimant = Claimant::new(Worker::new("w", "1"), "r");
    let filter = ClaimFilter { max: 1, ..ClaimFilter::default() };
    let claim = caller.claim(claimant.clone(), filter.clone(), None).await;
    assert!(matches!(claim, Err(Error::Stopped(_))), "{claim:?}");
    assert_eq!(ledger.list(&WorkFilter::default(), None, 10).await.unwrap().len(), 1, "reads go on");

    psql(FREE).await.unwrap();
    let again = async {
        while let Err(error) = caller.ingest(new("after")).await {
            assert!(matches!(error, Error::Stopped(_)), "{error}");
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("it heals");
    assert_eq!(ledger.stopped(), None);
    assert_eq!(caller.claim(claimant, filter, None).await.unwrap().len(), 1);
    assert_eq!(ledger.list(&WorkFilter::default(), None, 10).await.unwrap().len(), 2);
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
}
