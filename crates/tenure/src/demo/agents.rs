//! The three agents: worker loops of the public client, each with its kinds of work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tenure_api::{
    Client, Error,
    wire::{DrainReport, End, ErrorClass, Failure, Liveness, NewWait, State, WaitKind, WaitReason},
    worker::{self, Job, Options, Outcome},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    effects::{Providers, bring_about},
    script::{Errand, Need},
};

pub struct Agent {
    pub name: &'static str,
    pub kinds: &'static [&'static str],
}

pub const AGENTS: [Agent; 3] = [
    Agent { name: "aria", kinds: &["reply", "calendar"] },
    Agent { name: "bruno", kinds: &["research"] },
    Agent { name: "cleo", kinds: &["deploy", "payment"] },
];

/// How many work items an agent holds at once.
const HANDS: usize = 3;

/// The outside world of the agents.
#[derive(Default)]
pub struct World {
    /// The search API refuses all requests.
    pub search_refuses: AtomicBool,
    pub providers: Arc<Providers>,
}

/// Starts an agent. It drains when it is stopped, and disappears without a word when its task is aborted.
pub fn hire(
    agent: &Agent,
    client: Client,
    beat: Duration,
    world: Arc<World>,
    stop: CancellationToken,
) -> JoinHandle<DrainReport> {
    let options = Options {
        capacity: HANDS,
        kinds: agent.kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        // They stand for machines elsewhere, of which only the renewals are visible.
        liveness: Liveness::Opaque,
        stop_within: Duration::from_secs(2),
        drain_within: Duration::from_secs(5),
        ..Options::new(agent.name)
    };
    let handler = move |job: Job| handle(job, beat, world.clone());
    tokio::spawn(worker::run(client, options, handler, stop.cancelled_owned()))
}

/// Why a handler stopped early.
enum Halt {
    Stopped,
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Halt::Failed(error)
    }
}

async fn handle(job: Job, beat: Duration, world: Arc<World>) -> Outcome {
    // A work item recorded from a shell can have any input, and is done as well.
    let errand = job.input().unwrap_or_else(|_| somebodys(&job));
    let outcome = carry_out(&job, &errand, beat, &world).await;
    outcome.unwrap_or_else(|halt| match halt {
        Halt::Stopped => Outcome::Stopped,
        Halt::Failed(error) => Outcome::Err(Failure::new(ErrorClass::Transport, error.to_string())),
    })
}

fn somebodys(job: &Job) -> Errand {
    let steps = vec![("think".to_owned(), 2), ("act".to_owned(), 2)];
    Errand { title: format!("do {}", job.grant.work.source.id), steps, needs: None, effect: None }
}

async fn carry_out(job: &Job, errand: &Errand, beat: Duration, world: &World) -> Result<Outcome, Halt> {
    for (n, (name, beats)) in errand.steps.iter().enumerate() {
        if n == 1
            && let Some(need) = &errand.needs
            && let Some(outcome) = meet(job, need, beat, world)?
        {
            return Ok(outcome);
        }
        job.step(name, &json!({ "of": errand.title }), || work_for(job, beat * *beats)).await?;
    }
    let Some(effect) = &errand.effect else { return Ok(Outcome::Ok(json!({ "done": errand.title }))) };
    Ok(match bring_about(job, effect, beat, &world.providers).await? {
        Ok(receipt) => Outcome::Ok(json!({ "done": errand.title, "receipt": receipt })),
        Err(outcome) => outcome,
    })
}

async fn work_for(job: &Job, time: Duration) -> Result<String, Halt> {
    tokio::select! {
        () = tokio::time::sleep(time) => Ok("done".to_owned()),
        () = job.cancelled() => Err(Halt::Stopped),
    }
}

/// The outcome if something prevents the errand from continuing.
fn meet(job: &Job, need: &Need, beat: Duration, world: &World) -> Result<Option<Outcome>, Error> {
    Ok(match need {
        Need::Approval { reference, question } => match job.answer::<Value>(reference)? {
            None => {
                let wait = NewWait {
                    prompt: Some(question.clone()),
                    assignee: Some("ana".to_owned()),
                    ..NewWait::new(WaitKind::Approval, reference)
                };
                Some(Outcome::Wait(vec![wait], WaitReason::default()))
            }
            Some(answer) if answer["approved"] == true => None,
            Some(_) => Some(Outcome::End(Box::new(End {
                no_output: true,
                warnings: vec!["a person rejected it: nothing was rolled out".to_owned()],
                ..End::new(State::CompletedWithWarnings)
            }))),
        },
        Need::Login { reference, account } => {
            if job.answer::<Value>(reference)?.is_some() {
                return Ok(None);
            }
            let message = format!("the login of {account} has expired");
            let wait = NewWait {
                prompt: Some(format!("Connect {account} again.")),
                assignee: Some("ana".to_owned()),
                ..NewWait::new(WaitKind::Auth, reference)
            };
            let reason = WaitReason { tool: Some("calendar".to_owned()), message: Some(message) };
            Some(Outcome::Wait(vec![wait], reason))
        }
        Need::Search => world.search_refuses.load(Ordering::Relaxed).then(|| {
            let retry_after_ms = Some((beat * 2).as_millis() as u64);
            let refused =
                Failure::new(ErrorClass::RateLimited, "the search API responded: too many requests");
            Outcome::Err(Failure { retry_after_ms, ..refused })
        }),
    })
}
