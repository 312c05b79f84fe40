//! The library as an embedding program uses it, on both databases.

mod bed;
mod examples;
mod held;
mod open;
mod restart;
