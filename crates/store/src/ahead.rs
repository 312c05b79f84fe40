//! Whoever submits decides for itself, where memory holds all that it takes: its thread has time, the writer's has not.
//! The writer goes by that decision if it was made from what still stands, and decides itself where not.

use std::sync::Arc;

use tenure_core::{
    Change, Decision, LoadSet, Millis, Records, Submission, Work, WorkId, decide, records::Sought,
};

use crate::{Clock, ledger_settings::LedgerSettings, recent::Remembered};

/// For how long a decision counts. Later, dates that it looked at may have passed.
const FRESH: Millis = 100;

/// Open commands of a work at most: more would take longer to copy than the decision takes.
const FEW: usize = 16;

/// A decision, with what it was made from.
pub(crate) struct Ahead {
    work: Arc<Work>,
    /// How many of its commands were at hand. None had a date, which moves by itself.
    commands: usize,
    policy_version: Option<Arc<str>>,
    at: Millis,
    decision: Decision,
}

impl Ahead {
    /// Decides what is about one work, as `last` knows it. None where more is needed, and for refusals: those are the
    /// writer's to tell.
    pub fn decide(
        submission: &Submission,
        last: impl FnOnce(WorkId) -> Option<Remembered>,
        ledger_settings: &LedgerSettings,
        clock: &dyn Clock,
    ) -> Option<Self> {
        let mut needs = LoadSet::default();
        needs.first(submission);
        let [id] = needs.works[..] else { return None };
        needs.works.clear();
        let mut sought = std::mem::take(&mut needs.commands);
        if !needs.is_empty() {
            return None;
        }
        let last = last(id)?;
        if last.open().len() > FEW || last.has_dated() {
            return None;
        }
        let work = last.work.clone();
        let mut records = Records::default();
        ledger_settings.apply(&mut records);
        last.recall(&mut records);
        // An intent is mostly new: that nothing else has its key is for the writer to see.
        records.looked_for.extend(sought.iter().filter(|sought| matches!(sought, Sought::Key(..))));
        sought.retain(|sought| !records.looked_for.contains(sought) && sought.may_be_there(&records));
        needs.then(submission, &records);
        if !needs.is_empty() || !sought.is_empty() {
            return None;
        }
        let at = clock.wall();
        let decision = decide(&records, submission, at).ok()?;
        decision.changes.iter().for_each(write_out);
        let commands = records.commands_of(id).len();
        Some(Self { work, commands, policy_version: records.policy_version, at, decision })
    }

    /// Whether all that it was made from is as it was: the work, which no change leaves the same, and its commands, of which
    /// the writer has at least these.
    pub fn stands(&self, records: &Records, now: Millis) -> bool {
        let same = records.works.get(&self.work.id).is_some_and(|work| Arc::ptr_eq(work, &self.work));
        let commands = records.commands_of(self.work.id);
        same && commands.len() == self.commands
            && commands.iter().all(|command| command.due_at.is_none())
            && self.policy_version == records.policy_version
            && (0..=FRESH).contains(&(now - self.at))
    }

    /// The decision; it must stand. In debug builds it is held against the writer's own.
    pub fn decision(self, records: &Records, submission: &Submission) -> Decision {
        if cfg!(debug_assertions) {
            let own = decide(records, submission, self.at);
            assert_eq!(format!("{:?}", Ok::<_, ()>(&self.decision)), format!("{own:?}"), "{submission:?}");
        }
        self.decision
    }
}

/// What is kept as a text is made one here, and not by the writer.
fn write_out(change: &Change) {
    match change {
        Change::Work { work, .. } => _ = work.body.text(),
        Change::Command { command, .. } => _ = command.body.text(),
        Change::BeginAttempt(_)
        | Change::EndAttempt { .. }
        | Change::Step(_)
        | Change::Wait(_)
        | Change::Budget { .. }
        | Change::Keep(_)
        | Change::Unkeep { .. }
        | Change::Wake { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::{
        Action, Actor, CommandId, Payload, Reply,
        action::{Claimant, Holder, Tenants},
        command::{
            Arguments, CommandAction, DispatchAction, Dispatcher, Effect, Evaluation, Intent, PolicyDecision,
            ReserveIn, ToolFacts,
        },
        model::{Disposition, Worker},
        policy::Settings,
    };

    use uuid::Uuid;

    use super::*;
    use crate::{ManualClock, NewWork, batch::Batch};

    const NOW: Millis = 1_000_000;

    fn submission(action: Action) -> Submission {
        Submission::new(Actor::worker("w"), Tenants::All, action, [0; 16])
    }

    /// A batch in which somebody holds a work.
    fn held() -> (Batch, Holder) {
        let mut new = NewWork::new("manual", "1", "job", Disposition::Rerunnable, json!({}));
        new.claim = Some(Claimant::new(Worker::new("w", "first"), "r"));
        let ingest = new.settle(&Settings::default()).unwrap();
        let mut batch = Batch::default();
        let reply = batch.decide(&submission(Action::Ingest(Box::new(ingest))), NOW).unwrap();
        let Reply::Ingested { grant: Some(grant), .. } = reply else { panic!("{reply:?}") };
        (batch, Holder { work: grant.work.id, fence: grant.work.fence, genuine: true })
    }

    fn progress(holder: &Holder) -> Submission {
        let progress = Payload::new(&json!("half-way")).unwrap();
        submission(Action::Progress { holder: holder.clone(), progress, request_id: None })
    }

    fn intent(to: &str) -> (CommandId, Intent) {
        let evaluation = Evaluation::new(PolicyDecision::new(Effect::Allow, "v1"), ToolFacts::default());
        let arguments = Arguments::whole(Payload::new(&json!({ "to": to })).unwrap());
        (CommandId(Uuid::now_v7()), Intent::new("mail", to, arguments, evaluation))
    }

    fn reserve(holder: &Holder, (id, intent): &(CommandId, Intent)) -> Submission {
        let (place, intent) = (ReserveIn::Work(holder.clone()), Box::new(intent.clone()));
        submission(Action::Command(Box::new(CommandAction::Reserve { place, id: *id, intent })))
    }

    fn dispatch(holder: &Holder, (id, intent): &(CommandId, Intent)) -> Submission {
        let by = Dispatcher::Holder(holder.clone());
        let action =
            DispatchAction { command: *id, by, evaluation: intent.evaluation.clone(), request_id: None };
        submission(Action::Command(Box::new(CommandAction::Dispatch(Box::new(action)))))
    }

    /// What its caller makes of it, before the next group has loaded the same again.
    fn ahead(batch: &mut Batch, submission: &Submission) -> Option<Ahead> {
        let (id, last) = Remembered::all(&mut batch.records).next().unwrap();
        batch.records = Records::default();
        last.clone().recall(&mut batch.records);
        batch.records.looked_for.insert(Sought::Open(id));
        Ahead::decide(submission, |_| Some(last), &LedgerSettings::default(), &ManualClock::new(NOW))
    }

    #[test]
    fn what_stands_is_what_the_writer_would_have_decided() {
        let (mut batch, holder) = held();
        let mail = intent("bob");
        for submission in [progress(&holder), reserve(&holder, &mail), dispatch(&holder, &mail)] {
            let ahead = ahead(&mut batch, &submission).unwrap();
            assert!(ahead.stands(&batch.records, NOW));
            let own = decide(&batch.records, &submission, NOW).unwrap();
            assert_eq!(format!("{:?}", ahead.decision), format!("{own:?}"));
            batch.decide(&submission, NOW).unwrap();
        }
    }

    #[test]
    fn nothing_stands_on_what_has_changed() {
        let (mut batch, holder) = held();
        let first = ahead(&mut batch, &progress(&holder)).unwrap();
        batch.decide(&progress(&holder), NOW).unwrap();
        assert!(!first.stands(&batch.records, NOW), "somebody else came first");

        let second = ahead(&mut batch, &progress(&holder)).unwrap();
        assert!(!second.stands(&Records::default(), NOW), "it is not there any more");
    }

    #[test]
    fn it_stands_for_a_moment_only_and_under_one_policy() {
        let (mut batch, holder) = held();
        for (later, stands) in [(-1, false), (0, true), (FRESH, true), (FRESH + 1, false)] {
            let ahead = ahead(&mut batch, &progress(&holder)).unwrap();
            assert_eq!(ahead.stands(&batch.records, NOW + later), stands, "{later}");
        }
        let ahead = ahead(&mut batch, &progress(&holder)).unwrap();
        batch.records.policy_version = Some("v2".into());
        assert!(!ahead.stands(&batch.records, NOW));
    }

    #[test]
    fn an_intent_that_was_there_already_is_found_by_the_writer() {
        let (mut batch, holder) = held();
        let ahead = ahead(&mut batch, &reserve(&holder, &intent("bob"))).unwrap();
        // An ended one with the same key, which the store has and memory had not.
        let mut other = batch.records.clone();
        let reserved = decide(&other, &reserve(&holder, &intent("bob")), NOW).unwrap();
        for change in reserved.changes {
            if let Change::Command { command, .. } = change {
                other.take_in(*command);
            }
        }
        assert!(!ahead.stands(&other, NOW));
    }

    #[test]
    fn refusals_and_what_needs_more_are_left_to_the_writer() {
        let (mut batch, holder) = held();
        let late = Holder { fence: holder.fence + 1, ..holder.clone() };
        assert!(ahead(&mut batch, &progress(&late)).is_none());
        let cancel = Action::Cancel { work: holder.work, reason: String::new(), deadline_ms: None };
        assert!(ahead(&mut batch, &submission(cancel)).is_none(), "a cancel needs a reason");
        assert!(
            Ahead::decide(&progress(&holder), |_| None, &LedgerSettings::default(), &ManualClock::new(NOW))
                .is_none()
        );
    }
}
