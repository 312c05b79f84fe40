//! A forecast is what the sweeper then decides: each one is compared with the real Tick at its time.

use tenure_core::{
    CommandId, Fact, Millis, State, WorkId,
    model::AcceptStrength,
    policy::OnExpiry,
    recovery::Verdict,
    reply::Ticked,
    work::forecast::{Beside, Forecast, forecast},
};

use crate::common::*;

fn of(w: &World, id: WorkId) -> Option<Forecast> {
    watched(w, id, None)
}

fn watched(w: &World, id: WorkId, watched_since: Option<Millis>) -> Option<Forecast> {
    let work = w.row(id);
    let commands: Vec<_> =
        w.records.commands_of(id).iter().filter(|command| command.state.is_open()).cloned().collect();
    let beside = Beside {
        steps: w.records.steps.get(&id).map_or(&[], Vec::as_slice),
        commands: &commands,
        parent: work.spec.parent.map(|parent| w.row(parent)),
        watched_since,
    };
    forecast(work, &beside, w.now)
}

/// The forecast of a held work item against what happens to a copy of the world whose holder stays silent.
pub fn comes_true(w: &World, id: WorkId) {
    let held = w.state(id).holds_session();
    let Some(foretold) = of(w, id) else { return assert!(!held, "every held work item has a forecast") };
    assert!(held, "nobody holds it");
    let mut later = w.clone();
    let before = w.row(id);
    let Some(at) = foretold.at else {
        later.now += 1_000 * HOUR;
        assert_eq!(later.tick(id), Ticked::Nothing, "{foretold:?}");
        return;
    };
    assert!(at >= w.now, "{foretold:?}");
    later.now = at;
    assert_eq!(later.tick(id), Ticked::Acted, "{foretold:?}");
    let row = later.row(id);
    assert_eq!(row.state, foretold.to, "{foretold:?}");
    let events = later.log[&id].iter().filter(|event| event.seq > before.seq);
    let recovered = events.rev().find_map(|event| match &event.fact {
        Fact::Recovered(recovered) => Some(recovered),
        _ => None,
    });
    match recovered {
        Some(recovered) => {
            assert_eq!(Some(recovered.verdict), foretold.verdict);
            assert_eq!(recovered.from_step, foretold.from_step);
        }
        None => assert!(
            matches!(foretold.verdict, None | Some(Verdict::Leave | Verdict::Reconcile)),
            "{foretold:?}"
        ),
    }
    let in_doubt = |w: &World| -> Vec<CommandId> {
        w.records.commands_of(id).iter().filter(|c| c.is_in_doubt()).map(|c| c.id).collect()
    };
    let mut foretold: Vec<CommandId> = foretold.in_doubt.iter().map(|doubted| doubted.command).collect();
    let mut real = in_doubt(&later);
    foretold.sort();
    real.sort();
    assert_eq!(foretold, real);
}

fn started(w: &mut World) -> Lease {
    let lease = w.held("a");
    w.accept_work(&lease, AcceptStrength::Weak).unwrap();
    lease
}

#[test]
fn each_contract_foretells_its_verdict_and_its_sentence() {
    type Case = (&'static str, fn(&mut World) -> Lease, Option<Millis>, Option<Verdict>, State, &'static str);
    let cases: [Case; 10] = [
        (
            "rerunnable",
            started,
            Some(LAPSE),
            Some(Verdict::Retry),
            State::Queued,
            "If w1 stays silent, in 1 m it is queued again from its beginning.",
        ),
        (
            "with a checkpoint",
            |w| {
                let lease = started(w);
                w.begin(&lease, "draft", "x", false).unwrap();
                w.complete_step(&lease, "draft", "x").unwrap();
                lease
            },
            Some(LAPSE),
            Some(Verdict::Resume),
            State::Queued,
            "If w1 stays silent, in 1 m it is queued again after step `draft`.",
        ),
        (
            "a dispatched command that nobody can look up",
            |w| {
                let lease = started(w);
                w.dispatched(&lease, Default::default());
                lease
            },
            Some(LAPSE),
            Some(Verdict::Quarantine),
            State::Quarantined,
            "If w1 stays silent, in 1 m it is quarantined: a person must find out whether `mail` to bob happened.",
        ),
        (
            "a dispatched command with a lookup",
            |w| {
                let lease = started(w);
                w.dispatched(&lease, lookup());
                lease
            },
            Some(LAPSE),
            Some(Verdict::Reconcile),
            State::Stalled,
            "If w1 stays silent, in 1 m it is stalled until a lookup says whether `mail` to bob happened.",
        ),
        (
            "a dispatched command with a native key",
            |w| {
                let lease = started(w);
                w.dispatched(&lease, native());
                lease
            },
            Some(LAPSE),
            Some(Verdict::Retry),
            State::Queued,
            "If w1 stays silent, in 1 m it is queued again from its beginning; `mail` to bob would be in doubt and \
             may be sent again with the same key.",
        ),
        (
            "owner-bound",
            |w| w.held_with("a", owner_bound),
            Some(LAPSE),
            Some(Verdict::Leave),
            State::Stalled,
            "If w1 stays silent, in 1 m it is stalled until it comes back, its death is proven, or a person asks to \
             abandon it.",
        ),
        (
            "owner-bound that declared a timeout",
            |w| {
                w.held_with("a", |i| {
                    owner_bound(i);
                    i.policy.on_expiry = OnExpiry::Timeout;
                })
            },
            Some(LAPSE),
            Some(Verdict::TimeOut),
            State::TimedOut,
            "If w1 stays silent, in 1 m it is timed out, as it declared for a lost holder.",
        ),
        (
            "an overall deadline that comes before the lapse",
            |w| w.held_with("a", |i| i.policy = timeouts(None, Some(30_000), None)),
            Some(30 * SECOND),
            None,
            State::TimedOut,
            "If w1 stays silent, in 30 s it is timed out at its overall deadline.",
        ),
        (
            "asked to cancel, harmless",
            |w| {
                let lease = w.held("a");
                w.cancel(lease.work).unwrap();
                lease
            },
            Some(LAPSE),
            None,
            State::Cancelled,
            "If w1 stays silent, in 1 m it is cancelled: stopping it half-way is harmless.",
        ),
        (
            "stalled already",
            |w| {
                let lease = w.held_with("a", owner_bound);
                w.after(LAPSE, lease.work);
                lease
            },
            None,
            Some(Verdict::Leave),
            State::Stalled,
            "w1 is silent; it stays stalled until it comes back, its death is proven, or a person asks to abandon it.",
        ),
    ];
    for (name, prepare, after, verdict, to, sentence) in cases {
        let mut w = World::default();
        let lease = prepare(&mut w);
        let foretold = of(&w, lease.work).expect(name);
        assert_eq!(foretold.at, after.map(|ms| w.now + ms), "{name}");
        assert_eq!((foretold.verdict, foretold.to), (verdict, to), "{name}");
        assert_eq!(foretold.sentence, sentence, "{name}");
        comes_true(&w, lease.work);
    }
}

#[test]
fn nobody_holds_it_nothing_is_foretold() {
    let mut w = World::default();
    let id = w.ingest("a");
    assert_eq!(of(&w, id), None);
    let lease = w.claim(id, &w1());
    assert!(of(&w, id).is_some());
    w.close(&lease, State::Succeeded).unwrap();
    assert_eq!(of(&w, id), None);
}

#[test]
fn a_settled_doubt_changes_the_forecast() {
    let mut w = World::default();
    let lease = started(&mut w);
    let command = w.dispatched(&lease, Default::default());
    assert_eq!(of(&w, lease.work).unwrap().to, State::Quarantined);
    w.receipt(command).unwrap();
    let foretold = of(&w, lease.work).unwrap();
    assert_eq!((foretold.to, foretold.in_doubt.len()), (State::Queued, 0));
}

#[test]
fn a_restarted_sweeper_watches_for_a_whole_ttl_first() {
    let mut w = World::default();
    let lease = w.held_with("a", |ingest| ingest.policy.timeouts.overall_ms = Some(HOUR as u64));
    let ttl = w.row(lease.work).spec.policy.lease.ttl_ms as Millis;
    let lapse = w.now + LAPSE;
    let early = watched(&w, lease.work, Some(w.now)).unwrap();
    assert_eq!(early.at, Some(lapse), "it is watched for long enough by then");
    w.now = lapse + SECOND;
    let foretold = watched(&w, lease.work, Some(w.now - 5 * SECOND)).unwrap();
    assert_eq!(foretold.at, Some(w.now - 5 * SECOND + ttl));
    assert_eq!((foretold.verdict, foretold.to), (Some(Verdict::Retry), State::Queued));
    assert_eq!(
        foretold.sentence,
        "If w1 stays silent, in 40 s (after a restart, a lease is first watched for its whole ttl) it is queued again \
         from its beginning."
    );
    assert_eq!(watched(&w, lease.work, Some(w.now - ttl)).unwrap().at, Some(w.now));
    w.now += HOUR - LAPSE - 10 * SECOND;
    let foretold = watched(&w, lease.work, Some(w.now)).unwrap();
    assert_eq!(
        (foretold.at, foretold.to),
        (w.row(lease.work).spec.overall_at(), State::TimedOut),
        "it needs no watch"
    );
}

#[test]
fn the_sentence_tells_what_is_in_doubt_already() {
    let mut w = World::default();
    let lease = started(&mut w);
    let id = w.dispatched(&lease, native());
    let sentence = |w: &World| of(w, lease.work).unwrap().sentence;
    assert!(
        sentence(&w).contains("; `mail` to bob would be in doubt and may be sent again"),
        "{}",
        sentence(&w)
    );
    w.uncertain(id).unwrap();
    assert!(
        sentence(&w).contains("; `mail` to bob is in doubt already and may be sent again"),
        "{}",
        sentence(&w)
    );
}

#[test]
fn a_single_attempt_is_told_in_words() {
    let mut w = World::default();
    let lease = w.held_with("a", |ingest| ingest.policy.retry.max_attempts = 1);
    w.accept_work(&lease, AcceptStrength::Weak).unwrap();
    let foretold = of(&w, lease.work).unwrap();
    assert_eq!(
        foretold.sentence,
        "If w1 stays silent, in 1 m it is failed: its policy allows no second attempt."
    );
}
