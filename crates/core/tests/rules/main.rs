//! The rules, verb by verb, over a small world that checks every invariant after every decision.

mod common;

mod cancel;
mod claim;
mod failures;
mod family;
mod lease;
mod random;
mod recovery;
mod steps;
mod waits;
