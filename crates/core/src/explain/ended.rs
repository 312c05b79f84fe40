//! The explanation of a work item that has ended.

use super::View;
use crate::model::Output;

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

    pub(super) fn succeeded(&self) -> (String, String) {
        let output = match &self.work.body.output {
            Some(Output::Inline { seq, .. }) => format!("its result is in event {seq}"),
            Some(Output::Reference(reference)) => format!("its result is at {reference}"),
            Some(Output::NoOutput) | None => "it declared that there is no output".to_owned(),
        };
        (format!("{}: {output}.", self.ended("Succeeded")), OVER.to_owned())
    }

    pub(super) fn warned(&self) -> (String, String) {
        let warnings = self.work.body.warnings.join("; ");
        (format!("{}: {warnings}.", self.ended("Completed with warnings")), OVER.to_owned())
    }

    pub(super) fn ended_badly(&self, how: &str) -> (String, String) {
        (format!("{}: {}.", self.ended(how), self.error()), self.rerun())
    }

    pub(super) fn cancelled(&self) -> (String, String) {
        let (who, why) = match (&self.work.body.cancel, self.arrival()) {
            (Some(cancel), _) => (cancel.requested_by.label(), cancel.reason.as_deref()),
            (None, Some(event)) => (event.actor.label(), event.message.as_deref()),
            (None, None) => ("somebody", None),
        };
        let why = why.unwrap_or("no reason recorded");
        (format!("{}: {who} requested it ({why}).", self.ended("Cancelled")), self.rerun())
    }

    pub(super) fn abandoned(&self) -> (String, String) {
        let why = self
            .arrival()
            .and_then(|event| event.message.as_deref())
            .unwrap_or("its outcome cannot be known");
        let next =
            format!("find out what it did; then {}, if it is safe to run again", self.command("rerun"));
        (format!("{}: {why}.", self.ended("Abandoned")), next)
    }

    fn rerun(&self) -> String {
        format!("nothing: it is over; to run it again, {}", self.command("rerun"))
    }
}
