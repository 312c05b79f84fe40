//! Rows into records. Columns are read by ordinal, and what never changes is parsed once.

use std::sync::Arc;

use rusqlite::{Row, Statement, types::ValueRef};
use serde::{Serialize, de::DeserializeOwned};
use tenure_core::{
    Actor, ActorKind, Attempt, Event, Evidence, Fact, Millis, Payload, Spec, State, Step, Wait, WaitId, Work,
    WorkId,
    document::Document,
    event::{Content, Created},
    model::{AttemptEnd, Kept, Lease, RequestKey},
    payload::Digest,
};
use uuid::Uuid;

use super::fault::Fault;
use crate::{EventKey, Position, StoredEvent, speed::Recent};

pub(super) type Read<T> = Result<T, Fault>;

/// The immutable parts of works, parsed once. Nobody can make an entry stale.
pub(super) type Specs = Recent<Arc<Spec>>;

/// Keeps those of more works than any group touches.
pub(super) fn specs() -> Specs {
    Recent::new(2_048)
}

/// The columns of a work, in the order in which [`work`] reads them. The immutable part is not kept in
/// the row, which every event rewrites: it is the data of the work's first event.
macro_rules! work_columns {
    () => {
        "rowid, id, state, seq, head, attempt, fence, lease_fence, expires_at, renewed_at, renewed_by, \
         lapsed_at, open_waits, next_retry_at, due_at, progress, updated_at, children, waiters, body, last_event"
    };
}
pub(super) use work_columns;

/// What a row counts towards the bytes of a page.
pub(super) fn bytes(row: &Row<'_>) -> Read<usize> {
    (0..row.as_ref().column_count()).try_fold(0, |bytes, column| {
        Ok(bytes
            + match row.get_ref(column)? {
                ValueRef::Text(text) => text.len(),
                ValueRef::Blob(blob) => blob.len(),
                ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => size_of::<i64>(),
            })
    })
}

pub(super) fn work(row: &Row<'_>, specs: &mut Specs, created: &mut Statement<'_>) -> Read<Work> {
    let id = WorkId(uuid(row, 1)?);
    let spec = match specs.get(id) {
        Some(spec) => spec.clone(),
        None => {
            let mut rows = created.query([id.0.as_bytes()])?;
            let first = rows.next()?.ok_or_else(|| Fault::stored(format!("{id} has no first event")))?;
            let spec = json::<Created>(first, 0)?.spec;
            specs.put(id, spec.clone());
            spec
        }
    };
    let lease = match row.get::<_, Option<i64>>(7)? {
        None => None,
        Some(fence) => Some(Lease {
            fence: fence as u64,
            expires_at: row.get(8)?,
            renewed_at: row.get(9)?,
            renewed_by: row.get(10)?,
            lapsed_at: row.get(11)?,
        }),
    };
    Ok(Work {
        id,
        spec,
        state: state(row, 2)?,
        seq: row.get::<_, i64>(3)? as u64,
        head: digest(row, 4)?,
        attempt: row.get(5)?,
        fence: row.get::<_, i64>(6)? as u64,
        lease,
        open_waits: row.get(12)?,
        next_retry_at: row.get(13)?,
        due_at: row.get(14)?,
        progress: row.get::<_, Option<String>>(15)?.map(Payload::stored),
        updated_at: row.get(16)?,
        children: row.get(17)?,
        waiters: row.get(18)?,
        body: Document::stored(text(row, 19)?).map_err(Fault::stored)?,
    })
}

macro_rules! event_columns {
    () => {
        "position, work, seq, at, type, from_state, to_state, actor_type, actor_id, attempt, step, fence, \
         data, message, payload, evidence, digest, salt, prev_hash, hash, actor_name"
    };
}
pub(super) use event_columns;

pub(super) fn event_key(row: &Row<'_>) -> Read<EventKey> {
    let position = Position { epoch: 0, txn: 0, number: row.get(0)? };
    Ok(EventKey { position, work: WorkId(uuid(row, 1)?), seq: row.get::<_, i64>(2)? as u64 })
}

pub(super) fn event(row: &Row<'_>) -> Read<StoredEvent> {
    let data: String = row.get(12)?;
    let fact = Fact::parse(text(row, 4)?, &data).map_err(Fault::stored)?;
    let content = match row.get_ref(16)? {
        ValueRef::Null => None,
        _ => Some(Content { digest: digest(row, 16)?, salt: row.get(17)? }),
    };
    let event = Event {
        work: WorkId(uuid(row, 1)?),
        seq: row.get::<_, i64>(2)? as u64,
        at: row.get(3)?,
        from: match row.get_ref(5)? {
            ValueRef::Null => None,
            _ => Some(state(row, 5)?),
        },
        to: state(row, 6)?,
        actor: Actor {
            kind: actor_kind(text(row, 7)?)?,
            id: text(row, 8)?.into(),
            name: row.get::<_, Option<Arc<str>>>(20)?,
        },
        attempt: row.get(9)?,
        step: row.get(10)?,
        fence: row.get::<_, Option<i64>>(11)?.map(|fence| fence as u64),
        fact,
        data,
        message: row.get(13)?,
        payload: row.get::<_, Option<String>>(14)?.map(Payload::stored),
        evidence: optional_json::<Vec<Evidence>>(row, 15)?.unwrap_or_default(),
        content,
        prev_hash: digest(row, 18)?,
        hash: digest(row, 19)?,
    };
    Ok(StoredEvent { position: Position { epoch: 0, txn: 0, number: row.get(0)? }, event })
}

macro_rules! attempt_columns {
    () => {
        "work, fence, number, worker, incarnation, request, claimed_at, ended_at, outcome, body_hash, ack, \
         error, usage"
    };
}
pub(super) use attempt_columns;

pub(super) fn attempt(row: &Row<'_>) -> Read<Attempt> {
    Ok(Attempt {
        work: WorkId(uuid(row, 0)?),
        fence: row.get::<_, i64>(1)? as u64,
        number: row.get(2)?,
        worker: row.get(3)?,
        incarnation: row.get(4)?,
        request: RequestKey(row.get(5)?),
        claimed_at: row.get(6)?,
        end: attempt_end(row)?,
    })
}

pub(super) fn attempt_end(row: &Row<'_>) -> Read<Option<AttemptEnd>> {
    let Some(at) = row.get::<_, Option<Millis>>(7)? else { return Ok(None) };
    Ok(Some(AttemptEnd {
        at,
        outcome: named(text(row, 8)?)?,
        body_hash: match row.get_ref(9)? {
            ValueRef::Null => None,
            _ => Some(digest(row, 9)?),
        },
        ack: optional_json(row, 10)?,
        error: optional_json(row, 11)?,
        usage: optional_json(row, 12)?.unwrap_or_default(),
    }))
}

macro_rules! step_columns {
    () => {
        "work, ordinal, name, input_hash, begun_at, completed_at, result_work, result_seq, voided"
    };
}
pub(super) use step_columns;

pub(super) fn step(row: &Row<'_>) -> Read<Step> {
    let result = match row.get::<_, Option<i64>>(7)? {
        None => None,
        Some(seq) => Some((WorkId(uuid(row, 6)?), seq as u64)),
    };
    Ok(Step {
        work: WorkId(uuid(row, 0)?),
        ordinal: row.get(1)?,
        name: row.get(2)?,
        input_hash: digest(row, 3)?,
        begun_at: row.get(4)?,
        completed_at: row.get(5)?,
        result,
        voided: row.get(8)?,
    })
}

macro_rules! wait_columns {
    () => {
        "id, work, tenant, reference, kind, state, opened_at, deadline_at, ended_at, answer_seq, detail"
    };
}
pub(super) use wait_columns;

pub(super) fn wait(row: &Row<'_>) -> Read<Wait> {
    Ok(Wait {
        id: WaitId(uuid(row, 0)?),
        work: WorkId(uuid(row, 1)?),
        tenant: row.get(2)?,
        reference: row.get(3)?,
        kind: named(text(row, 4)?)?,
        state: named(text(row, 5)?)?,
        opened_at: row.get(6)?,
        deadline_at: row.get(7)?,
        ended_at: row.get(8)?,
        answer_seq: row.get::<_, Option<i64>>(9)?.map(|seq| seq as u64),
        detail: json(row, 10)?,
    })
}

macro_rules! kept_columns {
    () => {
        "tenant, reference, payload, actor, evidence, kept_at"
    };
}
pub(super) use kept_columns;

pub(super) fn kept(row: &Row<'_>) -> Read<Kept> {
    Ok(Kept {
        tenant: row.get(0)?,
        reference: row.get(1)?,
        payload: Payload::stored(row.get(2)?),
        actor: json(row, 3)?,
        evidence: json(row, 4)?,
        kept_at: row.get(5)?,
    })
}

pub(super) fn uuid(row: &Row<'_>, column: usize) -> Read<Uuid> {
    Uuid::from_slice(blob(row, column)?).map_err(Fault::stored)
}

pub(super) fn state(row: &Row<'_>, column: usize) -> Read<State> {
    let code: u8 = row.get(column)?;
    State::from_code(code).ok_or_else(|| Fault::newer(format!("the state {code}")))
}

pub(super) fn digest(row: &Row<'_>, column: usize) -> Read<Digest> {
    blob(row, column)?.try_into().map(Digest).map_err(Fault::stored)
}

/// None also for what cannot be one.
pub(super) fn mac(row: &Row<'_>, column: usize) -> Read<Option<Digest>> {
    let bytes = row.get_ref(column)?.as_blob_or_null().ok().flatten();
    Ok(bytes.and_then(|bytes| bytes.try_into().ok()).map(Digest))
}

pub(super) fn text<'a>(row: &'a Row<'_>, column: usize) -> Read<&'a str> {
    row.get_ref(column)?.as_str().map_err(Fault::stored)
}

fn blob<'a>(row: &'a Row<'_>, column: usize) -> Read<&'a [u8]> {
    row.get_ref(column)?.as_blob().map_err(Fault::stored)
}

pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Read<T> {
    serde_json::from_str(text(row, column)?).map_err(Fault::stored)
}

pub(super) fn optional_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Read<Option<T>> {
    match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        _ => json(row, column).map(Some),
    }
}

fn actor_kind(name: &str) -> Read<ActorKind> {
    named(name)
}

/// A unit variant by its serialised name.
pub(super) fn named<T: DeserializeOwned>(name: &str) -> Read<T> {
    T::deserialize(serde::de::value::StrDeserializer::<serde::de::value::Error>::new(name))
        .map_err(Fault::stored)
}

/// The serialised name of a unit variant.
pub(super) fn name_of<T: Serialize>(variant: T) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(name)) => name,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// A record's part as stored JSON.
pub(super) fn to_json<T: Serialize>(part: &T) -> Read<String> {
    serde_json::to_string(part).map_err(Fault::stored)
}
