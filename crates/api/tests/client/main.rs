//! The client and the worker loop against a scripted server, by tokio's paused clock.
#![cfg(feature = "client")]

mod calls;
mod command;
mod fake;
mod leased;
mod worker;
