//! Commands: one method for each verb, and the queries.

use std::{collections::BTreeMap, sync::Arc};

use tenure_core::{
    Action, Code, Command, CommandId, CommandState, Identity, Millis, Payload, Refusal, Reply, WorkId,
    action::{Ingest, Kinds, Tenants},
    command::{
        self, Arguments, CallError, CommandAction, DispatchAction, Dispatcher, Duty, Effect, Evaluation,
        Finding, Intent, LookupClaim, Planned, Proof, Recorded, ReplayLimits, ReserveIn, Sender,
        budget::{Budget, BudgetKey},
        plan::plan,
    },
    explain::Explanation,
    model::{Wait, WaitState},
    payload::Digest,
    records::{TargetKey, target_key},
};
use uuid::Uuid;

use super::{
    Caller, Claimed, LeaseRef, Ledger, LedgerReply, NewWork,
    caller::unexpected,
    reads::PAGE_MAX,
    scoped::{CANDIDATES, ambiguous},
};
use crate::{CommandFilter, Error, Listed, NotDispatched, WaitFilter, WorkFilter, job::Payloads, token};

/// The command after its reservation.
#[derive(Clone, Debug)]
pub struct Reserved {
    /// The command.
    pub command: Command,
    /// False if the same command existed already.
    pub fresh: bool,
    /// The provider's response, if the effect has happened before.
    pub response: Option<Payload>,
    /// The lease of the work item that was recorded for this command alone.
    pub lease: Option<Claimed>,
}

/// Identifies the dispatch on whose outcome a caller reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchRef {
    /// The holder's lease, or the relay's own token.
    pub lease: LeaseRef,
    /// The number of the dispatch. None: the last one under that fence.
    pub number: Option<u32>,
}

impl DispatchRef {
    /// The dispatch of this number, under this lease.
    pub fn new(lease: LeaseRef, number: u32) -> Self {
        Self { lease, number: Some(number) }
    }
}

impl From<&LeaseRef> for DispatchRef {
    fn from(lease: &LeaseRef) -> Self {
        Self { lease: lease.clone(), number: None }
    }
}

impl From<&DispatchRef> for DispatchRef {
    fn from(dispatch: &DispatchRef) -> Self {
        dispatch.clone()
    }
}

/// A command that the relay has dispatched and is to send.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The command.
    pub command: Command,
    /// The arguments; none if they were erased.
    pub arguments: Option<Payload>,
    /// To be returned with the report of the outcome.
    pub proof: DispatchRef,
}

impl Ledger {
    /// Sets the policy version for later groups: a command that was evaluated under another version has to be
    /// evaluated again. None: the version is not checked.
    pub fn set_policy_version(&self, version: Option<&str>) {
        self.store().ledger_settings().set_policy(version);
    }

    /// Reads a command.
    pub async fn command(&self, id: CommandId) -> Result<Command, Error> {
        self.store().commands(&[id]).await?.whole()?.pop().ok_or_else(|| no_command(id))
    }

    /// Commands by id; ids that do not exist are left out.
    pub async fn commands_by_id(&self, ids: &[CommandId]) -> Result<Listed<Command, CommandId>, Error> {
        self.store().commands(ids).await
    }

    /// Matching commands, newest first. Pass the key `next` of a page to read the next one.
    pub async fn commands(
        &self,
        filter: &CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> Result<Listed<Command, CommandId>, Error> {
        filter.check()?;
        self.store().list_commands(filter, before, limit.min(PAGE_MAX)).await
    }

    /// The number of commands in each state.
    pub async fn command_counts(&self, tenants: &Tenants) -> Result<BTreeMap<CommandState, u64>, Error> {
        self.store().command_counts(tenants).await
    }

    /// The commands that are due for the relay or for a lookup, earliest first.
    pub async fn due_commands(&self, duty: Duty, limit: usize) -> Result<Vec<Command>, Error> {
        let now = self.now().await?;
        let due = self.store().due_commands(duty, now, None, &[], limit.min(PAGE_MAX)).await?;
        let ids: Vec<CommandId> = due.into_iter().map(|(_, id)| id).collect();
        Ok(self.store().commands(&ids).await?.rows)
    }

    /// When the next command of this kind is due.
    pub async fn next_due_command(&self, duty: Duty) -> Result<Option<Millis>, Error> {
        self.store().next_due_command(duty).await
    }

    /// The current counters of these budgets; unused ones are left out.
    pub async fn budgets(&self, keys: &[BudgetKey]) -> Result<Vec<(BudgetKey, Budget)>, Error> {
        let mut budgets = self.store().budgets(keys).await?;
        budgets.retain(|(_, budget)| *budget != Budget::default());
        Ok(budgets)
    }

    /// All commands of a work item, oldest first.
    pub(crate) async fn commands_of(&self, work: WorkId) -> Result<Vec<Command>, Error> {
        let filter = CommandFilter { work: Some(work), ..CommandFilter::default() };
        let (mut all, mut before) = (Vec::new(), None);
        loop {
            let page = self.commands(&filter, before, PAGE_MAX).await?;
            before = page.next().copied();
            all.extend(page.whole()?);
            if before.is_none() {
                all.reverse();
                return Ok(all);
            }
        }
    }

    /// Explains why the first of these commands that waits for its target has to wait.
    pub(crate) async fn behind(
        &self,
        commands: &[Command],
        now: Millis,
    ) -> Result<Option<Explanation>, Error> {
        let waiting: Vec<&Command> = commands.iter().filter(|command| command.waits_for_target()).collect();
        if waiting.is_empty() {
            return Ok(None);
        }
        let lines: Vec<TargetKey> = waiting.iter().map(|command| target_key(command)).collect();
        let heads = self.store().heads(&lines).await?;
        let kept = waiting.into_iter().zip(heads);
        let Some((command, first)) = kept
            .filter_map(|(command, head)| Some((command, head?)))
            .find(|(command, head)| command.id != *head)
        else {
            return Ok(None);
        };
        let Some(first) = self.store().commands(&[first]).await?.rows.pop() else { return Ok(None) };
        let handed = self.handed(&first).await?;
        Ok(Some(command::explain_behind(command, &first, handed.as_ref(), now)))
    }

    /// The open wait to which a command was handed.
    async fn handed(&self, command: &Command) -> Result<Option<Wait>, Error> {
        if command.state != CommandState::Dispatched {
            return Ok(None);
        }
        let (work, state) = (Some(command.work), Some(WaitState::Open));
        let waits = self.waits(&WaitFilter { work, state, ..WaitFilter::default() }, PAGE_MAX).await?;
        Ok(waits.into_iter().find(|wait| wait.detail.command == Some(command.id)))
    }

    /// Checks who reports the outcome of a command: the holder that dispatched it, or the relay.
    fn sender(&self, command: CommandId, proof: impl Into<DispatchRef>) -> Sender {
        let DispatchRef { lease: LeaseRef { work, fence, token }, number: dispatch } = proof.into();
        let key = self.store().key();
        let genuine =
            token::same(&key.lease(work, fence), &token) || token::same(&key.command(command, fence), &token);
        Sender { work, fence, dispatch, genuine }
    }

    /// The token of a claimed lookup, for a command as its claim returned it.
    pub fn lookup_token(&self, command: &Command) -> String {
        let until = command.due_at.unwrap_or_default();
        format!("{until}.{}", self.store().key().lookup(command.id, until))
    }

    fn lookup_claim(&self, command: CommandId, token: &str) -> LookupClaim {
        let (until, mac) = token.split_once('.').unwrap_or_default();
        let until = until.parse().unwrap_or_default();
        LookupClaim { until, genuine: token::same(&self.store().key().lookup(command, until), mac) }
    }
}

fn new_command() -> CommandId {
    CommandId(Uuid::now_v7())
}

fn no_command(id: impl std::fmt::Display) -> Error {
    Refusal::new(Code::NotFound, format!("There is no command {id}. Check the id.")).into()
}

/// The provider's response, if the receipt refers to one.
fn response(command: &Command, payloads: &Payloads) -> Option<Payload> {
    payloads.get(&command.body.receipt.as_ref()?.response?).cloned()
}

/// The number of due lookups that are read at a time: their commands are read whole.
const LOOK: usize = 100;

impl Caller {
    async fn on_command(&self, action: CommandAction) -> Result<Reserved, Error> {
        let submission = self.submission(Action::Command(Box::new(action)))?;
        let mut outcome = self.ledger.submit(submission).await?;
        match outcome.reply {
            Reply::Command { command, fresh, grant } => Ok(Reserved {
                response: response(&command, &outcome.payloads),
                lease: grant.map(|grant| self.ledger.claimed(*grant, &mut outcome.payloads)),
                command: *command,
                fresh,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Converts the intent of a work item of this identity for an action. The hash of redacted arguments is
    /// keyed here, before it is stored or shown anywhere.
    fn keyed(&self, identity: &Identity, mut intent: Intent) -> Intent {
        let Arguments { hash, redacted, .. } = &mut intent.arguments;
        if *redacted {
            *hash = self.ledger.store().key().redacted(identity, &intent.tool, *hash);
        }
        intent
    }

    async fn keyed_in(&self, work: WorkId, intent: Intent) -> Result<Intent, Error> {
        if !intent.arguments.redacted {
            return Ok(intent);
        }
        Ok(self.keyed(&self.work(work).await?.spec.identity(), intent))
    }

    /// A command to be recorded by the close-out of a work item.
    pub async fn outgoing(&self, work: WorkId, intent: Intent) -> Result<(CommandId, Intent), Error> {
        Ok((new_command(), self.keyed_in(work, intent).await?))
    }

    /// Records a side effect before it happens. Repeating the same intent returns the same command.
    pub async fn reserve(&self, lease: &LeaseRef, intent: Intent) -> Result<Reserved, Error> {
        let place = ReserveIn::Work(self.ledger.holder(lease));
        let untold = self.dry_run && intent.arguments.redacted;
        let intent = Box::new(self.keyed_in(lease.work, intent).await?);
        let mut reserved =
            self.on_command(CommandAction::Reserve { place, id: new_command(), intent }).await?;
        if untold && reserved.fresh {
            // A dry run leaves no trace, however many arguments are tried.
            Arc::make_mut(&mut reserved.command.spec).input_hash = Digest::default();
        }
        Ok(reserved)
    }

    /// Reserves without a work item: one is recorded and claimed in the same transaction. `work` needs a
    /// `claim`. If the work item exists and is free, it is claimed; if it has ended, its command is returned.
    pub async fn reserve_alone(&self, work: NewWork, intent: Intent) -> Result<Reserved, Error> {
        let work = work.settle(&self.ledger.settings())?;
        let place = ReserveIn::OwnWork(Box::new(work.clone()));
        let identity = Identity { tenant: work.tenant.clone(), source: work.source.clone() };
        let keyed = Box::new(self.keyed(&identity, intent.clone()));
        let reserve = CommandAction::Reserve { place, id: new_command(), intent: keyed };
        match self.on_command(reserve).await {
            Err(Error::Refused(refusal)) if refusal.code == Code::Busy => {
                self.take_up(work, intent, refusal).await
            }
            done => done,
        }
    }

    async fn take_up(&self, work: Ingest, intent: Intent, busy: Refusal) -> Result<Reserved, Error> {
        let filter = WorkFilter {
            tenants: Some(Tenants::Only(vec![work.tenant])),
            system: Some(work.source.system.clone()),
            source_id: Some(work.source.id.clone()),
            ..WorkFilter::default()
        };
        let known = self.list(&filter, None, PAGE_MAX).await?;
        let (Some(known), Some(claimant)) =
            (known.into_iter().find(|known| known.spec.source == work.source), work.claim)
        else {
            return Err(busy.into());
        };
        if known.state.is_terminal() {
            return self.ended(known.id, &self.keyed_in(known.id, intent).await?).await;
        }
        let lease = self.claim_ids(claimant, vec![known.id]).await?.pop().ok_or(busy)?;
        let reserved = self.reserve(&lease.lease, intent).await?;
        Ok(Reserved { lease: Some(lease), ..reserved })
    }

    /// Finds the same intent in an ended work item.
    async fn ended(&self, work: WorkId, new: &Intent) -> Result<Reserved, Error> {
        let same = |command: &Command| {
            let spec = &command.spec;
            let intent = (&spec.step, &spec.tool, &spec.target, &spec.slot);
            intent == (&new.step, &new.tool, &new.target, &new.slot) && spec.input_hash == new.arguments.hash
        };
        let found = self.ledger.commands_of(work).await?.into_iter().rev().find(same);
        let command = found.ok_or_else(|| {
            let detail = format!("{work} has ended without this command. Send a new source id.");
            Refusal::new(Code::Terminal, detail)
        })?;
        let answered = command.body.receipt.as_ref().and_then(|receipt| receipt.response);
        let response = match answered {
            Some((work, seq)) => self.ledger.payload(work, seq).await?,
            None => None,
        };
        Ok(Reserved { command, fresh: false, response, lease: None })
    }

    /// Approves a command; only for people. `seal`: identifies what the person was shown; a command that
    /// differs is refused. `four_eyes`: whether the tool requires it now; then the requester cannot approve.
    pub async fn approve(
        &self,
        id: CommandId,
        seal: Digest,
        four_eyes: bool,
        reason: &str,
    ) -> Result<Command, Error> {
        let reason = reason.to_owned();
        Ok(self.on_command(CommandAction::Approve { command: id, seal, four_eyes, reason }).await?.command)
    }

    /// Rejects a command; only for people.
    pub async fn reject(&self, id: CommandId, reason: &str) -> Result<Command, Error> {
        let reason = reason.to_owned();
        Ok(self.on_command(CommandAction::Reject { command: id, reason }).await?.command)
    }

    /// Asks for permission to make the call now. Ok: it is dispatched, make the call.
    /// [`Error::NotDispatched`]: do not. A lost reply can be fetched again with the same `request_id`.
    pub async fn dispatch(
        &self,
        lease: &LeaseRef,
        id: CommandId,
        evaluation: Evaluation,
        request_id: Option<&str>,
    ) -> Result<Command, Error> {
        let by = Dispatcher::Holder(self.ledger.holder(lease));
        let request_id = request_id.map(str::to_owned);
        Ok(self.dispatched(DispatchAction { command: id, by, evaluation, request_id }).await?.0)
    }

    /// The relay's dispatch: claims the command until the tool's `timeout_ms` has passed.
    pub async fn relay_dispatch(&self, id: CommandId, evaluation: Evaluation) -> Result<Sending, Error> {
        let action = DispatchAction { command: id, by: Dispatcher::Relay, evaluation, request_id: None };
        let (command, outcome) = self.dispatched(action).await?;
        let fence = command.body.dispatch.as_ref().map_or(0, |dispatch| dispatch.fence);
        let token = self.ledger.store().key().command(id, fence);
        Ok(Sending {
            arguments: outcome.payload(command.work, command.body.arguments).cloned(),
            proof: DispatchRef::new(LeaseRef { work: command.work, fence, token }, command.body.dispatches),
            command,
        })
    }

    async fn dispatched(&self, action: DispatchAction) -> Result<(Command, LedgerReply), Error> {
        let action = Action::Command(Box::new(CommandAction::Dispatch(Box::new(action))));
        let outcome = self.submit(action).await?;
        match &outcome.reply {
            Reply::Dispatch { command, refused: None } => Ok(((**command).clone(), outcome)),
            Reply::Dispatch { command, refused: Some(refusal) } => {
                let (refusal, command) = (refusal.clone(), (**command).clone());
                let response = response(&command, &outcome.payloads);
                Err(Error::NotDispatched(Box::new(NotDispatched { refusal, command, response })))
            }
            other => Err(unexpected(other)),
        }
    }

    /// Reports that the effect happened, with evidence. Accepted from the caller that dispatched it even
    /// after its lease is lost, and after the command was dispatched again.
    pub async fn receipt(
        &self,
        proof: impl Into<DispatchRef>,
        id: CommandId,
        evidence: Proof,
    ) -> Result<Command, Error> {
        let sender = self.ledger.sender(id, proof);
        let action = CommandAction::Receipt { command: id, sender, proof: Box::new(evidence) };
        Ok(self.on_command(action).await?.command)
    }

    /// Reports that the effect did not happen: the provider refused it, or the call is proven `unsent`.
    pub async fn fail_command(
        &self,
        proof: impl Into<DispatchRef>,
        id: CommandId,
        error: CallError,
        unsent: bool,
    ) -> Result<Command, Error> {
        let sender = self.ledger.sender(id, proof);
        Ok(self.on_command(CommandAction::Fail { command: id, sender, error, unsent }).await?.command)
    }

    /// Reports that it is unknown whether the effect happened.
    pub async fn uncertain(
        &self,
        proof: impl Into<DispatchRef>,
        id: CommandId,
        error: CallError,
    ) -> Result<Command, Error> {
        let sender = self.ledger.sender(id, proof);
        Ok(self.on_command(CommandAction::Uncertain { command: id, sender, error }).await?.command)
    }

    /// The result of a lookup of a command in doubt, by a person or the reconciler.
    pub async fn reconcile(
        &self,
        id: CommandId,
        finding: Finding,
        message: Option<&str>,
    ) -> Result<Command, Error> {
        self.looked_up(id, None, finding, message).await
    }

    /// The same by the caller that claimed the lookup and has this token.
    pub async fn reconcile_claimed(
        &self,
        id: CommandId,
        token: &str,
        finding: Finding,
        message: Option<&str>,
    ) -> Result<Command, Error> {
        self.looked_up(id, Some(self.ledger.lookup_claim(id, token)), finding, message).await
    }

    async fn looked_up(
        &self,
        command: CommandId,
        claim: Option<LookupClaim>,
        finding: Finding,
        message: Option<&str>,
    ) -> Result<Command, Error> {
        let (finding, message) = (Box::new(finding), message.map(str::to_owned));
        Ok(self.on_command(CommandAction::Reconcile { command, claim, finding, message }).await?.command)
    }

    /// Claims a due lookup for a while: `not_due` if another caller has claimed it. [`Ledger::lookup_token`]
    /// is its token.
    pub async fn take_lookup(&self, id: CommandId, for_ms: u64) -> Result<Command, Error> {
        Ok(self.on_command(CommandAction::TakeLookup { command: id, for_ms }).await?.command)
    }

    /// Claims up to `max` due lookups of these tools, each for a while.
    pub async fn claim_lookups(
        &self,
        tools: impl Fn(&str) -> bool,
        max: usize,
        for_ms: u64,
    ) -> Result<Vec<Command>, Error> {
        let now = self.ledger.now().await?;
        let mut taken = Vec::new();
        let mut after = None;
        loop {
            let store = self.ledger.store();
            let due = match &self.tenants {
                Tenants::Only(own) => store.due_lookups(own, now, after, LOOK).await?,
                Tenants::All => store.due_commands(Duty::Lookup, now, after, &[], LOOK).await?,
            };
            let ids: Vec<CommandId> = due.iter().map(|(_, id)| *id).collect();
            for command in self.ledger.store().commands(&ids).await? {
                if taken.len() == max {
                    return Ok(taken);
                }
                if !tools(&command.spec.tool) {
                    continue;
                }
                match self.take_lookup(command.id, for_ms).await {
                    Ok(command) => taken.push(command),
                    // Another caller was faster.
                    Err(Error::Refused(refusal)) if refusal.code == Code::NotDue => {}
                    Err(error) if error.is_of_stored() => {
                        tracing::warn!(command = %command.id, %error, "a lookup cannot be claimed and is skipped");
                    }
                    Err(error) => return Err(error),
                }
            }
            after = due.last().copied();
            if due.len() < LOOK {
                return Ok(taken);
            }
        }
    }

    /// Has a failed command executed again; only for people.
    pub async fn replay(
        &self,
        id: CommandId,
        evaluation: Evaluation,
        limits: ReplayLimits,
        reason: &str,
    ) -> Result<Command, Error> {
        let minute = self.ledger.now().await? / 60_000;
        let (evaluation, reason) = (Box::new(evaluation), reason.to_owned());
        let action = CommandAction::Replay { command: id, evaluation, limits, minute, reason };
        Ok(self.on_command(action).await?.command)
    }

    /// Records the outcome of a command in doubt; only for people.
    pub async fn record_outcome(
        &self,
        id: CommandId,
        outcome: Recorded,
        reason: &str,
    ) -> Result<Command, Error> {
        let (outcome, reason) = (Box::new(outcome), reason.to_owned());
        Ok(self.on_command(CommandAction::Record { command: id, outcome, reason }).await?.command)
    }

    /// Cancels a command that is not dispatched yet. With a lease: as the holder of its work item.
    pub async fn cancel_command(
        &self,
        id: CommandId,
        lease: Option<&LeaseRef>,
        reason: &str,
    ) -> Result<Command, Error> {
        let holder = lease.map(|lease| self.ledger.holder(lease));
        let reason = reason.to_owned();
        Ok(self.on_command(CommandAction::Cancel { command: id, holder, reason }).await?.command)
    }

    /// Reads a command of this caller's tenants.
    pub async fn command(&self, id: CommandId) -> Result<Command, Error> {
        let found = self.ledger.command(id).await?;
        if !self.tenants.allow(&found.spec.tenant) {
            return Err(no_command(id));
        }
        if self.kinds != Kinds::All {
            self.work(found.work).await.map_err(|_| no_command(id))?;
        }
        Ok(found)
    }

    /// The only command whose id begins with this prefix, which may be the whole id.
    pub async fn find_command(&self, beginning: &str) -> Result<Command, Error> {
        let (first, last) = CommandId::beginning_with(beginning)?;
        // A page ends below an id: here below the first id after the prefix.
        let above = last.0.as_u128().checked_add(1).map(|id| CommandId(Uuid::from_u128(id)));
        let begun = self.commands(&CommandFilter::default(), above, CANDIDATES).await?.whole()?;
        let mut found = Vec::new();
        for id in begun.iter().map(|command| command.id).filter(|id| *id >= first) {
            match self.command(id).await {
                // The caller may not see this kind, so its id must not be revealed.
                Err(Error::Refused(refusal)) if refusal.code == Code::NotFound => {}
                command => found.push(command?),
            }
        }
        if found.len() > 1 {
            let ids: Vec<CommandId> = found.iter().map(|command| command.id).collect();
            return Err(ambiguous("commands", beginning, &ids).into());
        }
        found.pop().ok_or_else(|| no_command(beginning))
    }

    /// Matching commands, newest first. Pass the key `next` of a page to read the next one.
    pub async fn commands(
        &self,
        filter: &CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> Result<Listed<Command, CommandId>, Error> {
        let tenants = Some(self.tenants.narrowed(filter.tenants.as_ref()));
        self.ledger.commands(&CommandFilter { tenants, ..filter.clone() }, before, limit).await
    }

    /// Counts commands by state.
    pub async fn command_counts(&self) -> Result<BTreeMap<CommandState, u64>, Error> {
        self.ledger.command_counts(&self.tenants).await
    }

    /// The arguments of a command. None if they were erased.
    pub async fn arguments(&self, id: CommandId) -> Result<Option<Payload>, Error> {
        let command = self.command(id).await?;
        self.ledger.payload(command.work, command.body.arguments).await
    }

    /// Why a command is in its state, and what to do next.
    pub async fn explain_command(&self, id: CommandId) -> Result<Explanation, Error> {
        let (command, now) = (self.command(id).await?, self.ledger.now().await?);
        if let Some(behind) = self.ledger.behind(std::slice::from_ref(&command), now).await? {
            return Ok(behind);
        }
        let handed = self.ledger.handed(&command).await?;
        Ok(command::explain(&command, handed.as_ref(), now))
    }

    /// What a rerun would do with each command of this work item and its earlier runs. `effect` is the
    /// current policy decision on each.
    pub async fn replay_plan(
        &self,
        work: WorkId,
        execute: &[Digest],
        effect: impl Fn(&Command) -> Effect,
    ) -> Result<Vec<(Command, Planned)>, Error> {
        let commands = self.commands_of_runs(work).await?;
        let lines = plan(&commands, execute, effect);
        Ok(lines.into_iter().map(|line| (line.command.clone(), line.planned)).collect())
    }

    /// The commands of this work item and its earlier runs, oldest run first.
    pub async fn commands_of_runs(&self, work: WorkId) -> Result<Vec<Command>, Error> {
        let mut runs = Vec::new();
        let mut next = Some(work);
        while let Some(id) = next {
            let run = self.work(id).await?;
            next = run.spec.rerun_of;
            runs.push(self.ledger.commands_of(id).await?);
        }
        Ok(runs.into_iter().rev().flatten().collect())
    }
}
