//! The built binary, as people and scripts use it.

mod answers;
mod bed;
mod commands;
mod contexts;
mod daemon;
mod demo;
mod guides;
mod intake;
mod life;
mod names;
mod next;
mod output;
mod recovery;
mod schedule;
mod stuck;
mod told;
mod tools;
mod top;
mod worker;
