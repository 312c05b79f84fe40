//! Work items that do not progress: the stores select candidates, and the core says which of them are stuck, and why.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use tenure_core::{
    Command, CommandId, CommandState, Millis, State, Wait, Work, WorkId,
    action::Tenants,
    activity,
    model::{WaitKind, WaitState},
    policy::{OnSpinning, OnStalled},
    records::{is_reserved, referenced_command},
    stuck::{Capacity, Patience, Stuck, StuckFacts, circles, classify},
};

use super::{Caller, Ledger, reads::PAGE_MAX};
use crate::{
    CommandFilter, Error, WaitFilter,
    store::{Lane, Signs},
};

/// The limit on open waits that are read, oldest first.
const WAITS_MAX: usize = 5_000;

/// The work items that do not progress.
#[derive(Clone, Debug)]
pub struct StuckReport {
    /// When they were looked for.
    pub at: Millis,
    /// How many work items of these tenants are open.
    pub open: u64,
    /// How long ago this process's sweeper finished a pass. None: it has no sweeper.
    pub swept: Option<Duration>,
    /// False if there were more candidates than were read.
    pub complete: bool,
    /// Each with its cause; by cause, oldest first.
    pub works: Vec<(Work, Stuck)>,
}

/// The candidates, and the records around them.
#[derive(Default)]
struct Candidates {
    works: BTreeMap<WorkId, Work>,
    waits: HashMap<WorkId, Vec<Wait>>,
    commands: HashMap<WorkId, Vec<Command>>,
    circles: BTreeMap<WorkId, Vec<WorkId>>,
    /// The ones that can be claimed.
    claimable: HashSet<WorkId>,
    busy: HashSet<Lane>,
    complete: bool,
}

impl Ledger {
    /// The work items of these tenants that do not progress.
    pub async fn stuck(&self, tenants: &Tenants, patience: Patience) -> Result<StuckReport, Error> {
        let at = self.now().await?;
        if *tenants == Tenants::Only(Vec::new()) {
            let (open, swept, works) = (0, self.swept_ago(), Vec::new());
            return Ok(StuckReport { at, open, swept, complete: true, works });
        }
        let found = self.candidates(tenants, self.signs(at, &patience)).await?;
        let within = Duration::from_millis(u64::try_from(patience.idle_ms).unwrap_or(0));
        let classified = found.works.values().filter_map(|work| {
            let spec = &work.spec;
            let lane = (spec.tenant.clone(), spec.source.system.clone(), spec.kind.clone());
            let claimable = found.claimable.contains(&work.id);
            let facts = StuckFacts {
                work,
                waits: found.waits.get(&work.id).map_or(&[], Vec::as_slice),
                commands: found.commands.get(&work.id).map_or(&[], Vec::as_slice),
                circle: found.circles.get(&work.id).map_or(&[], Vec::as_slice),
                capacity: Capacity {
                    claimable,
                    busy: found.busy.contains(&lane),
                    seen: claimable && self.idle().seen(spec, within),
                },
            };
            Some((work.clone(), classify(&facts, &patience, at)?))
        });
        let mut works: Vec<(Work, Stuck)> = classified.collect();
        works.sort_by_key(|(work, stuck)| (stuck.cause, stuck.since, work.id));
        let counts = self.counts(tenants).await?;
        let open = counts.iter().filter(|(state, _)| !state.is_terminal()).map(|(_, count)| count).sum();
        Ok(StuckReport { at, open, swept: self.swept_ago(), complete: found.complete, works })
    }

    fn signs(&self, at: Millis, patience: &Patience) -> Signs {
        let spinning = self.settings().first_spinning();
        Signs {
            expired: at,
            quiet: spinning.map(|after| at - Millis::try_from(after).unwrap_or(Millis::MAX)),
            retry: at - patience.retry_ms,
            queued: at - patience.idle_ms,
        }
    }

    async fn candidates(&self, tenants: &Tenants, signs: Signs) -> Result<Candidates, Error> {
        let mut found = Candidates { complete: true, ..Candidates::default() };
        let store = self.store();
        let suspects = store.suspects(tenants, signs, PAGE_MAX).await?;
        found.complete &= !suspects.full && suspects.rows.len() < PAGE_MAX;
        let unclaimed = store.unclaimed(tenants, signs, PAGE_MAX).await?;
        found.complete &= !unclaimed.full && unclaimed.rows.len() < PAGE_MAX;
        found.claimable = unclaimed.rows.iter().map(|work| work.id).collect();
        if !found.claimable.is_empty() {
            found.busy = store.busy_lanes(tenants).await?.into_iter().collect();
        }
        found.works = suspects.rows.into_iter().chain(unclaimed.rows).map(|work| (work.id, work)).collect();
        let waits = self.open_waits(tenants, &mut found.complete).await?;
        found.circles = circles(&waits);
        for wait in waits {
            found.waits.entry(wait.work).or_default().push(wait);
        }
        let uncertain = CommandFilter {
            tenants: Some(tenants.clone()),
            states: vec![CommandState::Uncertain],
            ..CommandFilter::default()
        };
        let doubtful = store.list_commands(&uncertain, None, PAGE_MAX).await?;
        found.complete &= !doubtful.full;
        let of_waits = self.commands_of_waits(&found).await?;
        for command in doubtful.rows.into_iter().chain(of_waits) {
            let known = found.commands.entry(command.work).or_default();
            if !known.iter().any(|other| other.id == command.id) {
                known.push(command);
            }
        }
        self.add_works(&mut found).await?;
        Ok(found)
    }

    /// Open waits, oldest first, of those kinds that may never be answered: without a deadline, or on a record.
    async fn open_waits(&self, tenants: &Tenants, complete: &mut bool) -> Result<Vec<Wait>, Error> {
        let (mut waits, mut after) = (Vec::new(), None);
        let mut read = 0;
        loop {
            let filter = WaitFilter {
                tenants: Some(tenants.clone()),
                state: Some(WaitState::Open),
                after,
                ..WaitFilter::default()
            };
            let page = self.store().waits(&filter, PAGE_MAX).await?;
            after = page.next().copied();
            read += page.rows.len();
            waits.extend(page.rows.into_iter().filter(|wait| {
                wait.deadline_at.is_none() || wait.detail.command.is_some() || is_reserved(&wait.reference)
            }));
            if after.is_none() {
                return Ok(waits);
            }
            if read >= WAITS_MAX {
                *complete = false;
                return Ok(waits);
            }
        }
    }

    /// The commands that waits name, and the open ones of work items that wait for a tool without naming one.
    async fn commands_of_waits(&self, found: &Candidates) -> Result<Vec<Command>, Error> {
        let waits = found.waits.values().flatten();
        let named =
            waits.filter_map(|wait| wait.detail.command.or_else(|| referenced_command(&wait.reference)));
        let named: BTreeSet<CommandId> = named.collect();
        let named: Vec<CommandId> = named.into_iter().collect();
        let mut commands =
            if named.is_empty() { Vec::new() } else { self.commands_by_id(&named).await?.rows };
        let waits = found.waits.values().flatten();
        let unnamed = waits.filter(|wait| {
            wait.deadline_at.is_none() && wait.detail.command.is_none() && wait.kind == WaitKind::Tool
        });
        let unnamed: BTreeSet<WorkId> = unnamed.map(|wait| wait.work).collect();
        for work in unnamed {
            let states = CommandState::ALL.into_iter().filter(|state| state.is_open()).collect();
            let filter = CommandFilter { work: Some(work), states, ..CommandFilter::default() };
            commands.extend(self.store().list_commands(&filter, None, 1).await?.rows);
        }
        Ok(commands)
    }

    /// The work items of the waits and commands, as far as they are not there yet.
    async fn add_works(&self, found: &mut Candidates) -> Result<(), Error> {
        let of_waits = found.waits.keys().chain(found.commands.keys());
        let missing: BTreeSet<WorkId> =
            of_waits.filter(|id| !found.works.contains_key(id)).copied().collect();
        let missing: Vec<WorkId> = missing.into_iter().collect();
        for some in missing.chunks(PAGE_MAX) {
            let works = self.readable_works(some).await?.rows;
            found.works.extend(works.into_iter().map(|work| (work.id, work)));
        }
        Ok(())
    }

    /// The work items of which somebody asked to be told: spinning ones with `then = "alert"`, and stalled ones with
    /// `stalled = "page"`.
    pub async fn to_tell(&self) -> Result<Vec<Work>, Error> {
        if !self.settings().tells() {
            return Ok(Vec::new());
        }
        let at = self.now().await?;
        let patience = Patience { idle_ms: 0, retry_ms: 0 };
        let suspects = self.store().suspects(&Tenants::All, self.signs(at, &patience), PAGE_MAX).await?;
        let told = suspects.rows.into_iter().filter(|work| {
            let policy = &work.spec.policy;
            let alerts = policy.spinning.is_some_and(|spinning| spinning.then != OnSpinning::Mark);
            (alerts && activity::spinning(work, at).is_some())
                || (work.state == State::Stalled && policy.stalled == OnStalled::Page)
        });
        Ok(told.collect())
    }
}

impl Caller {
    /// The work items of this caller's tenants that do not progress; `tenant`: only those of this one.
    pub async fn stuck(&self, tenant: Option<&str>, patience: Patience) -> Result<StuckReport, Error> {
        let asked = tenant.map(|tenant| Tenants::Only(vec![tenant.to_owned()]));
        let mut report = self.ledger.stuck(&self.tenants.narrowed(asked.as_ref()), patience).await?;
        report.works.retain(|(work, _)| self.kinds.allow(&work.spec.kind));
        Ok(report)
    }
}
