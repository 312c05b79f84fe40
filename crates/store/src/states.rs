//! The states in SQL, by name. Tables have the numbers of the core's tables of states; the text of every statement, and
//! `schema.sql`, has their names. [`sql!`] fills them in when it is compiled, so a statement is a constant string, and a
//! condition has the same text in a query and in the partial index that it wants.
//!
//! | in the text | in the statement |
//! |---|---|
//! | `{s.state is held}` | a condition on a column |
//! | `{s.state is not queued}` | the same for all states but one |
//! | `{array of leased}` | PostgreSQL's array of these states |
//! | `{code of queued}` | the number of one state |
//!
//! After `command`, as in `{command c.state is open}`, the states are those of commands. A name is one of the sets below or
//! that of a single state.

use tenure_core::{CommandState, Phase, State};

macro_rules! set {
    ($type:ident: $state:ident => $is:expr) => {{
        let (mut set, mut next) = (0_u32, 0);
        while next < $type::ALL.len() {
            let $state = $type::ALL[next];
            if $is {
                set |= 1 << $state.code();
            }
            next += 1;
        }
        set
    }};
}

/// Sets of states of work items.
const SETS: [(&str, u32); 9] = [
    ("known", set!(State: _state => true)),
    ("open", set!(State: state => !state.is_terminal())),
    ("terminal", set!(State: state => state.is_terminal())),
    ("pending", set!(State: state => state.awaits_session())),
    ("waiting", set!(State: state => state.is_waiting())),
    ("held", set!(State: state => state.holds_session())),
    // With a lease that nobody found lapsed.
    ("leased", set!(State: state => matches!(state.phase(), Phase::Active))),
    // With no lease, or with a lapsed one whose holder may still write.
    ("resumable", set!(State: state => state.awaits_session() || matches!(state, State::Stalled))),
    // It does not progress, so its row says why.
    (
        "halted",
        set!(State: state => !state.is_terminal() && !matches!(state, State::Queued | State::Running)),
    ),
];

/// Sets of states of commands.
const COMMAND_SETS: [(&str, u32); 6] = [
    ("known", set!(CommandState: _state => true)),
    ("open", set!(CommandState: state => state.is_open())),
    ("idle", set!(CommandState: state => state.is_idle())),
    // Only a command that was dispatched gets here.
    ("sent", set!(CommandState: state => state.is_unsettled() || matches!(state, CommandState::Failed))),
    // Of a worker's command: about to be made, or being made. Soon over.
    ("brief", set!(CommandState: state => matches!(state, CommandState::Pending | CommandState::Dispatched))),
    // Stopped, sent, or in doubt. Not waiting for its turn, so never a long queue.
    (
        "stopped_or_sent",
        set!(CommandState: state => state.is_unsettled() || matches!(state, CommandState::Blocked)),
    ),
];

/// A statement with names of states, from literals as `concat!` takes them.
macro_rules! sql {
    ($($text:tt)+) => {{
        const TEXT: &str = concat!($($text)+);
        const FILLED: [u8; $crate::states::length(TEXT)] = $crate::states::filled(TEXT);
        const SQL: &str = $crate::states::as_str(&FILLED);
        SQL
    }};
}
pub(crate) use sql;

/// Text as long as `N`. Longer text is only counted.
struct Writer<const N: usize> {
    text: [u8; N],
    length: usize,
}

impl<const N: usize> Writer<N> {
    const fn byte(&mut self, byte: u8) {
        if self.length < N {
            self.text[self.length] = byte;
        }
        self.length += 1;
    }

    const fn bytes(&mut self, bytes: &[u8]) {
        let mut next = 0;
        while next < bytes.len() {
            self.byte(bytes[next]);
            next += 1;
        }
    }

    const fn number(&mut self, number: u32) {
        if number > 9 {
            self.number(number / 10);
        }
        self.byte(b'0' + (number % 10) as u8);
    }

    /// `column operator number`
    const fn comparison(&mut self, column: &[u8], operator: &str, number: u32) {
        self.bytes(column);
        self.byte(b' ');
        self.bytes(operator.as_bytes());
        self.byte(b' ');
        self.number(number);
    }

    /// Equalities and ranges joined by OR: SQLite makes a table of an IN list.
    const fn condition(&mut self, column: &[u8], set: u32, last: u32) {
        let several = set.count_ones() > 1;
        if several {
            self.byte(b'(');
        }
        let (mut next, mut first) = (0, true);
        while next <= last {
            let to = end_of_run(set, next);
            if set & (1 << next) != 0 {
                if !first {
                    self.bytes(b" OR ");
                }
                first = false;
                self.run(column, next, to, last);
            }
            next = to + 1;
        }
        if several {
            self.byte(b')');
        }
    }

    /// No comparison for a bound that every known state keeps, unless all are meant.
    const fn run(&mut self, column: &[u8], from: u32, to: u32, last: u32) {
        if from == to {
            self.comparison(column, "=", from);
        } else if from + 1 == to && to < last && from > 0 {
            self.comparison(column, "=", from);
            self.bytes(b" OR ");
            self.comparison(column, "=", to);
        } else {
            let all = from == 0 && to == last;
            if from > 0 || all {
                self.comparison(column, ">=", from);
            }
            if (from > 0 && to < last) || all {
                self.bytes(b" AND ");
            }
            if to < last || all {
                self.comparison(column, "<=", to);
            }
        }
    }

    const fn array(&mut self, set: u32) {
        self.bytes(b"'{");
        let (mut next, mut first) = (0, true);
        while next < u32::BITS {
            if set & (1 << next) != 0 {
                if !first {
                    self.byte(b',');
                }
                first = false;
                self.number(next);
            }
            next += 1;
        }
        self.bytes(b"}'::smallint[]");
    }

    /// What is between the braces.
    const fn names(&mut self, text: &[u8]) {
        let (mut word, mut rest) = first_word(text);
        let of_commands = equal(word, b"command");
        if of_commands {
            (word, rest) = first_word(rest);
        }
        let (verb, name) = first_word(rest);
        let last = if of_commands { CommandState::ALL.len() } else { State::ALL.len() } as u32 - 1;
        if equal(verb, b"is") {
            let (negation, single) = first_word(name);
            if equal(negation, b"not") {
                self.comparison(word, "<>", code(of_commands, single));
            } else {
                self.condition(word, named(of_commands, name), last);
            }
        } else if equal(verb, b"of") && equal(word, b"array") {
            self.array(named(of_commands, name));
        } else if equal(verb, b"of") && equal(word, b"code") {
            self.number(code(of_commands, name));
        } else {
            panic!("between braces in SQL comes `COLUMN is NAME`, `array of NAME` or `code of NAME`");
        }
    }
}

/// The last number of those from `from` on that are all in the set, or all not.
const fn end_of_run(set: u32, from: u32) -> u32 {
    let mut to = from;
    while to + 1 < u32::BITS && (set >> (to + 1) & 1) == (set >> from & 1) {
        to += 1;
    }
    to
}

/// The text before the first space, and after it.
const fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0;
    while at < text.len() {
        if text[at] == b' ' {
            return (text.split_at(at).0, text.split_at(at + 1).1);
        }
        at += 1;
    }
    (text, &[])
}

const fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The set of a name, a bit for each number.
const fn named(of_commands: bool, name: &[u8]) -> u32 {
    let sets: &[(&str, u32)] = if of_commands { &COMMAND_SETS } else { &SETS };
    let mut next = 0;
    while next < sets.len() {
        if equal(sets[next].0.as_bytes(), name) {
            return sets[next].1;
        }
        next += 1;
    }
    1 << code(of_commands, name)
}

/// The number of a single state.
const fn code(of_commands: bool, name: &[u8]) -> u32 {
    let mut next = 0;
    while !of_commands && next < State::ALL.len() {
        if equal(State::ALL[next].as_str().as_bytes(), name) {
            return State::ALL[next].code() as u32;
        }
        next += 1;
    }
    while of_commands && next < CommandState::ALL.len() {
        if equal(CommandState::ALL[next].as_str().as_bytes(), name) {
            return CommandState::ALL[next].code() as u32;
        }
        next += 1;
    }
    panic!("between braces in SQL is a name that is neither a state nor a set in store/src/states.rs")
}

const fn fill<const N: usize>(text: &str) -> Writer<N> {
    let mut writer = Writer { text: [0; N], length: 0 };
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'{' {
            writer.byte(*byte);
            continue;
        }
        let mut end = 0;
        while rest[end] != b'}' {
            end += 1;
        }
        writer.names(rest.split_at(end).0);
        rest = rest.split_at(end + 1).1;
    }
    writer
}

/// How long a statement is when it is filled.
pub(crate) const fn length(text: &str) -> usize {
    fill::<0>(text).length
}

pub(crate) const fn filled<const N: usize>(text: &str) -> [u8; N] {
    fill(text).text
}

pub(crate) const fn as_str(filled: &[u8]) -> &str {
    match std::str::from_utf8(filled) {
        Ok(text) => text,
        Err(_) => panic!("names of states are ASCII"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_conditions_arrays_and_numbers() {
        for (text, expected) in [
            (sql!("{state is queued}"), "state = 0"),
            (sql!("{s.state is not queued}"), "s.state <> 0"),
            (sql!("{state is known}"), "(state >= 0 AND state <= 16)"),
            (sql!("{state is open}"), "(state <= 10)"),
            (sql!("{w.state is terminal}"), "(w.state >= 11)"),
            (sql!("{state is waiting}"), "(state >= 2 AND state <= 6)"),
            (sql!("{state is held}"), "(state = 1 OR state = 8 OR state = 9)"),
            (sql!("{state is pending}"), "(state = 0 OR state = 7)"),
            (sql!("{state is leased}"), "(state = 1 OR state = 9)"),
            (sql!("{array of held}, {code of cancelled}"), "'{1,8,9}'::smallint[], 15"),
            (sql!("{command c.state is open}"), "(c.state <= 4)"),
            (sql!("{command state is sent}"), "(state = 3 OR state = 4 OR state = 6)"),
            (sql!("{command state is not succeeded}"), "state <> 5"),
            (sql!("{command array of open} {command code of pending}"), "'{0,1,2,3,4}'::smallint[] 0"),
            (sql!("a ", "{state is running}", " b"), "a state = 1 b"),
        ] {
            assert_eq!(text, expected);
        }
    }

    /// Every set of numbers, as a database reads its condition.
    #[cfg(feature = "sqlite")]
    #[test]
    fn a_condition_holds_for_exactly_its_states() {
        let conn = rusqlite::Connection::open_in_memory().unwrap();
        let last = CommandState::ALL.len() as u32 - 1;
        for set in 1..1_u32 << (last + 1) {
            let mut writer = Writer { text: [0; 200], length: 0 };
            writer.condition(b"state", set, last);
            let condition = as_str(&writer.text[..writer.length]);
            let states =
                "WITH RECURSIVE s (state) AS (SELECT 0 UNION ALL SELECT state + 1 FROM s WHERE state < 7)";
            let sql = format!("{states} SELECT coalesce(sum(1 << state), 0) FROM s WHERE {condition}");
            let found: u32 = conn.query_row(&sql, [], |row| row.get(0)).unwrap();
            assert_eq!(found, set, "{condition}");
        }
    }
}
