//! Selects the work items of a claim by filter: it merges the heads of its queues. A queue is the claimable work items
//! of one tenant, kind and source system. Other queues, and the items behind the heads, cost nothing.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use rusqlite::{OptionalExtension, ToSql, params};
use tenure_core::{
    Millis, WorkId,
    action::{ClaimFilter, Tenants},
    payload::Digest,
    place_in_turn,
};

use super::{
    row::{self, Read},
    tables::Tables,
};
use crate::job::QUEUES_MAX;

/// The next name in the index, one search each. Names without claimable work items are never read.
const NEXT_TENANT: &str = "SELECT tenant FROM ready WHERE tenant > ?1 ORDER BY tenant LIMIT 1";
const NEXT_KIND: &str = "SELECT kind FROM ready WHERE kind > ?1 AND tenant = ?2 ORDER BY kind LIMIT 1";
const NEXT_SYSTEM: &str =
    "SELECT system FROM ready WHERE system > ?1 AND tenant = ?2 AND kind = ?3 ORDER BY system LIMIT 1";
const READY_AFTER: &str = "SELECT priority, created_at, work, bound FROM ready \
     WHERE tenant = ?1 AND kind = ?2 AND system = ?3 AND (priority, created_at, work) > (?4, ?5, ?6) \
     ORDER BY priority, created_at, work LIMIT ?7";

/// At least so many rows are read at first, because some may be bound to another owner.
const AHEAD: usize = 4;

/// The claiming worker and its filter.
pub(super) struct Wish<'a> {
    pub filter: &'a ClaimFilter,
    pub tenants: &'a Tenants,
    pub incarnation: &'a str,
    pub seed: &'a [u8; 16],
}

struct Ready {
    priority: i64,
    created_at: Millis,
    work: WorkId,
    bound: Option<String>,
}

impl Ready {
    fn order(&self) -> (i64, Millis, WorkId) {
        (self.priority, self.created_at, self.work)
    }
}

/// The rows that were read of one queue. A row that was given to a claim leaves a gap.
struct ReadyQueue {
    tenant: Arc<str>,
    kind: String,
    system: String,
    rows: Vec<Option<Ready>>,
    /// All rows before it are gaps.
    first: usize,
    last: Option<(i64, Millis, WorkId)>,
    exhausted: bool,
}

/// The queues of one tenant that claims of this group have asked for.
#[derive(Default)]
struct Stock {
    kinds: Option<Vec<String>>,
    queues: HashMap<String, Vec<ReadyQueue>>,
}

/// The queues of one group. Each row is given to one claim, the first that accepts it.
#[derive(Default)]
pub(super) struct Queues {
    tenants: Option<Vec<Arc<str>>>,
    stocks: HashMap<Arc<str>, Stock>,
}

/// One tenant's queues for one claim.
struct Turns<'q> {
    queues: Vec<(&'q mut ReadyQueue, usize)>,
    /// The index of the queue that has the tenant's next work item.
    next: usize,
    priority: i64,
    /// The number of work items of this priority that the tenant has received already.
    given: usize,
    place: Digest,
}

impl Queues {
    /// The next work items for a claim, in the order of `in_turns`.
    pub fn take(&mut self, tables: &Tables<'_>, wish: &Wish<'_>, max: usize) -> Read<Vec<WorkId>> {
        let asked = self.tenants_of(tables, wish)?;
        for tenant in &asked {
            self.stocks.entry(tenant.clone()).or_default().find_queues(tables, tenant, wish.filter)?;
        }
        let stocks = self.stocks.iter_mut().filter(|(tenant, _)| asked.contains(*tenant));
        let queues: Vec<_> = stocks.map(|(tenant, stock)| (tenant, stock.queues_of(wish.filter))).collect();
        let count: usize = queues.iter().map(|(_, queues)| queues.len()).sum();
        let ahead = max.div_ceil(count.max(1)).max(AHEAD);
        let mut turns = Vec::with_capacity(queues.len());
        for (tenant, queues) in queues {
            turns.extend(Turns::new(tables, wish, tenant, queues, ahead)?);
        }
        let mut taken = Vec::with_capacity(max.min(ahead));
        while taken.len() < max {
            let best = (0..turns.len()).min_by_key(|at| {
                let turn = &turns[*at];
                (turn.priority, turn.given, turn.place)
            });
            let Some(best) = best else { break };
            taken.extend(turns[best].take());
            if taken.len() < max && !turns[best].find_next(tables, wish, ahead)? {
                drop(turns.swap_remove(best));
            }
        }
        Ok(taken)
    }

    /// The tenants that match a claim's filter and credential and have claimable work items.
    fn tenants_of(&mut self, tables: &Tables<'_>, wish: &Wish<'_>) -> Read<BTreeSet<Arc<str>>> {
        let named = match (&wish.filter.tenants[..], wish.tenants) {
            ([], Tenants::Only(own)) => own,
            ([], Tenants::All) => {
                let all = match &mut self.tenants {
                    Some(all) => all,
                    unknown => {
                        let names = tables.names(NEXT_TENANT, &[], usize::MAX)?;
                        unknown.insert(names.into_iter().map(Arc::from).collect())
                    }
                };
                return Ok(all.iter().cloned().collect());
            }
            (asked, _) => asked,
        };
        let allowed = named.iter().filter(|tenant| wish.tenants.allow(tenant));
        Ok(allowed.map(|tenant| Arc::from(tenant.as_str())).collect())
    }
}

impl Stock {
    /// Finds the queues that match a claim, unless an earlier claim of the group did.
    fn find_queues(&mut self, tables: &Tables<'_>, tenant: &Arc<str>, filter: &ClaimFilter) -> Read<()> {
        let kinds = match &filter.kinds[..] {
            [] => {
                if self.kinds.is_none() {
                    self.kinds = Some(tables.names(NEXT_KIND, &[&**tenant], QUEUES_MAX)?);
                }
                self.kinds.as_deref().unwrap_or_default()
            }
            asked => asked,
        };
        let mut found = 0;
        for kind in kinds {
            if found >= QUEUES_MAX {
                break;
            }
            if !self.queues.contains_key(kind) {
                let systems = tables.names(NEXT_SYSTEM, &[&**tenant, kind], QUEUES_MAX)?;
                let queues =
                    systems.into_iter().map(|system| ReadyQueue::new(tenant, kind, system)).collect();
                self.queues.insert(kind.clone(), queues);
            }
            found += self.queues.get(kind).map_or(0, Vec::len);
        }
        Ok(())
    }

    fn queues_of(&mut self, filter: &ClaimFilter) -> Vec<&mut ReadyQueue> {
        let queues = self.queues.values_mut().flatten();
        queues.filter(|queue| filter.wants_queue(&queue.system, &queue.kind)).collect()
    }
}

impl<'q> Turns<'q> {
    /// None: no queue has a work item for this claim.
    fn new(
        tables: &Tables<'_>,
        wish: &Wish<'_>,
        tenant: &str,
        queues: Vec<&'q mut ReadyQueue>,
        ahead: usize,
    ) -> Read<Option<Self>> {
        let mut found = Vec::with_capacity(queues.len());
        for queue in queues {
            let at = queue.find(tables, queue.first, wish, ahead)?;
            found.extend(at.map(|at| (queue, at)));
        }
        let place = place_in_turn(wish.seed, tenant);
        let mut turns = Self { queues: found, next: 0, priority: i64::MIN, given: 0, place };
        Ok(turns.choose().then_some(turns))
    }

    fn take(&mut self) -> Option<WorkId> {
        let (queue, at) = &mut self.queues[self.next];
        self.given += 1;
        queue.rows[*at].take().map(|ready| ready.work)
    }

    /// Moves to the tenant's next work item. False: there is none.
    fn find_next(&mut self, tables: &Tables<'_>, wish: &Wish<'_>, ahead: usize) -> Read<bool> {
        let (queue, at) = &mut self.queues[self.next];
        match queue.find(tables, *at + 1, wish, ahead)? {
            Some(next) => *at = next,
            None => drop(self.queues.swap_remove(self.next)),
        }
        Ok(self.choose())
    }

    fn choose(&mut self) -> bool {
        let heads = self.queues.iter().enumerate();
        let heads = heads.filter_map(|(i, (queue, at))| Some((queue.rows[*at].as_ref()?.order(), i)));
        let Some(((priority, ..), next)) = heads.min() else { return false };
        self.next = next;
        if priority != self.priority {
            (self.priority, self.given) = (priority, 0);
        }
        true
    }
}

impl ReadyQueue {
    fn new(tenant: &Arc<str>, kind: &str, system: String) -> Self {
        let (tenant, kind, rows) = (tenant.clone(), kind.to_owned(), Vec::new());
        Self { tenant, kind, system, rows, first: 0, last: None, exhausted: false }
    }

    /// The first row from `at` on that the claim accepts.
    fn find(
        &mut self,
        tables: &Tables<'_>,
        mut at: usize,
        wish: &Wish<'_>,
        ahead: usize,
    ) -> Read<Option<usize>> {
        while self.rows.get(self.first).is_some_and(Option::is_none) {
            self.first += 1;
        }
        loop {
            match self.rows.get(at) {
                Some(Some(ready)) if ready.bound.as_deref().is_none_or(|bound| bound == wish.incarnation) => {
                    return Ok(Some(at));
                }
                Some(_) => at += 1,
                None if self.exhausted => return Ok(None),
                // The number of rows doubles each time, because the claims of a group may need many.
                None => self.read_on(tables, ahead.max(self.rows.len()))?,
            }
        }
    }

    fn read_on(&mut self, tables: &Tables<'_>, count: usize) -> Read<()> {
        let (priority, created_at, work) = match &self.last {
            Some((priority, created_at, work)) => (*priority, *created_at, &work.0.as_bytes()[..]),
            None => (i64::MIN, i64::MIN, &[][..]),
        };
        let mut statement = tables.cached(READY_AFTER)?;
        let queue = params![&*self.tenant, self.kind, self.system, priority, created_at, work, count as i64];
        let mut rows = statement.query(queue)?;
        let before = self.rows.len();
        while let Some(found) = rows.next()? {
            let ready = Ready {
                priority: found.get(0)?,
                created_at: found.get(1)?,
                work: WorkId(row::uuid(found, 2)?),
                bound: found.get(3)?,
            };
            self.last = Some(ready.order());
            self.rows.push(Some(ready));
        }
        self.exhausted = self.rows.len() - before < count;
        Ok(())
    }
}

impl Tables<'_> {
    /// The names that one of these statements finds, by one index search for each.
    fn names(&self, next: &'static str, within: &[&str], most: usize) -> Read<Vec<String>> {
        let mut statement = self.cached(next)?;
        let mut names: Vec<String> = Vec::new();
        while names.len() < most {
            let last = names.last().map_or("", String::as_str);
            let values: Vec<&dyn ToSql> = [&last as &dyn ToSql]
                .into_iter()
                .chain(within.iter().map(|name| name as &dyn ToSql))
                .collect();
            match statement.query_row(&values[..], |row| row.get(0)).optional()? {
                Some(name) => names.push(name),
                None => break,
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sqlite::plan::{plan, tables},
        token::Key,
    };

    /// As many rows of one tenant as the default quota allows, in one queue and in many, before one row of another
    /// tenant.
    const FLOOD: &str = "WITH RECURSIVE n(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM n WHERE n < 49999) \
         INSERT INTO ready (tenant, kind, system, priority, created_at, work) \
         SELECT 'flood', 'job', 'manual', 3, n, unhex(format('%032x', n)) FROM n \
         UNION ALL SELECT 'flood', 'made-up-' || n, 'manual', 3, n, unhex(format('%032x', 100000 + n)) FROM n; \
         INSERT INTO ready (tenant, kind, system, priority, created_at, work) \
         VALUES ('quiet', 'job', 'manual', 3, 1000000, unhex(format('%032x', 200000)))";

    #[test]
    fn a_claim_reads_little_however_much_is_queued() {
        let conn = tables();
        conn.execute_batch(FLOOD).unwrap();
        let tables = Tables::new(&conn, Key::new([0; 32]), Arc::default()).unwrap();
        let quiet = WorkId(uuid::Uuid::from_u128(200_000));
        let both = Tenants::Only(vec!["flood".to_owned(), "quiet".to_owned()]);
        let jobs = ClaimFilter { kinds: vec!["job".to_owned()], max: 2, ..ClaimFilter::default() };
        let any = ClaimFilter { max: 2, ..ClaimFilter::default() };
        for (tenants, filter, wanted, takes) in [
            (Tenants::Only(vec!["quiet".to_owned()]), &any, 1, 1),
            (Tenants::Only(vec!["quiet".to_owned()]), &jobs, 1, 1),
            (both, &jobs, 2, 2),
            (Tenants::All, &jobs, 2, 2),
            (Tenants::All, &any, QUEUES_MAX + 1, 2),
        ] {
            let mut queues = Queues::default();
            let wish = Wish { filter, tenants: &tenants, incarnation: "i", seed: &[7; 16] };
            let taken = queues.take(&tables, &wish, filter.max).unwrap();
            assert_eq!(taken.len(), takes, "{tenants:?}");
            assert!(taken.contains(&quiet), "{tenants:?}");
            let queues_read: Vec<_> =
                queues.stocks.values().flat_map(|stock| stock.queues.values().flatten()).collect();
            assert_eq!(queues_read.len(), wanted, "{tenants:?}");
            assert!(queues_read.iter().all(|queue| queue.rows.len() <= AHEAD), "{tenants:?}");
        }
    }

    #[test]
    fn every_step_of_a_claim_is_a_search() {
        let conn = tables();
        for (sql, by) in [
            (NEXT_TENANT, "(tenant>?)"),
            (NEXT_KIND, "(tenant=? AND kind>?)"),
            (NEXT_SYSTEM, "(tenant=? AND kind=? AND system>?)"),
            (READY_AFTER, "(tenant=? AND kind=? AND system=? AND (priority,created_at,work)>(?,?,?))"),
        ] {
            assert_eq!(plan(&conn, sql), format!("SEARCH ready USING PRIMARY KEY {by}"));
        }
    }
}
