//! Which works a claim by filter gets: the heads of its lanes, merged. What waits in other lanes, or
//! behind those heads, costs nothing.

use std::collections::HashMap;

use rusqlite::params;
use tenure_core::{
    Millis, WorkId,
    action::{ClaimFilter, Tenants},
};

use super::{
    row::{self, Read},
    tables::Tables,
};
use crate::lane_id::lane_id;

const LANES: &str = "SELECT id, system, kind FROM lane";
const LANE_INSERT: &str = "INSERT OR IGNORE INTO lane (id, system, kind) VALUES (?1, ?2, ?3)";
const READY_AFTER: &str = "SELECT priority, created_at, work, tenant, bound FROM ready \
     WHERE lane = ?1 AND (priority, created_at, work) > (?2, ?3, ?4) \
     ORDER BY priority, created_at, work LIMIT ?5";

/// Rows read ahead at least, since some may be another tenant's or bound to another owner.
const AHEAD: usize = 32;

/// The lanes known to exist. Rows of `lane` are only ever added.
#[derive(Default)]
pub(super) struct Lanes {
    known: HashMap<i64, (String, String)>,
    complete: bool,
}

impl Lanes {
    /// Another process may have added lanes, or a rollback taken some back.
    pub fn forget(&mut self) {
        self.known.clear();
        self.complete = false;
    }
}

/// Who claims.
pub(super) struct Wish<'a> {
    pub filter: &'a ClaimFilter,
    pub tenants: &'a Tenants,
    pub incarnation: &'a str,
}

impl Wish<'_> {
    fn accepts(&self, ready: &Ready) -> bool {
        self.filter.wants_tenant(&ready.tenant)
            && self.tenants.allow(&ready.tenant)
            && ready.bound.as_deref().is_none_or(|bound| bound == self.incarnation)
    }
}

struct Ready {
    priority: i64,
    created_at: Millis,
    work: WorkId,
    tenant: String,
    bound: Option<String>,
}

impl Ready {
    fn order(&self) -> (i64, Millis, WorkId) {
        (self.priority, self.created_at, self.work)
    }
}

/// What was read of one lane. A row that was dealt out leaves a gap.
#[derive(Default)]
struct Queue {
    rows: Vec<Option<Ready>>,
    /// Nothing but gaps before it.
    first: usize,
    last: Option<(i64, Millis, WorkId)>,
    exhausted: bool,
}

/// The queues of one group: each row is dealt out once, to the first claim that accepts it.
#[derive(Default)]
pub(super) struct Queues {
    lanes: HashMap<i64, Queue>,
}

impl Queues {
    /// The next works for a claim, in claiming order.
    pub fn take(&mut self, tables: &mut Tables<'_>, wish: &Wish<'_>, max: usize) -> Read<Vec<WorkId>> {
        let lanes = tables.lanes_of(wish.filter)?;
        let mut cursors = Vec::with_capacity(lanes.len());
        for lane in lanes {
            let queue = self.lanes.entry(lane).or_default();
            let at = queue.find(tables, lane, queue.first, wish, max)?;
            cursors.extend(at.map(|at| (lane, at)));
        }
        let mut taken = Vec::with_capacity(max.min(AHEAD));
        while taken.len() < max {
            let best = (0..cursors.len()).min_by_key(|i| {
                let (lane, at) = cursors[*i];
                self.lanes.get(&lane).and_then(|queue| queue.rows[at].as_ref()).map(Ready::order)
            });
            let Some(best) = best else { break };
            let (lane, at) = cursors[best];
            let queue = self.lanes.entry(lane).or_default();
            taken.extend(queue.rows[at].take().map(|ready| ready.work));
            match queue.find(tables, lane, at + 1, wish, max - taken.len())? {
                Some(next) => cursors[best].1 = next,
                None => drop(cursors.swap_remove(best)),
            }
        }
        Ok(taken)
    }
}

impl Queue {
    /// The first row from `at` on that the claim accepts.
    fn find(
        &mut self,
        tables: &Tables<'_>,
        lane: i64,
        mut at: usize,
        wish: &Wish<'_>,
        want: usize,
    ) -> Read<Option<usize>> {
        while self.rows.get(self.first).is_some_and(Option::is_none) {
            self.first += 1;
        }
        loop {
            match self.rows.get(at) {
                Some(Some(ready)) if wish.accepts(ready) => return Ok(Some(at)),
                Some(_) => at += 1,
                None if self.exhausted || want == 0 => return Ok(None),
                None => self.read_on(tables, lane, want.max(AHEAD))?,
            }
        }
    }

    fn read_on(&mut self, tables: &Tables<'_>, lane: i64, count: usize) -> Read<()> {
        let (priority, created_at, work) = match &self.last {
            Some((priority, created_at, work)) => (*priority, *created_at, &work.0.as_bytes()[..]),
            None => (i64::MIN, i64::MIN, &[][..]),
        };
        let mut statement = tables.cached(READY_AFTER)?;
        let mut rows = statement.query(params![lane, priority, created_at, work, count as i64])?;
        let before = self.rows.len();
        while let Some(found) = rows.next()? {
            let ready = Ready {
                priority: found.get(0)?,
                created_at: found.get(1)?,
                work: WorkId(row::uuid(found, 2)?),
                tenant: found.get(3)?,
                bound: found.get(4)?,
            };
            self.last = Some(ready.order());
            self.rows.push(Some(ready));
        }
        self.exhausted = self.rows.len() - before < count;
        Ok(())
    }
}

impl Tables<'_> {
    /// The lane for a source and kind, made where it is new.
    pub fn lane(&mut self, system: &str, kind: &str) -> Read<i64> {
        let id = lane_id(system, kind);
        if !self.lanes.known.contains_key(&id) {
            self.cached(LANE_INSERT)?.execute(params![id, system, kind])?;
            self.lanes.known.insert(id, (system.to_owned(), kind.to_owned()));
        }
        Ok(id)
    }

    fn lanes_of(&mut self, filter: &ClaimFilter) -> Read<Vec<i64>> {
        if !self.lanes.complete {
            let mut statement = self.cached(LANES)?;
            let mut rows = statement.query([])?;
            while let Some(found) = rows.next()? {
                self.lanes.known.insert(found.get(0)?, (found.get(1)?, found.get(2)?));
            }
            self.lanes.complete = true;
        }
        let known = self.lanes.known.iter();
        let matching = known.filter(|(_, (system, kind))| filter.wants_lane(system, kind));
        Ok(matching.map(|(id, _)| *id).collect())
    }
}
