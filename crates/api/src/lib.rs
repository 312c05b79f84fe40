//! The wire types and error codes of Tenure's API, the client, and the worker loop.
//!
//! The wire types are not the core's types: the server translates between them, so that either can change
//! alone.

#![warn(missing_docs)]

#[cfg(feature = "client")]
pub mod client;
pub mod story;
pub mod strict;
#[cfg(feature = "client")]
mod tolerant;
pub mod wire;
#[cfg(feature = "client")]
pub mod worker;

#[cfg(feature = "client")]
pub use client::{Client, Error};

/// The README's example is compiled.
#[cfg(all(doctest, feature = "client"))]
#[doc = include_str!("../README.md")]
struct Readme;
