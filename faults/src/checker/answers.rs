//! Every acknowledged call is in the log and matches the stored data; refused calls have left no trace.

use std::collections::HashMap;

use serde_json::Value;
use tenure_api::wire::{
    Ack, Command, CommandId, CommandState, Event, Failed, Grants, Ingest, Ingested, Renewal, Resolved, State,
    StepReply, StepVerb, Waiting, Work, WorkId,
};

use super::{
    Judge, Rule,
    index::{Index, body, is_terminal, payload},
};
use crate::{
    history::{Call, Outcome, Record},
    run::Run,
};

pub fn check(run: &Run, index: &Index, judge: &mut Judge) {
    let mut answers = AnswerCheck { index, judge };
    for record in run.history.iter().filter(|record| matches!(record.outcome, Outcome::Ok(_))) {
        if let Err(unreadable) = answers.judge(record) {
            let what = format!("the response to {:?} violates the API: {unreadable}", record.call);
            answers.judge.broken(Rule::AnswerDiffers, what);
        }
    }
    refused(run, index, judge);
}

struct AnswerCheck<'a, 'r> {
    index: &'a Index<'r>,
    judge: &'a mut Judge,
}

/// The body of an acknowledged call's record.
fn read<T: serde::de::DeserializeOwned>(record: &Record) -> Result<T, String> {
    body(record).unwrap_or_else(|| Err("it was not acknowledged".to_owned()))
}

impl AnswerCheck<'_, '_> {
    fn judge(&mut self, record: &Record) -> Result<(), String> {
        match &record.call {
            Call::Ingest(ingest) => self.ingested(ingest, &read(record)?),
            Call::Claim(claim) => self.claimed(&claim.worker.id, &read(record)?),
            // A renewal writes no event; its fence is checked with the leases.
            Call::Renew { .. } => _ = read::<Renewal>(record)?,
            Call::Progress { work, fence, request_id, progress } => {
                self.ack(&read(record)?);
                let asked = |event: &Event| event.data["request_id"] == request_id.as_str();
                if let Some(event) =
                    self.written(work, "progressed", &format!("progress {request_id}"), asked)
                {
                    self.under(event, *fence);
                    self.says(event, payload(event), progress);
                }
            }
            Call::Step { work, fence, step, verb, result } => {
                self.step(work, *fence, step, *verb, result.as_ref(), &read(record)?);
            }
            Call::SetWait { work, fence, reference } => self.waits(work, *fence, reference, &read(record)?),
            Call::Answer { payload, .. } => self.resolved(payload, &read(record)?),
            Call::Reserve { work, .. } => self.reserved(work, &read(record)?),
            Call::Dispatch { command, .. } => self.dispatched(command, &read(record)?),
            Call::Receipt { command, .. } | Call::Happened { command, .. } => {
                self.succeeded(command, &read(record)?);
            }
            Call::Fail { work, fence } => {
                let failed: Failed = read(record)?;
                self.ack(&failed.work);
                self.ended(work, *fence, &["attempt_failed"]);
            }
            Call::Release { work, fence } => {
                self.ack(&read(record)?);
                self.ended(work, *fence, &["lease_released", "cancelled"]);
            }
            Call::CloseOut { work, fence, state, result } => {
                self.closed(work, *fence, *state, result, &read(record)?);
            }
            Call::Cancel { work } => {
                self.ack(&read(record)?);
                let log = self.index.log(work.as_str());
                if !log.iter().any(|event| matches!(event.kind.as_str(), "cancel_requested" | "cancelled")) {
                    self.lost(format!("the cancel of {work}"));
                }
            }
            Call::Look { .. } => self.looked(&read(record)?),
        }
        Ok(())
    }

    fn lost(&mut self, what: String) {
        self.judge.lost(Rule::LostWrite, format!("{what} was acknowledged and is not in the log"));
    }

    /// The event that an acknowledged write must have left.
    fn written<'e>(
        &mut self,
        work: &WorkId,
        kind: &str,
        what: &str,
        is: impl Fn(&Event) -> bool,
    ) -> Option<&'e Event>
    where
        Self: 'e,
    {
        let found = self.index.event(work.as_str(), kind, is);
        if found.is_none() {
            self.lost(format!("{what} of {work}"));
        }
        found
    }

    /// A holder's event carries the fence of its writer.
    fn under(&mut self, event: &Event, fence: u64) {
        if event.fence != Some(fence) {
            let what = format!(
                "event {} of {} ({}) was written under fence {fence} while {:?} was current",
                event.seq, event.work, event.kind, event.fence
            );
            self.judge.broken(Rule::StaleWrite, what);
        }
    }

    fn says(&mut self, event: &Event, stored: &Value, sent: &Value) {
        if stored != sent {
            let what = format!("event {} of {} stores {stored} for {sent}", event.seq, event.work);
            self.judge.broken(Rule::AnswerDiffers, what);
        }
    }

    /// The state that a response reports for a work item at one of its events.
    fn at(&mut self, work: &WorkId, seq: u64, state: &str) {
        match self.index.log(work.as_str()).iter().find(|event| event.seq == seq) {
            None => self.lost(format!("event {seq} of {work}")),
            Some(event) if event.to.to_string() != state => {
                let what = format!("{work} was reported as {state} at event {seq}, but was {}", event.to);
                self.judge.lost(Rule::AnswerDiffers, what);
            }
            Some(_) => {}
        }
    }

    fn ack(&mut self, ack: &Ack) {
        self.at(&ack.id, ack.seq, &ack.state.to_string());
    }

    fn ingested(&mut self, ingest: &Ingest, answer: &Ingested) {
        let (id, source) = (&answer.work.id, &ingest.source);
        let Some(row) = self.index.works.get(id.as_str()).copied() else {
            return self.lost(format!("the ingest of {}/{} as {id}", source.system, source.id));
        };
        if self.index.event(id.as_str(), "work_created", |event| event.seq == 1).is_none() {
            self.lost(format!("the ingest of {}/{} as {id}", source.system, source.id));
        }
        let (told, stored) = (&answer.work, (&row.source, &row.kind, &row.input_hash));
        if &row.source != source || (&told.source, &told.kind, &told.input_hash) != stored {
            let what =
                format!("{}/{} was reported as {id}, which is another work item", source.system, source.id);
            self.judge.broken(Rule::AnswerDiffers, what);
        }
        self.at(id, told.seq, &told.state.to_string());
    }

    fn claimed(&mut self, worker: &str, answer: &Grants) {
        for lease in &answer.leases {
            let id = &lease.work.id;
            let fence = |event: &Event| event.fence == Some(lease.fence);
            let what = format!("the claim under fence {}", lease.fence);
            let Some(event) = self.written(id, "claimed", &what, fence) else { continue };
            if event.data["worker"]["id"] != worker {
                let what = format!(
                    "{worker} was granted fence {} of {id}, but the log has {}",
                    lease.fence, event.data["worker"]["id"]
                );
                self.judge.broken(Rule::TwoHolders, what);
            }
            self.at(id, lease.work.seq, &lease.work.state.to_string());
        }
    }

    fn step(
        &mut self,
        work: &WorkId,
        fence: u64,
        step: &str,
        verb: StepVerb,
        result: Option<&Value>,
        answer: &StepReply,
    ) {
        let kind = match verb {
            StepVerb::Begin => "step_begun",
            StepVerb::Complete => "step_completed",
        };
        // A step that was begun before is not begun again; a completed one returns the stored result.
        let any = answer.reused || verb == StepVerb::Begin;
        let told = answer.step.result.as_ref().unwrap_or(&Value::Null);
        let reuses = answer.reused && verb == StepVerb::Complete;
        let is = |event: &Event| {
            event.step.as_deref() == Some(step)
                && (any || event.fence == Some(fence))
                && (!reuses || payload(event) == told)
        };
        let Some(event) = self.written(work, kind, &format!("{verb} of step {step}"), is) else { return };
        if verb == StepVerb::Complete && !reuses {
            self.says(event, payload(event), result.unwrap_or(&Value::Null));
        }
    }

    fn waits(&mut self, work: &WorkId, fence: u64, reference: &str, answer: &Waiting) {
        self.ack(&answer.work);
        for wait in &answer.waits {
            let is = |event: &Event| {
                let opened = event.data["waits"].as_array();
                opened.is_some_and(|all| all.iter().any(|opened| opened["id"] == wait.id.as_str()))
            };
            if let Some(event) = self.written(work, "waiting_set", &format!("the wait on {reference}"), is) {
                self.under(event, fence);
            }
        }
    }

    fn resolved(&mut self, sent: &Value, answer: &Resolved) {
        for answer in &answer.answers {
            let wait = answer.wait.as_str();
            let is = |event: &Event| event.data["wait"] == wait;
            let what = format!("the answer to {wait}");
            let Some(event) = self.written(&answer.work, "wait_resolved", &what, is) else { continue };
            let stored = payload(event);
            if answer.first && stored != sent {
                let what = format!("{sent} was reported as the answer to {wait}, which stores {stored}");
                self.judge.lost(Rule::TwoWinners, what);
            }
            if !answer.first && answer.payload.as_ref().is_some_and(|told| told != stored) {
                let what = format!(
                    "{:?} was reported as the answer to {wait}, which stores {stored}",
                    answer.payload
                );
                self.judge.lost(Rule::TwoWinners, what);
            }
        }
    }

    fn reserved(&mut self, work: &WorkId, answer: &Command) {
        let id = answer.id.as_str();
        let is = |event: &Event| event.data["command"] == id;
        if self.written(work, "command_reserved", &format!("command {id}"), is).is_none() {
            return;
        }
        let told = (&answer.work, &answer.command_key, &answer.input_hash, &answer.idempotency_key);
        let stored = self
            .index
            .commands
            .get(id)
            .map(|row| (&row.work, &row.command_key, &row.input_hash, &row.idempotency_key));
        if stored != Some(told) {
            self.judge.broken(
                Rule::AnswerDiffers,
                format!("{id} is stored as {stored:?}, but was reported as {told:?}"),
            );
        }
    }

    fn dispatched(&mut self, command: &CommandId, answer: &Command) {
        let dispatched = answer.state == CommandState::Dispatched;
        let Some(dispatch) = answer.dispatch.as_ref().filter(|_| dispatched) else {
            let what = format!("a dispatch of {command} was acknowledged, but it is {}", answer.state);
            return self.judge.broken(Rule::AnswerDiffers, what);
        };
        let found = self.index.told(command.as_str()).iter().any(|event| {
            event.kind == "command_dispatched"
                && event.at == dispatch.at
                && event.data["under"].as_u64() == Some(dispatch.fence)
        });
        if !found {
            self.lost(format!("dispatch {} of {command}", dispatch.number));
        }
    }

    fn succeeded(&mut self, command: &CommandId, answer: &Command) {
        let id = command.as_str();
        let Some(event) = self.index.told(id).iter().find(|event| event.kind == "command_succeeded") else {
            return self.lost(format!("the receipt of {command}"));
        };
        let stored = &event.data["receipt"]["external_id"];
        let told = answer.receipt.as_ref().and_then(|receipt| receipt.external_id.as_deref());
        if stored.as_str() != told {
            let what = format!("the receipt of {command} was reported as {told:?}, but stores {stored}");
            self.judge.lost(Rule::AnswerDiffers, what);
        }
        let row = self.index.commands.get(id);
        if let Some(row) = row.filter(|row| row.state != CommandState::Succeeded) {
            let what = format!("{command} was reported as succeeded, but is {}", row.state);
            self.judge.broken(Rule::TerminalChanged, what);
        }
    }

    /// The verb that released a lease left its event under that lease's fence.
    fn ended(&mut self, work: &WorkId, fence: u64, kinds: &[&str]) {
        let mut log = self.index.log(work.as_str()).iter();
        if !log.any(|event| event.fence == Some(fence) && kinds.contains(&event.kind.as_str())) {
            self.lost(format!("{} under fence {fence} of {work}", kinds[0]));
        }
    }

    fn closed(&mut self, work: &WorkId, fence: u64, state: State, result: &Value, answer: &Ack) {
        self.ack(answer);
        let is = |event: &Event| event.fence == Some(fence);
        let what = format!("the close-out under fence {fence}");
        let Some(event) = self.written(work, "close_out", &what, is) else { return };
        self.says(event, payload(event), result);
        let Some(row) = self.index.works.get(work.as_str()) else { return };
        if row.state != state {
            let what = format!("{work} was reported as ended in {state}, but is {}", row.state);
            self.judge.broken(Rule::TerminalChanged, what);
        }
    }

    fn looked(&mut self, seen: &Work) {
        self.at(&seen.id, seen.seq, &seen.state.to_string());
        let row = self.index.works.get(seen.id.as_str());
        if is_terminal(seen.state.known())
            && let Some(row) = row.filter(|row| row.state.to_string() != seen.state.to_string())
        {
            let what = format!("{} was read as {}, but is {} now", seen.id, seen.state, row.state);
            self.judge.lost(Rule::TerminalChanged, what);
        }
    }
}

/// Calls that were refused every time they were sent.
fn refused(run: &Run, index: &Index, judge: &mut Judge) {
    let mut only_refused: HashMap<String, (bool, &Call)> = HashMap::new();
    for record in &run.history {
        let name = match &record.call {
            Call::Ingest(ingest) => format!("{}/{}", ingest.source.system, ingest.source.id),
            Call::Progress { work, request_id, .. } => format!("{work} {request_id}"),
            Call::CloseOut { work, fence, .. } => format!("{work} {fence}"),
            _ => continue,
        };
        let refused = matches!(record.outcome, Outcome::Refused(_));
        only_refused.entry(name).or_insert((true, &record.call)).0 &= refused;
    }
    for (name, (_, call)) in only_refused.iter().filter(|(_, (refused, _))| *refused) {
        let wrote = match call {
            Call::Ingest(ingest) => run.works.iter().any(|work| work.source == ingest.source),
            Call::Progress { work, request_id, .. } => {
                let asked = |event: &Event| event.data["request_id"] == request_id.as_str();
                index.event(work.as_str(), "progressed", asked).is_some()
            }
            Call::CloseOut { work, fence, .. } => {
                index.event(work.as_str(), "close_out", |event| event.fence == Some(*fence)).is_some()
            }
            _ => false,
        };
        if wrote {
            judge.broken(Rule::RefusedWrote, format!("{name} was refused, but is stored"));
        }
    }
}
