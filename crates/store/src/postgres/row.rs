//! Converts rows to records and back.

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

use super::{load::session_slot, table::table};
use crate::{
    Error, EventKey, Listed, Position, StoredEvent,
    columns::{names_of, statement},
    listed::RowKey,
};

fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::Corrupt(format!("a stored row cannot be read: {what}"))
}

/// Stored text that cannot be read.
pub(super) fn unread(why: impl std::fmt::Display) -> Error {
    match Error::unread(why.to_string()) {
        Error::Corrupt(why) => corrupt(why),
        newer => newer,
    }
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(corrupt)
}

pub(super) fn get_named<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, Error> {
    row.try_get(column).map_err(corrupt)
}

/// Serialises a value of our own types.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records are plain structs with string keys")
}

/// The serialised name of a unit variant.
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

/// None also for a value of the wrong length.
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

table! {
    /// The columns of a work item that events change, without those that it is found by.
    each pub(super) WorkRow(work: Work) {
        state: "smallint" = i16::from(work.state.code()),
        seq: "bigint" = work.seq as i64,
        head: "bytea" = &work.head.0[..],
        attempt: "int" = work.attempt as i32,
        fence: "bigint" = work.fence as i64,
        lease_fence: "bigint" = work.lease.as_ref().map(|lease| lease.fence as i64),
        expires_at: "bigint" = work.lease.as_ref().map(|lease| lease.expires_at),
        renewed_at: "bigint" = work.lease.as_ref().map(|lease| lease.renewed_at),
        renewed_by: "text" = work.lease.as_ref().and_then(|lease| lease.renewed_by.as_deref()),
        progressed_at: "bigint" = work.lease.as_ref().and_then(|lease| lease.progressed_at),
        lapsed_at: "bigint" = work.lease.as_ref().and_then(|lease| lease.lapsed_at),
        open_waits: "int" = work.open_waits as i32,
        next_retry_at: "bigint" = work.next_retry_at,
        due_at: "bigint" = work.due_at,
        progress: "text" = work.progress.as_ref().map(|progress| progress.text()),
        updated_at: "bigint" = work.updated_at,
        children: "boolean" = work.children,
        waiters: "boolean" = work.waiters,
        body: "text" = work.body.text(),
    }
    read(row, id: WorkId, spec: Arc<Spec>) -> Work {
        let lease = match get::<Option<i64>>(row, lease_fence)? {
            None => None,
            Some(fence) => Some(Lease {
                fence: fence as u64,
                expires_at: get(row, expires_at)?,
                renewed_at: get(row, renewed_at)?,
                renewed_by: get(row, renewed_by)?,
                progressed_at: get(row, progressed_at)?,
                lapsed_at: get(row, lapsed_at)?,
            }),
        };
        Ok(Work {
            id,
            spec,
            state: self::state(get(row, state)?)?,
            seq: get::<i64>(row, seq)? as u64,
            head: digest(get(row, head)?)?,
            attempt: get::<i32>(row, attempt)? as u32,
            fence: get::<i64>(row, fence)? as u64,
            lease,
            open_waits: get::<i32>(row, open_waits)? as u32,
            next_retry_at: get(row, next_retry_at)?,
            due_at: get(row, due_at)?,
            progress: get::<Option<String>>(row, progress)?.map(Payload::stored),
            updated_at: get(row, updated_at)?,
            children: get(row, children)?,
            waiters: get(row, waiters)?,
            body: Document::stored(get(row, body)?).map_err(unread)?,
        })
    }
}

table! {
    /// The other columns of a work item that events change: those that it is found by.
    each pub(super) WorkKeys(work: Work) {
        reason: "text" = work.body.reason.as_ref().map(|reason| name(&reason.code)),
        owner: "text" = work.body.holder.as_ref().map(|holder| holder.id.as_str()),
        bound: "text" = work.bound_to(),
    }
}

table! {
    /// The immutable columns of a work item: all of it as `spec`, and the columns that it is found by.
    each pub(super) WorkSpec(work: Work) {
        id: "uuid" = work.id.0,
        spec: "text" = json(&*work.spec),
        created_at: "bigint" = work.spec.created_at,
        generation: "int" = work.spec.generation as i32,
        priority: "smallint" = work.spec.priority,
        session_lock: "smallint" =
            work.spec.session.as_ref().map(|session| session_slot(&work.spec.tenant, session) as i16),
        parent: "uuid" = work.spec.parent.map(|parent| parent.0),
        tenant: "text" = work.spec.tenant.as_str(),
        system: "text" = work.spec.source.system.as_str(),
        source_id: "text" = work.spec.source.id.as_str(),
        run_id: "text" = work.spec.source.run_id.as_str(),
        kind: "text" = work.spec.kind.as_str(),
        session: "text" = work.spec.session.as_deref(),
        // The default, the work item's own id, is not stored or indexed.
        correlation_id: "text" =
            Some(work.spec.correlation_id.as_str()).filter(|given| *given != work.id.to_string()),
        workflow_id: "text" = work.spec.workflow.as_ref().map(|workflow| workflow.id.as_str()),
    }
}

/// The columns that [`work`] reads, of the table `w`.
pub(super) const WORK: &str = statement!("w.id, w.spec, " { names_of("w", WorkRow::COLUMNS) });

pub(super) fn work(row: &Row) -> Result<Work, Error> {
    WorkRow::read(row, 2, id(row, 0)?, Arc::new(parse::<Spec>(get(row, 1)?)?))
}

/// A page of rows with their keys. A row that cannot be read does not affect the others. The page is full when it
/// reaches the byte limit.
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

table! {
    /// An event, without its position in the feed and its claim request.
    each pub(super) EventRow(event: Event) {
        work: "uuid" = event.work.0,
        seq: "bigint" = event.seq as i64,
        at: "bigint" = event.at,
        kind as "type": "text" = event.fact.kind(),
        from_state: "smallint" = event.from.map(|state| i16::from(state.code())),
        to_state: "smallint" = i16::from(event.to.code()),
        actor_type: "text" = event.actor.kind.as_str(),
        actor_id: "text" = &*event.actor.id,
        actor_name: "text" = event.actor.name.as_deref(),
        attempt: "int" = event.attempt as i32,
        step: "text" = event.step.as_deref(),
        fence: "bigint" = event.fence.map(|fence| fence as i64),
        data: "text" = event.data.as_str(),
        message: "text" = event.message.as_deref(),
        payload: "text" = event.payload.as_ref().map(|payload| payload.text()),
        evidence: "text" = (!event.evidence.is_empty()).then(|| json(&event.evidence)),
        digest: "bytea" = event.content.as_ref().map(|content| &content.digest.0[..]),
        salt: "bytea" =
            event.content.as_ref().and_then(|content| content.salt.as_ref().map(|salt| &salt[..])),
        prev_hash: "bytea" = &event.prev_hash.0[..],
        hash: "bytea" = &event.hash.0[..],
    }
    read(row) -> Event {
        let stored: String = get(row, data)?;
        let content = match get::<Option<&[u8]>>(row, digest)? {
            None => None,
            Some(bytes) => {
                let salt =
                    get::<Option<&[u8]>>(row, salt)?.map(<[u8; 16]>::try_from).transpose().map_err(corrupt)?;
                Some(Content { digest: self::digest(bytes)?, salt })
            }
        };
        Ok(Event {
            work: id(row, work)?,
            seq: get::<i64>(row, seq)? as u64,
            at: get(row, at)?,
            from: get::<Option<i16>>(row, from_state)?.map(state).transpose()?,
            to: state(get(row, to_state)?)?,
            actor: Actor {
                kind: parse_name(get(row, actor_type)?)?,
                id: get::<&str>(row, actor_id)?.into(),
                name: get::<Option<&str>>(row, actor_name)?.map(Into::into),
            },
            attempt: get::<i32>(row, attempt)? as u32,
            step: get(row, step)?,
            fence: get::<Option<i64>>(row, fence)?.map(|fence| fence as u64),
            fact: Fact::parse(get(row, kind)?, &stored).map_err(unread)?,
            data: stored,
            message: get(row, message)?,
            payload: get::<Option<String>>(row, payload)?.map(Payload::stored),
            evidence: get::<Option<&str>>(row, evidence)?.map(parse).transpose()?.unwrap_or_default(),
            content,
            prev_hash: self::digest(get(row, prev_hash)?)?,
            hash: self::digest(get(row, hash)?)?,
        })
    }
}

/// The columns that [`event`] reads, of the table `e`.
pub(super) const EVENT: &str = statement!("e.epoch, e.txn, e.number, " { names_of("e", EventRow::COLUMNS) });

pub(super) fn event(row: &Row) -> Result<StoredEvent, Error> {
    let position = Position { epoch: get(row, 0)?, txn: get(row, 1)?, number: get(row, 2)? };
    Ok(StoredEvent { position, event: EventRow::read(row, 3)? })
}

table! {
    each pub(super) StepRow(step: Step) {
        work: "uuid" = step.work.0,
        ordinal: "int" = step.ordinal as i32,
    }
    changing {
        name: "text" = step.name.as_str(),
        input_hash: "bytea" = &step.input_hash.0[..],
        begun_at: "bigint" = step.begun_at,
        completed_at: "bigint" = step.completed_at,
        result_work: "uuid" = step.result.map(|(work, _)| work.0),
        result_seq: "bigint" = step.result.map(|(_, seq)| seq as i64),
        voided: "boolean" = step.voided,
    }
    read(row) -> Step {
        let result = get::<Option<Uuid>>(row, result_work)?.zip(get::<Option<i64>>(row, result_seq)?);
        Ok(Step {
            work: id(row, work)?,
            ordinal: get::<i32>(row, ordinal)? as u32,
            name: get(row, name)?,
            input_hash: digest(get(row, input_hash)?)?,
            begun_at: get(row, begun_at)?,
            completed_at: get(row, completed_at)?,
            result: result.map(|(work, seq)| (WorkId(work), seq as u64)),
            voided: get(row, voided)?,
        })
    }
}

table! {
    each pub(super) WaitRow(wait: Wait) {
        id: "uuid" = wait.id.0,
        work: "uuid" = wait.work.0,
        tenant: "text" = wait.tenant.as_str(),
        reference: "text" = wait.reference.as_str(),
        kind: "text" = name(&wait.kind),
        opened_at: "bigint" = wait.opened_at,
    }
    changing {
        state: "text" = name(&wait.state),
        deadline_at: "bigint" = wait.deadline_at,
        ended_at: "bigint" = wait.ended_at,
        answer_seq: "bigint" = wait.answer_seq.map(|seq| seq as i64),
        detail: "text" = json(&wait.detail),
    }
    read(row) -> Wait {
        Ok(Wait {
            id: WaitId(get(row, id)?),
            work: WorkId(get(row, work)?),
            tenant: get(row, tenant)?,
            reference: get(row, reference)?,
            kind: parse_name(get(row, kind)?)?,
            state: parse_name(get(row, state)?)?,
            opened_at: get(row, opened_at)?,
            deadline_at: get(row, deadline_at)?,
            ended_at: get(row, ended_at)?,
            answer_seq: get::<Option<i64>>(row, answer_seq)?.map(|seq| seq as u64),
            detail: parse(get(row, detail)?)?,
        })
    }
}

/// The columns work, fence, attempt, at, type and data of the claim; then those of the end.
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
        end: AttemptEndRow::read(row, 6)?,
    })
}

table! {
    each pub(super) AttemptEndRow(end: AttemptEnd) {
        ended_at: "bigint" = end.at,
        outcome: "text" = name(&end.outcome),
        body_hash: "bytea" = end.body_hash.as_ref().map(|hash| &hash.0[..]),
        ack: "text" = end.ack.as_ref().map(json),
        error: "text" = end.error.as_ref().map(json),
        usage: "text" = (!end.usage.is_empty()).then(|| json(&end.usage)),
    }
    read(row) -> Option<AttemptEnd> {
        let Some(at) = get::<Option<i64>>(row, ended_at)? else { return Ok(None) };
        Ok(Some(AttemptEnd {
            at,
            outcome: parse_name(get(row, outcome)?)?,
            body_hash: get::<Option<&[u8]>>(row, body_hash)?.map(digest).transpose()?,
            ack: get::<Option<&str>>(row, ack)?.map(parse).transpose()?,
            error: get::<Option<&str>>(row, error)?.map(parse).transpose()?,
            usage: get::<Option<&str>>(row, usage)?.map(parse).transpose()?.unwrap_or_default(),
        }))
    }
}

/// The columns tenant, session, holder, head.
pub(super) fn session(row: &Row) -> Result<SessionView, Error> {
    Ok(SessionView {
        holder: get::<Option<Uuid>>(row, 2)?.map(WorkId),
        head: get::<Option<Uuid>>(row, 3)?.map(WorkId),
        unsure: false,
    })
}

table! {
    /// An early answer. Its MAC is in the next column.
    each pub(super) KeptRow(kept: Kept) {
        tenant: "text" = kept.tenant.as_str(),
        reference: "text" = kept.reference.as_str(),
    }
    changing {
        payload: "text" = kept.payload.text(),
        actor: "text" = json(&kept.actor),
        evidence: "text" = json(&kept.evidence),
        kept_at: "bigint" = kept.kept_at,
    }
    read(row) -> Kept {
        Ok(Kept {
            tenant: get(row, tenant)?,
            reference: get(row, reference)?,
            payload: Payload::stored(get(row, payload)?),
            actor: parse(get(row, actor)?)?,
            evidence: parse(get(row, evidence)?)?,
            kept_at: get(row, kept_at)?,
        })
    }
}
