//! Targets that responded with 410: they are not called for a while, unless a person replays a command. In
//! memory of this process: after a restart the first call finds it out again, and the log keeps every
//! response.

use std::collections::HashMap;

use tenure_core::{CommandId, Millis, records::TargetKey, records::target_key};
use tenure_store::Due;

/// After this time one call tries again: another relay may have seen the target come back, or its URL was
/// fixed.
const FORGOTTEN_MS: Millis = 600_000;
/// Beyond this many the oldest is forgotten.
const MOST: usize = 10_000;

#[derive(Default)]
pub(super) struct Gone(HashMap<TargetKey, (Millis, CommandId)>);

impl Gone {
    /// Why it is not called. A command that a person replayed is called: that is how a target is tried again.
    pub fn refuses(&self, due: &Due, now: Millis) -> Option<String> {
        if due.command.body.replays > 0 {
            return None;
        }
        let (_, told) =
            self.0.get(&target_key(&due.command)).filter(|(since, _)| now < since + FORGOTTEN_MS)?;
        Some(format!(
            "{} responded with 410 to {told} and is not called for ten minutes. When it works again, replay one command to it: \
             a success resumes the calls",
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
