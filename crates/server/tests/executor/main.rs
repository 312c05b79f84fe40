//! Calls and lookups over HTTP against a provider that misbehaves: what was really called, and what is said of it.

mod bed;
mod egress;
mod lookup;
#[path = "../common/names.rs"]
mod names;
mod outcome;
