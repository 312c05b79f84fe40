//! The explanation of a work item that has ended.

use super::{Advice, View, nothing};
use crate::{model::Output, next::Next};

pub(super) const OVER: &str = "nothing: it is over";

impl View<'_> {
    fn ended(&self, how: &str) -> String {
        let at = self.work.body.completed_at.unwrap_or(self.work.updated_at);
        let attempts = match self.work.attempt {
            0 => "without an attempt".to_owned(),
            1 => "in one attempt".to_owned(),
            many => format!("in {many} attempts"),
        };
        format!("{how} {} {attempts}", self.ago(at))
    }

    pub(super) fn succeeded(&self) -> (String, Advice) {
        let output = match &self.work.body.output {
            Some(Output::Inline { seq, .. }) => format!("its result is in event {seq}"),
            Some(Output::Reference(reference)) => format!("its result is at {reference}"),
            Some(Output::NoOutput) | None => "it declared that there is no output".to_owned(),
        };
        (format!("{}: {output}.", self.ended("Succeeded")), nothing("it is over"))
    }

    pub(super) fn warned(&self) -> (String, Advice) {
        let warnings = self.work.body.warnings.join("; ");
        (format!("{}: {warnings}.", self.ended("Completed with warnings")), nothing("it is over"))
    }

    pub(super) fn ended_badly(&self, how: &str) -> (String, Advice) {
        (format!("{}: {}.", self.ended(how), self.error()), self.rerun())
    }

    pub(super) fn cancelled(&self) -> (String, Advice) {
        let (who, why) = match (&self.work.body.cancel, self.arrival()) {
            (Some(cancel), _) => (cancel.requested_by.label(), cancel.reason.as_deref()),
            (None, Some(event)) => (event.actor.label(), event.message.as_deref()),
            (None, None) => ("somebody", None),
        };
        let why = why.unwrap_or("no reason recorded");
        (format!("{}: {who} requested it ({why}).", self.ended("Cancelled")), self.rerun())
    }

    pub(super) fn abandoned(&self) -> (String, Advice) {
        let why = self
            .arrival()
            .and_then(|event| event.message.as_deref())
            .unwrap_or("its outcome cannot be known");
        let advice = "find out what it did, and run it again only if that is safe".to_owned();
        (format!("{}: {why}.", self.ended("Abandoned")), (advice, vec![Next::Rerun(self.work.id)]))
    }

    fn rerun(&self) -> Advice {
        (OVER.to_owned(), vec![Next::Rerun(self.work.id)])
    }
}
