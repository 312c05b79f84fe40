//! Every short history of a small world: one session with an owner-bound work item that waits and a
//! rerunnable one, two workers, a sweeper, an operator. Histories that lead to the same situation are
//! followed once.

use std::collections::BTreeSet;

use tenure_core::{State, Work, WorkId, model::ErrorClass};

use crate::common::*;

const DEPTH: usize = 8;

#[derive(Clone)]
struct Node {
    world: World,
    works: [WorkId; 2],
    /// Every lease that workers ever got for each work item.
    leases: [Vec<Lease>; 2],
}

type Move = fn(&mut Node);

/// The possible moves. Refusals are fine; broken invariants panic in the world.
const MOVES: [Move; 18] = [
    |n| n.claim(0, &w1()),
    |n| n.claim(0, &w2()),
    |n| n.claim(1, &w2()),
    |n| n.newest(0, |w, l| drop(w.renew(l))),
    |n| n.newest(1, |w, l| drop(w.renew(l))),
    |n| n.oldest(0, |w, l| drop(w.renew(l))),
    |n| n.oldest(1, |w, l| drop(w.close(l, State::Succeeded))),
    |n| n.newest(0, |w, l| drop(w.wait_with(l, "again", |_| {}))),
    |n| n.newest(1, |w, l| drop(w.wait_with(l, "ref", |_| {}))),
    |n| n.newest(1, |w, l| drop(w.release(l))),
    |n| n.newest(0, |w, l| drop(w.close(l, State::Succeeded))),
    |n| n.newest(1, |w, l| drop(w.fail(l, ErrorClass::Transport, "x"))),
    |n| drop(n.world.cancel(n.works[0])),
    |n| drop(n.world.abandon(n.works[0])),
    |n| {
        n.world.tick(n.works[0]);
    },
    |n| {
        n.world.tick(n.works[1]);
    },
    |n| drop(n.world.resolve("ref", "x")),
    |n| n.world.pass(LAPSE),
];

impl Node {
    fn start() -> Self {
        let mut world = World::default();
        let bound = world.ingest_with("a", |i| {
            owner_bound(i);
            in_session(i);
        });
        world.pass(1);
        let plain = world.ingest_with("b", in_session);
        let first = world.claim(bound, &w1());
        world.wait(&first, "ref");
        Self { world, works: [bound, plain], leases: [vec![first], Vec::new()] }
    }

    fn claim(&mut self, i: usize, worker: &tenure_core::model::Worker) {
        if let Ok(grants) = self.world.try_claim(self.works[i], worker) {
            self.leases[i].extend(grants.iter().map(lease));
        }
    }

    fn newest(&mut self, i: usize, act: impl FnOnce(&mut World, &Lease)) {
        if let Some(lease) = self.leases[i].last().cloned() {
            act(&mut self.world, &lease);
        }
    }

    fn oldest(&mut self, i: usize, act: impl FnOnce(&mut World, &Lease)) {
        if let Some(lease) = self.leases[i].first().filter(|_| self.leases[i].len() > 1).cloned() {
            act(&mut self.world, &lease);
        }
    }

    /// Everything that the future depends on, with times as differences.
    fn situation(&self) -> String {
        let seen = |i: usize| {
            let work: &Work = self.world.row(self.works[i]);
            let away = |at: Option<i64>| at.map(|at| (at - self.world.now).signum());
            let lease = work.lease.as_ref();
            format!(
                "{} {:?} {:?} {:?} {:?} {:?} {} {} {} {} {} {}",
                work.state,
                lease.map(|lease| (lease.lapsed_at.is_some(), away(Some(lease.expires_at + 30 * SECOND)))),
                work.body.holder.as_ref().map(|holder| &holder.id),
                work.body.first_started.as_ref().map(|first| &first.worker),
                away(work.body.bound_until),
                away(work.due_at),
                work.open_waits,
                work.body.waits,
                work.body.failures.min(3),
                work.body.cancel.is_some(),
                work.body.abandon_request.is_some(),
                self.leases[i].len().min(2),
            )
        };
        let early = self.world.records.kept.values().flatten().count();
        format!("{} | {} | {early}", seen(0), seen(1))
    }
}

#[test]
fn no_short_history_breaks_an_invariant() {
    let mut seen = BTreeSet::new();
    let mut states = BTreeSet::new();
    let mut frontier = vec![Node::start()];
    for _ in 0..DEPTH {
        let mut next = Vec::new();
        for node in &frontier {
            for act in MOVES {
                let mut node = node.clone();
                act(&mut node);
                if seen.insert(node.situation()) {
                    states.insert(node.works.map(|id| node.world.state(id)));
                    next.push(node);
                }
            }
        }
        frontier = next;
    }
    assert!(seen.len() > 500, "{} situations are too few", seen.len());
    let both_held = states.iter().filter(|both| both.iter().all(|state| state.holds_session()));
    assert_eq!(both_held.count(), 0, "5");
}
