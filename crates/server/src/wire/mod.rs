//! Converts between wire types and the ledger's types. Nothing is decided here: names are mapped, times are
//! written as text, and payloads are left out for readers who may not see them.

mod anchor;
mod command;
mod data;
mod database;
mod event;
mod given;
mod grant;
mod intake;
mod recovery;
mod schedule;
mod stuck;
mod token;
mod twins;
mod wait;
mod work;
mod worker;

pub(crate) use anchor::{anchor, signed_anchor};
pub(crate) use command::{Shown, call_error, command, cost, digest, finding, proof, recorded};
pub(crate) use database::{database, intake_table};
pub(crate) use event::event;
pub(crate) use given::{claimant, close_out, decide, failure, new_wait, new_work, usage};
pub(crate) use grant::{ack, grant, renewal, resolved, step, waiting};
pub(crate) use intake::{intake_change, intake_pause};
pub(crate) use recovery::{forecast, recovery_row, victim};
pub(crate) use schedule::{new_schedule, schedule, schedule_change};
pub(crate) use stuck::stuck;
pub(crate) use token::{new_token, pruning, token};
pub(crate) use twins::{ToCore, ToWire};
pub(crate) use wait::wait;
pub(crate) use work::{View, as_of, work};
pub(crate) use worker::worker;

use serde_json::Value;
use tenure_api::wire::Timestamp;
use tenure_core::{Actor, Evidence, Millis, Payload};

pub(crate) fn at(ms: Millis) -> Timestamp {
    Timestamp(ms)
}

fn actor(actor: &Actor) -> tenure_api::wire::Actor {
    tenure_api::wire::Actor {
        kind: actor.kind.to_wire().into(),
        id: actor.id.to_string(),
        name: actor.name.as_deref().map(str::to_owned),
    }
}

fn evidence(link: &Evidence) -> tenure_api::wire::Evidence {
    tenure_api::wire::Evidence { kind: link.kind.clone(), reference: link.reference.clone() }
}

fn value(payload: Option<&Payload>) -> Option<Value> {
    payload.map(Payload::value)
}

pub(crate) fn unreadable(rows: &[tenure_store::Unreadable]) -> Vec<tenure_api::wire::Unreadable> {
    let shown = |row: &tenure_store::Unreadable| tenure_api::wire::Unreadable {
        id: row.id.clone(),
        why: row.why.clone(),
    };
    rows.iter().map(shown).collect()
}
