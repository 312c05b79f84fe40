//! The sweeper: finds rows whose time may have come and sends a Tick for each, through the same door as
//! everybody. It knows no rules; it only watches, so that no clock jump, outage or restart expires a
//! living holder.

use std::{collections::HashMap, sync::Arc, time::Duration};

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
/// A longer gap between two looks means that this sweeper was not watching.
const GAP_MS: Millis = 5_000;
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

/// Whether the clocks and the store could be trusted, and for how long.
#[derive(Debug, Default)]
struct Watch {
    since: Option<Millis>,
    last: Option<(Millis, Millis)>,
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
        if gap > GAP_MS || drift.abs() > DRIFT_MS {
            self.since = Some(monotonic);
        }
        drift < -DRIFT_MS
    }

    /// The store could not be reached: whatever was seen before no longer counts.
    fn lost(&mut self) {
        *self = Watch::default();
    }

    fn watched(&self, monotonic: Millis) -> u64 {
        self.since.map_or(0, |since| (monotonic - since).max(0) as u64)
    }
}

/// One process's sweeper. Any number may run on one ledger.
pub struct Sweeper {
    clock: Arc<dyn Clock>,
    watch: Watch,
    /// Rows to pass over until a moment of the monotonic clock.
    passed_over: HashMap<WorkId, Millis>,
    commands_passed_over: HashMap<CommandId, Millis>,
    forgot_at: Option<Millis>,
    anchored_at: Option<Millis>,
}

impl Sweeper {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            watch: Watch::default(),
            passed_over: HashMap::new(),
            commands_passed_over: HashMap::new(),
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
                    pause(&open, &sweep).await
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

    async fn look(&mut self, ledger: &Ledger) -> Result<Sweep, Error> {
        let now = ledger.now().await?;
        let monotonic = self.clock.monotonic();
        let every_lease = self.watch.observe(now, monotonic);
        self.passed_over.retain(|_, until| *until > monotonic);
        let mut sweep = Sweep::default();
        if every_lease {
            self.tick_leases(ledger, &mut sweep, (now, monotonic)).await?;
        }
        self.tick_due(ledger, &mut sweep, (now, monotonic)).await?;
        self.tick_commands(ledger, &mut sweep, (now, monotonic)).await?;
        if self.anchored_at.is_none_or(|at| monotonic - at >= ANCHOR_EVERY_MS) {
            // No reason to stop watching leases: a store that is away shows in the next read anyway.
            if let Err(error) = ledger.advance_anchor().await {
                tracing::warn!(%error, "the anchor stays where it is");
            }
            self.anchored_at = Some(monotonic);
        }
        if self.forgot_at.is_none_or(|at| monotonic - at >= FORGET_EVERY_MS) {
            ledger.forget_kept(now - limits::KEPT_MS).await?;
            self.forgot_at = Some(monotonic);
        }
        let commands = ledger.next_due_command(Duty::Tick).await?;
        sweep.next_due = ledger.next_due().await?.into_iter().chain(commands).min();
        Ok(sweep)
    }

    /// At open and after a backward jump every lease is looked at: one that lies too far ahead is brought
    /// into reach.
    async fn tick_leases(&mut self, ledger: &Ledger, sweep: &mut Sweep, looked: Looked) -> Result<(), Error> {
        let mut after = None;
        loop {
            let ids = ledger.leased(after, PAGE).await?;
            let Some(last) = ids.last().copied() else { return Ok(()) };
            self.tick(ledger, &ids, sweep, looked).await?;
            after = Some(last);
        }
    }

    async fn tick_due(&mut self, ledger: &Ledger, sweep: &mut Sweep, looked: Looked) -> Result<(), Error> {
        let mut after = None;
        loop {
            let rows = ledger.due(looked.0, after, PAGE).await?;
            let Some(last) = rows.last().copied() else { return Ok(()) };
            let ids: Vec<WorkId> =
                rows.into_iter().map(|(_, id)| id).filter(|id| !self.passed_over.contains_key(id)).collect();
            self.tick(ledger, &ids, sweep, looked).await?;
            after = Some(last);
        }
    }

    /// Approvals that expire, calls of the relay whose deadline passed, windows that are over.
    async fn tick_commands(
        &mut self,
        ledger: &Ledger,
        sweep: &mut Sweep,
        (now, monotonic): Looked,
    ) -> Result<(), Error> {
        self.commands_passed_over.retain(|_, until| *until > monotonic);
        let mut after = None;
        loop {
            let rows = ledger.store().due_commands(Duty::Tick, now, after, PAGE).await?;
            let Some(last) = rows.last().copied() else { return Ok(()) };
            let mut ticks = Vec::with_capacity(rows.len());
            for (_, command) in rows.into_iter().filter(|(_, id)| !self.commands_passed_over.contains_key(id))
            {
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
                        tracing::warn!(%command, %error, "a command could not be ticked; passed over");
                        self.commands_passed_over.insert(command, monotonic + POISON_MS);
                    }
                }
            }
            after = Some(last);
        }
    }

    /// Ticks one page; the submissions form one group in the store.
    async fn tick(
        &mut self,
        ledger: &Ledger,
        ids: &[WorkId],
        sweep: &mut Sweep,
        (looked_at, monotonic): Looked,
    ) -> Result<(), Error> {
        let works = self.readable(ledger, ids, sweep, monotonic).await?;
        let watched_ms = self.watch.watched(monotonic);
        let mut ticks = Vec::with_capacity(works.len());
        for work in &works {
            let action = Action::Tick { work: work.id, looked_at, watched_ms, sighting: sighting(work) };
            let answer = ledger.send(Actor::system("sweeper"), Tenants::All, action)?;
            ticks.push((work, answer));
        }
        for (work, answer) in ticks {
            sweep.ticked += 1;
            match answer.await.map(|outcome| outcome.reply) {
                Ok(Reply::Ticked(Ticked::Acted)) => sweep.acted += 1,
                Ok(Reply::Ticked(Ticked::NotYet)) => {
                    sweep.not_yet += 1;
                    let ttl = work.spec.policy.lease.ttl_ms;
                    self.passed_over.insert(work.id, monotonic + ttl.saturating_sub(watched_ms) as Millis);
                }
                Ok(_) => {}
                Err(error @ (Error::Unavailable(_) | Error::OutcomeUnknown(_) | Error::Stopped(_))) => {
                    return Err(error);
                }
                Err(error) => self.poisoned(work.id, &error, sweep, monotonic),
            }
        }
        Ok(())
    }

    /// The rows of a page. Where one cannot be read, each is read on its own: it costs the others nothing.
    async fn readable(
        &mut self,
        ledger: &Ledger,
        ids: &[WorkId],
        sweep: &mut Sweep,
        monotonic: Millis,
    ) -> Result<Vec<Work>, Error> {
        match ledger.works(ids).await {
            Err(Error::Corrupt(_)) => {}
            page => return page,
        }
        let mut works = Vec::with_capacity(ids.len());
        for id in ids {
            match ledger.works(std::slice::from_ref(id)).await {
                Ok(found) => works.extend(found),
                Err(error @ Error::Corrupt(_)) => self.poisoned(*id, &error, sweep, monotonic),
                Err(error) => return Err(error),
            }
        }
        Ok(works)
    }

    fn poisoned(&mut self, work: WorkId, error: &Error, sweep: &mut Sweep, monotonic: Millis) {
        sweep.failed += 1;
        tracing::warn!(%work, %error, "a row could not be ticked; passed over");
        self.passed_over.insert(work, monotonic + POISON_MS);
    }
}

/// Until the next due date, at most a second. What is due still was passed over, and can wait that long,
/// unless this look moved something: then there may be more to do for it at once.
async fn pause(ledger: &Ledger, sweep: &Sweep) -> Duration {
    let now = ledger.now().await.unwrap_or(Millis::MAX);
    let ms = match sweep.next_due {
        Some(due) if due > now => (due - now).min(1_000),
        Some(_) if sweep.acted > 0 => 20,
        Some(_) | None => 1_000,
    };
    Duration::from_millis(ms.max(1) as u64)
}

fn sighting(work: &Work) -> Option<Sighting> {
    process::look(&work.body.holder.as_ref()?.liveness, work.lease.as_ref()?.fence)
}

#[cfg(test)]
mod tests {
    use super::Watch;

    #[test]
    fn only_an_unbroken_look_counts_as_watching() {
        let mut watch = Watch::default();
        assert!(watch.observe(1_000, 0), "the first look takes in every lease");
        for second in 1..=60 {
            assert!(!watch.observe(1_000 + second * 1_000, second * 1_000));
        }
        assert_eq!(watch.watched(60_000), 60_000);
        assert!(!watch.observe(7_200_000 + 61_000, 61_000), "a jump forward");
        assert_eq!(watch.watched(61_000), 0);
        assert!(watch.observe(62_000, 62_000), "a jump back takes in every lease again");
        assert!(!watch.observe(62_000 + 30_000, 92_000), "a long gap: nobody was watching");
        assert_eq!(watch.watched(92_000), 0);
        watch.lost();
        assert_eq!(watch.watched(93_000), 0);
    }
}
