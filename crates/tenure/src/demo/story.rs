//! The story: one plain line for each event that matters, in the words of `tenure events`. Events that a ledger
//! cannot know, such as a power cut, are told by the director.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tenure_api::{
    Client, Error,
    client::Streamed,
    story::Narrator,
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
        let mut narrator = Narrator::default();
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
            let said = sentence(&event, &mut narrator, self.beat, approver.as_deref());
            if let Some(said) = said.filter(|_| !again) {
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

/// What is told of an event, with an invitation to act; None for routine events.
fn sentence(
    event: &Event,
    narrator: &mut Narrator,
    beat: Duration,
    approver: Option<&str>,
) -> Option<String> {
    let told = narrator.tell(event);
    let seconds = |beats: u32| format!("{} s", (beat * beats).as_secs());
    match event.kind.as_str() {
        "waiting_set" => Some(match event.to.known()? {
            State::WaitingApproval => {
                let (id, otherwise) = match (asked_of(event), approver) {
                    (Some(command), Some("ana")) => (command, seconds(APPROVAL_PATIENCE)),
                    (Some(command), _) => {
                        return Some(format!(
                            "{told}. You may answer: tenure approve {command} (or reject; nobody else will)"
                        ));
                    }
                    (None, _) => (event.work.as_str(), seconds(APPROVAL_PATIENCE)),
                };
                format!(
                    "{told}. You may answer: tenure approve {id} (or reject; ana answers in {otherwise} if you do not)"
                )
            }
            State::WaitingAuth => format!(
                "{told}. You may reconnect it: tenure reconnect {} (ana does it in {})",
                event.work,
                seconds(LOGIN_PATIENCE)
            ),
            _ => told,
        }),
        // The decision on the command was told just before.
        "wait_resolved" if event.data["ref"].as_str().is_some_and(|named| command_of(named).is_some()) => {
            None
        }
        "recovered" if event.to == State::Stalled => None,
        "work_created"
        | "accepted"
        | "progressed"
        | "step_begun"
        | "step_completed"
        | "retry_due"
        | "cancel_acknowledged"
        | "command_reserved"
        | "command_dispatched"
        | "command_blocked"
        | "command_unblocked"
        | "command_unsent" => None,
        _ => Some(told),
    }
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

    /// What the story says of an event.
    fn said(kind: &str, to: State, more: serde_json::Value, approver: Option<&str>) -> Option<String> {
        sentence(&event(kind, to, more), &mut Narrator::default(), Duration::from_secs(1), approver)
    }

    #[test]
    fn commands_for_people_are_shown_as_typed() {
        let asks = said("waiting_set", State::WaitingApproval, json!({}), None).unwrap();
        assert!(asks.contains("tenure approve w_1") && asks.contains("30 s"), "{asks}");
        let more = json!({ "data": { "waits": [{ "ref": "calendar-login-1", "kind": "auth" }] },
            "message": "the login is gone" });
        let login = said("waiting_set", State::WaitingAuth, more, None).unwrap();
        assert!(login.contains("`calendar-login-1`: the login is gone"), "{login}");
        assert!(login.contains("tenure reconnect w_1"), "{login}");
        let waits = || json!({ "data": { "waits": [{ "ref": "command:c_1", "kind": "approval" }] } });
        for (who, then) in [("ana", "ana answers in 30 s"), ("you", "nobody else will")] {
            let asks = said("waiting_set", State::WaitingApproval, waits(), Some(who)).unwrap();
            assert!(asks.contains("tenure approve c_1") && asks.contains(then), "{asks}");
        }
    }

    #[test]
    fn routine_is_left_out_and_doubt_has_its_light() {
        let lost = json!({ "message": "the bank never answered" });
        assert_eq!(light_of_command(&event("command_uncertain", State::Running, lost)), Some(Light::Risk));
        assert_eq!(said("step_begun", State::Running, json!({}), None), None);
        let answered = json!({ "data": { "ref": "command:c_1" } });
        assert_eq!(said("wait_resolved", State::Queued, answered, None), None);
    }
}
