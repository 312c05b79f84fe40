//! A semaphore that is fair between tenants: waiters are served tenant by tenant, and no tenant gets all
//! permits. A tenant that floods the daemon waits for its own requests; several such tenants together still
//! leave something for others.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tenure_core::action::Tenants;
use tokio::sync::oneshot;

tokio::task_local! {
    static CALL: Call;
}

/// A call of a tenant, with the permits that it keeps until its response is sent.
#[derive(Clone)]
pub struct Call {
    tenant: Arc<str>,
    kept: Arc<Mutex<Vec<Turn>>>,
}

impl Call {
    /// A call of this tenant.
    pub fn of(tenant: Arc<str>) -> Self {
        Self { tenant, kept: Arc::default() }
    }

    fn turns(&self) -> MutexGuard<'_, Vec<Turn>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a permit until the response is sent.
    pub fn keep(&self, turn: Turn) {
        self.turns().push(turn);
    }

    /// The units of this semaphore that the call keeps.
    pub fn keeps(&self, of: &Arc<Fair>) -> usize {
        self.turns().iter().filter(|turn| turn.is_of(of)).map(|turn| turn.units).sum()
    }

    /// Returns the permits of this semaphore before the response is sent.
    pub fn give_back(&self, of: &Arc<Fair>) {
        self.turns().retain(|turn| !turn.is_of(of));
    }

    /// Runs a task as part of this call: its reads, calls and lookups count for the tenant.
    pub fn run<F: Future>(&self, task: F) -> impl Future<Output = F::Output> {
        CALL.scope(self.clone(), task)
    }
}

/// Runs a task on behalf of a tenant.
pub fn on_behalf_of<F: Future>(tenant: Arc<str>, task: F) -> impl Future<Output = F::Output> {
    CALL.scope(Call::of(tenant), task)
}

/// The units of this semaphore that the current task's call keeps.
pub fn kept(of: &Arc<Fair>) -> usize {
    CALL.try_with(|call| call.keeps(of)).unwrap_or(0)
}

/// The tenant on whose behalf this task runs; None for the daemon's own tasks.
pub fn beneficiary() -> Option<Arc<str>> {
    CALL.try_with(|call| call.tenant.clone()).ok()
}

/// Keeps a permit until the response of the current task's call is sent. Outside of a call the permit is
/// returned here.
pub fn keep(turn: Turn) {
    // Outside of a call the closure is dropped, and the permit with it.
    let _ = CALL.try_with(|call| call.keep(turn));
}

/// The tenant whose permits and quotas a caller uses that is bound to several: the first by name. So creating
/// more credentials for the same tenants does not give them more permits.
pub fn key_of(tenants: &Tenants) -> Arc<str> {
    match tenants {
        Tenants::All => Arc::from(""),
        Tenants::Only(list) => list.iter().min().map_or("", String::as_str).into(),
    }
}

/// A semaphore with a total number of units, of which one tenant may hold `share` of those that the others
/// leave free. Tenants that take all they can therefore leave something for the next; a tenant that holds
/// nothing may take any number of free units up to `share`.
pub struct Fair {
    units: usize,
    share: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    held: HashMap<Arc<str>, usize>,
    /// The tenants in the order in which they are served, each with its waiters. While something is free,
    /// each of these tenants holds its share, or asks for more than is free.
    waiting: VecDeque<(Arc<str>, VecDeque<Waiter>)>,
}

struct Waiter {
    units: usize,
    reply: oneshot::Sender<Turn>,
}

impl Fair {
    /// So many units at once, of which one tenant has at most a share.
    pub fn new(units: usize, share: usize) -> Arc<Self> {
        let state = State { free: units, held: HashMap::new(), waiting: VecDeque::new() };
        Arc::new(Self { units, share: share.min(units), state: Mutex::new(state) })
    }

    /// Waits for one unit for a tenant.
    pub async fn turn(self: &Arc<Self>, tenant: Arc<str>) -> Turn {
        self.turn_of(tenant, 1).await
    }

    /// Waits until a tenant may hold this many units, at most its share.
    pub async fn turn_of(self: &Arc<Self>, tenant: Arc<str>, units: usize) -> Turn {
        let units = units.min(self.share);
        let waiting = {
            let mut state = self.state();
            if !state.has_waiters(&tenant) && state.take(&tenant, units, self) {
                return self.given(tenant, units);
            }
            let (reply, turn) = oneshot::channel();
            state.enqueue(tenant.clone(), Waiter { units, reply });
            turn
        };
        // A waiter is not dropped before it is served; if it were, there would be nothing to wait for.
        waiting.await.unwrap_or_else(|_| self.given(tenant, 0))
    }

    /// This many units, at most the tenant's share, if it may hold them now. Waiters of the same tenant are not considered:
    /// this caller cannot wait behind them.
    pub fn try_turn_of(self: &Arc<Self>, tenant: Arc<str>, units: usize) -> Option<Turn> {
        let units = units.min(self.share);
        let taken = self.state().take(&tenant, units, self);
        taken.then(|| self.given(tenant, units))
    }

    fn given(self: &Arc<Self>, tenant: Arc<str>, units: usize) -> Turn {
        Turn { of: Some(self.clone()), tenant, units }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns units, and serves the next waiters while there is room.
    fn give_back(self: &Arc<Self>, tenant: &Arc<str>, units: usize) {
        let mut state = self.state();
        state.put_back(tenant, units);
        let mut skipped = 0;
        while skipped < state.waiting.len() {
            let Some((next, mut waiters)) = state.waiting.pop_front() else { return };
            while waiters.front().is_some_and(|waiter| waiter.reply.is_closed()) {
                waiters.pop_front();
            }
            let Some(first) = waiters.front() else { continue };
            if state.take(&next, first.units, self) {
                skipped = 0;
                if let Some(Waiter { units, reply }) = waiters.pop_front()
                    && let Err(mut nobody) = reply.send(self.given(next.clone(), units))
                {
                    // The waiter has just gone away: its permit must not return its units while the state is
                    // locked.
                    nobody.of = None;
                    state.put_back(&next, units);
                }
            } else {
                skipped += 1;
            }
            if !waiters.is_empty() {
                state.waiting.push_back((next, waiters));
            }
        }
    }
}

impl State {
    fn take(&mut self, tenant: &Arc<str>, units: usize, of: &Fair) -> bool {
        let held = self.held.get(tenant).copied().unwrap_or(0);
        // The units that other tenants leave.
        let left = self.free + held;
        if units > self.free || (held > 0 && held + units > (of.share * left).div_ceil(of.units)) {
            return false;
        }
        self.free -= units;
        *self.held.entry(tenant.clone()).or_default() += units;
        true
    }

    fn put_back(&mut self, tenant: &Arc<str>, units: usize) {
        self.free += units;
        if let Some(held) = self.held.get_mut(tenant) {
            *held -= units;
            if *held == 0 {
                self.held.remove(tenant);
            }
        }
    }

    /// Whether a tenant has waiters. Waiters that gave up are removed here: otherwise they would delay the next
    /// one until somebody returns units.
    fn has_waiters(&mut self, tenant: &Arc<str>) -> bool {
        let Some(at) = self.waiting.iter().position(|(waiting, _)| waiting == tenant) else { return false };
        let waiters = &mut self.waiting[at].1;
        waiters.retain(|waiter| !waiter.reply.is_closed());
        let waits = !waiters.is_empty();
        if !waits {
            self.waiting.remove(at);
        }
        waits
    }

    fn enqueue(&mut self, tenant: Arc<str>, waiter: Waiter) {
        match self.waiting.iter_mut().find(|(waiting, _)| *waiting == tenant) {
            Some((_, waiters)) => waiters.push_back(waiter),
            None => self.waiting.push_back((tenant, VecDeque::from([waiter]))),
        }
    }
}

/// Units held by a tenant until this is dropped.
pub struct Turn {
    of: Option<Arc<Fair>>,
    tenant: Arc<str>,
    units: usize,
}

impl Turn {
    fn is_of(&self, fair: &Arc<Fair>) -> bool {
        self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, fair))
    }

    /// Returns units that turned out not to be needed.
    pub fn shrink(&mut self, units: usize) {
        let spare = self.units.saturating_sub(units);
        if let Some(fair) = self.of.as_ref().filter(|_| spare > 0) {
            self.units -= spare;
            fair.give_back(&self.tenant, spare);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(fair) = self.of.take() {
            fair.give_back(&self.tenant, self.units);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    /// A permit that is available immediately.
    fn at_once(fair: &Arc<Fair>, tenant: &str, units: usize) -> Option<Turn> {
        poll(pin!(fair.turn_of(name(tenant), units)))
    }

    fn name(tenant: &str) -> Arc<str> {
        Arc::from(tenant)
    }

    #[test]
    fn no_list_of_tenants_makes_a_tenant_of_its_own() {
        let key = |names: &[&str]| key_of(&Tenants::Only(names.iter().map(|&name| name.into()).collect()));
        for same in [&["h"][..], &["h", "h"], &["h", "h", "h"], &["h", "i"], &["i", "h"], &["j", "i", "h"]] {
            assert_eq!(key(same), name("h"), "{same:?}");
        }
        assert_eq!(key(&["i"]), name("i"));
        assert_eq!(key_of(&Tenants::All), name(""));
    }

    #[tokio::test]
    async fn a_small_request_that_cannot_wait_passes_a_large_waiter_of_its_tenant() {
        let fair = Fair::new(4, 4);
        let held = fair.try_turn_of("a".into(), 3);
        assert!(held.is_some());
        let mut large = Box::pin(fair.turn_of("a".into(), 2));
        let waits =
            std::future::poll_fn(|cx| std::task::Poll::Ready(large.as_mut().poll(cx).is_pending())).await;
        assert!(waits, "one unit is free");
        assert!(fair.try_turn_of("a".into(), 1).is_some());
        assert!(fair.try_turn_of("a".into(), 2).is_none());
    }

    #[test]
    fn a_waiter_that_gave_up_does_not_block_the_next() {
        let fair = Fair::new(4, 4);
        let _held = at_once(&fair, "a", 2).unwrap();
        assert!(at_once(&fair, "a", 3).is_none(), "more than is free");
        assert!(at_once(&fair, "a", 1).is_some(), "the next one fits");
    }

    #[tokio::test]
    async fn one_tenant_never_holds_everything() {
        let fair = Fair::new(3, 2);
        let mut flood: Vec<_> = (0..2).map(|_| at_once(&fair, "flood", 1).unwrap()).collect();
        assert!(at_once(&fair, "flood", 1).is_none(), "its share is taken");
        let quiet = at_once(&fair, "quiet", 1);
        assert!(quiet.is_some(), "another tenant does not wait for it");
        flood.pop();
        assert!(at_once(&fair, "flood", 1).is_some());
    }

    #[tokio::test]
    async fn several_that_take_all_they_can_leave_something_to_the_next() {
        let fair = Fair::new(16, 8);
        let mut flood = Vec::new();
        let most = ["a", "b", "c"].map(|tenant| {
            let before = flood.len();
            while let Some(turn) = at_once(&fair, tenant, 1) {
                flood.push(turn);
            }
            flood.len() - before
        });
        assert_eq!(most, [8, 4, 2]);
        let quiet = at_once(&fair, "quiet", 2);
        assert!(quiet.is_some(), "a tenant that holds nothing may have what is free");
        drop(flood);
        assert!(at_once(&fair, "a", 7).is_some(), "half of what the quiet tenant leaves");
    }

    #[tokio::test]
    async fn a_call_reports_and_returns_its_turns() {
        let (kept, other) = (Fair::new(4, 4), Fair::new(1, 1));
        let call = Call::of(name("t"));
        for turn in [kept.turn_of(name("t"), 2).await, other.turn(name("t")).await] {
            call.run(async { keep(turn) }).await;
        }
        assert_eq!((call.keeps(&kept), call.keeps(&other)), (2, 1));
        call.give_back(&other);
        assert!(at_once(&other, "t", 1).is_some());
        assert_eq!((call.keeps(&kept), call.keeps(&other)), (2, 0));
        drop(call);
        assert!(at_once(&kept, "t", 4).is_some());
    }

    #[tokio::test]
    async fn tenants_are_served_in_turns_however_many_of_one_wait() {
        let fair = Fair::new(1, 1);
        let held = fair.turn(name("flood")).await;
        let (told, mut served) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = tokio::task::JoinSet::new();
        for tenant in ["flood", "flood", "flood", "quiet"] {
            let (fair, told) = (fair.clone(), told.clone());
            let mut turn = Box::pin(async move { fair.turn(name(tenant)).await });
            assert!(poll(turn.as_mut()).is_none());
            waiting.spawn(async move {
                let _turn = turn.await;
                told.send(tenant).unwrap();
            });
        }
        drop(held);
        while waiting.join_next().await.is_some() {}
        let order: Vec<_> = std::iter::from_fn(|| served.try_recv().ok()).collect();
        assert_eq!(order, ["flood", "quiet", "flood", "flood"]);
    }

    #[tokio::test]
    async fn a_waiter_that_leaves_the_queue_leaves_no_turn_behind() {
        let fair = Fair::new(2, 2);
        let held = [fair.turn(name("a")).await, fair.turn(name("b")).await];
        let mut gone = Box::pin(fair.turn_of(name("c"), 2));
        assert!(poll(gone.as_mut()).is_none());
        let mut stays = Box::pin(fair.turn(name("d")));
        assert!(poll(stays.as_mut()).is_none());
        drop(gone);
        drop(held);
        assert!(poll(stays.as_mut()).is_some());
        assert!(at_once(&fair, "e", 2).is_some(), "all units were returned");
        assert!(fair.state().held.is_empty());
    }
}
