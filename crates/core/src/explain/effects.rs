//! The part of an explanation about commands that are in doubt, stopped or not yet sent.

use super::{Advice, View, ended::OVER};
use crate::{
    command::{self, BlockCode, Command, CommandState},
    model::WaitState,
    next::Next,
    records::referenced_command,
    state::State,
};

/// The needs of a command, most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Outcome,
    Approval,
    Permission,
    /// No person is needed: it is in doubt, and lookups go on.
    Lookup,
    /// No person is needed: it is in progress.
    Time,
}

impl Need {
    const ALL: [Need; 5] = [Need::Outcome, Need::Approval, Need::Permission, Need::Lookup, Need::Time];

    fn of(command: &Command) -> Option<Self> {
        match command.state {
            CommandState::Uncertain if command.body.needs_person => Some(Need::Outcome),
            CommandState::Uncertain => Some(Need::Lookup),
            CommandState::Blocked => match command.body.blocked {
                Some(BlockCode::PolicyDenied | BlockCode::Budget) => Some(Need::Permission),
                Some(BlockCode::ApprovalRequired) | None => Some(Need::Approval),
            },
            CommandState::Pending | CommandState::Approved | CommandState::Dispatched => Some(Need::Time),
            CommandState::Succeeded | CommandState::Failed | CommandState::Cancelled => None,
        }
    }

    fn clause(self, count: usize) -> String {
        let which = match count {
            1 => "one of its commands".to_owned(),
            many => format!("{many} of its commands"),
        };
        let (does, is) = if count == 1 { ("waits", "is") } else { ("wait", "are") };
        match self {
            Need::Outcome => {
                format!("it is unknown whether {which} happened, and only a person can find out")
            }
            Need::Approval => format!("{which} {does} for an approval"),
            Need::Permission => format!("{which} {is} stopped by policy or a budget"),
            Need::Lookup => format!("{which} {is} in doubt, and lookups go on"),
            Need::Time => format!("{which} {is} still to be executed"),
        }
    }
}

impl View<'_> {
    /// Adds the clauses about the commands.
    pub(super) fn with_effects(&self, (sentence, next): (String, Advice)) -> (String, Advice) {
        let ended = self.work.state.is_terminal();
        // The explanations of these two states mention their commands already.
        if matches!(self.work.state, State::Stalled | State::Quarantined) {
            return (sentence, next);
        }
        let mut open: Vec<(Need, &Command)> = self
            .commands
            .iter()
            .filter(|command| !self.waited_for(command))
            .filter_map(|command| Some((Need::of(command)?, command)))
            // A command that needs no person is not mentioned while the work item is not over.
            .filter(|(need, _)| ended || *need < Need::Lookup)
            .collect();
        open.sort_by_key(|(need, command)| (*need, command.id));
        let Some((worst, first)) = open.first() else { return (sentence, next) };
        let counts = Need::ALL.map(|need| (need, open.iter().filter(|(other, _)| *other == need).count()));
        let said: Vec<String> =
            counts.iter().filter(|(_, count)| *count > 0).map(|(need, count)| need.clause(*count)).collect();
        let sentence = format!("{}; {}.", sentence.trim_end_matches('.'), said.join("; "));
        (sentence, self.next_with(*worst, first, open.len(), next))
    }

    /// A command that needs a person comes before the next step of the work item itself.
    fn next_with(&self, worst: Need, first: &Command, count: usize, (own, next): Advice) -> Advice {
        let all = Next::Commands(self.work.id);
        if worst >= Need::Lookup {
            return (own, [next, vec![all]].concat());
        }
        let mut todo = command::explain(first, None, self.now);
        if count > 1 {
            todo.next.push(all);
        }
        let advice = if own == OVER { todo.advice } else { format!("{}; otherwise {own}", todo.advice) };
        (advice, [todo.next, next].concat())
    }

    /// The explanation of its wait covers it.
    fn waited_for(&self, command: &Command) -> bool {
        let mut open = self.waits.iter().filter(|wait| wait.state == WaitState::Open);
        open.any(|wait| {
            wait.detail.command == Some(command.id) || referenced_command(&wait.reference) == Some(command.id)
        })
    }
}
