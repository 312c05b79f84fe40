//! The Tenure work ledger inside a Rust program.
//!
//! [`Tenure::open`] opens a ledger and returns the same [`Client`] as over HTTP, without a socket: its calls
//! go through the routes that a daemon serves. The background tasks of a daemon run as well: the sweeper, the
//! scheduler, and the relay with its lookups, under the tools, policies and budgets of a configuration.
//!
//! The program needs no access token: it is a machine principal of its own. Actions that are only for people,
//! above all approvals, need a person's credential here as everywhere ([`Tenure::with_token`]).

#![warn(missing_docs)]

mod builder;
mod error;
pub mod prelude;

use std::ops::Deref;

use tenure_api::Client;
use tenure_server::Server;

pub use builder::Builder;
pub use error::{CloseError, IntakeError, OpenError};
pub use tenure_api::{client, wire, worker};
pub use tenure_server::{ConfigError, StartError};
pub use tenure_store::IntakeInsert;

/// An open ledger. It dereferences to a [`Client`]: `tenure.ingest(…)`, `tenure.explain(…)`.
pub struct Tenure {
    server: Server,
    client: Client,
}

impl Tenure {
    /// Opens the ledger in an SQLite file, which is created if it does not exist, or in a PostgreSQL
    /// database, named by its `postgres://` URL. Any number of processes may share either. `:memory:` is lost
    /// when the process ends.
    pub async fn open(db: &str) -> Result<Self, OpenError> {
        Self::builder(db).open().await
    }

    /// Options for opening: a configuration, a name for this program or a first credential for a person.
    pub fn builder(db: &str) -> Builder {
        Builder::new(db)
    }

    /// A client that calls as this program: for tasks, and for [`worker::run`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client that calls with an access token of this ledger: for example that of a person who approves.
    pub fn with_token(&self, token: &str) -> Client {
        Client::in_process(self.server.router(), Some(token))
    }

    /// A row for the intake table of this ledger, which asks for this work item. The program inserts it with its
    /// own connection to the same database, in the transaction that changes its own tables: if that commits, the
    /// ledger records the work item.
    pub fn intake_insert(&self, work: wire::Ingest) -> Result<IntakeInsert, IntakeError> {
        self.server.intake_insert(work).map_err(IntakeError)
    }

    /// Ends the background tasks, calls of the relay included, and closes the ledger. Stop worker loops
    /// first. If it is not called, nothing that was acknowledged is lost.
    pub async fn close(self) -> Result<(), CloseError> {
        self.server.close().await.map_err(CloseError)
    }
}

impl Deref for Tenure {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Compiles and runs the examples in the READMEs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles and runs the examples in the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
