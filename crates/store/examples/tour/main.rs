//! A tour of the ledger: five work items, told by the events that they leave behind.
//!
//!     cargo run --release -p tenure-store --example tour
//!
//! It embeds a ledger in an SQLite file as a runtime would, through the public API alone. Only time is not
//! real: a [`ManualClock`] is moved by hand, so that leases lapse and retries fall due at once.

mod print;

use std::{error::Error, path::Path, sync::Arc};

use serde_json::{Value, json};
use tenure_store::{
    Claimed, Ledger, ManualClock, NewWait, NewWork, Options, Sweeper, WaitFilter,
    core::{
        Actor, Millis, Payload, WorkId,
        action::{Claimant, CloseOut, Failure},
        model::{AcceptStrength, Disposition, ErrorClass, WaitKind, Worker},
        policy::{Jitter, PolicyOverrides, RetryPolicy},
    },
};

type Told<T = ()> = Result<T, Box<dyn Error>>;

const MINUTE: Millis = 60_000;
/// The tour begins on a morning in October 2026.
const MORNING: Millis = 1_791_014_400_000;

#[tokio::main]
async fn main() -> Told {
    let folder = tempfile::Builder::new().prefix("tenure-tour-").tempdir()?.keep();
    let file = folder.join("ledger.db");
    let mut tour = Tour::open(&file).await?;
    print::opening();

    a_conversation(&mut tour).await?;
    a_crash_after_a_checkpoint(&mut tour).await?;
    an_approval(&mut tour).await?;
    two_failures_and_a_success(&mut tour).await?;
    late_and_accepted(&mut tour).await?;
    late_and_refused(&mut tour).await?;

    let report = tour.ledger.verify().await?;
    tour.ledger.close().await?;
    print::closing(&report, &file);
    Ok(())
}

/// A message is recorded, claimed, accepted and answered.
async fn a_conversation(tour: &mut Tour) -> Told {
    print::title("a", "A conversation, from the message to its answer");
    let message = NewWork {
        session: Some("chat-42".to_owned()),
        ..NewWork::new(
            "conversation",
            "message-1087",
            "reply",
            Disposition::Rerunnable,
            json!({ "text": "Where is my parcel?" }),
        )
    };
    let work = tour.ingest(message).await?;

    tour.pass(2_000).await?;
    let held = tour.claim("agent-1", work).await?;
    let agent = tour.ledger.caller(Actor::worker("agent-1"));
    agent.accept(&held.lease, AcceptStrength::Strong).await?;
    agent.progress(&held.lease, &json!({ "doing": "asking the carrier" }), None).await?;
    tour.pass(9_000).await?;
    agent.close_out(&held.lease, succeeded(json!({ "text": "It arrives tomorrow." }))?).await?;
    print::work(&tour.ledger, work).await
}

/// The first worker is lost half-way; the next one continues from the last checkpoint.
async fn a_crash_after_a_checkpoint(tour: &mut Tour) -> Told {
    print::title("b", "A crash after a checkpoint: another worker goes on from there");
    let work = tour.ingest(job("weekly-report", json!({ "week": 41 }))).await?;

    let held = tour.claim("agent-1", work).await?;
    let agent = tour.ledger.caller(Actor::worker("agent-1"));
    let (sources, style) = (json!({ "sources": 3 }), json!({ "style": "short" }));
    agent.begin_step(&held.lease, "collect", &sources, false).await?;
    tour.pass(6_000).await?;
    agent.complete_step(&held.lease, "collect", &sources, &json!({ "figures": 128 })).await?;
    agent.begin_step(&held.lease, "summarise", &style, false).await?;
    print::aside("agent-1 crashes here. Nobody tells the ledger; its lease runs out.");
    tour.pass(90_000).await?;

    let held = tour.claim("agent-2", work).await?;
    let agent = tour.ledger.caller(Actor::worker("agent-2"));
    let (_, collected) = agent.begin_step(&held.lease, "collect", &sources, false).await?;
    let collected = collected.ok_or("a completed step is handed on with its result")?;
    print::aside(&format!("agent-2 does not collect again: the step's result is {}.", collected.text()));
    agent.begin_step(&held.lease, "summarise", &style, false).await?;
    tour.pass(4_000).await?;
    agent.complete_step(&held.lease, "summarise", &style, &json!("All is well.")).await?;
    agent.close_out(&held.lease, succeeded(json!({ "summary": "All is well." }))?).await?;
    print::work(&tour.ledger, work).await
}

/// A durable pause that occupies no worker until a person has answered.
async fn an_approval(tour: &mut Tour) -> Told {
    print::title("c", "A wait for a person's approval");
    let work = tour.ingest(job("refund-1087", json!({ "amount": "240 EUR" }))).await?;
    let held = tour.claim("agent-1", work).await?;
    let agent = tour.ledger.caller(Actor::worker("agent-1"));
    let wait = NewWait {
        prompt: Some("refund 240 EUR to order 1087?".to_owned()),
        assignee: Some("ada".to_owned()),
        ..NewWait::new(WaitKind::Approval, "refund-1087")
    };
    agent.wait(&held.lease, vec![wait], Some("over the limit of 100 EUR")).await?;
    tour.skip(95 * MINUTE).await?;
    print::explanation("before the answer", &tour.ledger.explain(work).await?);

    let ada = tour.ledger.caller(Actor::person("ada"));
    // She approves exactly what she was shown.
    let asked = WaitFilter { work: Some(work), ..WaitFilter::default() };
    for shown in ada.waits(&asked, 1).await? {
        let yes = json!({ "approved": true });
        ada.resolve_wait(shown.id, None, Some(shown.seal()), &yes, None).await?;
    }
    print::explanation("after the answer", &tour.ledger.explain(work).await?);

    tour.pass(1_000).await?;
    let held = tour.claim("agent-2", work).await?;
    let approved = held.answers.first().and_then(|(_, answer)| answer.as_ref()).map(Payload::value);
    assert_eq!(approved, Some(json!({ "approved": true })), "whoever goes on gets the answer");
    let agent = tour.ledger.caller(Actor::worker("agent-2"));
    agent.close_out(&held.lease, succeeded(json!({ "refund": "r-551" }))?).await?;
    print::work(&tour.ledger, work).await
}

/// The retry policy decides whether and when a failure is retried.
async fn two_failures_and_a_success(tour: &mut Tour) -> Told {
    print::title("d", "Two failures, each retried after a longer pause, and a success");
    let retry = RetryPolicy { initial_ms: 2_000, jitter: Jitter::None, ..RetryPolicy::default() };
    let policy = PolicyOverrides { retry: Some(retry), ..PolicyOverrides::default() };
    let work = tour.ingest(NewWork { policy, ..job("translate-7", json!({ "to": "fr" })) }).await?;
    let agent = tour.ledger.caller(Actor::worker("agent-1"));
    for pause in [2_000, 4_000] {
        let held = tour.claim("agent-1", work).await?;
        tour.pass(1_000).await?;
        let error = Failure::new(ErrorClass::Unavailable, "the model endpoint answered 503");
        agent.fail(&held.lease, error).await?;
        print::explanation("after a failure", &tour.ledger.explain(work).await?);
        tour.pass(pause).await?;
    }
    let held = tour.claim("agent-1", work).await?;
    agent.close_out(&held.lease, succeeded(json!({ "text": "Tout va bien." }))?).await?;
    print::work(&tour.ledger, work).await
}

/// Nobody took over meanwhile: the late write counts, and the lapse is reversed.
async fn late_and_accepted(tour: &mut Tour) -> Told {
    print::title("e1", "A holder that comes back late, and nobody took over: accepted");
    let work = tour.ingest(job("index-photos", json!({ "album": 9 }))).await?;
    let held = tour.claim("laptop", work).await?;
    print::aside(
        "The laptop's lid is closed: it stops renewing, its lease lapses, the work is queued again.",
    );
    tour.pass(2 * MINUTE).await?;
    print::explanation("while it sleeps", &tour.ledger.explain(work).await?);

    let laptop = tour.ledger.caller(Actor::worker("laptop"));
    let ack = laptop.close_out(&held.lease, succeeded(json!({ "photos": 812 }))?).await?;
    print::aside(&format!("The laptop wakes up and closes out with its old lease: {}.", ack.state));
    print::work(&tour.ledger, work).await
}

/// Another worker took over: the old lease is no longer valid.
async fn late_and_refused(tour: &mut Tour) -> Told {
    print::title("e2", "A holder that comes back late, and somebody took over: refused");
    let work = tour.ingest(job("index-videos", json!({ "album": 9 }))).await?;
    let asleep = tour.claim("laptop", work).await?;
    tour.pass(2 * MINUTE).await?;
    let held = tour.claim("desktop", work).await?;

    let laptop = tour.ledger.caller(Actor::worker("laptop"));
    let late = laptop.close_out(&asleep.lease, succeeded(json!({ "videos": 3 }))?).await;
    match late {
        Err(refusal) => print::aside(&format!("The laptop is refused. {refusal}")),
        Ok(ack) => return Err(format!("a superseded lease was accepted: {ack:?}").into()),
    }
    let desktop = tour.ledger.caller(Actor::worker("desktop"));
    desktop.close_out(&held.lease, succeeded(json!({ "videos": 4 }))?).await?;
    print::work(&tour.ledger, work).await
}

/// A ledger with its manual clock.
struct Tour {
    ledger: Ledger,
    clock: Arc<ManualClock>,
    sweeper: Sweeper,
}

impl Tour {
    /// A program under real time leaves `clock` and `sweep` at their defaults and needs no sweeper of its own.
    async fn open(file: &Path) -> Told<Self> {
        let clock = Arc::new(ManualClock::new(MORNING));
        let options = Options { clock: Some(clock.clone()), sweep: false, ..Options::default() };
        let ledger = Ledger::open_sqlite(file, options).await?;
        let mut tour = Self { ledger, sweeper: Sweeper::new(clock.clone()), clock };
        tour.sweeper.run_once(&tour.ledger).await?;
        Ok(tour)
    }

    async fn ingest(&self, new: NewWork) -> Told<WorkId> {
        Ok(self.ledger.caller(Actor::machine("gateway")).ingest(new).await?.work.id)
    }

    /// Claims one work item by its id. Workers usually claim by a filter, and may long-poll.
    async fn claim(&self, worker: &str, work: WorkId) -> Told<Claimed> {
        // The request id makes a lost reply harmless: the same request gets the same lease again.
        let request = format!("{work} after attempt {}", self.ledger.work(work).await?.attempt);
        let claimant = Claimant::new(Worker::new(worker, "boot-1"), &request);
        let mut claimed = self.ledger.caller(Actor::worker(worker)).claim_ids(claimant, vec![work]).await?;
        Ok(claimed.remove(0))
    }

    /// Advances the time second by second: a sweeper judges a lease only after it has observed it for long
    /// enough.
    async fn pass(&mut self, ms: Millis) -> Told {
        let mut left = ms;
        while left > 0 {
            let step = left.min(1_000);
            self.skip(step).await?;
            left -= step;
        }
        Ok(())
    }

    /// Advances the time in one step.
    async fn skip(&mut self, ms: Millis) -> Told {
        self.clock.advance(ms);
        self.sweeper.run_once(&self.ledger).await?;
        Ok(())
    }
}

/// A work item that anybody may run again from its last checkpoint.
fn job(id: &str, input: Value) -> NewWork {
    NewWork::new("manual", id, "job", Disposition::Rerunnable, input)
}

fn succeeded(result: Value) -> Told<CloseOut> {
    Ok(CloseOut::succeeded(Payload::new(&result)?))
}
