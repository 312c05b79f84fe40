//! Draining by named levers, and an exact report: what is confirmed, and what was deferred and why.

use std::collections::BTreeMap;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    Outcome,
    lease::Stage,
    run::{Claiming, Loop},
};
use crate::wire::{
    Claim, Deferred, DrainReport, End, ErrorClass, Failure, Grants, Lever, Pulled, State, WorkId,
};

impl Loop {
    pub(super) async fn drain(mut self) -> DrainReport {
        self.undelivered = Some(BTreeMap::new());
        let mut report = DrainReport::default();
        let end = Instant::now() + self.options.drain_within;
        let given = self.stop_claiming(&mut report, end).await;
        self.request_cancel(&mut report, end).await;
        let mut telling: BTreeMap<WorkId, Lever> =
            self.handled.keys().map(|id| (id.clone(), Lever::Flush)).collect();
        telling.extend(self.hand_back(given));
        telling.extend(self.give_up(&mut report));
        self.flush(&mut report, telling, end).await;
        report
    }

    fn pulls(&self, lever: Lever) -> bool {
        self.options.levers.contains(&lever)
    }

    /// Ends the claim in progress, and releases leases that it was granted at that moment. Leases are renewed
    /// meanwhile.
    async fn stop_claiming(&mut self, report: &mut DrainReport, end: Instant) -> (Instant, Grants) {
        let sent = Instant::now();
        let Some(Claiming { claim, task }) = self.claiming.take() else {
            report.confirm(Lever::StopClaiming, None);
            return (sent, Grants::default());
        };
        task.abort();
        // Repeating the request id returns the leases that it got; with a kind that no work item has, it
        // cannot get new ones.
        let claim = Claim { kinds: vec!["nothing: draining".to_owned()], wait_ms: None, ..claim };
        let client = self.client.clone();
        let mut answer = std::pin::pin!(client.claim(&claim));
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break Some(answer),
                () = self.turn() => {}
                () = sleep_until(end) => break None,
            }
        };
        let because = match answer {
            Some(Ok(given)) => {
                report.confirm(Lever::StopClaiming, None);
                return (sent, given);
            }
            Some(Err(error)) => error.to_string(),
            None => "the ledger has not responded".to_owned(),
        };
        report.defer(Lever::StopClaiming, None, &because);
        (sent, Grants::default())
    }

    /// Releases leases that were granted while the loop was stopping.
    fn hand_back(&mut self, (sent, given): (Instant, Grants)) -> Vec<(WorkId, Lever)> {
        let new = given.leases.into_iter().filter(|grant| !self.handled.contains_key(&grant.work.id));
        let new: Vec<_> = new.collect();
        new.into_iter()
            .map(|grant| {
                let (id, _) = self.keep(grant, sent);
                self.send(&id, Outcome::Release("its worker is draining".to_owned()));
                (id, Lever::Release)
            })
            .collect()
    }

    /// Asks every handler to stop, and keeps renewing and delivering until they have.
    async fn request_cancel(&mut self, report: &mut DrainReport, end: Instant) {
        if !self.pulls(Lever::RequestCancel) {
            return;
        }
        let asked = self.running();
        asked.iter().filter_map(|id| self.handled.get(id)).for_each(|handled| handled.job.cancel.cancel());
        let until = end.min(Instant::now() + self.options.stop_within);
        while !self.running().is_empty() && timeout_at(until, self.turn()).await.is_ok() {}
        let still = self.running();
        for id in asked {
            if still.contains(&id) {
                report.defer(Lever::RequestCancel, Some(id), "its handler did not stop in time");
            } else {
                report.confirm(Lever::RequestCancel, Some(id));
            }
        }
    }

    /// Releases work that did not stop, or abandons it if only this process could know how it ended.
    fn give_up(&mut self, report: &mut DrainReport) -> Vec<(WorkId, Lever)> {
        let mut given_up = Vec::new();
        for id in self.running() {
            let bound =
                self.handled.get(&id).is_some_and(|handled| handled.is_bound(self.options.defer_start));
            let (lever, outcome) = if bound {
                let error = Failure::new(ErrorClass::Unknown, "its worker stopped before it had ended");
                (
                    Lever::Abandon,
                    Outcome::End(Box::new(End { error: Some(error), ..End::new(State::Abandoned) })),
                )
            } else {
                (Lever::Release, Outcome::Release("its worker is draining".to_owned()))
            };
            if self.pulls(lever) {
                self.send(&id, outcome);
                given_up.push((id, lever));
            } else {
                report.defer(lever, Some(id.clone()), "this lever was not requested; its lease expires");
                self.handled.remove(&id);
            }
        }
        given_up
    }

    /// Waits until every decided outcome is delivered, or the time is over.
    async fn flush(&mut self, report: &mut DrainReport, telling: BTreeMap<WorkId, Lever>, end: Instant) {
        if self.pulls(Lever::Flush) {
            while !self.handled.is_empty() && timeout_at(end, self.turn()).await.is_ok() {}
        }
        let undelivered = self.undelivered.take().unwrap_or_default();
        for (id, lever) in telling {
            let because = undelivered.get(&id).map(String::as_str);
            let because = because.or(self
                .handled
                .contains_key(&id)
                .then_some("the ledger has not responded; its lease expires"));
            match because {
                Some(because) => report.defer(lever, Some(id), because),
                None => report.confirm(lever, Some(id)),
            }
        }
    }

    fn running(&self) -> Vec<WorkId> {
        let running = self.handled.iter().filter(|(_, handled)| !matches!(handled.stage, Stage::Delivering));
        running.map(|(id, _)| id.clone()).collect()
    }
}

impl DrainReport {
    fn confirm(&mut self, lever: Lever, work: Option<WorkId>) {
        self.confirmed.push(Pulled { lever: lever.into(), work });
    }

    fn defer(&mut self, lever: Lever, work: Option<WorkId>, because: &str) {
        self.deferred.push(Deferred { lever: lever.into(), work, because: because.to_owned() });
    }
}
