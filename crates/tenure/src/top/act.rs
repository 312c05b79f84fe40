//! Acting on the selected work item. A key only proposes: the dialog shows what would be done, takes a reason or an
//! answer, and asks for a yes. Exactly what was shown is then sent.

use ratatui::crossterm::event::KeyCode;
use serde_json::Value;
use tenure_api::{
    Client, Error,
    wire::{
        Approve, ApproveCommand, Cancel, Command, CommandId, RejectCommand, ResolveWait, Wait, WaitKind,
        WaitState, Work, WorkId,
    },
};

use crate::{
    args::is_placeholder,
    render::{self, Style, safe},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Approve,
    Reject,
    Answer,
    Cancel,
}

impl Kind {
    pub fn of(key: KeyCode) -> Option<Self> {
        match key {
            KeyCode::Char('a') => Some(Kind::Approve),
            KeyCode::Char('x') => Some(Kind::Reject),
            KeyCode::Char('e') => Some(Kind::Answer),
            KeyCode::Char('c') => Some(Kind::Cancel),
            _ => None,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Kind::Approve => "Approve",
            Kind::Reject => "Reject",
            Kind::Answer => "Answer",
            Kind::Cancel => "Cancel",
        }
    }
}

/// What is decided about, as it was read.
pub enum About {
    Command(Box<Command>),
    Wait(Box<Wait>),
    Work,
}

pub struct Dialog {
    pub kind: Kind,
    pub work: Work,
    pub about: About,
    /// The reason, or the answer.
    pub typed: String,
    pub confirming: bool,
}

/// The effect of a key in the dialog.
#[derive(Debug, PartialEq, Eq)]
pub enum Pressed {
    Stay,
    Close,
    /// The person said yes.
    Do,
}

impl Dialog {
    /// Reads what a key proposes to decide; a sentence if there is nothing to decide.
    pub async fn propose(client: &Client, kind: Kind, id: &WorkId) -> Result<Self, String> {
        let told = |error: Error| error.to_string();
        let work = client.work(id).await.map_err(told)?;
        let open = work.waits.iter().filter(|wait| wait.state == WaitState::Open);
        let approval = |wait: &&Wait| wait.kind == WaitKind::Approval;
        let of_record = |wait: &Wait| ["work:", "command:"].iter().any(|by| wait.reference.starts_with(by));
        let about = match kind {
            Kind::Cancel if work.state.known().is_some_and(|state| crate::verbs::end(state).is_none()) => {
                About::Work
            }
            Kind::Cancel => return Err(format!("{} is {}: there is nothing to cancel", work.id, work.state)),
            Kind::Answer => match open
                .filter(|wait| !approval(wait) && !of_record(wait))
                .min_by_key(|wait| wait.opened_at)
            {
                Some(wait) => About::Wait(Box::new(wait.clone())),
                None => return Err(format!("{} is {}: it asks no question", work.id, work.state)),
            },
            Kind::Approve | Kind::Reject => match open.filter(approval).min_by_key(|wait| wait.opened_at) {
                Some(wait) => match render::command_of(&wait.reference) {
                    Some(command) => About::Command(Box::new(
                        client.command(&CommandId::from(command)).await.map_err(told)?,
                    )),
                    None => About::Wait(Box::new(wait.clone())),
                },
                None => return Err(format!("{} is {}: it waits for no approval", work.id, work.state)),
            },
        };
        Ok(Self { kind, work, about, typed: String::new(), confirming: false })
    }

    pub fn press(&mut self, key: KeyCode) -> Pressed {
        match (self.confirming, key) {
            (true, KeyCode::Char('y')) => return Pressed::Do,
            (true, _) | (false, KeyCode::Esc) => return Pressed::Close,
            (false, KeyCode::Enter) => {
                let text = self.typed.trim();
                self.confirming = !text.is_empty() && !is_placeholder(text);
            }
            (false, KeyCode::Backspace) => drop(self.typed.pop()),
            (false, KeyCode::Char(c)) => self.typed.push(c),
            (false, _) => {}
        }
        Pressed::Stay
    }

    /// The whole dialog as text.
    pub fn page(&self, style: &Style) -> String {
        let what = match &self.about {
            About::Command(command) => render::intent(command, style),
            About::Wait(wait) => render::question(wait, style),
            About::Work => format!("State:       {}\n", safe(self.work.state.as_str())),
        };
        let then = match (self.kind, &self.about) {
            (Kind::Approve, About::Command(_)) => "It may be dispatched once, with exactly these arguments.",
            (Kind::Reject, About::Command(_)) => "It will not be dispatched.",
            (Kind::Approve, _) => "Exactly this is approved.",
            (Kind::Reject, _) => "Exactly this is rejected.",
            (Kind::Answer, _) => "The first answer counts.",
            (Kind::Cancel, _) => "Its cancellation will be requested.",
        };
        let field = if self.kind == Kind::Answer { "Answer (JSON or text)" } else { "Reason" };
        let cursor = if self.confirming { "" } else { "_" };
        let ask = if self.confirming {
            "Continue? y: yes, any other key: no"
        } else {
            "Enter goes on, Esc leaves everything as it is"
        };
        format!(
            "{}: {} ({})\n\n{what}\n{then}\n\n{field}: {}{cursor}\n\n{ask}\n",
            self.kind.title(),
            safe(&self.work.title),
            safe(self.work.id.as_str()),
            safe(&self.typed)
        )
    }

    /// Sends exactly what was shown, and says what became of it.
    pub async fn carry_out(self, client: &Client) -> Result<String, Error> {
        let reason = self.typed.trim().to_owned();
        let id = &self.work.id;
        Ok(match (self.kind, self.about) {
            (Kind::Approve, About::Command(command)) => {
                let approve = ApproveCommand { reason, seal: command.seal.clone() };
                let command = client.approve_command(&command.id, &approve).await?;
                format!("{} is {}", command.id, command.state)
            }
            (_, About::Command(command)) => {
                let command = client.reject_command(&command.id, &RejectCommand { reason }).await?;
                format!("{} is {}", command.id, command.state)
            }
            (Kind::Answer, About::Wait(wait)) => {
                let payload = serde_json::from_str(&reason).unwrap_or(Value::String(reason));
                let answer = ResolveWait { token: None, seal: None, payload, claim: None };
                let answered = client.resolve_wait(&wait.id, &answer).await?;
                told(&answered.answers.iter().map(|answer| answer.first).collect::<Vec<_>>(), id)
            }
            (kind, About::Wait(wait)) => {
                let seal = wait.seal.clone().unwrap_or_default();
                let decision = Approve { approved: kind == Kind::Approve, seal, note: Some(reason) };
                let answered = client.approve(id, &decision).await?;
                told(&answered.answers.iter().map(|answer| answer.first).collect::<Vec<_>>(), id)
            }
            (_, About::Work) => {
                let cancel = Cancel { reason, if_seq: Some(self.work.seq), deadline_ms: None };
                let ack = client.cancel(id, &cancel).await?;
                format!("{} is {}", ack.id, ack.state)
            }
        })
    }
}

fn told(first: &[bool], work: &WorkId) -> String {
    if first.iter().all(|first| *first) {
        format!("{work} is answered")
    } else {
        format!("{work} was answered before; that answer counts")
    }
}
