//! The daemon as a library: HTTP, the event stream, authentication, configuration, metrics and alerts. It
//! contains no rule of the ledger: a handler reads a request, calls the ledger and writes the response.

mod alerts;
mod anchors;
pub mod auth;
mod body_permit;
pub mod config;
mod connections;
mod evaluator;
pub mod executor;
mod feed;
mod http;
mod idle;
mod listen;
pub mod lookup;
mod metrics;
pub mod policy;
mod quotas;
pub mod rate;
mod reconciler;
mod relay;
mod server;
mod startup;
pub mod tools;
mod traces;
mod wire;

pub use anchors::{AnchorExporter, AnchorExports, replace_file};
pub use config::{Config, ConfigError, Overlay};
pub use http::openapi;
pub use reconciler::Reconciler;
pub use relay::Relay;
pub use server::{ReloadError, Reloader, Server, StartError};
pub use startup::run;
#[cfg(feature = "otlp")]
pub use traces::otlp::Traces;
