use serde_json::json;
use uuid::Uuid;

use super::*;

struct Utc;

impl Zone for Utc {
    fn shows(&self, at: Millis) -> i64 {
        at.div_euclid(60_000)
    }

    fn moments(&self, minute: i64) -> Moments {
        Moments::Once(minute * 60_000)
    }
}

const MINUTE: Millis = 60_000;
const NOW: Millis = 1_790_000_040_000;

fn plan(overlap: Overlap, catch_up_ms: u64) -> Plan {
    let template = Template {
        kind: "digest".to_owned(),
        title: None,
        disposition: Disposition::Rerunnable,
        input: json!({}),
        priority: 3,
        session: None,
        correlation_id: None,
        workflow: None,
        policy: PolicyOverrides::default(),
    };
    let timing = Timing::Cron { cron: Cron::parse("* * * * *").unwrap(), zone: "UTC".to_owned() };
    Plan { timing, template, overlap, catch_up_ms }
}

fn schedule(overlap: Overlap, catch_up_ms: u64) -> Schedule {
    Schedule::new("default", "digest", plan(overlap, catch_up_ms), &Utc, NOW)
}

fn due(schedule: &Schedule) -> Vec<Millis> {
    schedule.pending.iter().map(|pending| (pending.due_at - NOW) / MINUTE).collect()
}

#[test]
fn nothing_is_due_before_its_time() {
    let new = schedule(Overlap::Allow, 0);
    assert_eq!((new.next_at, new.due_at()), (Some(NOW + MINUTE), Some(NOW + MINUTE)));
    let early = new.looked_at(&Utc, false, NOW + MINUTE - 1);
    assert_eq!((due(&early), early.next_at), (vec![], new.next_at));
    let there = new.looked_at(&Utc, false, NOW + MINUTE);
    assert_eq!((due(&there), there.next_at), (vec![1], Some(NOW + 2 * MINUTE)));
    assert_eq!(there.pending[0].run_id, "2026-09-21T14:15:00.000Z");
    assert_eq!(there.due_at(), Some(NOW + MINUTE), "it is looked at until it is done");
}

#[test]
fn missed_runs_are_caught_up_within_the_limit() {
    let new = schedule(Overlap::Allow, 3 * MINUTE as u64);
    let late = new.looked_at(&Utc, false, NOW + 10 * MINUTE);
    assert_eq!((due(&late), late.skipped), (vec![7, 8, 9, 10], 6));
    let skip = Skip { due_at: NOW + 6 * MINUTE, at: NOW + 10 * MINUTE, reason: SkipReason::Late };
    assert_eq!(late.last_skip, Some(skip));
    assert_eq!(late.next_at, Some(NOW + 11 * MINUTE));
}

#[test]
fn a_look_is_limited_and_the_next_one_continues() {
    let new = schedule(Overlap::Allow, 24 * 60 * MINUTE as u64);
    let first = new.looked_at(&Utc, false, NOW + 150 * MINUTE);
    assert_eq!((first.pending.len(), first.next_at), (FIRES_MAX, Some(NOW + 101 * MINUTE)));
    let work = WorkId(Uuid::nil());
    let done = first.ran(vec![Ok(work); FIRES_MAX], NOW + 150 * MINUTE);
    let second = done.looked_at(&Utc, true, NOW + 150 * MINUTE);
    assert_eq!((second.pending.len(), second.next_at), (50, Some(NOW + 151 * MINUTE)));
    let year = schedule(Overlap::Allow, 0).looked_at(&Utc, false, NOW + 20_000 * MINUTE);
    assert_eq!((year.skipped, year.pending.len()), (JUDGED_MAX as u64, 0));
}

#[test]
fn an_overlapping_run_is_fired_or_skipped() {
    let now = NOW + 2 * MINUTE;
    let hour = 60 * MINUTE as u64;
    assert_eq!(due(&schedule(Overlap::Allow, hour).looked_at(&Utc, true, now)), [1, 2]);
    let open = schedule(Overlap::Skip, hour).looked_at(&Utc, true, now);
    assert_eq!((due(&open), open.skipped), (vec![], 2));
    assert_eq!(open.last_skip.unwrap().reason, SkipReason::Overlap);
    let ended = schedule(Overlap::Skip, hour).looked_at(&Utc, false, now);
    assert_eq!((due(&ended), ended.skipped), (vec![1], 1), "the first of them is open now");
}

#[test]
fn a_refused_run_is_shown_until_one_is_ingested() {
    let fire = |schedule: &Schedule, at| schedule.looked_at(&Utc, false, at);
    let refusal = || Refusal::new(Code::PayloadRefused, "Too large.");
    let failed = fire(&schedule(Overlap::Skip, 0), NOW + MINUTE).ran(vec![Err(refusal())], NOW + MINUTE);
    let error = failed.last_error.clone().unwrap();
    assert_eq!((error.code, error.detail.as_str()), (Code::PayloadRefused, "Too large."));
    assert_eq!(failed.last_run.as_ref().unwrap().outcome, RunOutcome::Refused(Code::PayloadRefused));
    assert_eq!((failed.fired, failed.last_work(), failed.pending.len()), (0, None, 0));
    let work = WorkId(Uuid::from_u128(7));
    let well = fire(&failed, NOW + 2 * MINUTE).ran(vec![Ok(work)], NOW + 2 * MINUTE);
    assert_eq!((well.fired, well.last_work(), well.last_error), (1, Some(work), None));
}

#[test]
fn a_pause_is_not_caught_up_and_a_new_plan_starts_now() {
    let new = schedule(Overlap::Skip, 60 * MINUTE as u64);
    let paused = new.with_paused(true, &Utc, NOW);
    assert_eq!((paused.next_at, paused.due_at()), (None, None));
    assert_eq!(paused.with_plan(plan(Overlap::Allow, 0), &Utc, NOW).next_at, None, "it stays paused");
    let resumed = paused.with_paused(false, &Utc, NOW + 10 * MINUTE);
    assert_eq!(resumed.next_at, Some(NOW + 11 * MINUTE));
    let hourly = Plan { timing: Timing::EveryMs(3_600_000), ..plan(Overlap::Skip, 0) };
    let changed = new.with_plan(hourly, &Utc, NOW + 10 * MINUTE);
    assert_eq!(rfc3339(changed.next_at.unwrap()), "2026-09-21T15:00:00.000Z", "on the hour");
    let same = new.with_plan(plan(Overlap::Allow, 0), &Utc, NOW + 10 * MINUTE);
    assert_eq!(same.next_at, new.next_at, "the same times are the same runs");
    assert_eq!(same.revision, 2);
}

#[test]
fn impossible_plans_are_refused() {
    let every = |ms| Plan { timing: Timing::EveryMs(ms), ..plan(Overlap::Skip, 0) };
    for wrong in [every(0), every(999), every(u64::MAX), plan(Overlap::Skip, CATCH_UP_MAX_MS + 1)] {
        assert_eq!(wrong.check().unwrap_err().code, Code::ImpossibleTimings);
    }
    assert!(every(1_000).check().is_ok());
}

#[test]
fn a_schedule_survives_serialization() {
    let mut one = schedule(Overlap::Skip, 5).looked_at(&Utc, false, NOW + 3 * MINUTE);
    one = one.ran(vec![Err(Refusal::new(Code::Invalid, "No."))], NOW);
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), one);
}
