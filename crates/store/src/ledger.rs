//! The ledger as a Rust program uses it.

use std::sync::Arc;

use tenure_core::{Reply, policy::Settings};

use crate::{Clock, job::Payloads};

/// How to open a ledger.
#[derive(Clone)]
pub struct Options {
    /// Sources and their default policies.
    pub settings: Settings,
    /// None: the process's clock on SQLite, the server's on PostgreSQL.
    pub clock: Option<Arc<dyn Clock>>,
    /// Concurrent writers on PostgreSQL, besides the one for claims. SQLite has one writer.
    pub lanes: usize,
    /// Whether to start a sweeper.
    pub sweep: bool,
    /// Opens databases whose settings would let a commit be lost. For throw-away data only.
    pub allow_weak_settings: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { settings: Settings::default(), clock: None, lanes: 2, sweep: true, allow_weak_settings: false }
    }
}

/// A reply, with the payloads that it refers to.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub reply: Reply,
    pub(crate) payloads: Payloads,
}
