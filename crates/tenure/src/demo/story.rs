//! The story: one plain line for each event. It is told from the ledger's event stream; events that a ledger
//! cannot know, such as a power cut, are told by the director.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tenure_api::{
    Client, Error,
    client::Streamed,
    wire::{Event, EventQuery, State, Work, WorkId},
};

use super::script::{APPROVAL_PATIENCE, Errand, LOGIN_PATIENCE};
use crate::render::{Light, Style, command_of, safe};

/// Writes lines to stderr, with the time since the start.
#[derive(Clone, Copy)]
pub struct Teller {
    begun: Instant,
    style: Style,
    beat: Duration,
}

impl Teller {
    pub fn new(style: Style, beat: Duration) -> Self {
        Self { begun: Instant::now(), style, beat }
    }

    pub fn tell(&self, light: Light, text: &str) {
        let glyph = light.glyph(self.style.ascii);
        let glyph = if self.style.colour { light.paint(glyph) } else { glyph.to_owned() };
        eprintln!("{:>5}  {glyph} {}", format!("{}s", self.begun.elapsed().as_secs()), safe(text));
    }

    /// Tells the events of the stream after a cursor, until it is stopped.
    pub async fn follow(self, client: Client, after: String) -> Result<(), Error> {
        let mut told: HashMap<WorkId, Told> = HashMap::new();
        let mut stream = client.stream(EventQuery { after: Some(after), ..EventQuery::default() });
        loop {
            let Streamed::Event(event) = stream.next().await? else { continue };
            let before = told.remove(&event.work);
            let failed = before.as_ref().is_some_and(|told| told.failed);
            let (title, approver) = match before {
                Some(told) => (told.title, told.approver),
                None => known_of(&client.work(&event.work).await?),
            };
            let Some(state) = event.to.known() else { continue };
            // The retry was announced with the failure.
            let again = failed && event.kind == "claimed";
            if let Some(said) = sentence(&event, self.beat, approver.as_deref()).filter(|_| !again) {
                let light = light_of_command(&event).unwrap_or_else(|| Light::of_state(state));
                self.tell(light, &format!("{title}: {said}"));
            }
            if crate::verbs::end(state).is_none() {
                let failed = state == State::RetryScheduled || (failed && state == State::Queued);
                told.insert(event.work.clone(), Told { title, approver, failed });
            }
        }
    }
}

/// The teller's memory of an open work item.
struct Told {
    title: String,
    /// The approver, if the effect needs an approval.
    approver: Option<String>,
    /// Its last attempt failed, and the next has not begun.
    failed: bool,
}

fn known_of(work: &Work) -> (String, Option<String>) {
    let errand = work.input.clone().and_then(|input| serde_json::from_value::<Errand>(input).ok());
    match errand {
        Some(errand) => (errand.title, errand.effect.and_then(|effect| effect.approver)),
        None => (format!("{} {}", work.kind, work.source.id), None),
    }
}

/// The meaning of an event; None for routine events.
fn sentence(event: &Event, beat: Duration, approver: Option<&str>) -> Option<String> {
    let who = event.actor.label();
    let seconds = |beats: u32| format!("{} s", (beat * beats).as_secs());
    Some(match event.kind.as_str() {
        "claimed" if event.attempt == 1 => format!("{who} claims it"),
        "claimed" => format!("{who} continues it, attempt {}", event.attempt),
        "waiting_set" => match event.to.known()? {
            State::WaitingApproval if asked_of(event).is_some() => {
                let otherwise = match approver {
                    Some("ana") => format!("ana answers in {} if you do not", seconds(APPROVAL_PATIENCE)),
                    _ => "nobody else will".to_owned(),
                };
                format!(
                    "a payment needs a person's approval, for exactly this payment. You may answer: tenure approve \
                     {} --reason 'it is right' (or reject; {otherwise})",
                    asked_of(event)?
                )
            }
            State::WaitingApproval => format!(
                "waits for an approval, without occupying a worker. You may answer: tenure approve {} (or reject; \
                 ana answers in {} if you do not)",
                event.work,
                seconds(APPROVAL_PATIENCE)
            ),
            State::WaitingAuth => format!(
                "{}. You may reconnect it: tenure resolve {} --payload '{{}}' (ana does it in {})",
                event.message.as_deref().unwrap_or("an account must be connected again"),
                event.data["waits"][0]["ref"].as_str().unwrap_or_default(),
                seconds(LOGIN_PATIENCE)
            ),
            _ => "waits".to_owned(),
        },
        // The decision on the command was told just before.
        "wait_resolved" if event.data["ref"].as_str().is_some_and(|named| command_of(named).is_some()) => {
            return None;
        }
        "wait_resolved" => format!("{who} answers"),
        "wait_timed_out" => "nobody answered in time".to_owned(),
        "attempt_failed" if event.to == State::RetryScheduled => {
            format!("{}; it is retried automatically", event.message.as_deref().unwrap_or("it failed"))
        }
        "attempt_failed" if event.to == State::Stalled => {
            event.message.as_deref().unwrap_or("a command is in doubt").to_owned()
        }
        "attempt_failed" => format!("failed: {}", event.message.as_deref().unwrap_or("no message")),
        "lease_released" => format!("{who} releases it"),
        "lease_lapsed" => {
            "its holder sent no heartbeat for too long: the lease lapsed, and the work item is stalled"
                .to_owned()
        }
        "recovered" if event.to == State::Queued => match event.data["from_step"].as_str() {
            Some(step) => format!("queued again; the next worker continues after step `{step}`"),
            None => "queued again".to_owned(),
        },
        "late" => "its holder is back and nobody else has claimed it, so its late write counts".to_owned(),
        "recovered" if event.to == State::Stalled => return None,
        "command_uncertain" => format!(
            "{}. Nobody knows whether it happened: it is looked up rather than repeated",
            event.message.as_deref().unwrap_or("no response came")
        ),
        "command_looked_up" => format!(
            "the {who} does not know yet ({}), and will look it up again",
            event.message.as_deref().unwrap_or("no answer")
        ),
        "command_succeeded" => {
            let id = event.data["receipt"]["external_id"].as_str().unwrap_or("no id");
            match event.data["receipt"]["evidence"].as_str() {
                Some("lookup") => format!("the {who} finds it: {id}. It happened, exactly once"),
                _ => format!("done, with a receipt: {id}"),
            }
        }
        "command_approved" => format!("{who} approves exactly this, once"),
        "command_cancelled" => format!("{who} rejects it: it will not be done"),
        "cancel_requested" => format!("{who} requests its cancellation"),
        "cancelled" => "cancelled".to_owned(),
        "quarantined" => "quarantined: a person must decide".to_owned(),
        "close_out" => format!("{}, says {who}", event.to.as_str().replace('_', " ")),
        _ => return None,
    })
}

/// The command that a work item waits for.
fn asked_of(event: &Event) -> Option<&str> {
    command_of(event.data["waits"][0]["ref"].as_str()?)
}

/// Events of a command have that command's light.
fn light_of_command(event: &Event) -> Option<Light> {
    Some(match event.kind.as_str() {
        "command_uncertain" | "command_looked_up" => Light::Risk,
        "command_succeeded" => Light::Done,
        "command_approved" => Light::Wait,
        "command_cancelled" => Light::Idle,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, to: State, more: serde_json::Value) -> Event {
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

    #[test]
    fn commands_for_people_are_shown_as_typed() {
        let beat = Duration::from_secs(1);
        let asks = sentence(&event("waiting_set", State::WaitingApproval, json!({})), beat, None).unwrap();
        assert!(asks.contains("tenure approve w_1") && asks.contains("30 s"), "{asks}");
        let more =
            json!({ "data": { "waits": [{ "ref": "calendar-login-1" }] }, "message": "the login is gone" });
        let login = sentence(&event("waiting_set", State::WaitingAuth, more), beat, None).unwrap();
        assert!(login.starts_with("the login is gone"), "{login}");
        assert!(login.contains("tenure resolve calendar-login-1 --payload '{}'"), "{login}");
    }

    #[test]
    fn a_command_is_described_by_its_outcome() {
        let beat = Duration::from_secs(1);
        let waits = || json!({ "data": { "waits": [{ "ref": "command:c_1" }] } });
        for (who, then) in [("ana", "ana answers in 30 s"), ("you", "nobody else will")] {
            let asks =
                sentence(&event("waiting_set", State::WaitingApproval, waits()), beat, Some(who)).unwrap();
            assert!(asks.contains("tenure approve c_1 --reason") && asks.contains(then), "{asks}");
        }
        let lost =
            event("command_uncertain", State::Running, json!({ "message": "the bank never answered" }));
        assert!(sentence(&lost, beat, None).unwrap().starts_with("the bank never answered. Nobody knows"));
        assert_eq!(light_of_command(&lost), Some(Light::Risk));
        let receipt = json!({ "data": { "receipt": { "external_id": "tx-7", "evidence": "lookup" } } });
        let found = sentence(&event("command_succeeded", State::Stalled, receipt), beat, None).unwrap();
        assert!(found.contains("finds it: tx-7"), "{found}");
        let answered = json!({ "data": { "ref": "command:c_1" } });
        assert_eq!(sentence(&event("wait_resolved", State::Queued, answered), beat, None), None);
    }

    #[test]
    fn recovery_is_described_by_its_verdict() {
        let beat = Duration::from_secs(1);
        let resumed = event("recovered", State::Queued, json!({ "data": { "from_step": "plan" } }));
        assert!(sentence(&resumed, beat, None).unwrap().contains("after step `plan`"));
        assert_eq!(sentence(&event("step_begun", State::Running, json!({})), beat, None), None);
    }
}
