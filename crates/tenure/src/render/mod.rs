//! Output on a terminal and in a pipe. Data goes to stdout, everything else to stderr.

mod command;
mod describe;
mod intake;
mod light;
mod needs;
mod recovery;
mod rows;
mod schedule;
mod stuck;
mod table;
mod text;

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
};

use serde::Serialize;
use tenure_api::{client::ServerClock, wire::Timestamp};

pub use command::{became, commands, describe_command, intent, plan};
pub use describe::{describe, describe_past, explained, question};
pub use intake::{intake, whose};
pub use light::Light;
pub use needs::{Asked, Need, needs};
pub use recovery::{recovery_plan, recovery_report, victims};
pub use rows::{
    alerts, command_of, event, events, feed, in_state, leases, past, reason, running, source, tokens,
    workers, works,
};
pub use schedule::{describe_schedule, schedules};
pub use stuck::{nothing_stuck, stuck};
pub use table::{Cell, Endings, Table};
pub use text::{age, safe, span};

use crate::{args::Format, exit::Failure};

/// The style: colours only on a terminal that supports them, glyphs only if the locale has them.
#[derive(Clone, Copy)]
pub struct Style {
    pub colour: bool,
    pub ascii: bool,
    pub now: Timestamp,
    /// The width of the terminal; None in a pipe, where nothing is cut.
    pub width: Option<usize>,
}

impl Style {
    fn detect(terminal: bool, now: Timestamp) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let dumb = set("TERM").as_deref() == Some("dumb");
        Self {
            colour: terminal && set("NO_COLOR").is_none() && !dumb,
            ascii: !(locale.contains("utf-8") || locale.contains("utf8")),
            now,
            width: terminal.then(columns).flatten(),
        }
    }
}

/// The terminal's width, if it says so.
fn columns() -> Option<usize> {
    let (columns, _) = ratatui::crossterm::terminal::size().ok()?;
    (columns > 0).then_some(usize::from(columns))
}

/// Prints data in the requested format. Ages use the server's clock.
pub struct Out {
    format: Format,
    terminal: bool,
    clock: ServerClock,
    to: Mutex<Box<dyn Write + Send>>,
}

impl Out {
    pub fn stdout(format: Format, clock: ServerClock) -> Self {
        Self::to(Box::new(io::stdout()), io::stdout().is_terminal(), format, clock)
    }

    pub fn to(to: Box<dyn Write + Send>, terminal: bool, format: Format, clock: ServerClock) -> Self {
        Self { format, terminal, clock, to: Mutex::new(to) }
    }

    pub fn style(&self) -> Style {
        Style::detect(self.terminal, self.clock.now())
    }

    /// Whether a person reads it, rather than a program that reads JSON.
    pub fn is_for_people(&self) -> bool {
        self.format == Format::Table
    }

    fn put(&self, text: &str) -> Result<(), Failure> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.write_all(text.as_bytes())?;
        Ok(to.flush()?)
    }

    /// A list: a table for people, documents for machines.
    pub fn list<T: Serialize>(
        &self,
        items: &[T],
        table: impl FnOnce(&[T], &Style) -> Table,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => {
                let style = self.style();
                self.put(&table(items, &style).draw(&style))
            }
            Format::Json => self.put(&format!("{}\n", pretty(&items))),
            Format::Jsonl => items.iter().try_for_each(|item| self.put(&format!("{}\n", line(item)))),
        }
    }

    /// One thing.
    pub fn one<T: Serialize>(
        &self,
        item: &T,
        text: impl FnOnce(&T, &Style) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.put(&text(item, &self.style())),
            Format::Json => self.put(&format!("{}\n", pretty(item))),
            Format::Jsonl => self.put(&format!("{}\n", line(item))),
        }
    }

    /// One item of a stream, on one line in the JSON formats.
    pub fn next<T: Serialize>(
        &self,
        item: &T,
        text: impl FnOnce(&T, &Style) -> String,
    ) -> Result<(), Failure> {
        match self.format {
            Format::Table => self.put(&text(item, &self.style())),
            Format::Json | Format::Jsonl => self.put(&format!("{}\n", line(item))),
        }
    }

    /// Begins a redraw on a terminal; elsewhere redraws follow one another.
    pub fn clear(&self) -> Result<(), Failure> {
        if self.terminal { self.put("\x1b[H\x1b[2J") } else { Ok(()) }
    }
}

/// Prints a message to stderr.
pub fn say(message: &str) {
    eprintln!("{}", safe(message));
}

/// Prints something to read before a question, to stderr. It is escaped already.
pub fn show(page: &str) {
    eprint!("{page}");
}

fn pretty(item: &impl Serialize) -> String {
    text::safe_json(&serde_json::to_string_pretty(item).expect("wire types have string keys"))
}

fn line(item: &impl Serialize) -> String {
    text::safe_json(&serde_json::to_string(item).expect("wire types have string keys"))
}
