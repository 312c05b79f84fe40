//! The state table in other forms: the page for people, and the CHECK constraint of the databases. Both are
//! generated from [`state::TABLE`], so that they cannot differ.

use std::fmt::Write as _;

use crate::{
    command::{self, CommandState},
    event::Fact,
    state::{self, Phase, State},
};

/// `docs/state_machine.md`.
pub fn markdown() -> String {
    let mut page = String::from(
        "# The state machine of a work item\n\nGenerated from the table in `crates/core/src/state.rs`; a \
         test keeps this page equal to it. Every move below is an event in the work item's log, and any \
         other move is refused: by the core with a typed refusal, and by the databases with a constraint.\n",
    );
    states(&mut page);
    diagram(&mut page);
    moves(&mut page);
    commands(&mut page);
    events(&mut page);
    page
}

fn commands(page: &mut String) {
    page.push_str(
        "\n## Commands\n\nA command has a state of its own; its moves are events in its work item's log that \
         do not change the work item's state, and may still come after the work item has ended. The table is \
         in `crates/core/src/command/state.rs`.\n\n| code | state | meaning |\n|---|---|---|\n",
    );
    for state in CommandState::ALL {
        row(page, &[&state.code().to_string(), &format!("`{state}`"), meaning_of_command(state)]);
    }
    page.push_str("\n```mermaid\nstateDiagram-v2\n");
    for (state, cause) in command::state::BORN {
        edge(page, "[*]", state.as_str(), cause);
    }
    for moves in command::state::TABLE {
        for (from, to) in moves.from.iter().flat_map(|from| moves.to.iter().map(move |to| (from, to))) {
            edge(page, from.as_str(), to.as_str(), moves.cause);
        }
    }
    page.push_str("```\n\n| from | to | cause |\n|---|---|---|\n");
    let names = |states: &[CommandState]| {
        let names: Vec<String> = states.iter().map(|state| format!("`{state}`")).collect();
        names.join(", ")
    };
    for (state, cause) in command::state::BORN {
        row(page, &["(birth)", &format!("`{state}`"), cause]);
    }
    for moves in command::state::TABLE {
        row(page, &[&names(moves.from), &names(moves.to), moves.cause]);
    }
}

fn meaning_of_command(state: CommandState) -> &'static str {
    match state {
        CommandState::Pending => "recorded and allowed; not dispatched",
        CommandState::Blocked => "stopped by policy, a missing approval or a budget",
        CommandState::Approved => {
            "a person approved exactly this content, for one dispatch and a limited time"
        }
        CommandState::Dispatched => "its call was permitted: the effect may have happened",
        CommandState::Uncertain => "it is unknown whether the effect happened",
        CommandState::Succeeded => "the effect happened, with evidence",
        CommandState::Failed => "the effect did not happen; a person may replay it",
        CommandState::Cancelled => "the effect never happened and will not",
    }
}

fn states(page: &mut String) {
    page.push_str("\n## States\n\n| code | state | phase | meaning |\n|---|---|---|---|\n");
    for state in State::ALL {
        let phase = state.phase().as_str();
        row(page, &[&state.code().to_string(), &format!("`{state}`"), phase, state.meaning()]);
    }
    page.push_str("\n| phase | what a machine may conclude |\n|---|---|\n");
    for phase in Phase::ALL {
        row(page, &[phase.as_str(), conclusion(phase)]);
    }
}

fn conclusion(phase: Phase) -> &'static str {
    match phase {
        Phase::Pending => "nobody holds it; it will be claimed or retried",
        Phase::Active => "a worker holds it",
        Phase::Waiting => "it needs an answer, and occupies no worker",
        Phase::Stuck => "it does not move until its holder, a proof or a person moves it",
        Phase::Terminal => "it has ended and never changes; a rerun is a new work item",
    }
}

fn diagram(page: &mut String) {
    page.push_str("\n## Diagram\n\nThe waiting states are drawn as one.\n\n```mermaid\nstateDiagram-v2\n");
    for (state, cause) in state::BORN {
        edge(page, "[*]", node(*state), cause);
    }
    for (from, to, causes) in edges() {
        edge(page, from, to, &causes.join(" / "));
    }
    for state in State::ALL.into_iter().filter(|state| state.is_terminal()) {
        let _ = writeln!(page, "    {state} --> [*]");
    }
    page.push_str("```\n");
}

/// The drawn arrows, each with every cause that can move a work item along it.
fn edges() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut edges: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for row in state::TABLE {
        let pairs = row.from.iter().flat_map(|from| row.to.iter().map(|to| (node(*from), node(*to))));
        for (from, to) in pairs {
            match edges.iter_mut().find(|(f, t, _)| (*f, *t) == (from, to)) {
                Some((_, _, causes)) if causes.contains(&row.cause) => {}
                Some((_, _, causes)) => causes.push(row.cause),
                None => edges.push((from, to, vec![row.cause])),
            }
        }
    }
    edges
}

fn node(state: State) -> &'static str {
    if state.is_waiting() { "waiting" } else { state.as_str() }
}

fn edge(page: &mut String, from: &str, to: &str, cause: &str) {
    let _ = writeln!(page, "    {from} --> {to} : {cause}");
}

fn moves(page: &mut String) {
    page.push_str("\n## Moves\n\n| from | to | cause |\n|---|---|---|\n");
    for (state, cause) in state::BORN {
        row(page, &["(birth)", &format!("`{state}`"), cause]);
    }
    for moves in state::TABLE {
        row(page, &[&names(moves.from), &names(moves.to), moves.cause]);
    }
    page.push_str(
        "\nAn event that does not change the state has the same state on both sides, and is allowed in every \
         state.\n",
    );
}

fn names(states: &[State]) -> String {
    let names: Vec<String> = states.iter().map(|state| format!("`{state}`")).collect();
    names.join(", ")
}

fn events(page: &mut String) {
    page.push_str(
        "\n## Events\n\nThe list is closed. Readers ignore types that they do not know: a later version \
         may add some.\n\n| type | meaning |\n|---|---|\n",
    );
    for (kind, meaning) in Fact::TYPES {
        row(page, &[&format!("`{kind}`"), meaning]);
    }
}

fn row(page: &mut String, cells: &[&str]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

/// The boolean SQL expression that admits exactly the table: an initial state if `from` is NULL, staying in a
/// state, and the allowed moves. It is never NULL, which a CHECK would let pass. `to` is a NOT NULL column.
/// Chains of OR, because SQLite builds a table for every IN list.
pub fn sql_check(from: &str, to: &str) -> String {
    let last = State::ALL.len() - 1;
    let born: Vec<State> = state::BORN.iter().map(|(state, _)| *state).collect();
    let mut groups = vec![format!("({from} = {to} AND {from} >= 0 AND {from} <= {last})")];
    for state in State::ALL {
        let targets: Vec<State> =
            State::ALL.into_iter().filter(|next| *next != state && state.may_become(*next)).collect();
        if !targets.is_empty() {
            groups.push(format!("({from} = {} AND ({}))", state.code(), any_of(to, &targets)));
        }
    }
    format!(
        "(({from} IS NULL AND ({})) OR ({from} IS NOT NULL AND ({})))",
        any_of(to, &born),
        groups.join(" OR ")
    )
}

/// The same for PostgreSQL, which parses a CHECK anew for every statement that writes, and takes as long for
/// the chains as for ten rows: one bit mask of targets for each state, and a last one for the initial states.
pub fn sql_mask_check(from: &str, to: &str) -> String {
    let last = State::ALL.len() - 1;
    let mask = |targets: &dyn Fn(State) -> bool| {
        State::ALL.into_iter().filter(|to| targets(*to)).map(|to| 1_u32 << to.code()).sum::<u32>()
    };
    let mut masks: Vec<String> =
        State::ALL.into_iter().map(|from| mask(&|to| from.may_become(to)).to_string()).collect();
    masks.push(mask(&|to| state::BORN.iter().any(|(born, _)| *born == to)).to_string());
    format!(
        "{to} >= 0 AND {to} <= {last} AND coalesce({from} <= {last}, true) AND \
         coalesce(('{{{}}}'::int[])[coalesce({from}, {}) + 1] >> {to} & 1, 0) = 1",
        masks.join(","),
        State::ALL.len()
    )
}

fn any_of(column: &str, states: &[State]) -> String {
    let parts: Vec<String> = states.iter().map(|state| format!("{column} = {}", state.code())).collect();
    parts.join(" OR ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Just enough of SQL, with its three-valued logic: `a = b`, `>=`, `<=`, `IS [NOT] NULL`, AND, OR, ( ).
    struct Sql<'a> {
        tokens: Vec<&'a str>,
        at: usize,
        from: Option<i64>,
        to: i64,
    }

    impl Sql<'_> {
        fn take(&mut self, token: &str) -> bool {
            let there = self.tokens.get(self.at) == Some(&token);
            self.at += usize::from(there);
            there
        }

        fn or(&mut self) -> Option<bool> {
            let mut value = self.and();
            while self.take("OR") {
                let other = self.and();
                value = match (value, other) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                };
            }
            value
        }

        fn and(&mut self) -> Option<bool> {
            let mut value = self.term();
            while self.take("AND") {
                let other = self.term();
                value = match (value, other) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                };
            }
            value
        }

        fn term(&mut self) -> Option<bool> {
            if self.take("(") {
                let value = self.or();
                assert!(self.take(")"), "unbalanced at {}", self.at);
                return value;
            }
            let left = self.operand();
            if self.take("IS") {
                let negated = self.take("NOT");
                assert!(self.take("NULL"));
                return Some(left.is_none() != negated);
            }
            let operator = self.tokens[self.at];
            self.at += 1;
            let right = self.operand()?;
            Some(match operator {
                "=" => left? == right,
                ">=" => left? >= right,
                "<=" => left? <= right,
                other => panic!("unknown operator {other}"),
            })
        }

        fn operand(&mut self) -> Option<i64> {
            let token = self.tokens[self.at];
            self.at += 1;
            match token {
                "from_state" => self.from,
                "to_state" => Some(self.to),
                number => Some(number.parse().expect("a number")),
            }
        }
    }

    fn admits(sql: &str, from: Option<i64>, to: i64) -> Option<bool> {
        let spaced = sql.replace('(', " ( ").replace(')', " ) ");
        let mut sql = Sql { tokens: spaced.split_whitespace().collect(), at: 0, from, to };
        let value = sql.or();
        assert_eq!(sql.at, sql.tokens.len(), "the whole expression is read");
        value
    }

    #[test]
    fn the_check_admits_births_staying_and_legal_moves_only() {
        let sql = sql_check("from_state", "to_state");
        assert!(!sql.contains(" IN "));
        for to in State::ALL {
            let born = state::BORN.iter().any(|(state, _)| *state == to);
            assert_eq!(admits(&sql, None, to.code().into()), Some(born), "birth as {to}");
            for from in State::ALL {
                let verdict = admits(&sql, Some(from.code().into()), to.code().into());
                assert_eq!(verdict, Some(from.may_become(to)), "{from} -> {to}");
            }
        }
    }

    #[test]
    fn the_check_refuses_unknown_codes() {
        let sql = sql_check("from_state", "to_state");
        let unknown = State::ALL.len() as i64;
        for (from, to) in [
            (None, unknown),
            (Some(unknown), unknown),
            (Some(-1), -1),
            (Some(0), unknown),
            (Some(unknown), 0),
        ] {
            assert_eq!(admits(&sql, from, to), Some(false), "{from:?} -> {to}");
        }
    }

    #[test]
    fn the_page_names_every_state_and_event() {
        let page = markdown();
        for state in State::ALL {
            assert!(page.contains(&format!("`{state}`")), "{state}");
        }
        for (kind, meaning) in Fact::TYPES {
            assert!(page.contains(&format!("| `{kind}` | {meaning} |")), "{kind}");
        }
    }
}
