//! The daemon through its door, in process or over a socket.

mod bad_input;
mod batch;
mod bed;
mod contract;
mod dials;
mod life;
mod outage;
mod schedules;
mod scopes;
mod stream;
mod tenants;
mod tls;
