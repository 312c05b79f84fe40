//! For the benchmark only: the statements of one transition, and how a lane's connection is set up. What
//! it calls raw must be exactly these.

pub use super::{
    command::{INSERT as INSERT_COMMAND, STATUS as SAVE_COMMAND_STATUS, UPDATE as UPDATE_COMMAND},
    session::SETTINGS,
};
use super::{connect::Connector, migrate};
use crate::{Error, Options};

/// Makes a ledger's tables in an empty database.
pub async fn create_schema(url: &str) -> Result<(), Error> {
    let options = Options { allow_weak_settings: true, ..Options::default() };
    let mut session = Connector::new(url, &options)?.session().await?;
    migrate::migrate(&mut session.client).await.map(|_key| ())
}

/// The new versions of rows that events changed.
pub const UPDATE_WORK: &str = "UPDATE work w SET state = v.state, seq = v.seq, head = v.head, \
     attempt = v.attempt, fence = v.fence, lease_fence = v.lease_fence, expires_at = v.expires_at, \
     renewed_at = v.renewed_at, renewed_by = v.renewed_by, lapsed_at = v.lapsed_at, \
     open_waits = v.open_waits, next_retry_at = v.next_retry_at, due_at = v.due_at, reason = v.reason, \
     owner = v.owner, bound = v.bound, progress = v.progress, updated_at = v.updated_at, \
     children = v.children, waiters = v.waiters, body = v.body \
     FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bytea[], $5::int[], $6::bigint[], \
     $7::bigint[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[], $12::int[], $13::bigint[], \
     $14::bigint[], $15::text[], $16::text[], $17::text[], $18::text[], $19::bigint[], $20::boolean[], \
     $21::boolean[], $22::text[]) \
     AS v(id, state, seq, head, attempt, fence, lease_fence, expires_at, renewed_at, renewed_by, lapsed_at, \
     open_waits, next_retry_at, due_at, reason, owner, bound, progress, updated_at, children, waiters, body) \
     WHERE w.id = v.id";

/// New events, in order. `$1` is the epoch and `$2` the transaction's place in the feed.
pub const INSERT_EVENT: &str = "INSERT INTO event (epoch, txn, work, seq, at, type, from_state, to_state, \
     actor_type, actor_id, attempt, step, fence, data, message, payload, evidence, digest, salt, prev_hash, \
     hash) SELECT $1::int, $2::bigint, v.* FROM unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::text[], \
     $7::smallint[], $8::smallint[], $9::text[], $10::text[], $11::int[], $12::text[], $13::bigint[], \
     $14::text[], $15::text[], $16::text[], $17::text[], $18::bytea[], $19::bytea[], $20::bytea[], \
     $21::bytea[]) AS v";
