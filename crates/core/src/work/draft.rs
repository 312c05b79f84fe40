//! A draft of events: each is numbered, chained and applied to the row at once.

use std::sync::Arc;

use crate::{
    Millis,
    action::{Action, Recover, Submission},
    chain,
    command::{self, Command, CommandState, event::Moved},
    decide::{Context, Decision},
    due,
    event::{Actor, Event, Evidence, Fact, RecoveryApplied},
    fold,
    ids::{CommandId, WaitId, WorkId},
    model::{Attempt, AttemptEnd, AttemptOutcome, ErrorInfo, Step, Wait, WaitState, Work},
    payload::{Digest, Payload},
    records::{Change, Touch},
    refusal::{Code, Refusal},
    reply::{Ack, Reply},
    state::State,
};

/// The parts of an event besides its fact.
#[derive(Default)]
pub(crate) struct Said<'a> {
    pub message: Option<&'a str>,
    pub payload: Option<&'a Payload>,
    pub evidence: &'a [Evidence],
    pub step: Option<&'a str>,
}

/// A work item on its way to a decision.
pub(crate) struct Draft {
    pub work: Box<Work>,
    pub now: Millis,
    by: Author,
    body_hash: Option<Digest>,
    /// The lease at the start: if it is gone at the end, its attempt has ended.
    held: Option<u64>,
    touch: Touch,
    ticking: bool,
    was_open: bool,
    /// A move outside the table: the whole draft is refused.
    illegal: Option<Refusal>,
    changes: Vec<Change>,
    events: Vec<Event>,
    /// The worker's open commands, the relay's loaded unsent ones, and others that this decision concerns.
    pub commands: Vec<Command>,
    /// Commands that the draft has changed, in that order, and whether they are new.
    changed: Vec<(CommandId, Touch)>,
}

impl Draft {
    /// A row of an applied recovery plan begins with the event that says who had it carried out, and why.
    pub fn new(cx: Context<'_>, work: &Work) -> Self {
        let mut draft = Self::empty(cx, work);
        if let Action::Recover(recover) = &cx.submission.action {
            let Recover { verdict, instead, plan, reason, .. } = &**recover;
            let fact = RecoveryApplied { plan: plan.clone(), verdict: *verdict, instead: *instead };
            let said = Said { message: Some(reason), ..Said::default() };
            draft.say(work.state, Fact::RecoveryApplied(fact), said);
        }
        draft
    }

    fn empty(cx: Context<'_>, work: &Work) -> Self {
        Self {
            held: work.lease.as_ref().map(|lease| lease.fence),
            touch: Touch::Event,
            ticking: matches!(cx.submission.action, Action::Tick { .. } | Action::Recover(_)),
            was_open: !work.state.is_terminal(),
            work: Box::new(work.clone()),
            now: cx.now,
            by: Author::of(cx.submission),
            body_hash: cx.submission.body_hash,
            illegal: None,
            changes: Vec::new(),
            events: Vec::with_capacity(1),
            commands: open_commands(cx, work),
            changed: Vec::new(),
        }
    }

    /// A new work item, with its first event.
    pub fn birth(cx: Context<'_>, id: WorkId, to: State, fact: Fact, said: Said<'_>) -> Self {
        let by = Author::of(cx.submission);
        let event = build(
            Heading { work: id, seq: 1, at: cx.now, from: None, to, attempt: 0, fence: None },
            &by,
            fact,
            said,
            fold::GENESIS,
        );
        let work = Box::new(fold::born(&event).expect("the first event is a work_created event"));
        Self {
            held: None,
            touch: Touch::Insert,
            ticking: false,
            was_open: false,
            work,
            now: cx.now,
            by,
            body_hash: cx.submission.body_hash,
            illegal: None,
            changes: Vec::new(),
            events: vec![event],
            commands: Vec::new(),
            changed: Vec::new(),
        }
    }

    pub fn emit(&mut self, to: State, fact: Fact) {
        self.say(to, fact, Said::default());
    }

    pub fn say(&mut self, to: State, fact: Fact, said: Said<'_>) {
        let fence = self.work.lease.as_ref().map(|lease| lease.fence);
        let attempt = self.work.attempt;
        self.write(to, fact, said, attempt, fence);
    }

    /// A claim opens the next attempt under a new fence.
    pub fn claim(&mut self, fact: Fact, fence: u64) {
        let attempt = self.work.attempt + 1;
        self.write(State::Running, fact, Said::default(), attempt, Some(fence));
    }

    fn write(&mut self, to: State, fact: Fact, said: Said<'_>, attempt: u32, fence: Option<u64>) {
        self.release_commands(to);
        let from = self.work.state;
        if !from.may_become(to) {
            self.illegal.get_or_insert_with(|| {
                let kind = fact.kind();
                Refusal::new(Code::IllegalState, format!("No {kind} leads from {from} to {to}."))
            });
            return;
        }
        let event = build(
            Heading {
                work: self.work.id,
                seq: self.work.seq + 1,
                at: self.now,
                from: Some(from),
                to,
                attempt,
                fence,
            },
            &self.by,
            fact,
            said,
            self.work.head,
        );
        fold::apply(&mut self.work, &event);
        self.events.push(event);
    }

    /// When a work item loses its holder, the holder's dispatched commands become uncertain; when it ends,
    /// its unsent commands are cancelled. Done here, so that no transition can forget it.
    fn release_commands(&mut self, to: State) {
        let tally = self.work.body.commands;
        if tally.total == 0 || to == self.work.state {
            return;
        }
        if to.is_success() && tally.unsettled() > 0 {
            self.illegal.get_or_insert_with(|| command::open(&self.commands));
            return;
        }
        let kept = matches!(to, State::Running | State::CancelRequested) || to.is_waiting();
        if !kept && tally.dispatched > 0 {
            command::uncertain::lost(self, "the lease ended before a receipt arrived");
        }
        if to.is_terminal() || to == State::Quarantined {
            command::uncertain::left_to_a_person(self);
        }
        if to.is_terminal() {
            command::cancel::ended(self, to);
        }
    }

    /// Adds a command, unless it is there already.
    pub fn with(&mut self, command: &Command) {
        if !self.commands.iter().any(|known| known.id == command.id) {
            self.commands.push(command.clone());
        }
    }

    /// A command as it is in this draft.
    pub fn command(&self, id: CommandId) -> &Command {
        let found = self.commands.iter().find(|command| command.id == id);
        found.expect("a decision adds the commands that it changes")
    }

    fn command_mut(&mut self, id: CommandId) -> &mut Command {
        let found = self.commands.iter_mut().find(|command| command.id == id);
        found.expect("a decision adds the commands that it changes")
    }

    /// Records a new command: an event that does not change its work item's state.
    pub fn reserve(&mut self, fact: Fact, said: Said<'_>) {
        self.say(self.work.state, fact, said);
        if let Some(command) = self.events.last().and_then(command::fold::born) {
            self.changed.push((command.id, Touch::Insert));
            self.commands.push(command);
        }
    }

    /// Records a change of a command: an event that does not change its work item's state.
    pub fn change_command(
        &mut self,
        id: CommandId,
        now: CommandState,
        said: Said<'_>,
        fact: impl FnOnce(Moved) -> Fact,
    ) {
        let command = self.command(id);
        let was = command.state;
        let moved = Moved { command: id, executor: command.spec.executor, was: Some(was), now };
        if !was.may_become(now) {
            self.illegal.get_or_insert_with(|| command::wrong_state(was, &format!("becoming {now}")));
            return;
        }
        self.say(self.work.state, fact(moved), said);
        let Some(event) = self.events.last() else { return };
        if let Some(command) = self.commands.iter_mut().find(|command| command.id == id) {
            command::fold::apply(command, event);
        }
        if !self.changed.iter().any(|(changed, _)| *changed == id) {
            self.changed.push((id, Touch::Event));
        }
    }

    pub fn begin_attempt(&mut self, attempt: Attempt) {
        if let Some(old) = self.held.take() {
            self.end_attempt(old, AttemptOutcome::Superseded, None, None);
        }
        self.held = Some(attempt.fence);
        self.changes.push(Change::BeginAttempt(Arc::new(attempt)));
    }

    pub fn put_step(&mut self, step: Step) {
        self.changes.push(Change::Step(step));
    }

    pub fn put_wait(&mut self, wait: Wait) {
        self.changes.push(Change::Wait(Box::new(wait)));
    }

    pub fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Ends every open wait: exactly one of answer, timeout and cancel wins.
    pub fn cancel_waits(&mut self, cx: Context<'_>) {
        self.cancel_other_waits(cx, None);
    }

    pub fn cancel_other_waits(&mut self, cx: Context<'_>, but: Option<WaitId>) {
        let waits = cx.records.waits.get(&self.work.id).map_or(&[][..], Vec::as_slice);
        for wait in waits.iter().filter(|wait| wait.state == WaitState::Open && Some(wait.id) != but) {
            let ended = Wait { state: WaitState::Cancelled, ended_at: Some(self.now), ..wait.clone() };
            self.changes.push(Change::Wait(Box::new(ended)));
        }
    }

    /// Whether nothing has been drafted so far.
    pub fn is_untouched(&self) -> bool {
        self.events.is_empty() && self.illegal.is_none()
    }

    /// The number of the next event.
    pub fn next_seq(&self) -> u64 {
        self.work.seq + 1
    }

    pub fn ack(&self) -> Ack {
        Ack {
            work: self.work.id,
            state: self.work.state,
            seq: self.work.seq,
            next_retry_at: self.work.next_retry_at,
            waits: Vec::new(),
        }
    }

    fn end_attempt(
        &mut self,
        fence: u64,
        outcome: AttemptOutcome,
        said: Option<Ack>,
        error: Option<ErrorInfo>,
    ) {
        // Not always the last one: recovery's decisions on commands in doubt come after it.
        let own = self.events.iter().rev().filter(|event| event.fact.command().is_none());
        let reported = own.map(|event| event.fact.usage()).find(|usage| !usage.is_empty());
        let usage = reported.filter(|_| said.is_some()).map_or_else(Vec::new, <[_]>::to_vec);
        let end = AttemptEnd {
            at: self.now,
            outcome,
            body_hash: self.body_hash.filter(|_| said.is_some()),
            ack: said,
            error,
            usage,
        };
        self.changes.push(Change::EndAttempt { work: self.work.id, fence, end: Arc::new(end) });
    }

    /// Completes the draft with the short reply. An empty draft changes nothing.
    pub fn done(self) -> Result<Decision, Refusal> {
        if self.is_untouched() {
            return Ok(Decision::again(self.ack()));
        }
        self.finish(|draft| Reply::Ack(draft.ack()))
    }

    /// A holder's verb that ends its attempt stores its reply on it, for a repeat.
    pub fn ended(mut self, outcome: AttemptOutcome, ack: Ack) -> Self {
        if let Some(fence) = self.held.take() {
            let failed = matches!(outcome, AttemptOutcome::Failed | AttemptOutcome::TimedOut);
            let error = self.work.body.error.clone().filter(|_| failed);
            self.end_attempt(fence, outcome, Some(ack), error);
        }
        self
    }

    /// The next due date. One that has passed stays until a tick has looked: another work item may have set
    /// it, and several waits may have ended at once.
    fn armed(&self) -> Option<Millis> {
        let next = due::next(&self.work, self.now);
        let pending = self.work.due_at.filter(|due| *due <= self.now);
        let looked = self.ticking && !self.work.state.is_waiting();
        if looked || self.work.state.is_terminal() || self.work.state == State::Quarantined {
            return next;
        }
        pending.into_iter().chain(next).min()
    }

    /// Completes the draft: sets the due date and wakes the work items that wait for this one.
    pub fn finish(mut self, reply: impl FnOnce(&Draft) -> Reply) -> Result<Decision, Refusal> {
        if let Some(refusal) = self.illegal {
            return Err(refusal);
        }
        if let Some(fence) = self.held
            && self.work.lease.as_ref().is_none_or(|lease| lease.fence != fence)
        {
            let outcome = match self.events.last().map(|event| &event.fact) {
                Some(Fact::TimeoutMarked(_)) => AttemptOutcome::TimedOut,
                _ => AttemptOutcome::Superseded,
            };
            let error = self.work.body.error.clone().filter(|_| outcome == AttemptOutcome::TimedOut);
            self.end_attempt(fence, outcome, None, error);
        }
        self.work.due_at = self.armed();
        let ended = self.was_open && self.work.state.is_terminal();
        if ended && (self.work.children || self.work.waiters) {
            self.changes.push(Change::Wake {
                work: self.work.id,
                children: self.work.children,
                waiters: self.work.waiters,
                at: self.now,
            });
        }
        for (id, touch) in std::mem::take(&mut self.changed) {
            // The reply shows the command as it is stored.
            let command = self.command_mut(id);
            command.due_at = command::due::next(command).map(|(_, at)| at);
            let command = Box::new(command.clone());
            self.changes.push(Change::Command { command, touch });
        }
        let reply = reply(&self);
        self.changes.insert(0, Change::Work { work: self.work.into(), touch: self.touch });
        Ok(Decision { changes: self.changes, events: self.events, reply })
    }
}

fn open_commands(cx: Context<'_>, work: &Work) -> Vec<Command> {
    let open = |command: &&Command| {
        if command.is_worker() { command.state.is_open() } else { command.state.is_idle() }
    };
    let mut commands: Vec<Command> = cx.records.commands_of(work.id).iter().filter(open).cloned().collect();
    // In a fixed order, wherever they were loaded from: several may be changed in a row.
    commands.sort_unstable_by_key(|command| command.id);
    commands
}

struct Heading {
    work: WorkId,
    seq: u64,
    at: Millis,
    from: Option<State>,
    to: State,
    attempt: u32,
    fence: Option<u64>,
}

/// The actor and the evidence, which all events of a draft share.
struct Author {
    actor: Actor,
    seed: [u8; 16],
    evidence: Vec<Evidence>,
}

impl Author {
    fn of(submission: &Submission) -> Self {
        Self { actor: submission.actor.clone(), seed: submission.seed, evidence: submission.evidence.clone() }
    }
}

fn build(heading: Heading, by: &Author, fact: Fact, said: Said<'_>, prev_hash: Digest) -> Event {
    let evidence = [said.evidence, &by.evidence].concat();
    let content = chain::content(said.message, said.payload, &evidence, &by.seed, heading.work, heading.seq);
    let data = fact.data();
    let mut event = Event {
        work: heading.work,
        seq: heading.seq,
        at: heading.at,
        from: heading.from,
        to: heading.to,
        actor: by.actor.clone(),
        attempt: heading.attempt,
        step: said.step.map(str::to_owned),
        fence: heading.fence,
        fact,
        data,
        message: said.message.map(str::to_owned),
        payload: said.payload.cloned(),
        evidence,
        content,
        prev_hash,
        hash: Digest::default(),
    };
    event.hash = chain::hash(&event);
    event
}
