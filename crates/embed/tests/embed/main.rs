//! The library as an embedding program uses it, on both databases.

mod bed;
mod examples;
mod intake;
mod leased;
mod open;
mod restart;
