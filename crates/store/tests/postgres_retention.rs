//! Pruning while the same identities are delivered again and again: none is ever run a second time.
#![cfg(feature = "postgres")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tenure_core::{
    Actor, Code,
    action::{Claimant, CloseOut},
    model::{Disposition, Worker},
    payload::Payload,
};
use tenure_store::{Clock, Error, Ledger, ManualClock, NewWork, Options};

const HOUR: i64 = 3_600_000;
const WORKS: usize = 300;

fn new(number: usize) -> NewWork {
    NewWork::new("manual", &number.to_string(), "job", Disposition::Rerunnable, serde_json::json!(number))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_is_never_free_in_between() {
    let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    let clock = Arc::new(ManualClock::new(1_790_000_000_000));
    let options = Options { clock: Some(clock.clone()), lanes: 2, sweep: false, ..Options::default() };
    let ledger = Ledger::open_postgres(&made, options).await.unwrap();
    let caller = ledger.caller(Actor::worker("w"));
    for number in 0..WORKS {
        let claim = Some(Claimant::new(Worker::new("w", "1"), &number.to_string()));
        let lease = caller.ingest(NewWork { claim, ..new(number) }).await.unwrap().lease.unwrap().lease;
        let result = Payload::new(&serde_json::json!("done")).unwrap();
        caller.close_out(&lease, CloseOut::succeeded(result)).await.unwrap();
    }
    clock.advance(3 * HOUR);

    let over = Arc::new(AtomicBool::new(false));
    let repeats: Vec<_> = (0..8)
        .map(|_| {
            let (caller, over) = (caller.clone(), over.clone());
            tokio::spawn(async move {
                let mut refused = 0;
                while !over.load(Ordering::SeqCst) || refused < WORKS {
                    refused = 0;
                    for number in 0..WORKS {
                        match caller.ingest(new(number)).await {
                            Ok(again) => assert!(!again.created, "{number} ran a second time"),
                            Err(Error::Refused(told)) => {
                                assert_eq!(told.code, Code::NoLongerRetained);
                                refused += 1;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                }
            })
        })
        .collect();
    let prune = async {
        let mut pruned = 0;
        while pruned < WORKS as u64 {
            pruned +=
                ledger.prune(&Actor::person("ada"), "too old", clock.wall() - HOUR, 40).await.unwrap().works;
        }
        pruned
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), prune).await.expect("it ends"), WORKS as u64);
    over.store(true, Ordering::SeqCst);
    for repeat in repeats {
        repeat.await.unwrap();
    }
    assert_eq!(ledger.verify().await.unwrap().faults, []);
    ledger.close().await.unwrap();
}
