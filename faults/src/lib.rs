//! The fault suite: the built binary under load and faults, and a checker of the responses that its clients
//! got.
//!
//! It knows the daemon only from outside: its HTTP API, its files, its process.

pub mod checker;
pub mod clients;
pub mod collect;
pub mod daemon;
pub mod dice;
pub mod fault;
pub mod history;
pub mod run;
