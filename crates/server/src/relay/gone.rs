//! Targets that answered 410: they want no more calls, and get none for a while, unless a person replays one. Of this
//! process alone: after a restart one call finds it out again, and the log keeps every answer.

use std::collections::HashMap;

use tenure_core::{CommandId, Millis, records::TargetKey, records::target_key};
use tenure_store::Due;

/// After so long one call finds out again: another relay may have seen it come back, or its URL was mended.
const FORGOTTEN_MS: Millis = 600_000;
/// Beyond so many the oldest is forgotten, and asked again.
const MOST: usize = 10_000;

#[derive(Default)]
pub(super) struct Gone(HashMap<TargetKey, (Millis, CommandId)>);

impl Gone {
    /// Why it is not called. A command that a person replayed is: that is how a target is tried again.
    pub fn refuses(&self, due: &Due, now: Millis) -> Option<String> {
        if due.command.body.replays > 0 {
            return None;
        }
        let (_, told) =
            self.0.get(&target_key(&due.command)).filter(|(since, _)| now < since + FORGOTTEN_MS)?;
        Some(format!(
            "{} answered 410 to {told} and is left alone for ten minutes. When it is back, replay one command to it: \
             a success opens it again",
            due.command.spec.target
        ))
    }

    pub fn close(&mut self, due: &Due, now: Millis) {
        if self.0.len() >= MOST
            && let Some(oldest) = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
        self.0.insert(target_key(&due.command), (now, due.command.id));
    }

    pub fn open(&mut self, due: &Due) {
        if !self.0.is_empty() {
            self.0.remove(&target_key(&due.command));
        }
    }
}
