//! The Tenure work ledger inside a Rust program.
//!
//! [`Tenure::open`] opens a ledger and gives the same [`Client`] as over HTTP, without a socket: the calls go through the
//! very routes that a daemon serves. What runs beside a daemon runs beside it too: the sweeper, the scheduler, the relay
//! and its lookups, under the tools, policies and budgets of a configuration.
//!
//! Nobody handles a token: the program is a machine principal of its own. What only people may do, approvals first of
//! all, needs a person's credential here as everywhere ([`Tenure::with_token`]).

#![warn(missing_docs)]

mod builder;
mod error;
pub mod prelude;

use std::ops::Deref;

use tenure_api::Client;
use tenure_server::Server;

pub use builder::Builder;
pub use error::{CloseError, OpenError};
pub use tenure_api::{client, wire, worker};
pub use tenure_server::{ConfigError, StartError};

/// An open ledger. It is a [`Client`] as well: `tenure.ingest(…)`, `tenure.explain(…)`.
pub struct Tenure {
    server: Server,
    client: Client,
}

impl Tenure {
    /// Opens the ledger in an SQLite file, which is made where there is none, or in a PostgreSQL database, named by its
    /// `postgres://` URL. Any number of processes may share either. `:memory:` is gone with the process.
    pub async fn open(db: &str) -> Result<Self, OpenError> {
        Self::builder(db).open().await
    }

    /// The same, with a configuration, a name for this program or a first credential for a person.
    pub fn builder(db: &str) -> Builder {
        Builder::new(db)
    }

    /// A client that calls as this program: for tasks, and for [`worker::run`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client that calls with a credential of this ledger: a person's, who approves.
    pub fn with_token(&self, token: &str) -> Client {
        Client::in_process(self.server.router(), Some(token))
    }

    /// Ends what runs beside the ledger, calls of the relay included, and closes it. Stop worker loops first. Without
    /// it nothing that was acknowledged is lost.
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

/// The README's example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The guide's examples are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
