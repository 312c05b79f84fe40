//! The agents' side effects: mail, money, tickets. Each is recorded before it happens; those with an unknown
//! outcome are looked up, and never repeated.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tenure_api::{
    Client, Error,
    wire::{
        CallFailure, ClaimLookups, Command, End, ErrorClass, Failure, Intent, Lookup, LookupOutcome, NewWait,
        Reconcile, State, WaitKind, WaitReason,
    },
    worker::{Evidence, Fate, Job, Outcome, Trouble},
};
use tokio::time::sleep;

use super::script::{Effect, Mishap};

/// The providers' records, by idempotency key.
#[derive(Default)]
pub struct Providers {
    done: Mutex<HashMap<String, Done>>,
}

/// An effect recorded by a provider.
struct Done {
    id: String,
    /// The number of lookups that do not find it yet: the provider's search lags behind.
    hidden: u32,
}

impl Providers {
    /// Performs the effect, once for each key.
    fn call(&self, command: &Command, effect: &Effect) -> String {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let number = done.len() + 1;
        let hidden = u32::from(effect.mishap == Some(Mishap::LostAndHidden));
        let new = || Done { id: format!("{}-{:04}", effect.prefix, number * 7 % 10_000), hidden };
        done.entry(command.idempotency_key.clone()).or_insert_with(new).id.clone()
    }

    fn look_up(&self, command: &Command) -> Reconcile {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let found = done.get_mut(&command.idempotency_key);
        let outcome = match &found {
            Some(found) if found.hidden > 0 => LookupOutcome::Unknown,
            Some(_) => LookupOutcome::Found,
            None => LookupOutcome::Absent,
        };
        let external_id = found.and_then(|found| {
            let shown = found.hidden == 0;
            found.hidden = found.hidden.saturating_sub(1);
            shown.then(|| found.id.clone())
        });
        let message = match outcome {
            LookupOutcome::Unknown => Some("its search is a little behind".to_owned()),
            LookupOutcome::Found | LookupOutcome::Absent => None,
        };
        Reconcile { token: None, outcome, external_id, reference: None, response: None, message }
    }
}

/// Performs an errand's effect. Returns an outcome if it cannot continue now.
pub async fn bring_about(
    job: &Job,
    effect: &Effect,
    beat: Duration,
    providers: &Providers,
) -> Result<Result<Value, Outcome>, Error> {
    let intent = Intent::new(&effect.tool, &effect.target, effect.arguments.clone());
    let call = async |command: Command| {
        let id = providers.call(&command, effect);
        sleep(beat).await;
        if effect.mishap.is_none() {
            return Ok(Evidence::id(id));
        }
        let lost = format!("{} never responded", effect.provider);
        Err(Trouble::Unknown(CallFailure::new(ErrorClass::Timeout, lost)))
    };
    Ok(match job.command(intent, call).await? {
        Fate::Happened(command) => Ok(shown(&command)),
        Fate::Blocked(command) => Err(ask(&command, effect)),
        Fate::DidNotHappen(_) => Err(refused()),
        Fate::Later(_) | Fate::InDoubt(_) => Err(in_doubt()),
    })
}

fn shown(command: &Command) -> Value {
    json!(command.receipt.as_ref().and_then(|receipt| receipt.external_id.clone()))
}

/// No worker is held while a person decides.
fn ask(command: &Command, effect: &Effect) -> Outcome {
    let wait = NewWait {
        prompt: Some(format!("May it {} to {}?", effect.tool, effect.target)),
        assignee: effect.approver.clone(),
        ..NewWait::new(WaitKind::Approval, &format!("command:{}", command.id))
    };
    Outcome::Wait(vec![wait], WaitReason { tool: Some(effect.tool.clone()), message: None })
}

fn refused() -> Outcome {
    Outcome::End(Box::new(End {
        no_output: true,
        warnings: vec!["a person rejected it: nothing was done".to_owned()],
        ..End::new(State::CompletedWithWarnings)
    }))
}

/// It can only be closed as succeeded once the effect's outcome is known.
fn in_doubt() -> Outcome {
    Outcome::Err(Failure::new(ErrorClass::Unavailable, "it cannot continue before that is known"))
}

/// Looks up commands in doubt at the providers, and reports the findings to the ledger.
pub async fn reconcile(client: Client, providers: Arc<Providers>, beat: Duration) {
    let claim =
        ClaimLookups { max: Some(10), for_ms: Some((beat * 4).as_millis() as u64), ..Default::default() };
    loop {
        // Failures are retried with the next beat.
        if let Ok(due) = client.claim_lookups(&claim).await {
            for Lookup { command, lookup_token } in due.items {
                let found = Reconcile { token: Some(lookup_token), ..providers.look_up(&command) };
                let _ = client.reconcile(&command.id, &found).await;
            }
        }
        sleep(beat).await;
    }
}
