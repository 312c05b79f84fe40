//! Rows to records and back.

use std::sync::Arc;

use serde::{Serialize, de::DeserializeOwned};
use tenure_core::{
    Actor, Attempt, Event, Fact, Payload, Spec, State, Step, Wait, WaitId, Work, WorkId,
    document::Document,
    event::Content,
    limits,
    model::{AttemptEnd, Kept, Lease},
    payload::Digest,
    records::SessionView,
};
use tokio_postgres::{Row, types::FromSql};
use uuid::Uuid;

use crate::{Error, EventKey, Listed, Position, StoredEvent, listed::RowKey};

/// A work's columns.
macro_rules! work_columns {
    () => {
        "w.id, w.state, w.seq, w.head, w.attempt, w.fence, w.lease_fence, w.expires_at, w.renewed_at, \
         w.renewed_by, w.lapsed_at, w.open_waits, w.next_retry_at, w.due_at, w.progress, w.updated_at, \
         w.children, w.waiters, w.body, w.spec"
    };
}
pub(super) use work_columns;

macro_rules! event_columns {
    () => {
        "e.epoch, e.txn, e.number, e.work, e.seq, e.at, e.type, e.from_state, e.to_state, e.actor_type, \
         e.actor_id, e.attempt, e.step, e.fence, e.data, e.message, e.payload, e.evidence, e.digest, e.salt, \
         e.prev_hash, e.hash, e.actor_name"
    };
}
pub(super) use event_columns;

fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("a stored row cannot be read: {what}"))
}

/// A stored text that cannot be read.
pub(super) fn unread(why: impl std::fmt::Display) -> Error {
    match Error::unread(why.to_string()) {
        Error::Corrupt(why) => corrupt(why),
        newer => newer,
    }
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(corrupt)
}

/// JSON of our own making.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records are plain structs with string keys")
}

/// The stored name of a plain enum.
pub(super) fn name(value: &impl Serialize) -> String {
    let mut text = json(value);
    text.retain(|c| c != '"');
    text
}

pub(super) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(unread)
}

pub(super) fn parse_name<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(unread)
}

pub(super) fn digest(bytes: &[u8]) -> Result<Digest, Error> {
    bytes.try_into().map(Digest).map_err(corrupt)
}

/// None also for what cannot be one.
pub(super) fn mac(row: &Row, at: usize) -> Result<Option<Digest>, Error> {
    Ok(get::<Option<&[u8]>>(row, at)?.and_then(|bytes| digest(bytes).ok()))
}

pub(super) fn state(code: i16) -> Result<State, Error> {
    let known = u8::try_from(code).ok().and_then(State::from_code);
    known.ok_or_else(|| Error::Newer(format!("the state {code}")))
}

pub(super) fn id(row: &Row, at: usize) -> Result<WorkId, Error> {
    get(row, at).map(WorkId)
}

pub(super) fn work(row: &Row) -> Result<Work, Error> {
    let lease = match get::<Option<i64>>(row, 6)? {
        None => None,
        Some(fence) => Some(Lease {
            fence: fence as u64,
            expires_at: get(row, 7)?,
            renewed_at: get(row, 8)?,
            renewed_by: get(row, 9)?,
            lapsed_at: get(row, 10)?,
        }),
    };
    Ok(Work {
        id: id(row, 0)?,
        spec: Arc::new(parse::<Spec>(get(row, 19)?)?),
        state: state(get(row, 1)?)?,
        seq: get::<i64>(row, 2)? as u64,
        head: digest(get(row, 3)?)?,
        attempt: get::<i32>(row, 4)? as u32,
        fence: get::<i64>(row, 5)? as u64,
        lease,
        open_waits: get::<i32>(row, 11)? as u32,
        next_retry_at: get(row, 12)?,
        due_at: get(row, 13)?,
        progress: get::<Option<String>>(row, 14)?.map(Payload::stored),
        updated_at: get(row, 15)?,
        children: get(row, 16)?,
        waiters: get(row, 17)?,
        body: Document::stored(get(row, 18)?).map_err(unread)?,
    })
}

/// A page of rows, each with its key. One that cannot be read costs the others nothing. The page is full where it is as
/// heavy as a page may be.
pub(super) fn listed<T, K: RowKey>(
    rows: &[Row],
    limit: usize,
    key: impl Fn(&Row) -> Result<K, Error>,
    read: impl Fn(&Row) -> Result<T, Error>,
) -> Result<Listed<T, K>, Error> {
    let mut listed = Listed::default();
    let bytes: usize = rows.iter().map(Row::raw_size_bytes).sum();
    for row in rows {
        let read = match read(row) {
            Ok(read) => Ok(read),
            Err(error) if error.is_of_stored() => Err(error),
            Err(error) => return Err(error),
        };
        listed.take(key(row)?, read);
    }
    let listed = listed.up_to(limit);
    Ok(Listed { full: listed.full || bytes >= limits::PAGE_BYTES, ..listed })
}

pub(super) fn event_key(row: &Row) -> Result<EventKey, Error> {
    let position = Position { epoch: get(row, 0)?, txn: get(row, 1)?, number: get(row, 2)? };
    Ok(EventKey { position, work: id(row, 3)?, seq: get::<i64>(row, 4)? as u64 })
}

pub(super) fn event(row: &Row) -> Result<StoredEvent, Error> {
    let kind: &str = get(row, 6)?;
    let data: String = get(row, 14)?;
    let content = match get::<Option<&[u8]>>(row, 18)? {
        None => None,
        Some(bytes) => {
            let salt =
                get::<Option<&[u8]>>(row, 19)?.map(<[u8; 16]>::try_from).transpose().map_err(corrupt)?;
            Some(Content { digest: digest(bytes)?, salt })
        }
    };
    let event = Event {
        work: id(row, 3)?,
        seq: get::<i64>(row, 4)? as u64,
        at: get(row, 5)?,
        from: get::<Option<i16>>(row, 7)?.map(state).transpose()?,
        to: state(get(row, 8)?)?,
        actor: Actor {
            kind: parse_name(get(row, 9)?)?,
            id: get::<&str>(row, 10)?.into(),
            name: get::<Option<&str>>(row, 22)?.map(Into::into),
        },
        attempt: get::<i32>(row, 11)? as u32,
        step: get(row, 12)?,
        fence: get::<Option<i64>>(row, 13)?.map(|fence| fence as u64),
        fact: Fact::parse(kind, &data).map_err(unread)?,
        data,
        message: get(row, 15)?,
        payload: get::<Option<String>>(row, 16)?.map(Payload::stored),
        evidence: get::<Option<&str>>(row, 17)?.map(parse).transpose()?.unwrap_or_default(),
        content,
        prev_hash: digest(get(row, 20)?)?,
        hash: digest(get(row, 21)?)?,
    };
    Ok(StoredEvent {
        position: Position { epoch: get(row, 0)?, txn: get(row, 1)?, number: get(row, 2)? },
        event,
    })
}

pub(super) fn step(row: &Row) -> Result<Step, Error> {
    let result = get::<Option<uuid::Uuid>>(row, 6)?.zip(get::<Option<i64>>(row, 7)?);
    Ok(Step {
        work: id(row, 0)?,
        ordinal: get::<i32>(row, 1)? as u32,
        name: get(row, 2)?,
        input_hash: digest(get(row, 3)?)?,
        begun_at: get(row, 4)?,
        completed_at: get(row, 5)?,
        result: result.map(|(work, seq)| (WorkId(work), seq as u64)),
        voided: get(row, 8)?,
    })
}

pub(super) fn wait(row: &Row) -> Result<Wait, Error> {
    Ok(Wait {
        id: WaitId(get(row, 0)?),
        work: id(row, 1)?,
        tenant: get(row, 2)?,
        reference: get(row, 3)?,
        kind: parse_name(get(row, 4)?)?,
        state: parse_name(get(row, 5)?)?,
        opened_at: get(row, 6)?,
        deadline_at: get(row, 7)?,
        ended_at: get(row, 8)?,
        answer_seq: get::<Option<i64>>(row, 9)?.map(|seq| seq as u64),
        detail: parse(get(row, 10)?)?,
    })
}

/// work, fence, attempt, at, type, data of the claim; then how it ended.
pub(super) fn attempt(row: &Row) -> Result<Attempt, Error> {
    let Fact::Claimed(claimed) = Fact::parse(get(row, 4)?, get(row, 5)?).map_err(corrupt)? else {
        return Err(corrupt("an event that is no claim answers a claim request"));
    };
    Ok(Attempt {
        work: id(row, 0)?,
        fence: get::<i64>(row, 1)? as u64,
        number: get::<i32>(row, 2)? as u32,
        worker: claimed.worker.id,
        incarnation: claimed.worker.incarnation,
        request: claimed.request,
        claimed_at: get(row, 3)?,
        end: attempt_end(row, 6)?,
    })
}

/// ended_at, outcome, body_hash, ack, error, usage.
pub(super) fn attempt_end(row: &Row, at: usize) -> Result<Option<AttemptEnd>, Error> {
    let Some(ended_at) = get::<Option<i64>>(row, at)? else { return Ok(None) };
    Ok(Some(AttemptEnd {
        at: ended_at,
        outcome: parse_name(get(row, at + 1)?)?,
        body_hash: get::<Option<&[u8]>>(row, at + 2)?.map(digest).transpose()?,
        ack: get::<Option<&str>>(row, at + 3)?.map(parse).transpose()?,
        error: get::<Option<&str>>(row, at + 4)?.map(parse).transpose()?,
        usage: get::<Option<&str>>(row, at + 5)?.map(parse).transpose()?.unwrap_or_default(),
    }))
}

/// tenant, session, holder, head.
pub(super) fn session(row: &Row) -> Result<SessionView, Error> {
    Ok(SessionView {
        holder: get::<Option<Uuid>>(row, 2)?.map(WorkId),
        head: get::<Option<Uuid>>(row, 3)?.map(WorkId),
        unsure: false,
    })
}

macro_rules! kept_columns {
    () => {
        "tenant, reference, payload, actor, evidence, kept_at"
    };
}
pub(super) use kept_columns;

pub(super) fn kept(row: &Row) -> Result<Kept, Error> {
    Ok(Kept {
        tenant: get(row, 0)?,
        reference: get(row, 1)?,
        payload: Payload::stored(get(row, 2)?),
        actor: parse(get(row, 3)?)?,
        evidence: parse(get(row, 4)?)?,
        kept_at: get(row, 5)?,
    })
}
