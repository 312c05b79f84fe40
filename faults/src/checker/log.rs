//! The log by itself: numbers, hashes, state changes, holders, fences, winners.

use std::collections::{HashMap, HashSet};

use tenure_api::wire::{Event, State};

use super::{
    Judge, Rule,
    index::{Index, is_terminal},
};
use crate::run::Run;

pub fn check(run: &Run, index: &Index, judge: &mut Judge) {
    for (work, log) in &index.logs {
        chain(work, log, judge);
        moves(work, log, judge);
        fences(work, log, judge);
        winners(work, log, judge);
    }
    rows(run, index, judge);
    identities(run, judge);
    sessions(run, index, judge);
}

fn chain(work: &str, log: &[&Event], judge: &mut Judge) {
    let mut before: Option<&Event> = None;
    for (event, number) in log.iter().zip(1..) {
        if event.seq != number {
            let what = format!("event {number} of {work} is missing or duplicated; found {}", event.seq);
            return judge.broken(Rule::BrokenChain, what);
        }
        if let Some(before) = before
            && event.prev_hash != before.hash
        {
            let what = format!("event {} of {work} does not hash event {}", event.seq, before.seq);
            judge.broken(Rule::BrokenChain, what);
        }
        before = Some(event);
    }
}

fn moves(work: &str, log: &[&Event], judge: &mut Judge) {
    let mut at: Option<&Event> = None;
    for event in log {
        let from = event.from.as_ref().map(ToString::to_string);
        let was = at.map(|before| before.to.to_string());
        if from != was {
            let what = format!("event {} of {work} starts at {from:?}, after {was:?}", event.seq);
            judge.broken(Rule::IllegalMove, what);
        }
        if let Some(before) = at
            && is_terminal(before.to.known())
            && before.to.to_string() != event.to.to_string()
        {
            let what = format!("{work} went from {} to {} by event {}", before.to, event.to, event.seq);
            judge.broken(Rule::TerminalChanged, what);
        }
        at = Some(event);
    }
}

/// Fences rise from claim to claim, a claim takes nothing from a living holder, and events carry the current
/// fence.
fn fences(work: &str, log: &[&Event], judge: &mut Judge) {
    let mut current: Option<u64> = None;
    for event in log {
        let seq = event.seq;
        if event.kind == "claimed" {
            let held = event.from.as_ref().and_then(|from| from.known());
            if matches!(held, Some(State::Running | State::CancelRequested)) {
                let what = format!("{work} was claimed by event {seq} while it was {}", event.to);
                judge.broken(Rule::TwoHolders, what);
            }
            match (current, event.fence) {
                (_, None) => {
                    let what = format!("the claim of {work} by event {seq} has no fence");
                    judge.broken(Rule::FenceRepeated, what);
                }
                (Some(last), Some(fence)) if fence <= last => {
                    let what = format!("{work} was claimed under fence {fence} by event {seq}, after {last}");
                    judge.broken(Rule::FenceRepeated, what);
                }
                _ => {}
            }
            current = current.max(event.fence);
        } else if let (Some(last), Some(fence)) = (current, event.fence)
            && fence != last
        {
            let what = format!("event {seq} of {work} ({}) carries fence {fence}, after {last}", event.kind);
            judge.broken(Rule::StaleWrite, what);
        }
    }
}

/// A wait ends once: by an answer, by its deadline, or cancelled.
fn winners(work: &str, log: &[&Event], judge: &mut Judge) {
    let mut ended: HashMap<&str, u64> = HashMap::new();
    for event in log {
        if !matches!(event.kind.as_str(), "wait_resolved" | "wait_timed_out") {
            continue;
        }
        let Some(wait) = event.data["wait"].as_str() else { continue };
        if let Some(first) = ended.insert(wait, event.seq) {
            let what =
                format!("wait {wait} of {work} was ended by event {first} and again by event {}", event.seq);
            judge.broken(Rule::TwoWinners, what);
        }
    }
}

/// Rows were read before the log, so the event of a row's number exists and must match.
fn rows(run: &Run, index: &Index, judge: &mut Judge) {
    for work in &run.works {
        let id = work.id.as_str();
        match index.log(id).iter().find(|event| event.seq == work.seq) {
            None => {
                let what = format!("{id} has a row at event {}, which is not in the log", work.seq);
                judge.broken(Rule::RowDiffers, what);
            }
            Some(event) if event.to.to_string() != work.state.to_string() => {
                let what =
                    format!("{id} is {} in its row and {} at event {}", work.state, event.to, work.seq);
                judge.broken(Rule::RowDiffers, what);
            }
            Some(_) => {}
        }
    }
    let rows: HashSet<&str> = run.works.iter().map(|work| work.id.as_str()).collect();
    for work in index.logs.keys().filter(|work| !rows.contains(*work)) {
        judge.broken(Rule::RowDiffers, format!("{work} has events but no row"));
    }
}

fn identities(run: &Run, judge: &mut Judge) {
    let mut known = HashMap::new();
    for work in &run.works {
        let source = &work.source;
        let identity = (&work.tenant, &source.system, &source.id, &source.run_id, work.generation);
        if let Some(other) = known.insert(identity, &work.id) {
            let what = format!("{}/{} is {other} and {}", source.system, source.id, work.id);
            judge.broken(Rule::TwoWorks, what);
        }
    }
}

/// In the order of the feed: the work items of a session are held one after another.
fn sessions(run: &Run, index: &Index, judge: &mut Judge) {
    let mut held: HashMap<&str, &str> = HashMap::new();
    for event in &run.log {
        let id = event.work.as_str();
        let Some(session) = index.works.get(id).and_then(|work| work.session.as_deref()) else { continue };
        let holds =
            matches!(event.to.known(), Some(State::Running | State::CancelRequested | State::Stalled));
        match held.get(session) {
            Some(other) if holds && *other != id => {
                let what =
                    format!("session {session} holds {id} by event {} while it holds {other}", event.seq);
                judge.broken(Rule::TwoHolders, what);
                held.insert(session, id);
            }
            _ if holds => drop(held.insert(session, id)),
            Some(other) if *other == id => drop(held.remove(session)),
            _ => {}
        }
    }
}
