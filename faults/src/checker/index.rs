//! Indexes of events, rows and records.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_api::wire::{Command, Event, State, Work};

use crate::{
    history::{Outcome, Record},
    run::Run,
};

pub struct Index<'a> {
    /// Each work item's log, in the order of its numbers.
    pub logs: HashMap<&'a str, Vec<&'a Event>>,
    pub works: HashMap<&'a str, &'a Work>,
    pub commands: HashMap<&'a str, &'a Command>,
    /// Each command's events, in the order of its work item's log.
    pub told: HashMap<&'a str, Vec<&'a Event>>,
}

impl<'a> Index<'a> {
    pub fn new(run: &'a Run) -> Self {
        let mut logs: HashMap<&str, Vec<&Event>> = HashMap::new();
        for event in &run.log {
            logs.entry(event.work.as_str()).or_default().push(event);
        }
        let mut told: HashMap<&str, Vec<&Event>> = HashMap::new();
        for log in logs.values_mut() {
            log.sort_by_key(|event| event.seq);
            for event in log {
                if let Some(command) = event.data["command"].as_str().filter(|_| is_command(event)) {
                    told.entry(command).or_default().push(event);
                }
            }
        }
        Self {
            logs,
            works: run.works.iter().map(|work| (work.id.as_str(), work)).collect(),
            commands: run.commands.iter().map(|command| (command.id.as_str(), command)).collect(),
            told,
        }
    }

    pub fn log(&self, work: &str) -> &[&'a Event] {
        self.logs.get(work).map_or(&[], Vec::as_slice)
    }

    pub fn told(&self, command: &str) -> &[&'a Event] {
        self.told.get(command).map_or(&[], Vec::as_slice)
    }

    /// The first event of a kind in a work item's log that matches.
    pub fn event(&self, work: &str, kind: &str, is: impl Fn(&Event) -> bool) -> Option<&'a Event> {
        self.log(work).iter().find(|event| event.kind == kind && is(event)).copied()
    }
}

fn is_command(event: &Event) -> bool {
    event.kind.starts_with("command_")
}

pub fn is_terminal(state: Option<State>) -> bool {
    state.is_some_and(State::is_terminal)
}

/// The body of an acknowledged call, as its wire type; `None` if it was not acknowledged.
pub fn body<T: DeserializeOwned>(record: &Record) -> Option<Result<T, String>> {
    match &record.outcome {
        Outcome::Ok(body) => Some(T::deserialize(body).map_err(|error| format!("{error}: {body}"))),
        Outcome::Refused(_) | Outcome::Unknown(_) => None,
    }
}

/// A payload as stored; an absent one is null.
pub fn payload(event: &Event) -> &Value {
    event.payload.as_ref().unwrap_or(&Value::Null)
}
