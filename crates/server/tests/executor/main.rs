//! Calls and lookups over HTTP with a misbehaving provider: the calls that were made, and their reported
//! outcomes.

mod bed;
mod egress;
mod lookup;
#[path = "../common/names.rs"]
mod names;
mod outcome;
