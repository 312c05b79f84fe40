//! The sweeper: finds rows that may be due and submits a Tick for each, like any other caller. It contains no
//! rules. It only makes sure that no clock jump, outage or restart expires the lease of a running holder.

use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

use tenure_core::{
    Action, Actor, CommandId, Millis, Reply, Work, WorkId,
    action::Tenants,
    command::{CommandAction, Duty},
    limits,
    liveness::Sighting,
    reply::Ticked,
};

use crate::{
    Clock, Error,
    ledger::{Ledger, WeakLedger},
    process,
};

/// Rows in a page; the Ticks of a page are submitted together.
const PAGE: usize = 500;
/// The longest time between two passes.
const LOOK_MS: Millis = 1_000;
/// The shortest lease seen is forgotten when no such lease was seen for this long.
const SHORTEST_MS: Millis = 60_000;
/// A smaller difference between the clocks does not count as a jump.
const DRIFT_MS: Millis = 1_000;
/// How long a row that cannot be ticked is skipped.
const POISON_MS: Millis = 60_000;
const FORGET_EVERY_MS: Millis = 60_000;
const ANCHOR_EVERY_MS: Millis = 10_000;

/// The start of a pass: the store's time and the monotonic clock.
type Looked = (Millis, Millis);

/// The result of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Ticks that were submitted.
    pub ticked: usize,
    /// Ticks that changed something.
    pub acted: usize,
    /// Due, but not observed for long enough to decide.
    pub not_yet: usize,
    /// Rows that could not be ticked; they never block the others.
    pub failed: usize,
    /// When the next one is due.
    pub next_due: Option<Millis>,
}

/// For how long the clocks and the store have been reliable.
///
/// A lease is judged only by a sweeper that observed it for its whole ttl without a gap of more than a third
/// of the ttl: a holder renews at least that often, and an outage of this process may have affected the
/// renewals too.
#[derive(Debug, Default)]
struct Watch {
    since: Option<Millis>,
    last: Option<Looked>,
    /// The gaps between passes, each with its length and its end. A later, longer gap makes an earlier one
    /// irrelevant, so the lengths decrease.
    gaps: Vec<(Millis, Millis)>,
}

impl Watch {
    /// Records a pass. True if the wall clock went back, or at the first pass.
    fn observe(&mut self, wall: Millis, monotonic: Millis) -> bool {
        let Some((last_wall, last_monotonic)) = self.last.replace((wall, monotonic)) else {
            self.since = Some(monotonic);
            return true;
        };
        let gap = monotonic - last_monotonic;
        let drift = (wall - last_wall) - gap;
        if drift.abs() > DRIFT_MS {
            self.since = Some(monotonic);
            self.gaps.clear();
        }
        // A gap that ended longer ago than three times its length no longer matters to any lease.
        self.gaps.retain(|(length, end)| *length > gap && monotonic - end < 3 * length);
        self.gaps.push((gap, monotonic));
        drift < -DRIFT_MS
    }

    /// The store could not be reached: earlier observations no longer count.
    fn lost(&mut self) {
        *self = Watch::default();
    }

    /// For how long a lease of this ttl was observed without a gap.
    fn watched(&self, ttl_ms: u64, monotonic: Millis) -> u64 {
        let Some(since) = self.since else { return 0 };
        let third = |length: Millis| 3 * length.max(0) as u64 > ttl_ms;
        let gap = self.gaps.iter().rev().find(|(length, _)| third(*length)).map(|(_, end)| *end);
        (monotonic - gap.unwrap_or(since).max(since)).max(0) as u64
    }
}

/// The sweeper of one process. Any number may run on one ledger.
pub struct Sweeper {
    clock: Arc<dyn Clock>,
    watch: Watch,
    /// Whether the next pass reads every lease.
    every_lease: bool,
    /// The shortest ttl seen lately, and when: it has to be observed at intervals of less than a third of it.
    shortest: Option<(Millis, Millis)>,
    /// Rows that are skipped until a moment of the monotonic clock: not observed for long enough, or damaged.
    skipped: HashMap<WorkId, Millis>,
    damaged: HashMap<WorkId, Millis>,
    damaged_commands: HashMap<CommandId, Millis>,
    forgot_at: Option<Millis>,
    anchored_at: Option<Millis>,
}

impl Sweeper {
    /// A sweeper that goes by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            watch: Watch::default(),
            every_lease: false,
            shortest: None,
            skipped: HashMap::new(),
            damaged: HashMap::new(),
            damaged_commands: HashMap::new(),
            forgot_at: None,
            anchored_at: None,
        }
    }

    /// Runs until the ledger is closed or dropped.
    pub(crate) async fn run(mut self, ledger: WeakLedger) {
        loop {
            let Some(open) = ledger.upgrade() else { return };
            let closed = open.closed();
            let wait = match self.run_once(&open).await {
                Ok(sweep) => {
                    open.swept();
                    pause(&open, &sweep, self.look_every()).await
                }
                Err(error) => {
                    tracing::warn!(%error, "sweep failed; retrying");
                    Duration::from_secs(1)
                }
            };
            drop(open);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = closed => return,
            }
        }
    }

    /// One pass: every due row gets its Tick.
    pub async fn run_once(&mut self, ledger: &Ledger) -> Result<Sweep, Error> {
        let sweep = self.look(ledger).await;
        if sweep.is_err() {
            self.watch.lost();
        }
        sweep
    }

    /// Records that the store responds, and its time. Called for every page, so that a long pass counts as
    /// observation too.
    async fn observe(&mut self, ledger: &Ledger) -> Result<Looked, Error> {
        let looked = (ledger.now().await?, self.clock.monotonic());
        self.every_lease |= self.watch.observe(looked.0, looked.1);
        Ok(looked)
    }

    /// The time until the next pass: less than a third of the shortest lease.
    fn look_every(&self) -> Millis {
        self.shortest.map_or(LOOK_MS, |(ttl, _)| (ttl / 4).clamp(1, LOOK_MS))
    }

    /// Records the ttl of a lease that is too short for one pass per second.
    fn saw_lease(&mut self, ttl: Millis, monotonic: Millis) {
        if ttl < 4 * LOOK_MS && self.shortest.is_none_or(|(shortest, _)| ttl <= shortest) {
            self.shortest = Some((ttl, monotonic));
        }
    }

    async fn look(&mut self, ledger: &Ledger) -> Result<Sweep, Error> {
        let (now, monotonic) = self.observe(ledger).await?;
        self.skipped.retain(|_, until| *until > monotonic);
        self.shortest = self.shortest.filter(|(_, at)| monotonic - at < SHORTEST_MS);
        let works = expired(&mut self.damaged, monotonic);
        let commands = expired(&mut self.damaged_commands, monotonic);
        let mut sweep = Sweep::default();
        let around = |list, ticked| around_damage(ledger, list, ticked, now);
        if std::mem::take(&mut self.every_lease) {
            let ticked = self.tick_leases(ledger, &mut sweep).await;
            around("the list of leases", ticked)?;
        }
        let ticked = self.tick_due(ledger, &mut sweep, now).await;
        around("the list of due work items", ticked)?;
        let ticked = self.tick_commands(ledger, &mut sweep, now).await;
        around("the list of due commands", ticked)?;
        // They were just tried again: rows that did not return to the set are readable now, or gone.
        let damaged = ledger.store().damaged();
        let healed = works.iter().filter(|id| !self.damaged.contains_key(id)).map(WorkId::to_string);
        let commands = commands.iter().filter(|id| !self.damaged_commands.contains_key(id));
        healed.chain(commands.map(CommandId::to_string)).for_each(|id| damaged.remove(&id));
        if self.anchored_at.is_none_or(|at| monotonic - at >= ANCHOR_EVERY_MS) {
            // Not a reason to stop observing leases: if the store is unavailable, the next read shows it.
            if let Err(error) = ledger.advance_anchor().await {
                tracing::warn!(%error, "the anchor was not advanced");
            }
            self.anchored_at = Some(monotonic);
        }
        if self.forgot_at.is_none_or(|at| monotonic - at >= FORGET_EVERY_MS) {
            let forgotten = ledger.forget_kept(now - limits::KEPT_MS).await;
            around("the early answers", forgotten.map(drop))?;
            self.forgot_at = Some(monotonic);
        }
        // If this cannot be read, the next pass begins within a second anyway.
        let works = around_damage(ledger, "the next due work item", ledger.next_due().await, now)?;
        let commands = ledger.next_due_command(Duty::Tick).await;
        let commands = around_damage(ledger, "the next due command", commands, now)?;
        sweep.next_due = works.into_iter().chain(commands).min();
        Ok(sweep)
    }

    /// After opening and after a backward jump every lease is read, and one that expires too far in the
    /// future is shortened.
    async fn tick_leases(&mut self, ledger: &Ledger, sweep: &mut Sweep) -> Result<(), Error> {
        let mut after = None;
        loop {
            let ids = ledger.leased(after, PAGE).await?;
            let Some(last) = ids.last().copied() else { return Ok(()) };
            self.tick(ledger, &ids, sweep).await?;
            after = Some(last);
        }
    }

    async fn tick_due(&mut self, ledger: &Ledger, sweep: &mut Sweep, at: Millis) -> Result<(), Error> {
        let mut after = None;
        loop {
            let rows = ledger.due(at, after, PAGE).await?;
            let Some(last) = rows.last().copied() else { return Ok(()) };
            let ids: Vec<WorkId> =
                rows.into_iter().map(|(_, id)| id).filter(|id| !self.passes_over(id)).collect();
            self.tick(ledger, &ids, sweep).await?;
            after = Some(last);
        }
    }

    /// Expired approvals, relay calls past their deadline, ended budget windows.
    async fn tick_commands(&mut self, ledger: &Ledger, sweep: &mut Sweep, at: Millis) -> Result<(), Error> {
        let mut after = None;
        loop {
            let rows = ledger.store().due_commands(Duty::Tick, at, after, &[], PAGE).await?;
            let Some(last) = rows.last().copied() else { return Ok(()) };
            let (now, monotonic) = self.observe(ledger).await?;
            let mut ticks = Vec::with_capacity(rows.len());
            for (_, command) in rows.into_iter().filter(|(_, id)| !self.damaged_commands.contains_key(id)) {
                let action = Action::Command(Box::new(CommandAction::Tick { command }));
                ticks.push((command, ledger.send(Actor::system("sweeper"), Tenants::All, action)?));
            }
            for (command, answer) in ticks {
                sweep.ticked += 1;
                match answer.await.map(|outcome| outcome.reply) {
                    Ok(Reply::Ticked(Ticked::Acted)) => sweep.acted += 1,
                    Ok(_) => {}
                    Err(error @ (Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Stopped(_))) => {
                        return Err(error);
                    }
                    Err(error) => {
                        sweep.failed += 1;
                        ledger.store().damaged().add(command.to_string(), &error, now);
                        self.damaged_commands.insert(command, monotonic + POISON_MS);
                    }
                }
            }
            after = Some(last);
        }
    }

    /// Ticks one page; the submissions form one group in the store.
    async fn tick(&mut self, ledger: &Ledger, ids: &[WorkId], sweep: &mut Sweep) -> Result<(), Error> {
        let (looked_at, monotonic) = self.observe(ledger).await?;
        let works = self.readable(ledger, ids, sweep, (looked_at, monotonic)).await?;
        let mut ticks = Vec::with_capacity(works.len());
        for work in &works {
            let ttl = work.spec.policy.lease.ttl_ms;
            if work.lease.is_some() {
                self.saw_lease(ttl as Millis, monotonic);
            }
            let watched_ms = self.watch.watched(ttl, monotonic);
            let action = Action::Tick { work: work.id, looked_at, watched_ms, sighting: sighting(work) };
            let answer = ledger.send(Actor::system("sweeper"), Tenants::All, action)?;
            ticks.push((work, ttl.saturating_sub(watched_ms), answer));
        }
        for (work, unwatched_ms, answer) in ticks {
            sweep.ticked += 1;
            match answer.await.map(|outcome| outcome.reply) {
                Ok(Reply::Ticked(Ticked::Acted)) => sweep.acted += 1,
                Ok(Reply::Ticked(Ticked::NotYet)) => {
                    sweep.not_yet += 1;
                    self.skipped.insert(work.id, monotonic + unwatched_ms as Millis);
                }
                Ok(_) => {}
                Err(error @ (Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Stopped(_))) => {
                    return Err(error);
                }
                Err(error) => self.poisoned(ledger, work.id, &error, sweep, (looked_at, monotonic)),
            }
        }
        Ok(())
    }

    fn passes_over(&self, id: &WorkId) -> bool {
        self.skipped.contains_key(id) || self.damaged.contains_key(id)
    }

    /// The rows of a page that can be read.
    async fn readable(
        &mut self,
        ledger: &Ledger,
        ids: &[WorkId],
        sweep: &mut Sweep,
        looked: Looked,
    ) -> Result<Vec<Work>, Error> {
        let mut pages = Vec::new();
        match ledger.readable_works(ids).await {
            // The database could not read one of its pages: each row is read individually.
            Err(error) if error.is_of_stored() => {
                for id in ids {
                    match ledger.readable_works(std::slice::from_ref(id)).await {
                        Ok(page) => pages.push(page),
                        Err(error) if error.is_of_stored() => {
                            self.poisoned(ledger, *id, &error, sweep, looked);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            page => pages.push(page?),
        }
        let mut works = Vec::with_capacity(ids.len());
        for page in pages {
            for (id, row) in page.unreadable.iter().filter_map(|row| Some((row.work?, row))) {
                self.poisoned(ledger, id, &row.error(), sweep, looked);
            }
            works.extend(page.rows);
        }
        Ok(works)
    }

    fn poisoned(
        &mut self,
        ledger: &Ledger,
        work: WorkId,
        error: &Error,
        sweep: &mut Sweep,
        (looked_at, monotonic): Looked,
    ) {
        sweep.failed += 1;
        ledger.store().damaged().add(work.to_string(), error, looked_at);
        self.damaged.insert(work, monotonic + POISON_MS);
    }
}

/// A list that cannot be read completely is recorded as damaged, and the pass continues.
fn around_damage<T: Default>(
    ledger: &Ledger,
    list: &str,
    outcome: Result<T, Error>,
    now: Millis,
) -> Result<T, Error> {
    let damaged = ledger.store().damaged();
    match outcome {
        Err(error) if error.is_of_stored() => {
            damaged.add(list.to_owned(), &error, now);
            Ok(T::default())
        }
        Ok(done) => {
            damaged.remove(list);
            Ok(done)
        }
        Err(error) => Err(error),
    }
}

/// Removes the rows whose time of being skipped has ended: they are tried again.
fn expired<Id: Copy + Eq + Hash>(rows: &mut HashMap<Id, Millis>, monotonic: Millis) -> Vec<Id> {
    let expired: Vec<Id> = rows.iter().filter(|(_, until)| **until <= monotonic).map(|(id, _)| *id).collect();
    expired.iter().for_each(|id| _ = rows.remove(id));
    expired
}

/// The time until the next due date, within the limit. Rows that are still due were skipped and can wait for
/// the limit, unless this pass changed something: then more may be due immediately.
async fn pause(ledger: &Ledger, sweep: &Sweep, most: Millis) -> Duration {
    let now = ledger.now().await.unwrap_or(Millis::MAX);
    let ms = match sweep.next_due {
        Some(due) if due > now => (due - now).min(most),
        Some(_) if sweep.acted > 0 => 20,
        Some(_) | None => most,
    };
    Duration::from_millis(ms.max(1) as u64)
}

/// What this process can see of the holder's process.
pub(crate) fn sighting(work: &Work) -> Option<Sighting> {
    process::look(&work.body.holder.as_ref()?.liveness, work.lease.as_ref()?.fence)
}

#[cfg(test)]
mod tests {
    use super::Watch;

    const TTL: u64 = 45_000;

    #[test]
    fn only_an_unbroken_look_counts_as_watching() {
        let mut watch = Watch::default();
        assert!(watch.observe(1_000, 0), "the first look takes in every lease");
        for second in 1..=60 {
            assert!(!watch.observe(1_000 + second * 1_000, second * 1_000));
        }
        assert_eq!(watch.watched(TTL, 60_000), 60_000);
        assert!(!watch.observe(7_200_000 + 61_000, 61_000), "a jump forward");
        assert_eq!(watch.watched(TTL, 61_000), 0);
        assert!(watch.observe(62_000, 62_000), "a jump back takes in every lease again");
        assert!(!watch.observe(62_000 + 30_000, 92_000), "a long gap: nobody was watching");
        assert_eq!(watch.watched(TTL, 92_000), 0);
        watch.lost();
        assert_eq!(watch.watched(TTL, 93_000), 0);
    }

    #[test]
    fn a_gap_starts_the_watch_anew_for_leases_three_times_as_long_at_most() {
        let mut watch = Watch::default();
        let looks = [0, 1_000, 2_000, 5_000, 6_000, 7_000, 7_500];
        for at in looks {
            watch.observe(at, at);
        }
        assert_eq!(watch.watched(2_000, 7_500), 500, "a second is more than a third of it");
        assert_eq!(watch.watched(3_000, 7_500), 2_500, "three seconds are, one is not");
        assert_eq!(watch.watched(8_999, 7_500), 2_500);
        assert_eq!(watch.watched(9_000, 7_500), 7_500, "three seconds are just a third of it");
    }

    #[test]
    fn gaps_that_no_longer_matter_are_forgotten() {
        let mut watch = Watch::default();
        let mut at = 0;
        for step in (1..=500).rev().chain([100; 50]) {
            at += step;
            watch.observe(at, at);
        }
        assert!(watch.gaps.len() < 10, "{:?}", watch.gaps);
        assert_eq!(watch.watched(TTL, at), 130_250 - 500);
    }
}
