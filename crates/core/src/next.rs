//! The command lines that explanations and refusals print. Each is complete and safe to paste: it has no
//! placeholder, names from outside are quoted for a shell, and a verb that changes something shows what it
//! would change, and asks for a reason and a confirmation.

use std::fmt;

use crate::{
    ids::{CommandId, WaitId, WorkId},
    model::Wait,
};

/// One command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Explain(WorkId),
    ShowCommand(CommandId),
    Events(WorkId),
    /// The commands of a work item.
    Commands(WorkId),
    Workers,
    Approve(WorkId),
    Reject(WorkId),
    ApproveCommand(CommandId),
    RejectCommand(CommandId),
    /// Answers a wait by its reference.
    Answer(String),
    /// Answers a wait by its id, because its reference would be read as something else.
    AnswerWait(WaitId),
    /// Records that the account that it waits for is connected again.
    Reconnect(WorkId),
    Cancel(WorkId),
    Abandon(WorkId),
    Retry(WorkId),
    Rerun(WorkId),
    Requeue(WorkId),
    Quarantine(WorkId),
    /// Ends a quarantined work item as failed.
    DecideFailed(WorkId),
    /// Records whether a command in doubt happened.
    Record(CommandId, bool),
    Replay(CommandId),
    /// Ends the pause of one tenant's intake, or of everybody's.
    ResumeIntake(Option<String>),
}

impl Next {
    /// Answers this wait.
    pub fn answer(wait: &Wait) -> Self {
        if wait.reference.starts_with(['-', '@']) || wait.reference.starts_with(WaitId::PREFIX) {
            return Next::AnswerWait(wait.id);
        }
        Next::Answer(wait.reference.clone())
    }

    /// One line of each form. A test runs them all on the built binary.
    pub fn forms(work: WorkId, command: CommandId, wait: WaitId, reference: &str) -> Vec<Self> {
        vec![
            Next::Explain(work),
            Next::ShowCommand(command),
            Next::Events(work),
            Next::Commands(work),
            Next::Workers,
            Next::Approve(work),
            Next::Reject(work),
            Next::ApproveCommand(command),
            Next::RejectCommand(command),
            Next::Answer(reference.to_owned()),
            Next::AnswerWait(wait),
            Next::Reconnect(work),
            Next::Cancel(work),
            Next::Abandon(work),
            Next::Retry(work),
            Next::Rerun(work),
            Next::Requeue(work),
            Next::Quarantine(work),
            Next::DecideFailed(work),
            Next::Record(command, true),
            Next::Record(command, false),
            Next::Replay(command),
            Next::ResumeIntake(None),
            Next::ResumeIntake(Some("it's ours; $(x)".to_owned())),
        ]
    }
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Explain(work) => write!(f, "tenure explain {work}"),
            Next::ShowCommand(command) => write!(f, "tenure show {command}"),
            Next::Events(work) => write!(f, "tenure events {work}"),
            Next::Commands(work) => write!(f, "tenure commands list --work {work}"),
            Next::Workers => write!(f, "tenure workers"),
            Next::Approve(work) => write!(f, "tenure approve {work}"),
            Next::Reject(work) => write!(f, "tenure reject {work}"),
            Next::ApproveCommand(command) => write!(f, "tenure approve {command}"),
            Next::RejectCommand(command) => write!(f, "tenure reject {command}"),
            Next::Answer(reference) => write!(f, "tenure resolve {}", typed(reference)),
            Next::AnswerWait(wait) => write!(f, "tenure resolve {wait}"),
            Next::Reconnect(work) => write!(f, "tenure reconnect {work}"),
            Next::Cancel(work) => write!(f, "tenure cancel {work}"),
            Next::Abandon(work) => write!(f, "tenure abandon {work}"),
            Next::Retry(work) => write!(f, "tenure retry {work}"),
            Next::Rerun(work) => write!(f, "tenure rerun {work}"),
            Next::Requeue(work) => write!(f, "tenure requeue {work}"),
            Next::Quarantine(work) => write!(f, "tenure quarantine {work}"),
            Next::DecideFailed(work) => write!(f, "tenure decide {work} failed"),
            Next::Record(command, true) => write!(f, "tenure commands record {command} --happened"),
            Next::Record(command, false) => write!(f, "tenure commands record {command} --did-not-happen"),
            Next::Replay(command) => write!(f, "tenure commands replay {command}"),
            Next::ResumeIntake(None) => write!(f, "tenure intake resume"),
            Next::ResumeIntake(Some(tenant)) => write!(f, "tenure intake resume --tenant={}", typed(tenant)),
        }
    }
}

/// Quoted for a shell, unless it is one plain word.
fn typed(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/@+=%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The match names every form, so that a new one must be listed too.
    fn number(form: &Next) -> usize {
        match form {
            Next::Explain(_) => 0,
            Next::ShowCommand(_) => 1,
            Next::Events(_) => 2,
            Next::Commands(_) => 3,
            Next::Workers => 4,
            Next::Approve(_) => 5,
            Next::Reject(_) => 6,
            Next::ApproveCommand(_) => 7,
            Next::RejectCommand(_) => 8,
            Next::Answer(_) => 9,
            Next::AnswerWait(_) => 10,
            Next::Reconnect(_) => 11,
            Next::Cancel(_) => 12,
            Next::Abandon(_) => 13,
            Next::Retry(_) => 14,
            Next::Rerun(_) => 15,
            Next::Requeue(_) => 16,
            Next::Quarantine(_) => 17,
            Next::DecideFailed(_) => 18,
            Next::Record(_, true) => 19,
            Next::Record(_, false) => 20,
            Next::Replay(_) => 21,
            Next::ResumeIntake(None) => 22,
            Next::ResumeIntake(Some(_)) => 23,
        }
    }

    #[test]
    fn every_form_is_listed() {
        let id = "01980000000070008000000000000000";
        let (work, command) = (format!("w_{id}").parse().unwrap(), format!("c_{id}").parse().unwrap());
        let forms = Next::forms(work, command, format!("wt_{id}").parse().unwrap(), "deploy-7");
        let numbers: Vec<usize> = forms.iter().map(number).collect();
        assert_eq!(numbers, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn names_from_outside_are_one_word_of_the_shell() {
        let answer = |reference: &str| Next::Answer(reference.to_owned()).to_string();
        assert_eq!(answer("deploy-7"), "tenure resolve deploy-7");
        assert_eq!(answer("it's; rm -rf ~"), "tenure resolve 'it'\\''s; rm -rf ~'");
        assert_eq!(answer("`id`"), "tenure resolve '`id`'");
    }
}
