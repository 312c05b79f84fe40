//! The built binary, as people and scripts use it.

mod bed;
mod commands;
mod daemon;
mod demo;
mod guides;
mod intake;
mod life;
mod output;
mod recovery;
mod schedule;
mod stuck;
mod told;
mod tools;
mod top;
mod worker;
