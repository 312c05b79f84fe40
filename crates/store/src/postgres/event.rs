//! The log: the events of a work item, and the feed of all.

use tenure_core::{Evidence, Payload, WorkId, limits, payload::Digest};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Postgres,
    connection::params,
    retention::position,
    row::{self, get},
    save::PAYLOADS,
};
use crate::{
    Error, EventKey, Listed, Position, StoredEvent,
    columns::{statement, text},
    job::Payloads,
    query::{FEED_SCAN, weight},
    store::{EventStore, StoreFuture},
};

const EVENTS: &str = statement!(
    "SELECT " { text(row::EVENT) }
    " FROM (SELECT e.*, sum(octet_length(e.payload)) OVER \
     (ORDER BY e.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
     FROM event e WHERE e.work = $1::uuid AND e.seq > $2::bigint ORDER BY e.seq LIMIT $3::bigint) e \
     WHERE coalesce(e.before, 0) < $4::bigint ORDER BY e.seq"
);
/// Below every running transaction, so that no event can appear there later.
const FEED: &str = statement!(
    "SELECT " { text(row::EVENT) }
    " FROM (SELECT e.*, sum(octet_length(e.payload)) OVER \
     (ORDER BY e.epoch, e.txn, e.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
     FROM event e WHERE (e.epoch, e.txn, e.number) > ($1::int, $2::bigint, $3::bigint) \
     AND (e.epoch, e.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY e.epoch, e.txn, e.number LIMIT $4::bigint) e \
     WHERE coalesce(e.before, 0) < $5::bigint ORDER BY e.epoch, e.txn, e.number"
);
/// The position that so many events reach, and their number.
const FEED_PLACES: &str = "SELECT s.epoch, s.txn, s.number, s.place FROM (SELECT e.epoch, e.txn, e.number, \
     row_number() OVER (ORDER BY e.epoch, e.txn, e.number) AS place FROM event e \
     WHERE (e.epoch, e.txn, e.number) > ($1::int, $2::bigint, $3::bigint) \
     AND (e.epoch, e.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY e.epoch, e.txn, e.number LIMIT $4::bigint) s ORDER BY s.place DESC LIMIT 1";
/// The events of some tenants up to that position. Of other tenants' events only narrow columns are read.
const FEED_OF: &str = statement!(
    "SELECT " { text(row::EVENT) }
    " FROM (SELECT e.*, sum(octet_length(e.payload)) OVER \
     (ORDER BY e.epoch, e.txn, e.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before \
     FROM event e WHERE (e.epoch, e.txn, e.number) > ($1::int, $2::bigint, $3::bigint) \
     AND (e.epoch, e.txn, e.number) <= ($4::int, $5::bigint, $6::bigint) \
     AND (SELECT w.tenant FROM work w WHERE w.id = e.work) = ANY($7::text[]) \
     ORDER BY e.epoch, e.txn, e.number LIMIT $8::bigint) e \
     WHERE coalesce(e.before, 0) < $9::bigint ORDER BY e.epoch, e.txn, e.number"
);
/// Larger pages are not even sent.
const BYTES: i64 = limits::PAGE_BYTES as i64;
const TAIL: &str = "SELECT e.epoch, e.txn, e.number FROM event e \
     WHERE (e.epoch, e.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY e.epoch DESC, e.txn DESC, e.number DESC LIMIT 1";
const EVIDENCE: &str = "SELECT evidence FROM event WHERE work = $1::uuid AND seq > $2::bigint \
     AND evidence IS NOT NULL ORDER BY seq";
const LINKS: &str = "SELECT l.epoch, l.txn, l.number, l.hash FROM ( \
     (SELECT epoch, txn, number, hash FROM event WHERE (epoch, txn, number) > ($1::int, $2::bigint, $3::bigint) \
     ORDER BY epoch, txn, number LIMIT $4::bigint) UNION ALL \
     (SELECT epoch, txn, number, hash FROM link WHERE (epoch, txn, number) > ($1::int, $2::bigint, $3::bigint) \
     ORDER BY epoch, txn, number LIMIT $4::bigint)) l \
     WHERE (l.epoch, l.txn) < ((SELECT m.value::int FROM meta m WHERE m.key = 'epoch'), \
     pg_snapshot_xmin(pg_current_snapshot())::text::bigint) \
     ORDER BY l.epoch, l.txn, l.number LIMIT $4::bigint";

impl EventStore for Postgres {
    fn events(
        &self,
        work: WorkId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        Box::pin(async move {
            let rows = self
                .points
                .query(EVENTS, params![work.0, i64::try_from(after).unwrap_or(i64::MAX), limit as i64, BYTES])
                .await?;
            page(&rows, limit)
        })
    }

    fn evidence(&self, work: WorkId, after: u64) -> StoreFuture<'_, Vec<Evidence>> {
        Box::pin(async move {
            let after = i64::try_from(after).unwrap_or(i64::MAX);
            let rows = self.points.query(EVIDENCE, params![work.0, after]).await?;
            let mut evidence = Vec::new();
            for row in &rows {
                evidence.extend(row::parse::<Vec<Evidence>>(get(row, 0)?)?);
            }
            Ok(evidence)
        })
    }

    fn feed(&self, after: Position, limit: usize) -> StoreFuture<'_, Listed<StoredEvent, EventKey>> {
        Box::pin(async move {
            let params = params![after.epoch, after.txn, after.number, limit as i64, BYTES];
            page(&self.lists.query(FEED, params).await?, limit)
        })
    }

    fn feed_of<'a>(
        &'a self,
        tenants: &'a [String],
        after: Position,
        limit: usize,
    ) -> StoreFuture<'a, (Listed<StoredEvent, EventKey>, Position)> {
        Box::pin(async move {
            let Position { epoch, txn, number } = after;
            let rows = self.lists.query(FEED_PLACES, params![epoch, txn, number, FEED_SCAN as i64]).await?;
            let Some(end) = rows.first() else { return Ok((Listed::default(), after)) };
            let upto = Position { epoch: get(end, 0)?, txn: get(end, 1)?, number: get(end, 2)? };
            let params =
                params![epoch, txn, number, upto.epoch, upto.txn, upto.number, tenants, limit as i64, BYTES];
            let own = page(&self.lists.query(FEED_OF, params).await?, limit)?;
            match own.next().map(|last| last.position) {
                Some(next) => Ok((own, next)),
                None => Ok((Listed { full: get::<i64>(end, 3)? == FEED_SCAN as i64, ..own }, upto)),
            }
        })
    }

    fn tail(&self) -> StoreFuture<'_, Position> {
        Box::pin(async move {
            let rows = self.lists.query(TAIL, params![]).await?;
            let position =
                |row| Ok(Position { epoch: get(row, 0)?, txn: get(row, 1)?, number: get(row, 2)? });
            rows.first().map_or(Ok(Position::default()), position)
        })
    }

    fn payloads<'a>(&'a self, keys: &'a [(WorkId, u64)]) -> StoreFuture<'a, Payloads> {
        Box::pin(async move {
            let (works, seqs): (Vec<Uuid>, Vec<i64>) =
                keys.iter().map(|(work, seq)| (work.0, *seq as i64)).unzip();
            let rows = self.points.query(PAYLOADS, params![works, seqs]).await?;
            rows.iter()
                .map(|row| {
                    let key = (row::id(row, 0)?, get::<i64>(row, 1)? as u64);
                    Ok((key, Payload::stored(get(row, 2)?)))
                })
                .collect()
        })
    }

    fn links(&self, after: Position, limit: usize) -> StoreFuture<'_, Vec<(Position, Digest)>> {
        Box::pin(async move {
            let params = params![after.epoch, after.txn, after.number, limit as i64];
            let rows = self.lists.query(LINKS, params).await?;
            rows.iter().map(|row| Ok((position(row)?, row::digest(get(row, 3)?)?))).collect()
        })
    }
}

/// A page of events. The database ends it at the byte limit.
fn page(rows: &[Row], limit: usize) -> Result<Listed<StoredEvent, EventKey>, Error> {
    let page = row::listed(rows, limit, row::event_key, row::event)?;
    let heavy = page.rows.iter().map(weight).sum::<usize>() >= limits::PAGE_BYTES;
    Ok(Listed { full: page.full || heavy, ..page })
}
