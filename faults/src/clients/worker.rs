//! Workers: they claim and use the holder's verbs. Some go silent with a lease and write with it much later.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tenure_api::{
    Error,
    wire::{
        Claim, CloseOut, Command, CommandState, DeliverReceipt, DispatchCommand, End, ErrorClass, Fail,
        Failure, Grant, Intent, Liveness, NewWait, Progress, PutStep, Release, Renew, RenewLease, Renewal,
        Reserve, SetWait, State, StepVerb, WaitKind, Worker,
    },
};

use super::Hand;
use crate::history::Call;

/// How long claims wait for work items.
const WAIT_MS: u64 = 200;
/// Leases that a silent worker keeps for later writes.
const KEPT: usize = 8;

pub async fn run(hand: Hand) {
    let mut worker = WorkerHand { hand, calls: 0, silent: Vec::new() };
    while !worker.hand.is_stopped() {
        for grant in worker.claim().await {
            if worker.hand.dice.one_in(8) {
                worker.silent.push(grant);
                continue;
            }
            // Without a definite outcome of a call, the handling of this work item ends; its lease lapses.
            let _done = worker.handle(&grant).await;
        }
        if !worker.silent.is_empty() && (worker.silent.len() > KEPT || worker.hand.dice.one_in(3)) {
            let grant = worker.silent.remove(0);
            worker.write_late(&grant).await;
        }
    }
}

struct WorkerHand {
    hand: Hand,
    calls: u64,
    silent: Vec<Grant>,
}

impl WorkerHand {
    /// A unique name.
    fn name(&mut self) -> String {
        self.calls += 1;
        format!("{}-{}", self.hand.name, self.calls)
    }

    async fn claim(&mut self) -> Vec<Grant> {
        let worker =
            Worker { id: self.hand.name.clone(), incarnation: "1".into(), liveness: Liveness::Opaque };
        let max = Some(1 + self.hand.dice.below(3) as u32);
        let claim = Claim { max, wait_ms: Some(WAIT_MS), ..Claim::new(worker, &self.name()) };
        let client = self.hand.client.clone();
        let call = Call::Claim(Box::new(claim.clone()));
        let Some(mut grants) = self.hand.insist(call.clone(), || client.claim(&claim)).await else {
            return Vec::new();
        };
        if !grants.leases.is_empty() && self.hand.dice.one_in(4) {
            let again = self.hand.insist(call, || client.claim(&claim)).await;
            grants = again.unwrap_or(grants);
        }
        let first = grants.leases.iter().filter(|grant| grant.work.attempt == 1).count() as u64;
        let _before = self
            .hand
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| Some(open.saturating_sub(first)));
        grants.leases
    }

    async fn handle(&mut self, grant: &Grant) -> Option<()> {
        match grant.work.kind.as_str() {
            "wait" if grant.answers.is_empty() => return self.ask(grant).await,
            "effect" => self.effect(grant).await?,
            _ => self.steps(grant).await?,
        }
        match self.hand.dice.below(10) {
            0 => self.fail(grant).await,
            1 => self.release(grant).await,
            _ => self.close(grant).await,
        }
    }

    /// A worker that slept through its lease does not notice, and continues.
    async fn write_late(&mut self, grant: &Grant) {
        let _answered = match self.hand.dice.below(4) {
            0 => self.renew(grant).await,
            1 => self.progress(grant).await,
            2 => self.fail(grant).await,
            _ => self.close(grant).await,
        };
    }

    async fn steps(&mut self, grant: &Grant) -> Option<()> {
        self.step(grant, StepVerb::Begin, None).await?;
        self.renew(grant).await?;
        let result = json!({ "by": self.hand.name, "fence": grant.fence });
        self.step(grant, StepVerb::Complete, Some(result)).await?;
        self.progress(grant).await
    }

    async fn step(&mut self, grant: &Grant, verb: StepVerb, result: Option<Value>) -> Option<()> {
        let (work, fence, token) = (&grant.work.id, grant.fence, grant.token.clone());
        let call =
            Call::Step { work: work.clone(), fence, step: "build".into(), verb, result: result.clone() };
        let put = PutStep { fence, token, verb, input: json!({ "what": "it" }), restart: false, result };
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.put_step(work, "build", &put)).await.map(drop)
    }

    async fn renew(&mut self, grant: &Grant) -> Option<()> {
        let (id, fence, token) = (grant.work.id.clone(), grant.fence, grant.token.clone());
        let call = Call::Renew { work: id.clone(), fence };
        let renew = Renew { leases: vec![RenewLease { id, fence, token, progress: None }] };
        let client = self.hand.client.clone();
        let ask = || async {
            match client.renew(&renew).await?.leases.pop() {
                Some(Renewal::Refused { problem, .. }) => Err(Error::Problem(Box::new(problem))),
                Some(renewed) => Ok(renewed),
                None => Err(Error::protocol("no renewal was answered")),
            }
        };
        self.hand.insist(call, ask).await.map(drop)
    }

    async fn progress(&mut self, grant: &Grant) -> Option<()> {
        let (work, fence, token) = (&grant.work.id, grant.fence, grant.token.clone());
        let (request_id, progress) = (self.name(), json!({ "calls": self.calls }));
        let call = Call::Progress {
            work: work.clone(),
            fence,
            request_id: request_id.clone(),
            progress: progress.clone(),
        };
        let report = Progress { fence, token, progress, request_id: Some(request_id) };
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.progress(work, &report)).await.map(drop)
    }

    /// Reserve, dispatch, the call itself, and its receipt.
    async fn effect(&mut self, grant: &Grant) -> Option<()> {
        let command = self.reserve(grant).await?;
        if command.state == CommandState::Succeeded {
            return Some(());
        }
        let command = self.dispatch(grant, &command).await?;
        if self.hand.dice.one_in(12) {
            return None;
        }
        let external_id = self.hand.shop.call(&command).await?;
        if self.hand.dice.one_in(12) {
            return None;
        }
        self.receipt(grant, &command, external_id).await
    }

    async fn reserve(&mut self, grant: &Grant) -> Option<Command> {
        let (work, fence) = (&grant.work.id, grant.fence);
        // All effects of one work item use the same tool, in every worker.
        let tool = if grant.work.source.id.len().is_multiple_of(2) { "pay" } else { "mail" };
        let call = Call::Reserve { work: work.clone(), fence, tool: tool.into(), slot: "0".into() };
        let intent = Intent { slot: Some("0".into()), ..Intent::new(tool, "shop", json!({ "for": work })) };
        let reserve = Reserve::new(fence, &grant.token, intent);
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.reserve(work, &reserve)).await
    }

    async fn dispatch(&mut self, grant: &Grant, command: &Command) -> Option<Command> {
        let (fence, token, request_id) = (grant.fence, grant.token.clone(), self.name());
        let call = Call::Dispatch { command: command.id.clone(), fence, request_id: request_id.clone() };
        let dispatch = DispatchCommand { fence, token, request_id: Some(request_id), estimate: None };
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.dispatch(&command.id, &dispatch)).await
    }

    async fn receipt(&mut self, grant: &Grant, command: &Command, external_id: String) -> Option<()> {
        let (fence, token) = (grant.fence, grant.token.clone());
        let call = Call::Receipt { command: command.id.clone(), fence, external_id: external_id.clone() };
        let receipt = DeliverReceipt {
            fence,
            token,
            dispatch: None,
            external_id: Some(external_id),
            response: None,
            evidence: None,
            cost: None,
            usage: Vec::new(),
        };
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.receipt(&command.id, &receipt)).await.map(drop)
    }

    async fn ask(&mut self, grant: &Grant) -> Option<()> {
        let (work, fence, token) = (&grant.work.id, grant.fence, grant.token.clone());
        let reference = format!("ask-{}", self.name());
        let call = Call::SetWait { work: work.clone(), fence, reference: reference.clone() };
        let waits = vec![NewWait::new(WaitKind::User, &reference)];
        let wait = SetWait { fence, token, waits, reason: None, usage: Vec::new() };
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.wait(work, &wait)).await.map(drop)
    }

    async fn fail(&mut self, grant: &Grant) -> Option<()> {
        let (work, fence, token) = (&grant.work.id, grant.fence, grant.token.clone());
        let call = Call::Fail { work: work.clone(), fence };
        let error = Failure::new(ErrorClass::Unavailable, "not now");
        let fail = Fail { fence, token, error, wait: None, usage: Vec::new() };
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.fail(work, &fail)).await.map(drop)
    }

    async fn release(&mut self, grant: &Grant) -> Option<()> {
        let (work, fence, token) = (&grant.work.id, grant.fence, grant.token.clone());
        let call = Call::Release { work: work.clone(), fence };
        let release = Release { fence, token, message: None, usage: Vec::new() };
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.release(work, &release)).await.map(drop)
    }

    async fn close(&mut self, grant: &Grant) -> Option<()> {
        let (work, fence) = (&grant.work.id, grant.fence);
        let result = json!({ "by": self.hand.name, "fence": fence });
        let state = State::Succeeded;
        let call = Call::CloseOut { work: work.clone(), fence, state, result: result.clone() };
        let end = End { result: Some(result), ..End::new(state) };
        let close = CloseOut::new(fence, &grant.token, end);
        let client = self.hand.client.clone();
        self.hand.insist(call, || client.close_out(work, &close)).await.map(drop)
    }
}
