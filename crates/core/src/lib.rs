//! The rules of Tenure: everything that may happen to a work item is decided here, by pure functions.
//!
//! [`decide`] takes the records that a store has loaded, one [`Submission`] and the store's time, and returns
//! a [`Decision`] (rows to save, events to append, a reply) or a typed [`Refusal`]. Nothing here does I/O,
//! reads a clock, generates randomness, awaits or knows SQL: ids, seeds and the results of token checks are
//! part of the submission.

pub mod action;
pub mod activity;
pub mod chain;
pub mod command;
mod decide;
pub mod document;
pub mod due;
pub mod event;
pub mod explain;
pub mod fold;
pub mod ids;
pub mod intake;
pub mod invariant;
mod json;
pub mod limits;
pub mod liveness;
pub mod load_set;
pub mod model;
pub mod newer;
pub mod payload;
pub mod policy;
pub mod quota;
pub mod recent;
pub mod records;
pub mod recovery;
pub mod refold;
pub mod refusal;
pub mod reply;
pub mod retry;
pub mod schedule;
pub mod span;
pub mod state;
pub mod state_machine;
pub mod stuck;
pub mod usage;
pub mod work;

pub use action::{Action, Submission};
pub use command::{Command, CommandState};
pub use decide::{Decision, claim_order, claimable, decide, in_turns, place_in_turn};
pub use event::{Actor, ActorKind, Event, Evidence, Fact};
pub use ids::{ByWork, CommandId, CredentialId, PrincipalId, WaitId, WorkId};
pub use load_set::LoadSet;
pub use model::{Attempt, Identity, Spec, Step, Wait, Work};
pub use payload::Payload;
pub use records::{Change, Records};
pub use refusal::{Code, Refusal, Retryable};
pub use reply::{Ack, Grant, Reply};
pub use state::{Phase, State};
pub use usage::Usage;

/// Milliseconds since the Unix epoch, always by the store's clock.
pub type Millis = i64;
