//! Names of states in the SQL of tests.

use tenure_store::core::{CommandState, State};

/// Replaces `{running}` by the number of this state, `{command succeeded}` by that of a command's state, and `{unknown}` and
/// `{command unknown}` by a number that no state has.
pub fn named(sql: &str) -> String {
    let states = State::ALL.iter().map(|state| (format!("{{{state}}}"), state.code()));
    let commands =
        CommandState::ALL.iter().map(|state| (format!("{{command {}}}", state.as_str()), state.code()));
    let unknown = [
        ("{unknown}".to_owned(), State::ALL.len() as u8),
        ("{command unknown}".to_owned(), CommandState::ALL.len() as u8),
    ];
    let names = states.chain(commands).chain(unknown);
    names.fold(sql.to_owned(), |sql, (name, code)| sql.replace(&name, &code.to_string()))
}
