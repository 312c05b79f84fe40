//! The rules, verb by verb, over a small world that checks every invariant after every decision.

mod common;

mod claim;
mod random;
