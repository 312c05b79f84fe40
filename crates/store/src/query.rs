//! The queries of a ledger: typed filters, keyset pages, positions in the feed.

use std::{fmt, str::FromStr};

use crate::listed::{EventKey, Unreadable};
use serde::{Deserialize, Serialize};
use tenure_core::{
    Code, Command, CommandState, Event, Millis, Phase, Refusal, State, WaitId, Work, WorkId,
    action::{Kinds, Tenants},
    command::BlockCode,
    limits,
    model::{WaitKind, WaitState},
};

/// Selects work items. A field that is None does not restrict.
#[derive(Clone, Debug, Default)]
pub struct WorkFilter {
    /// Only those of these tenants.
    pub tenants: Option<Tenants>,
    /// Only those in one of these states.
    pub states: Vec<State>,
    /// Only those in this phase.
    pub phase: Option<Phase>,
    /// Only those of this source system.
    pub system: Option<String>,
    /// Only those with this id at their source.
    pub source_id: Option<String>,
    /// Only those of this kind.
    pub kind: Option<String>,
    /// The kinds that the reader may see.
    pub kinds: Kinds,
    /// Only those of this workflow.
    pub workflow: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// The worker that holds the lease.
    pub owner: Option<String>,
    /// Only the children of this work item.
    pub parent: Option<WorkId>,
    /// Only those with this correlation id.
    pub correlation_id: Option<String>,
    /// Only those created after this time.
    pub created_after: Option<Millis>,
    /// Only those created before this time.
    pub created_before: Option<Millis>,
    /// Only those that are due before this time.
    pub due_before: Option<Millis>,
}

impl WorkFilter {
    /// The states that the filter admits; None for all.
    pub fn admitted(&self) -> Option<Vec<State>> {
        if self.states.is_empty() && self.phase.is_none() {
            return None;
        }
        let wanted = |state: &State| {
            (self.states.is_empty() || self.states.contains(state))
                && self.phase.is_none_or(|phase| state.phase() == phase)
        };
        Some(State::ALL.into_iter().filter(wanted).collect())
    }

    /// The filters on one text, one row for each.
    fn texts(&self) -> [TextFilter<'_>; 6] {
        [
            TextFilter {
                field: "system",
                column: "system",
                wanted: self.system.as_deref(),
                of: |work| Some(&work.spec.source.system),
            },
            TextFilter {
                field: "source_id",
                column: "source_id",
                wanted: self.source_id.as_deref(),
                of: |work| Some(&work.spec.source.id),
            },
            TextFilter {
                field: "kind",
                column: "kind",
                wanted: self.kind.as_deref(),
                of: |work| Some(&work.spec.kind),
            },
            TextFilter {
                field: "workflow",
                column: "workflow_id",
                wanted: self.workflow.as_deref(),
                of: |work| work.spec.workflow.as_ref().map(|workflow| workflow.id.as_str()),
            },
            TextFilter {
                field: "session",
                column: "session",
                wanted: self.session.as_deref(),
                of: |work| work.spec.session.as_deref(),
            },
            TextFilter {
                field: "owner",
                column: "owner",
                wanted: self.owner.as_deref(),
                of: |work| work.body.holder.as_ref().map(|holder| holder.id.as_str()),
            },
        ]
    }

    /// [`WorkFilter::matches`] as conditions on single columns, for the SQL of every store. Each store adds what
    /// is more than that: tenants, kinds that the reader may see, states, the correlation id.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn conditions(&self) -> Vec<Condition<'_>> {
        let texts = self.texts().into_iter().filter_map(|text| Some((text.column, "=", text.wanted?)));
        let texts = texts.map(|(column, is, wanted)| (column, is, Wanted::Text(wanted)));
        let parent = self.parent.map(|parent| ("parent", "=", Wanted::Work(parent)));
        let times = [
            ("created_at", ">", self.created_after),
            ("created_at", "<", self.created_before),
            ("due_at", "<", self.due_before),
        ];
        let times = times.into_iter().filter_map(|(column, is, at)| Some((column, is, Wanted::Time(at?))));
        let all = texts.chain(parent).chain(times);
        all.map(|(column, is, wanted)| Condition { column, is, wanted }).collect()
    }

    /// Refuses text that no work item can have and that a database may not accept.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_tenants(self.tenants.as_ref())?;
        for TextFilter { field, wanted, .. } in self.texts() {
            wanted.map_or(Ok(()), |wanted| limits::reference(field, wanted))?;
        }
        self.correlation_id.iter().try_for_each(|id| limits::reference("correlation_id", id))
    }

    /// The reference definition of the filter: the SQL of every store must select the same.
    pub fn matches(&self, work: &Work) -> bool {
        let spec = &work.spec;
        self.tenants.as_ref().is_none_or(|tenants| tenants.allow(&spec.tenant))
            && self.admitted().is_none_or(|states| states.contains(&work.state))
            && self.texts().iter().all(|text| text.wanted.is_none() || text.wanted == (text.of)(work))
            && self.kinds.allow(&spec.kind)
            && self.correlation_id.as_ref().is_none_or(|id| *id == spec.correlation_id)
            && self.parent.is_none_or(|parent| spec.parent == Some(parent))
            && self.created_after.is_none_or(|at| spec.created_at > at)
            && self.created_before.is_none_or(|at| spec.created_at < at)
            && self.due_before.is_none_or(|at| work.due_at.is_some_and(|due| due < at))
    }
}

/// A filter on one text of a work item.
struct TextFilter<'a> {
    /// Its name in a refusal.
    field: &'static str,
    /// The column of the table `work`.
    #[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), allow(dead_code))]
    column: &'static str,
    wanted: Option<&'a str>,
    /// The text of a work item.
    of: fn(&Work) -> Option<&str>,
}

/// A condition on a column of the table `work`.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) struct Condition<'a> {
    pub column: &'static str,
    /// The comparison, as SQL writes it.
    pub is: &'static str,
    pub wanted: Wanted<'a>,
}

/// The value that a column is compared with.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) enum Wanted<'a> {
    Text(&'a str),
    Time(Millis),
    Work(WorkId),
}

/// Selects waits.
#[derive(Clone, Debug, Default)]
pub struct WaitFilter {
    /// Only those of these tenants.
    pub tenants: Option<Tenants>,
    /// Only this one.
    pub id: Option<WaitId>,
    /// Only those of this work item.
    pub work: Option<WorkId>,
    /// Any of these ids; all waits if empty.
    pub works: Vec<WorkId>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those with this reference.
    pub reference: Option<String>,
    /// Only those of this kind.
    pub kind: Option<WaitKind>,
    /// Only those in this state.
    pub state: Option<WaitState>,
    /// Only waits after the one with this id and opening time.
    pub after: Option<(Millis, WaitId)>,
    /// Ended waits, the latest first, instead of all waits in the order of their opening.
    pub last_ended: bool,
}

impl WaitFilter {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_tenants(self.tenants.as_ref())?;
        for (field, value) in [("session", &self.session), ("ref", &self.reference)] {
            value.iter().try_for_each(|value| limits::reference(field, value))?;
        }
        Ok(())
    }
}

/// Selects commands. A field that is None does not restrict.
#[derive(Clone, Debug, Default)]
pub struct CommandFilter {
    /// Only those of these tenants.
    pub tenants: Option<Tenants>,
    /// Only those in one of these states.
    pub states: Vec<CommandState>,
    /// Only those of this work item.
    pub work: Option<WorkId>,
    /// Only those of this tool.
    pub tool: Option<String>,
    /// Only those with this target.
    pub target: Option<String>,
    /// In doubt, and only a person can resolve it.
    pub needs_person: bool,
    /// Waiting for a person's approval.
    pub needs_approval: bool,
    /// Only those created after this time.
    pub created_after: Option<Millis>,
    /// Only those created before this time.
    pub created_before: Option<Millis>,
}

impl CommandFilter {
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        check_tenants(self.tenants.as_ref())?;
        for (field, value) in [("tool", &self.tool), ("target", &self.target)] {
            value.iter().try_for_each(|value| limits::reference(field, value))?;
        }
        Ok(())
    }

    /// The states that the filter admits; None for all.
    pub(crate) fn admitted(&self) -> Option<Vec<CommandState>> {
        let restricted = !self.states.is_empty() || self.needs_person || self.needs_approval;
        let wanted = |state: &CommandState| {
            (self.states.is_empty() || self.states.contains(state))
                && (!self.needs_person || *state == CommandState::Uncertain)
                && (!self.needs_approval || *state == CommandState::Blocked)
        };
        restricted.then(|| CommandState::ALL.into_iter().filter(wanted).collect())
    }

    /// The reference definition of the filter: the SQL of every store must select the same.
    pub fn matches(&self, command: &Command) -> bool {
        let spec = &command.spec;
        self.tenants.as_ref().is_none_or(|tenants| tenants.allow(&spec.tenant))
            && self.admitted().is_none_or(|states| states.contains(&command.state))
            && self.work.is_none_or(|work| command.work == work)
            && self.tool.as_ref().is_none_or(|tool| spec.tool == *tool)
            && self.target.as_ref().is_none_or(|target| spec.target == *target)
            && (!self.needs_person || command.body.needs_person)
            && (!self.needs_approval || command.body.blocked == Some(BlockCode::ApprovalRequired))
            && self.created_after.is_none_or(|at| command.created_at > at)
            && self.created_before.is_none_or(|at| command.created_at < at)
    }
}

pub(crate) fn check_tenants(tenants: Option<&Tenants>) -> Result<(), Refusal> {
    match tenants {
        Some(Tenants::Only(list)) => list.iter().try_for_each(|tenant| limits::reference("tenant", tenant)),
        Some(Tenants::All) | None => Ok(()),
    }
}

/// A position in the feed, opaque to callers. Later events have greater positions, and none is ever skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    pub(crate) epoch: i32,
    pub(crate) txn: i64,
    pub(crate) number: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}-{:x}", self.epoch, self.txn, self.number)
    }
}

impl FromStr for Position {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let bad =
            || Refusal::new(Code::Invalid, format!("`{text}` is no cursor. Use one that the feed gave."));
        let mut parts = text.split('-');
        let mut next = || parts.next().and_then(|part| i64::from_str_radix(part, 16).ok()).ok_or_else(bad);
        let position =
            Position { epoch: i32::try_from(next()?).map_err(|_| bad())?, txn: next()?, number: next()? };
        if parts.next().is_some() { Err(bad()) } else { Ok(position) }
    }
}

impl Serialize for Position {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The bytes that an event counts towards [`limits::PAGE_BYTES`].
pub(crate) fn weight(event: &StoredEvent) -> usize {
    event.event.payload.as_ref().map_or(0, |payload| payload.text().len())
}

/// An event with its position in the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its position in the feed.
    pub position: Position,
    /// The event.
    pub event: Event,
}

impl StoredEvent {
    pub(crate) fn key(&self) -> EventKey {
        EventKey { position: self.position, work: self.event.work, seq: self.event.seq }
    }
}

/// The limit on events of all tenants that are read for one page of some tenants' feed. Of other tenants'
/// events only the tenant is read.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) const FEED_SCAN: usize = 10_000;

/// A page of the feed, and the cursor for the next one.
#[derive(Clone, Debug)]
pub struct EventPage {
    /// The events that can be read.
    pub events: Vec<StoredEvent>,
    /// The events that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The position after which the next page begins.
    pub next: Position,
    /// The page is full: more events may follow immediately.
    pub full: bool,
}

impl EventPage {
    /// The work items of its events, without duplicates.
    pub fn works(&self) -> Vec<WorkId> {
        let unreadable = self.unreadable.iter().filter_map(|event| event.work);
        let mut works: Vec<WorkId> =
            self.events.iter().map(|stored| stored.event.work).chain(unreadable).collect();
        works.sort_unstable();
        works.dedup();
        works
    }
}
