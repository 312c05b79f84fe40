//! The state of the view, and how each key changes it. No single key changes anything in the ledger.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tenure_api::wire::{Work, WorkId};

use super::{
    act::{Dialog, Kind, Pressed},
    snapshot::Snapshot,
};

pub struct Screen {
    /// The name of the ledger.
    pub place: String,
    pub snapshot: Snapshot,
    /// Why the last poll failed; the snapshot is older.
    pub trouble: Option<String>,
    /// By id, so that the selection stays when rows move.
    pub selected: Option<WorkId>,
    pub filter: String,
    pub typing: bool,
    pub help: bool,
    /// The work item shown in full.
    pub open: Option<WorkId>,
    pub scroll: u16,
    /// A decision that is being taken.
    pub dialog: Option<Dialog>,
    /// The result of the last decision, until the next key.
    pub said: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Then {
    Stay,
    /// The view needs data that is not loaded.
    Look,
    /// What a decision on this work item would do must be read.
    Propose(Kind, WorkId),
    /// The person has confirmed the dialog.
    Act,
    Quit,
}

impl Screen {
    pub fn new(place: String, snapshot: Snapshot) -> Self {
        Self {
            place,
            snapshot,
            trouble: None,
            selected: None,
            filter: String::new(),
            typing: false,
            help: false,
            open: None,
            scroll: 0,
            dialog: None,
            said: None,
        }
    }

    /// The rows that match the filter.
    pub fn rows(&self) -> Vec<&Work> {
        let sought = self.filter.to_lowercase();
        let admits = |work: &&Work| {
            let owner = work.lease.as_ref().map_or("", |lease| &lease.worker);
            let texts = [work.id.as_str(), work.state.as_str(), &work.kind, &work.source.id, owner];
            texts.iter().any(|text| text.to_lowercase().contains(&sought))
        };
        self.snapshot.rows.iter().filter(admits).collect()
    }

    /// The index of the selected row; the first if it is gone.
    pub fn at(&self) -> Option<usize> {
        let rows = self.rows();
        let at = rows.iter().position(|work| Some(&work.id) == self.selected.as_ref());
        at.or((!rows.is_empty()).then_some(0))
    }

    /// The work item that a decision is about: the open one, or the selected one.
    fn chosen(&self) -> Option<WorkId> {
        self.open.clone().or_else(|| Some(self.rows()[self.at()?].id.clone()))
    }

    pub fn press(&mut self, key: KeyEvent) -> Then {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Then::Quit } else { Then::Stay };
        }
        self.said = None;
        if let Some(dialog) = &mut self.dialog {
            match dialog.press(key.code) {
                Pressed::Stay => {}
                Pressed::Do => return Then::Act,
                Pressed::Close => {
                    self.dialog = None;
                    self.said = Some("nothing was done".to_owned());
                }
            }
            return Then::Stay;
        }
        if self.typing {
            return self.type_filter(key.code);
        }
        if key.code == KeyCode::Char('q') {
            return Then::Quit;
        }
        if self.help {
            self.help = false;
            return Then::Stay;
        }
        if let (Some(kind), Some(work)) = (Kind::of(key.code), self.chosen()) {
            return Then::Propose(kind, work);
        }
        if self.open.is_some() {
            return self.press_in_full(key.code);
        }
        match key.code {
            KeyCode::Char('?') => self.help = true,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('j') | KeyCode::Down => self.go(1),
            KeyCode::Char('k') | KeyCode::Up => self.go(-1),
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter => {
                self.open = self.at().map(|at| self.rows()[at].id.clone());
                self.scroll = 0;
                return Then::Look;
            }
            _ => {}
        }
        Then::Stay
    }

    fn press_in_full(&mut self, key: KeyCode) -> Then {
        match key {
            KeyCode::Esc | KeyCode::Enter => {
                self.open = None;
                self.snapshot.full = None;
            }
            KeyCode::Char('j') | KeyCode::Down => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Char('k') | KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Char('?') => self.help = true,
            _ => {}
        }
        Then::Stay
    }

    fn type_filter(&mut self, key: KeyCode) -> Then {
        match key {
            KeyCode::Esc => {
                self.filter.clear();
                self.typing = false;
            }
            KeyCode::Enter => self.typing = false,
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) => self.filter.push(c),
            _ => {}
        }
        Then::Stay
    }

    fn go(&mut self, by: isize) {
        let rows = self.rows();
        let Some(at) = self.at() else { return };
        let to = at.saturating_add_signed(by).min(rows.len() - 1);
        self.selected = Some(rows[to].id.clone());
    }
}
