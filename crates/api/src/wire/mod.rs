//! The types of the HTTP API: requests, responses and problems, one file for each noun. They decide nothing.
//!
//! Requests refuse fields that they do not know. Responses ignore them, and keep unknown words as they came
//! (see [`Word`]), so that an older client can read a newer server.

/// A response with this header describes what would have been done; nothing was changed.
pub const DRY_RUN_HEADER: &str = "tenure-dry-run";

mod admin;
mod alert;
mod batch;
mod claim;
mod command;
mod command_verbs;
mod event;
mod health;
mod holder;
mod id;
mod ingest;
mod intake;
mod list;
mod operate;
mod problem;
mod recovery;
mod schedule;
mod step;
mod stuck;
mod time;
mod token;
mod usage;
mod wait;
mod word;
mod work;
mod worker;

pub use admin::*;
pub use alert::*;
pub use batch::*;
pub use claim::*;
pub use command::*;
pub use command_verbs::*;
pub use event::*;
pub use health::*;
pub use holder::*;
pub use id::*;
pub use ingest::*;
pub use intake::*;
pub use list::*;
pub use operate::*;
pub use problem::*;
pub use recovery::*;
pub use schedule::*;
pub use step::*;
pub use stuck::*;
pub use time::*;
pub use token::*;
pub use usage::*;
pub use wait::*;
pub use word::*;
pub use work::*;
pub use worker::*;
