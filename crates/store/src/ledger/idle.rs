//! Idle workers: claims that wait for work in this process. They are kept in memory, since a claim that waits writes
//! nothing; other processes on the same database have their own.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tenure_core::{
    Millis, Spec, Work,
    action::{ClaimFilter, Claimant, Kinds, Tenants},
    explain::Idle,
};
use tokio::time::Instant;

use super::Caller;
use crate::Error;

/// How many claims that ended are remembered, and for how long: between two long polls a worker is still there.
const SEEN_MAX: usize = 4_096;
const SEEN_FOR: Duration = Duration::from_secs(600);

/// A claim that waits for work, as far as a caller may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleClaim {
    /// The id of the worker.
    pub worker: String,
    /// The incarnation of the worker.
    pub incarnation: String,
    /// The kinds that it claims; empty: any.
    pub kinds: Vec<String>,
    /// The source systems that it claims; empty: any.
    pub sources: Vec<String>,
    /// The tenants that it claims for, among those of the reader; None: all.
    pub tenants: Option<Vec<String>>,
    /// Since when it has waited.
    pub since: Millis,
}

/// A worker with the filter of its claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Asked {
    worker: String,
    incarnation: String,
    kinds: Vec<String>,
    sources: Vec<String>,
    tenants: Option<Vec<String>>,
}

impl Asked {
    fn new(claimant: &Claimant, filter: &ClaimFilter, reach: &Tenants) -> Self {
        let named = (!filter.tenants.is_empty()).then(|| Tenants::Only(filter.tenants.clone()));
        let tenants = match reach.narrowed(named.as_ref()) {
            Tenants::All => None,
            Tenants::Only(list) => Some(list),
        };
        Self {
            worker: claimant.worker.id.clone(),
            incarnation: claimant.worker.incarnation.clone(),
            kinds: filter.kinds.clone(),
            sources: filter.sources.clone(),
            tenants,
        }
    }

    fn reaches(&self, tenant: &str) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.iter().any(|own| own == tenant))
    }

    fn takes(&self, spec: &Spec) -> bool {
        let any = |names: &[String], name: &str| names.is_empty() || names.iter().any(|own| own == name);
        self.reaches(&spec.tenant) && any(&self.kinds, &spec.kind) && any(&self.sources, &spec.source.system)
    }

    /// The part that a reader may know. None: it serves none of the reader's tenants, or none of its kinds.
    fn seen_by(&self, tenants: &Tenants, kinds: &Kinds, since: Millis) -> Option<IdleClaim> {
        let shared = |own: Option<&Vec<String>>, theirs: &Tenants| match (own, theirs) {
            (None, Tenants::All) => Some(None),
            (None, Tenants::Only(list)) => Some(Some(list.clone())),
            (Some(own), theirs) => {
                let both: Vec<String> = own.iter().filter(|name| theirs.allow(name)).cloned().collect();
                (!both.is_empty()).then_some(Some(both))
            }
        };
        let own_kinds = (!self.kinds.is_empty()).then_some(&self.kinds);
        Some(IdleClaim {
            worker: self.worker.clone(),
            incarnation: self.incarnation.clone(),
            kinds: shared(own_kinds, kinds)?.unwrap_or_default(),
            sources: self.sources.clone(),
            tenants: shared(self.tenants.as_ref(), tenants)?,
            since,
        })
    }
}

#[derive(Default)]
struct Inner {
    next: u64,
    waiting: BTreeMap<u64, (Asked, Instant)>,
    seen: HashMap<Asked, Instant>,
}

/// The claims that wait in this process, and those that ended a short time ago.
#[derive(Clone, Default)]
pub(crate) struct IdleWorkers(Arc<Mutex<Inner>>);

/// A claim is listed until this is dropped: when it is answered, and when its caller has gone away.
pub(crate) struct Waits {
    all: IdleWorkers,
    number: u64,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let mut inner = self.all.inner();
        if let Some((asked, _)) = inner.waiting.remove(&self.number) {
            inner.saw(asked);
        }
    }
}

impl Inner {
    fn saw(&mut self, asked: Asked) {
        let now = Instant::now();
        if self.seen.len() >= SEEN_MAX {
            self.seen.retain(|_, at| now.saturating_duration_since(*at) < SEEN_FOR);
        }
        if self.seen.len() < SEEN_MAX || self.seen.contains_key(&asked) {
            self.seen.insert(asked, now);
        }
    }
}

impl IdleWorkers {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim begins to wait.
    pub fn wait(&self, claimant: &Claimant, filter: &ClaimFilter, reach: &Tenants) -> Waits {
        let mut inner = self.inner();
        inner.next += 1;
        let number = inner.next;
        inner.waiting.insert(number, (Asked::new(claimant, filter, reach), Instant::now()));
        Waits { all: self.clone(), number }
    }

    /// A claim that does not wait was given nothing: the worker is there all the same.
    pub fn found_nothing(&self, claimant: &Claimant, filter: &ClaimFilter, reach: &Tenants) {
        self.inner().saw(Asked::new(claimant, filter, reach));
    }

    /// The claims that wait and concern this reader, longest first.
    pub fn list(&self, tenants: &Tenants, kinds: &Kinds, now: Millis) -> Vec<IdleClaim> {
        let inner = self.inner();
        let since = |at: &Instant| now - Millis::try_from(at.elapsed().as_millis()).unwrap_or(Millis::MAX);
        inner.waiting.values().filter_map(|(asked, at)| asked.seen_by(tenants, kinds, since(at))).collect()
    }

    /// How many workers wait for each kind; a claim of any kind counts under None.
    pub fn by_kind(&self) -> BTreeMap<Option<String>, u64> {
        let mut workers: BTreeMap<Option<String>, Vec<(String, String)>> = BTreeMap::new();
        for (asked, _) in self.inner().waiting.values() {
            let kinds: Vec<Option<String>> = match asked.kinds.as_slice() {
                [] => vec![None],
                kinds => kinds.iter().cloned().map(Some).collect(),
            };
            for kind in kinds {
                workers.entry(kind).or_default().push((asked.worker.clone(), asked.incarnation.clone()));
            }
        }
        let distinct = |mut names: Vec<(String, String)>| {
            names.sort_unstable();
            names.dedup();
            names.len() as u64
        };
        workers.into_iter().map(|(kind, names)| (kind, distinct(names))).collect()
    }

    /// Whether a worker that takes such work items waits here, or did a short time ago.
    pub fn seen(&self, spec: &Spec, within: Duration) -> bool {
        let inner = self.inner();
        inner.waiting.values().any(|(asked, _)| asked.takes(spec))
            || inner.seen.iter().any(|(asked, at)| at.elapsed() <= within && asked.takes(spec))
    }

    /// The idle workers around a queued work item: those that take it, and the kinds that the others take.
    pub fn around(&self, work: &Work, kinds: &Kinds) -> Idle {
        let spec = &work.spec;
        let tenant = Tenants::Only(vec![spec.tenant.clone()]);
        let mut around = Idle::default();
        let mut counted: Vec<(String, String, bool)> = Vec::new();
        let mut others: BTreeMap<String, u64> = BTreeMap::new();
        for (asked, _) in self.inner().waiting.values() {
            let Some(claim) = asked.seen_by(&tenant, kinds, 0) else { continue };
            let takes = asked.takes(spec);
            let one = (claim.worker, claim.incarnation, takes);
            if counted.contains(&one) {
                continue;
            }
            counted.push(one);
            if takes {
                around.takes += 1;
            } else {
                let named = match claim.kinds.as_slice() {
                    [] => String::new(),
                    kinds => kinds.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(" or "),
                };
                let from = match claim.sources.as_slice() {
                    [] => String::new(),
                    sources => format!(" from `{}`", sources.join("` or `")),
                };
                *others.entry(format!("{named}{from}").trim().to_owned()).or_default() += 1;
            }
        }
        around.others = others.into_iter().collect();
        around
    }
}

impl Caller {
    /// The claims that wait for work in this process and reach this caller's tenants.
    pub async fn idle_claims(&self) -> Result<Vec<IdleClaim>, Error> {
        Ok(self.ledger.idle().list(&self.tenants, &self.kinds, self.ledger.now().await?))
    }
}
