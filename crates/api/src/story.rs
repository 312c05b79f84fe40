//! Events as sentences: one for each event, with the step, the tool and its target, the question, the
//! answer and the provider's id. Told from the public form of events alone; nothing is decided here.

use std::collections::HashMap;

use serde_json::Value;

use crate::wire::{Command, Event, State, Wait};

/// Longer payloads are shown by their beginning.
const PAYLOAD_CHARS: usize = 160;

/// Tells events in their order. It remembers the commands and questions that it has met, because later events
/// name them by their ids only.
#[derive(Clone, Debug, Default)]
pub struct Narrator {
    /// `TOOL to TARGET`, by the command's id.
    commands: HashMap<String, String>,
    /// The question of a wait, by its id.
    prompts: HashMap<String, String>,
}

impl Narrator {
    /// Learns a command whose recording is not among the events to tell.
    pub fn knows(&mut self, command: &Command) {
        let what = format!("{} to {}", command.tool, command.target);
        self.commands.insert(command.id.to_string(), what);
    }

    /// Learns the question of a wait, which is not part of its event.
    pub fn asks(&mut self, wait: &Wait) {
        if let Some(prompt) = &wait.prompt {
            self.prompts.insert(wait.id.to_string(), prompt.clone());
        }
    }

    /// The sentence of an event. An event of a type that this version does not know is shown by its type.
    pub fn tell(&mut self, event: &Event) -> String {
        let data = &event.data;
        if event.kind == "command_reserved"
            && let (Some(id), Some(tool), Some(target)) =
                (data["command"].as_str(), data["spec"]["tool"].as_str(), data["spec"]["target"].as_str())
        {
            self.commands.insert(id.to_owned(), format!("{tool} to {target}"));
        }
        let known = match event.kind.strip_prefix("command_") {
            Some(moved) => self.of_command(event, moved),
            None => self.of_work(event),
        };
        known.unwrap_or_else(|| with(event.kind.clone(), ": ", event.message.as_deref()))
    }

    fn of_work(&self, event: &Event) -> Option<String> {
        let (data, message) = (&event.data, event.message.as_deref());
        let who = who(event);
        let reference = data["ref"].as_str().unwrap_or_default();
        let step = event.step.as_deref().unwrap_or("?");
        Some(match event.kind.as_str() {
            "work_created" => {
                let spec = &data["spec"];
                let kind = spec["kind"].as_str().unwrap_or("work item");
                match (spec["rerun_of"].as_str(), data["from_step"].as_str()) {
                    (Some(old), Some(step)) => format!("{who} runs {old} again, after step `{step}`"),
                    (Some(old), None) => format!("{who} runs {old} again"),
                    (None, _) => format!("{who} records it: `{kind}`"),
                }
            }
            "claimed" => {
                // A person may claim for a worker.
                let worker = data["worker"]["id"].as_str().unwrap_or(&who);
                match event.attempt {
                    0 | 1 => format!("{worker} claims it"),
                    attempt => format!("{worker} continues it, attempt {attempt}"),
                }
            }
            "accepted" => format!("{who} hands it to the agent"),
            "progressed" => with(format!("{who} reports progress"), ": ", payload(event).as_deref()),
            "step_begun" => format!("step `{step}` begins"),
            "step_completed" => with(format!("step `{step}` is completed"), ": ", payload(event).as_deref()),
            "waiting_set" => self.waits(event),
            "wait_resolved" => match reference.strip_prefix("command:") {
                Some(command) => format!("it goes on with the decision on {}", self.named(command)),
                None => with(format!("{who} answers `{reference}`"), ": ", payload(event).as_deref()),
            },
            "early_answer_refused" => {
                with(format!("an early answer to `{reference}` is dropped"), ": ", message)
            }
            "wait_timed_out" => format!("nobody answered `{reference}` in time"),
            "wait_escalated" => {
                format!("nobody answered `{reference}` in time: somebody should look; it keeps waiting")
            }
            "waits_revoked" => {
                with(format!("{who} cancels its waits: it continues without answers"), ": ", message)
            }
            "attempt_failed" => {
                let message = message.unwrap_or("no message");
                match event.to.known() {
                    Some(State::RetryScheduled) => format!("{message}; it is retried automatically"),
                    Some(State::Stalled) => {
                        format!("{message}; it waits until its commands in doubt are settled")
                    }
                    _ => format!("failed: {message}"),
                }
            }
            "retry_due" => "its backoff is over: it is queued again".to_owned(),
            "retried_now" => with(format!("{who} ends its backoff"), ": ", message),
            "lease_released" => with(format!("{who} releases it"), ": ", message),
            "lease_lapsed" if data["grade"] == "dead" => {
                "its holder's process is gone: the lease lapsed, and the work item is stalled".to_owned()
            }
            "lease_lapsed" => {
                "its holder sent no heartbeat for too long: the lease lapsed, and the work item is \
                               stalled"
                    .to_owned()
            }
            "recovered" => match (event.to.known(), data["from_step"].as_str()) {
                (Some(State::Queued), Some(step)) => {
                    format!("queued again; the next worker continues after step `{step}`")
                }
                (Some(State::Queued), None) => "queued again".to_owned(),
                (Some(State::Stalled), _) => with("recovery leaves it stalled".to_owned(), ": ", message),
                _ => with(format!("recovery: {}", words(event.to.as_str())), ": ", message),
            },
            "late" => {
                "its holder is back and nobody else has claimed it, so its late write counts".to_owned()
            }
            "owner_absent" => "its owner did not come back for it".to_owned(),
            "timeout_marked" => {
                let deadline = data["deadline"].as_str().unwrap_or("declared");
                format!("its {deadline} deadline passed: {}", words(event.to.as_str()))
            }
            "cancel_requested" => with(format!("{who} requests its cancellation"), ": ", message),
            "cancel_acknowledged" => "its holder is notified of the cancellation".to_owned(),
            "cancelled" => with("cancelled".to_owned(), ": ", message),
            "release_requested" => with(format!("{who} asks its holder to release it"), ": ", message),
            "abandon_requested" => {
                with(format!("{who} asks to abandon it once its lease lapses"), ": ", message)
            }
            "quarantined" => with("quarantined: a person must decide".to_owned(), ": ", message),
            "requeued" => with(format!("{who} decides to run it again"), ": ", message),
            "recovery_applied" => with(format!("{who} applies a recovery plan"), ": ", message),
            "content_erased" => with(format!("{who} erases its content"), ": ", message),
            "close_out" => {
                let why = data["warnings"][0].as_str().or(message);
                with(format!("{}, says {who}", words(event.to.as_str())), ": ", why)
            }
            _ => return None,
        })
    }

    fn waits(&self, event: &Event) -> String {
        let asked = event.data["waits"].as_array().into_iter().flatten().map(|wait| {
            let reference = wait["ref"].as_str().unwrap_or_default();
            let whom = match wait["kind"].as_str() {
                Some("approval") => "an approval",
                Some("user") => "the user",
                Some("auth") => "an account to be connected again",
                Some("tool") => "a tool",
                _ => "something outside",
            };
            let prompt = wait["id"].as_str().and_then(|id| self.prompts.get(id)).map(String::as_str);
            match (reference.strip_prefix("command:"), reference.strip_prefix("work:")) {
                (Some(command), _) if wait["kind"] == "approval" => {
                    format!("waits for a person's approval of {}", self.named(command))
                }
                (Some(command), _) => format!("waits until {} is settled", self.named(command)),
                (_, Some(work)) => format!("waits until {work} has ended"),
                _ => with(format!("waits for {whom}, `{reference}`"), ": ", prompt),
            }
        });
        with(asked.collect::<Vec<_>>().join("; "), ": ", event.message.as_deref())
    }

    fn of_command(&self, event: &Event, moved: &str) -> Option<String> {
        let (data, message) = (&event.data, event.message.as_deref());
        let who = who(event);
        let what = self.named(data["command"].as_str().unwrap_or_default());
        Some(match moved {
            "reserved" => {
                let then = match data["blocked"].as_str() {
                    _ if data["receipt"].is_object() => {
                        Some("an earlier run did it, and its receipt is reused".to_owned())
                    }
                    Some("approval_required") => Some("it needs an approval".to_owned()),
                    Some("policy_denied") => Some("a policy denies it".to_owned()),
                    Some(other) => Some(format!("it is stopped: {}", words(other))),
                    None => None,
                };
                with(format!("{who} wants {what}"), "; ", then.as_deref())
            }
            "blocked" => {
                let code = words(data["code"].as_str().unwrap_or("blocked"));
                with(format!("{what} is stopped: {code}"), ": ", message)
            }
            "unblocked" => format!("{what} is no longer stopped"),
            "approved" => with(format!("{who} approves exactly this, once: {what}"), ": ", message),
            "cancelled" => match data["code"].as_str() {
                Some("rejected") => with(format!("{who} rejects {what}: it will not be done"), ": ", message),
                Some("superseded") => format!("{what} is superseded by a later wording of the same effect"),
                _ => with(format!("{what} is cancelled: it never happened and will not"), ": ", message),
            },
            "dispatched" => format!("{who} sends {what}: from here on it may have happened"),
            "succeeded" => {
                let receipt = &data["receipt"];
                let proof = receipt["external_id"].as_str().or(receipt["ref"].as_str()).unwrap_or("no id");
                match receipt["evidence"].as_str() {
                    Some("lookup") => format!("{who} finds it: {proof}. {what} happened, exactly once"),
                    Some("person") => {
                        with(format!("{who} records that {what} happened: {proof}"), ": ", message)
                    }
                    _ => format!("{what} is done, with a receipt: {proof}"),
                }
            }
            "failed" => with(format!("{what} did not happen"), ": ", message),
            "unsent" => with(format!("{what} was not sent, and is tried again"), ": ", message),
            "uncertain" => {
                let then = if data["needs_person"] == true {
                    "only a person can find out"
                } else {
                    "it is looked up rather than repeated"
                };
                let message = message.unwrap_or("no response came").trim_end_matches('.');
                format!("{message}. Nobody knows whether {what} happened: {then}")
            }
            "looked_up" if data["finding"] == "absent" => {
                with(format!("{who} finds no trace of {what}"), ": ", message)
            }
            "looked_up" => {
                let then = if data["needs_person"] == true {
                    "a person must find out"
                } else {
                    "will look it up again"
                };
                let why = message.unwrap_or("no answer");
                format!("{who} does not know yet whether {what} happened ({why}), and {then}")
            }
            "reserved_again" => format!("{who} wants {what} again, which is recorded already"),
            "resent" => format!("{what} is sent again with the same key"),
            "replayed" => with(format!("{who} has {what} executed again"), ": ", message),
            _ => return None,
        })
    }

    /// The command in words; its id if it was not met.
    fn named(&self, command: &str) -> String {
        self.commands.get(command).cloned().unwrap_or_else(|| format!("command {command}"))
    }
}

/// The actor; the parts of Tenure by what they are.
fn who(event: &Event) -> String {
    let label = event.actor.label();
    if event.actor.kind.as_str() == "system" { format!("the {label}") } else { label.to_owned() }
}

fn words(word: &str) -> String {
    word.replace('_', " ")
}

fn with(text: String, between: &str, more: Option<&str>) -> String {
    match more.filter(|more| !more.is_empty()) {
        Some(more) => format!("{text}{between}{more}"),
        None => text,
    }
}

fn payload(event: &Event) -> Option<String> {
    let value = event.payload.as_ref().filter(|value| !value.is_null())?;
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut chars = text.chars();
    let begin: String = chars.by_ref().take(PAYLOAD_CHARS).collect();
    Some(if chars.next().is_some() { format!("{begin}…") } else { begin })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, to: State, more: Value) -> Event {
        let mut event = json!({
            "position": "1", "work": "w_1", "seq": 3, "at": "2026-01-31T08:15:00.000Z", "type": kind,
            "from": "running", "to": to, "actor": {"type": "worker", "id": "bruno"}, "attempt": 2,
            "prev_hash": "", "hash": "",
        });
        for (key, value) in more.as_object().unwrap() {
            event[key] = value.clone();
        }
        serde_json::from_value(event).unwrap()
    }

    fn tell(kind: &str, to: State, more: Value) -> String {
        Narrator::default().tell(&event(kind, to, more))
    }

    #[test]
    fn a_command_is_named_by_its_tool_and_target_from_its_recording_on() {
        let mut narrator = Narrator::default();
        let reserved = json!({ "data": { "command": "c_1", "blocked": "approval_required",
            "spec": { "tool": "pay", "target": "acct-7" } } });
        let said = narrator.tell(&event("command_reserved", State::Running, reserved));
        assert_eq!(said, "bruno wants pay to acct-7; it needs an approval");
        let waits = json!({ "data": { "waits": [{ "ref": "command:c_1", "kind": "approval" }] } });
        let said = narrator.tell(&event("waiting_set", State::WaitingApproval, waits));
        assert_eq!(said, "waits for a person's approval of pay to acct-7");
        let receipt = json!({ "actor": { "type": "system", "id": "reconciler" },
            "data": { "command": "c_1", "receipt": { "external_id": "tx-7", "evidence": "lookup" } } });
        let said = narrator.tell(&event("command_succeeded", State::Stalled, receipt));
        assert_eq!(said, "the reconciler finds it: tx-7. pay to acct-7 happened, exactly once");
        let lost = json!({ "message": "the bank never answered.", "data": { "command": "c_2", "needs_person": true } });
        assert_eq!(
            narrator.tell(&event("command_uncertain", State::Running, lost)),
            "the bank never answered. Nobody knows whether command c_2 happened: only a person can find out"
        );
    }

    #[test]
    fn a_question_and_its_answer_are_told() {
        let mut narrator = Narrator::default();
        narrator.prompts.insert("wt_1".to_owned(), "Which colour?".to_owned());
        let asked = json!({ "data": { "waits": [{ "id": "wt_1", "ref": "colour", "kind": "user" }] } });
        let said = narrator.tell(&event("waiting_set", State::WaitingUser, asked));
        assert_eq!(said, "waits for the user, `colour`: Which colour?");
        let answer = json!({ "data": { "ref": "colour" }, "payload": "blue" });
        assert_eq!(tell("wait_resolved", State::Queued, answer), "bruno answers `colour`: blue");
        let long = json!({ "data": { "ref": "colour" }, "payload": ["x".repeat(200)] });
        let said = tell("wait_resolved", State::Queued, long);
        assert!(said.ends_with("xx…") && said.chars().count() < 200, "{said}");
    }

    #[test]
    fn recovery_is_told_by_its_verdict() {
        let resumed = json!({ "data": { "from_step": "plan" } });
        assert!(tell("recovered", State::Queued, resumed).ends_with("continues after step `plan`"));
        assert_eq!(tell("step_begun", State::Running, json!({ "step": "draft" })), "step `draft` begins");
        assert_eq!(tell("close_out", State::TimedOut, json!({})), "timed out, says bruno");
    }

    #[test]
    fn an_event_of_a_newer_version_is_shown_by_its_type() {
        let paused = json!({ "message": "until Monday" });
        assert_eq!(tell("work_paused", State::Running, paused), "work_paused: until Monday");
        assert_eq!(tell("command_painted", State::Running, json!({})), "command_painted");
    }
}
