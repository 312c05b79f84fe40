//! The sweeper: finds rows whose time may have come and sends a Tick for each, through the same door as
//! everybody. It knows no rules; it only watches, so that no clock jump, outage or restart expires a
//! living holder.

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

/// Rows a page; a page's Ticks go into the ledger together.
const PAGE: usize = 500;
/// Between two looks at most.
const LOOK_MS: Millis = 1_000;
/// The shortest lease that was seen is forgotten after so long without one.
const SHORTEST_MS: Millis = 60_000;
/// Clocks may disagree by so much before they count as moved.
const DRIFT_MS: Millis = 1_000;
/// How long a row that cannot be ticked is passed over.
const POISON_MS: Millis = 60_000;
const FORGET_EVERY_MS: Millis = 60_000;
const ANCHOR_EVERY_MS: Millis = 10_000;

/// When a look began: the store's time, and the monotonic clock's.
type Looked = (Millis, Millis);

/// What one look did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    pub ticked: usize,
    pub acted: usize,
    /// Due, but not watched for long enough to judge.
    pub not_yet: usize,
    /// Rows that could not be ticked; they never block the others.
    pub failed: usize,
    pub next_due: Option<Millis>,
}

/// How long the clocks and the store could be trusted.
///
/// A lease is judged only by whoever watched it for its whole ttl without a gap of more than a third of it: a holder
/// renews at least so often, and whatever stopped this process may have stopped the renewals too.
#[derive(Debug, Default)]
struct Watch {
    since: Option<Millis>,
    last: Option<Looked>,
    /// Pauses between two looks, each with its length and its end. A later one that is longer makes an earlier one
    /// irrelevant, so lengths fall.
    gaps: Vec<(Millis, Millis)>,
}

impl Watch {
    /// Takes a look at the clocks. True when the wall went back, or at the first look.
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
        // One that ended three times its length ago concerns no lease that has not been watched long enough since.
        self.gaps.retain(|(length, end)| *length > gap && monotonic - end < 3 * length);
        self.gaps.push((gap, monotonic));
        drift < -DRIFT_MS
    }

    /// The store could not be reached: whatever was seen before no longer counts.
    fn lost(&mut self) {
        *self = Watch::default();
    }

    /// For how long a lease of this ttl was watched without a gap.
    fn watched(&self, ttl_ms: u64, monotonic: Millis) -> u64 {
        let Some(since) = self.since else { return 0 };
        let third = |length: Millis| 3 * length.max(0) as u64 > ttl_ms;
        let gap = self.gaps.iter().rev().find(|(length, _)| third(*length)).map(|(_, end)| *end);
        (monotonic - gap.unwrap_or(since).max(since)).max(0) as u64
    }
}

/// One process's sweeper. Any number may run on one ledger.
pub struct Sweeper {
    clock: Arc<dyn Clock>,
    watch: Watch,
    /// Every lease is looked at in the next look.
    every_lease: bool,
    /// The shortest ttl that was seen lately, and when: it has to be watched in steps of less than a third of it.
    shortest: Option<(Millis, Millis)>,
    /// Rows to pass over until a moment of the monotonic clock: not watched for long enough, and damaged.
    passed_over: HashMap<WorkId, Millis>,
    damaged: HashMap<WorkId, Millis>,
    damaged_commands: HashMap<CommandId, Millis>,
    forgot_at: Option<Millis>,
    anchored_at: Option<Millis>,
}

impl Sweeper {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            watch: Watch::default(),
            every_lease: false,
            shortest: None,
            passed_over: HashMap::new(),
            damaged: HashMap::new(),
            damaged_commands: HashMap::new(),
            forgot_at: None,
            anchored_at: None,
        }
    }

    /// Runs until the ledger is closed, or nobody has it any more.
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
                    tracing::warn!(%error, "sweep failed; trying again");
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

    /// One look: every due row gets its Tick.
    pub async fn run_once(&mut self, ledger: &Ledger) -> Result<Sweep, Error> {
        let sweep = self.look(ledger).await;
        if sweep.is_err() {
            self.watch.lost();
        }
        sweep
    }

    /// Sees that the store answers, and what time it is. Done for every page: a long sweep watches too.
    async fn observe(&mut self, ledger: &Ledger) -> Result<Looked, Error> {
        let looked = (ledger.now().await?, self.clock.monotonic());
        self.every_lease |= self.watch.observe(looked.0, looked.1);
        Ok(looked)
    }

    /// Between two looks at most: less than a third of the shortest lease.
    fn look_every(&self) -> Millis {
        self.shortest.map_or(LOOK_MS, |(ttl, _)| (ttl / 4).clamp(1, LOOK_MS))
    }

    /// Notes a lease's ttl, where it is too short for a look each second.
    fn saw_lease(&mut self, ttl: Millis, monotonic: Millis) {
        if ttl < 4 * LOOK_MS && self.shortest.is_none_or(|(shortest, _)| ttl <= shortest) {
            self.shortest = Some((ttl, monotonic));
        }
    }

    async fn look(&mut self, ledger: &Ledger) -> Result<Sweep, Error> {
        let (now, monotonic) = self.observe(ledger).await?;
        self.passed_over.retain(|_, until| *until > monotonic);
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
        around("the list of due works", ticked)?;
        let ticked = self.tick_commands(ledger, &mut sweep, now).await;
        around("the list of due commands", ticked)?;
        // They were tried again just now: those that are not back in the set can be read, or are gone.
        let damaged = ledger.store().damaged();
        let healed = works.iter().filter(|id| !self.damaged.contains_key(id)).map(WorkId::to_string);
        let commands = commands.iter().filter(|id| !self.damaged_commands.contains_key(id));
        healed.chain(commands.map(CommandId::to_string)).for_each(|id| damaged.remove(&id));
        if self.anchored_at.is_none_or(|at| monotonic - at >= ANCHOR_EVERY_MS) {
            // No reason to stop watching leases: a store that is away shows in the next read anyway.
            if let Err(error) = ledger.advance_anchor().await {
                tracing::warn!(%error, "the anchor stays where it is");
            }
            self.anchored_at = Some(monotonic);
        }
        if self.forgot_at.is_none_or(|at| monotonic - at >= FORGET_EVERY_MS) {
            let forgotten = ledger.forget_kept(now - limits::KEPT_MS).await;
            around("the early answers", forgotten.map(drop))?;
            self.forgot_at = Some(monotonic);
        }
        // Where that cannot be read, the next look comes within a second all the same.
        let works = around_damage(ledger, "the next due work", ledger.next_due().await, now)?;
        let commands = ledger.next_due_command(Duty::Tick).await;
        let commands = around_damage(ledger, "the next due command", commands, now)?;
        sweep.next_due = works.into_iter().chain(commands).min();
        Ok(sweep)
    }

    /// At open and after a backward jump every lease is looked at: one that lies too far ahead is brought
    /// into reach.
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

    /// Approvals that expire, calls of the relay whose deadline passed, windows that are over.
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
                    self.passed_over.insert(work.id, monotonic + unwatched_ms as Millis);
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
        self.passed_over.contains_key(id) || self.damaged.contains_key(id)
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
            // The database could not read some page of its own: each row is read by itself.
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

/// A list that cannot be read to its end is damaged itself: it is named, and the rest of the look goes on.
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

/// Takes out the rows whose time of being passed over has ended: they are tried again.
fn expired<Id: Copy + Eq + Hash>(rows: &mut HashMap<Id, Millis>, monotonic: Millis) -> Vec<Id> {
    let expired: Vec<Id> = rows.iter().filter(|(_, until)| **until <= monotonic).map(|(id, _)| *id).collect();
    expired.iter().for_each(|id| _ = rows.remove(id));
    expired
}

/// Until the next due date, and no longer than between two looks. What is due still was passed over, and can wait that long,
/// unless this look moved something: then there may be more to do for it at once.
async fn pause(ledger: &Ledger, sweep: &Sweep, most: Millis) -> Duration {
    let now = ledger.now().await.unwrap_or(Millis::MAX);
    let ms = match sweep.next_due {
        Some(due) if due > now => (due - now).min(most),
        Some(_) if sweep.acted > 0 => 20,
        Some(_) | None => most,
    };
    Duration::from_millis(ms.max(1) as u64)
}

fn sighting(work: &Work) -> Option<Sighting> {
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
