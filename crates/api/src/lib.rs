//! Tenure as other programs see it: wire types and error codes, the client, the worker loop.
//!
//! Wire types are not the core's: the server translates, so that neither binds the other.

#![warn(missing_docs)]

#[cfg(feature = "client")]
pub mod client;
pub mod strict;
pub mod wire;
#[cfg(feature = "client")]
pub mod worker;

#[cfg(feature = "client")]
pub use client::{Client, Error};
