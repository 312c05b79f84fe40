//! Converts rows to records and back. Columns are read by ordinal, and immutable parts are parsed once.

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

use super::{fault::Fault, table::table};
use crate::{EventKey, Position, StoredEvent, speed::Recent};

pub(super) type Read<T> = Result<T, Fault>;

/// The immutable parts of work items, parsed once. An entry never becomes stale.
pub(super) type Specs = Recent<Arc<Spec>>;

/// A cache for more work items than any group uses.
pub(super) fn specs() -> Specs {
    Recent::new(2_048)
}

table! {
    /// The columns of a work item that events change, without its rowid and the columns that it is found by.
    pub(super) WorkRow(work: &Work) {
        state = work.state.code(),
        seq = work.seq as i64,
        head = &work.head.0[..],
        attempt = work.attempt,
        fence = work.fence as i64,
        lease_fence = work.lease.as_ref().map(|lease| lease.fence as i64),
        expires_at = work.lease.as_ref().map(|lease| lease.expires_at),
        renewed_at = work.lease.as_ref().map(|lease| lease.renewed_at),
        renewed_by = work.lease.as_ref().and_then(|lease| lease.renewed_by.as_deref()),
        progressed_at = work.lease.as_ref().and_then(|lease| lease.progressed_at),
        lapsed_at = work.lease.as_ref().and_then(|lease| lease.lapsed_at),
        open_waits = work.open_waits,
        next_retry_at = work.next_retry_at,
        due_at = work.due_at,
        progress = work.progress.as_ref().map(|progress| progress.text()),
        updated_at = work.updated_at,
        children = work.children,
        waiters = work.waiters,
        body = work.body.text(),
    }
    read(row, id: WorkId, spec: Arc<Spec>) -> Work {
        let lease = match row.get::<_, Option<i64>>(lease_fence)? {
            None => None,
            Some(fence) => Some(Lease {
                fence: fence as u64,
                expires_at: row.get(expires_at)?,
                renewed_at: row.get(renewed_at)?,
                renewed_by: row.get(renewed_by)?,
                progressed_at: row.get(progressed_at)?,
                lapsed_at: row.get(lapsed_at)?,
            }),
        };
        Ok(Work {
            id,
            spec,
            state: self::state(row, state)?,
            seq: row.get::<_, i64>(seq)? as u64,
            head: digest(row, head)?,
            attempt: row.get(attempt)?,
            fence: row.get::<_, i64>(fence)? as u64,
            lease,
            open_waits: row.get(open_waits)?,
            next_retry_at: row.get(next_retry_at)?,
            due_at: row.get(due_at)?,
            progress: row.get::<_, Option<String>>(progress)?.map(Payload::stored),
            updated_at: row.get(updated_at)?,
            children: row.get(children)?,
            waiters: row.get(waiters)?,
            body: Document::stored(text(row, body)?).map_err(Fault::stored)?,
        })
    }
}

table! {
    /// The other columns of a work item that events change: those that it is found by, and its last event.
    pub(super) WorkKeys(saved: (&Work, i64)) {
        reason = saved.0.body.reason.as_ref().map(|reason| name_of(reason.code)),
        owner = saved.0.body.holder.as_ref().map(|holder| &holder.id),
        last_event = saved.1,
    }
}

table! {
    /// The immutable columns that a work item is found by. The whole specification is the data of its first event: the
    /// row, which every event rewrites, does not repeat it.
    pub(super) WorkSpec(work: &Work) {
        tenant = work.spec.tenant,
        system = work.spec.source.system,
        source_id = work.spec.source.id,
        run_id = work.spec.source.run_id,
        generation = work.spec.generation,
        kind = work.spec.kind,
        session = work.spec.session,
        parent = work.spec.parent.as_ref().map(|parent| &parent.0.as_bytes()[..]),
        // Empty if it is the work item's own id.
        correlation_id = Some(&work.spec.correlation_id).filter(|given| **given != work.id.to_string()),
        workflow_id = work.spec.workflow.as_ref().map(|workflow| &workflow.id),
        priority = work.spec.priority,
        created_at = work.spec.created_at,
    }
}

/// The bytes that a row adds to a page.
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

/// Reads the columns of [`super::tables::WORK`].
pub(super) fn work(row: &Row<'_>, specs: &mut Specs, created: &mut Statement<'_>) -> Read<Work> {
    let id = WorkId(uuid(row, 2)?);
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
    WorkRow::read(row, 3, id, spec)
}

pub(super) fn event_key(row: &Row<'_>) -> Read<EventKey> {
    let position = Position { epoch: 0, txn: 0, number: row.get(0)? };
    Ok(EventKey { position, work: WorkId(uuid(row, 1)?), seq: row.get::<_, i64>(2)? as u64 })
}

table! {
    /// An event, without its position and the link to the previous event.
    pub(super) EventRow(event: &Event) {
        work = &event.work.0.as_bytes()[..],
        seq = event.seq as i64,
        at = event.at,
        kind as "type" = event.fact.kind(),
        from_state = event.from.map(State::code),
        to_state = event.to.code(),
        actor_type = event.actor.kind.as_str(),
        actor_id = &*event.actor.id,
        actor_name = event.actor.name.as_deref(),
        attempt = event.attempt,
        step = event.step,
        fence = event.fence.map(|fence| fence as i64),
        data = event.data,
        message = event.message,
        payload = event.payload.as_ref().map(|payload| payload.text()),
        evidence = (!event.evidence.is_empty()).then(|| to_json(&event.evidence)).transpose()?,
        digest = event.content.as_ref().map(|content| &content.digest.0[..]),
        salt = event.content.as_ref().and_then(|content| content.salt.as_ref()).map(|salt| &salt[..]),
        prev_hash = &event.prev_hash.0[..],
        hash = &event.hash.0[..],
    }
    read(row) -> Event {
        let stored: String = row.get(data)?;
        let fact = Fact::parse(text(row, kind)?, &stored).map_err(Fault::stored)?;
        let content = match row.get_ref(digest)? {
            ValueRef::Null => None,
            _ => Some(Content { digest: self::digest(row, digest)?, salt: row.get(salt)? }),
        };
        Ok(Event {
            work: WorkId(uuid(row, work)?),
            seq: row.get::<_, i64>(seq)? as u64,
            at: row.get(at)?,
            from: match row.get_ref(from_state)? {
                ValueRef::Null => None,
                _ => Some(state(row, from_state)?),
            },
            to: state(row, to_state)?,
            actor: Actor {
                kind: actor_kind(text(row, actor_type)?)?,
                id: text(row, actor_id)?.into(),
                name: row.get::<_, Option<Arc<str>>>(actor_name)?,
            },
            attempt: row.get(attempt)?,
            step: row.get(step)?,
            fence: row.get::<_, Option<i64>>(fence)?.map(|fence| fence as u64),
            fact,
            data: stored,
            message: row.get(message)?,
            payload: row.get::<_, Option<String>>(payload)?.map(Payload::stored),
            evidence: optional_json::<Vec<Evidence>>(row, evidence)?.unwrap_or_default(),
            content,
            prev_hash: self::digest(row, prev_hash)?,
            hash: self::digest(row, hash)?,
        })
    }
}

/// Reads a position and the columns after it.
pub(super) fn event(row: &Row<'_>) -> Read<StoredEvent> {
    let event = EventRow::read(row, 1)?;
    Ok(StoredEvent { position: Position { epoch: 0, txn: 0, number: row.get(0)? }, event })
}

table! {
    pub(super) AttemptRow(attempt: &Attempt) {
        work = &attempt.work.0.as_bytes()[..],
        fence = attempt.fence as i64,
        number = attempt.number,
        worker = attempt.worker,
        incarnation = attempt.incarnation,
        request = attempt.request.0,
        claimed_at = attempt.claimed_at,
    }
    read(row) -> Attempt {
        Ok(Attempt {
            work: WorkId(uuid(row, work)?),
            fence: row.get::<_, i64>(fence)? as u64,
            number: row.get(number)?,
            worker: row.get(worker)?,
            incarnation: row.get(incarnation)?,
            request: RequestKey(row.get(request)?),
            claimed_at: row.get(claimed_at)?,
            end: AttemptEndRow::read(row, claimed_at + 1)?,
        })
    }
}

table! {
    /// The end of an attempt: further columns of its row.
    pub(super) AttemptEndRow(end: &AttemptEnd) {
        ended_at = end.at,
        outcome = name_of(end.outcome),
        body_hash = end.body_hash.as_ref().map(|hash| &hash.0[..]),
        ack = end.ack.as_ref().map(to_json).transpose()?,
        error = end.error.as_ref().map(to_json).transpose()?,
        usage = (!end.usage.is_empty()).then(|| to_json(&end.usage)).transpose()?,
    }
    read(row) -> Option<AttemptEnd> {
        let Some(at) = row.get::<_, Option<Millis>>(ended_at)? else { return Ok(None) };
        Ok(Some(AttemptEnd {
            at,
            outcome: named(text(row, outcome)?)?,
            body_hash: match row.get_ref(body_hash)? {
                ValueRef::Null => None,
                _ => Some(digest(row, body_hash)?),
            },
            ack: optional_json(row, ack)?,
            error: optional_json(row, error)?,
            usage: optional_json(row, usage)?.unwrap_or_default(),
        }))
    }
}

table! {
    pub(super) StepRow(step: &Step) {
        work = &step.work.0.as_bytes()[..],
        ordinal = step.ordinal,
        name = step.name,
        input_hash = &step.input_hash.0[..],
        begun_at = step.begun_at,
        completed_at = step.completed_at,
        result_work = step.result.as_ref().map(|(work, _)| &work.0.as_bytes()[..]),
        result_seq = step.result.map(|(_, seq)| seq as i64),
        voided = step.voided,
    }
    read(row) -> Step {
        let result = match row.get::<_, Option<i64>>(result_seq)? {
            None => None,
            Some(seq) => Some((WorkId(uuid(row, result_work)?), seq as u64)),
        };
        Ok(Step {
            work: WorkId(uuid(row, work)?),
            ordinal: row.get(ordinal)?,
            name: row.get(name)?,
            input_hash: digest(row, input_hash)?,
            begun_at: row.get(begun_at)?,
            completed_at: row.get(completed_at)?,
            result,
            voided: row.get(voided)?,
        })
    }
}

table! {
    pub(super) WaitRow(wait: &Wait) {
        id = &wait.id.0.as_bytes()[..],
        work = &wait.work.0.as_bytes()[..],
        tenant = wait.tenant,
        reference = wait.reference,
        kind = name_of(wait.kind),
        opened_at = wait.opened_at,
    }
    changing {
        state = name_of(wait.state),
        deadline_at = wait.deadline_at,
        ended_at = wait.ended_at,
        answer_seq = wait.answer_seq.map(|seq| seq as i64),
        detail = to_json(&wait.detail)?,
    }
    read(row) -> Wait {
        Ok(Wait {
            id: WaitId(uuid(row, id)?),
            work: WorkId(uuid(row, work)?),
            tenant: row.get(tenant)?,
            reference: row.get(reference)?,
            kind: named(text(row, kind)?)?,
            state: named(text(row, state)?)?,
            opened_at: row.get(opened_at)?,
            deadline_at: row.get(deadline_at)?,
            ended_at: row.get(ended_at)?,
            answer_seq: row.get::<_, Option<i64>>(answer_seq)?.map(|seq| seq as u64),
            detail: json(row, detail)?,
        })
    }
}

table! {
    /// An early answer. Its MAC is in the next column.
    pub(super) KeptRow(kept: &Kept) {
        tenant = kept.tenant,
        reference = kept.reference,
        payload = kept.payload.text(),
        actor = to_json(&kept.actor)?,
        evidence = to_json(&kept.evidence)?,
        kept_at = kept.kept_at,
    }
    read(row) -> Kept {
        Ok(Kept {
            tenant: row.get(tenant)?,
            reference: row.get(reference)?,
            payload: Payload::stored(row.get(payload)?),
            actor: json(row, actor)?,
            evidence: json(row, evidence)?,
            kept_at: row.get(kept_at)?,
        })
    }
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

/// None also for a value of the wrong length.
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

/// A part of a record as stored JSON.
pub(super) fn to_json<T: Serialize>(part: &T) -> Read<String> {
    serde_json::to_string(part).map_err(Fault::stored)
}
