//! Plays the script: ingests work, cuts the power, closes the laptop, makes the search API refuse, and
//! answers if the viewer does not.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::json;
use tenure_api::{
    Client, Error,
    wire::{
        Approve, ApproveCommand, Claimant, CloseOut, DrainReport, End, Grant, Liveness, Progress, Reconnect,
        State, WaitKind, WaitQuery, WaitState, Work, WorkId, Worker,
    },
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    agents::{AGENTS, Agent, World, hire},
    dice::Dice,
    effects::reconcile,
    script::{self, APPROVAL_PATIENCE, Cue, LOGIN_PATIENCE, Task},
    stage::Stage,
    story::Teller,
};
use crate::{
    exit::Failure,
    render::{Light, command_of},
};

/// The researcher, whose machine loses power.
const UNLUCKY: usize = 1;

/// For how many beats the director waits for a certain event.
const SOON: u32 = 40;

pub struct Director {
    /// The client that ingests work.
    desk: Client,
    dora: Client,
    beat: Duration,
    teller: Teller,
    world: Arc<World>,
    stop: CancellationToken,
    agents: Vec<(Client, JoinHandle<DrainReport>)>,
    /// Side plots: each ends by itself.
    plots: JoinSet<()>,
}

impl Director {
    pub async fn new(stage: &Stage, beat: Duration, teller: Teller) -> Result<Self, Failure> {
        let mut director = Self {
            desk: stage.machine("desk").await?,
            dora: stage.machine("dora-laptop").await?,
            beat,
            teller,
            world: Arc::default(),
            stop: CancellationToken::new(),
            agents: Vec::new(),
            plots: JoinSet::new(),
        };
        for agent in &AGENTS {
            let client = stage.machine(agent.name).await?;
            let working = director.hire(agent, client.clone());
            director.agents.push((client, working));
        }
        director.plots.spawn(answer(stage.person("ana").await?, beat));
        let providers = director.world.providers.clone();
        director.plots.spawn(reconcile(stage.machine("reconciler").await?, providers, beat));
        Ok(director)
    }

    fn hire(&self, agent: &Agent, client: Client) -> JoinHandle<DrainReport> {
        hire(agent, client, self.beat, self.world.clone(), self.stop.clone())
    }

    /// Plays act after act. Safe to drop.
    pub async fn play(&mut self, seed: u64) -> Result<(), Error> {
        let mut dice = Dice::new(seed);
        for number in 1.. {
            let begun = Instant::now();
            for (beat, cue) in script::act(number, &mut dice) {
                sleep_until(begun + self.beat * beat).await;
                self.perform(cue).await?;
                while self.plots.try_join_next().is_some() {}
            }
            sleep_until(begun + self.beat * script::ACT).await;
        }
        Ok(())
    }

    async fn perform(&mut self, cue: Cue) -> Result<(), Error> {
        match cue {
            Cue::Comes(task) => self.ingest(&task).await.map(drop),
            Cue::PowerCut(task) => self.power_cut(&task).await,
            Cue::LidClosed(task) => self.lid_closed(&task).await,
            Cue::TooManyRequests(tasks, beats) => {
                self.world.search_refuses.store(true, Ordering::Relaxed);
                self.teller
                    .tell(Light::Wait, "The search API responds to everybody with: too many requests.");
                let (world, teller, beat) = (self.world.clone(), self.teller, self.beat);
                self.plots.spawn(async move {
                    sleep(beat * beats).await;
                    world.search_refuses.store(false, Ordering::Relaxed);
                    teller.tell(Light::Done, "The search API works again.");
                });
                for task in &tasks {
                    self.ingest(task).await?;
                }
                Ok(())
            }
        }
    }

    async fn ingest(&self, task: &Task) -> Result<WorkId, Error> {
        Ok(self.desk.ingest(&task.ingest()).await?.work.id)
    }

    /// Aborts the agent in the middle of its work, without a word; it comes back as a new incarnation.
    async fn power_cut(&mut self, task: &Task) -> Result<(), Error> {
        let id = self.ingest(task).await?;
        let searching = |work: &Work| work.step.as_deref() == Some("search");
        until(&self.desk, &id, self.beat, searching).await?;
        let name = AGENTS[UNLUCKY].name;
        self.agents[UNLUCKY].1.abort();
        self.teller.tell(Light::Risk, &format!("{name}'s machine loses power. Nobody has noticed yet."));
        sleep(self.beat * 3).await;
        self.agents[UNLUCKY].1 = self.hire(&AGENTS[UNLUCKY], self.agents[UNLUCKY].0.clone());
        self.teller.tell(Light::Idle, &format!("{name} has restarted, without its memory."));
        Ok(())
    }

    /// A laptop claims the work item while recording it, works a little, and sleeps past its lease.
    async fn lid_closed(&mut self, task: &Task) -> Result<(), Error> {
        let worker = Worker {
            id: "dora-laptop".to_owned(),
            incarnation: format!("boot of {}", task.id),
            liveness: Liveness::Opaque,
        };
        let claim = Claimant { worker, request_id: task.id.clone(), defer_start: false };
        let mut new = task.ingest();
        new.claim = Some(claim);
        let Some(lease) = self.dora.ingest(&new).await?.lease else { return Ok(()) };
        let (client, beat, teller) = (self.dora.clone(), self.beat, self.teller);
        self.plots.spawn(async move {
            if let Err(error) = sleep_and_return(&client, &lease, beat, teller).await {
                teller.tell(Light::Fail, &format!("dora's laptop: {error}"));
            }
        });
        Ok(())
    }

    /// Lets everybody finish or release their work items.
    pub async fn end(mut self) {
        self.stop.cancel();
        self.plots.shutdown().await;
        for (_, agent) in self.agents {
            // An aborted agent has nothing to release.
            let _ = agent.await;
        }
    }
}

async fn sleep_and_return(
    client: &Client,
    lease: &Grant,
    beat: Duration,
    teller: Teller,
) -> Result<(), Error> {
    let id = &lease.work.id;
    let progress = Progress {
        fence: lease.fence,
        token: lease.token.clone(),
        progress: json!({ "photos": 112, "of": 480 }),
        request_id: None,
    };
    client.progress(id, &progress).await?;
    sleep(beat).await;
    teller.tell(Light::Risk, "Dora closes her laptop in the middle of the export.");
    until(client, id, beat, |work| work.state == State::Stalled).await?;
    sleep(beat * 5).await;
    teller.tell(Light::Alive, "Dora opens her laptop again. It goes on as if nothing had happened.");
    let end = End { result: Some(json!({ "photos": 480 })), ..End::new(State::Succeeded) };
    client.close_out(id, &CloseOut::new(lease.fence, &lease.token, end)).await.map(drop)
}

/// Polls a work item until the condition holds, or the machine is clearly too busy.
async fn until(
    client: &Client,
    id: &WorkId,
    beat: Duration,
    holds: impl Fn(&Work) -> bool,
) -> Result<(), Error> {
    for _ in 0..SOON * 2 {
        if holds(&client.work(id).await?) {
            break;
        }
        sleep(beat / 2).await;
    }
    Ok(())
}

/// Ana answers her questions after the viewer had time to.
async fn answer(ana: Client, beat: Duration) {
    loop {
        // Failures are retried with the next beat.
        let _ = answer_once(&ana, beat).await;
        sleep(beat).await;
    }
}

async fn answer_once(ana: &Client, beat: Duration) -> Result<(), Error> {
    let open = WaitQuery { state: Some(WaitState::Open), ..WaitQuery::default() };
    for wait in ana.waits(&open).await?.items {
        let waited = |beats: u32| ana.clock().now().0 - wait.opened_at.0 > (beat * beats).as_millis() as i64;
        if wait.assignee.as_deref() != Some("ana") {
            continue;
        }
        match wait.kind.known() {
            Some(WaitKind::Approval) if waited(APPROVAL_PATIENCE) => match command_of(&wait.reference) {
                Some(id) => {
                    // She approves exactly what she has seen.
                    let command = ana.command(&id.into()).await?;
                    let (reason, seal) = ("it is in the books".to_owned(), command.seal);
                    ana.approve_command(&command.id, &ApproveCommand { reason, seal }).await?;
                }
                None => {
                    let seal = wait.seal.unwrap_or_default();
                    ana.approve(&wait.work, &Approve { approved: true, seal, note: None }).await?;
                }
            },
            Some(WaitKind::Auth) if waited(LOGIN_PATIENCE) => {
                ana.reconnect(&wait.work, &Reconnect::default()).await?;
            }
            _ => {}
        }
    }
    Ok(())
}
