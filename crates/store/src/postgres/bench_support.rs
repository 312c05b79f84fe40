//! For the benchmark only: the statements of one transition, and how a lane's connection is set up. What
//! it calls raw must be exactly these.

pub use super::{
    command::{INSERT as INSERT_COMMAND, STATUS as SAVE_COMMAND_STATUS, UPDATE as UPDATE_COMMAND},
    connection::SETTINGS,
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
     renewed_at = v.renewed_at, renewed_by = v.renewed_by, lapsed_at = v.lapsed_at, open_waits = v.open_waits, \
     next_retry_at = v.next_retry_at, due_at = v.due_at, reason = v.reason, owner = v.owner, bound = v.bound, \
     progress = v.progress, updated_at = v.updated_at, children = v.children, waiters = v.waiters, \
     body = v.body FROM (SELECT unnest($1::uuid[]), unnest($2::smallint[]), unnest($3::bigint[]), \
     unnest($4::bytea[]), unnest($5::int[]), unnest($6::bigint[]), unnest($7::bigint[]), unnest($8::bigint[]), \
     unnest($9::bigint[]), unnest($10::text[]), unnest($11::bigint[]), unnest($12::int[]), \
     unnest($13::bigint[]), unnest($14::bigint[]), unnest($15::text[]), unnest($16::text[]), \
     unnest($17::text[]), unnest($18::text[]), unnest($19::bigint[]), unnest($20::boolean[]), \
     unnest($21::boolean[]), unnest($22::text[])) AS v(id, state, seq, head, attempt, fence, lease_fence, \
     expires_at, renewed_at, renewed_by, lapsed_at, open_waits, next_retry_at, due_at, reason, owner, bound, \
     progress, updated_at, children, waiters, body) WHERE w.id = v.id";

/// New events, in order. `$1` is the transaction's place in the feed. The epoch is read by the statement that writes it:
/// whoever starts one waits for the statements before, and those after it see it.
pub const INSERT_EVENT: &str = "INSERT INTO event (txn, work, seq, at, type, from_state, to_state, \
     actor_type, actor_id, attempt, step, fence, data, message, payload, evidence, digest, salt, prev_hash, \
     hash, request, actor_name, epoch) SELECT $1::bigint, unnest($2::uuid[]), unnest($3::bigint[]), \
     unnest($4::bigint[]), unnest($5::text[]), unnest($6::smallint[]), unnest($7::smallint[]), \
     unnest($8::text[]), unnest($9::text[]), unnest($10::int[]), unnest($11::text[]), unnest($12::bigint[]), \
     unnest($13::text[]), unnest($14::text[]), unnest($15::text[]), unnest($16::text[]), unnest($17::bytea[]), \
     unnest($18::bytea[]), unnest($19::bytea[]), unnest($20::bytea[]), unnest($21::bigint[]), \
     unnest($22::text[]), (SELECT value::int FROM meta WHERE key = 'epoch')";
