//! The rules, verb by verb, over a small world that checks every invariant after every decision.

mod common;

mod approvals;
mod cancel;
mod cancelled_commands;
mod chain;
mod claim;
mod command_costs;
mod commands;
mod commands_and_works;
mod dispatches;
mod doubtful_waits;
mod exhaustive;
mod explain;
mod explain_around;
mod failures;
mod family;
mod forecast;
mod ingest;
mod lease;
mod operator;
mod payloads;
mod plan;
mod random;
mod recovery;
mod spinning;
mod steps;
mod stuck;
mod waits;
mod weights;
