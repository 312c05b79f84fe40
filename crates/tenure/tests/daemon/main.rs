//! The daemon as it is deployed: the built binary, real sockets, signals, and both databases.

mod bed;
mod commands;
mod crash;
mod crowd;
mod drain;
mod fleet;
mod hostile;
mod life;
mod neighbour;
mod outage;
mod recovery;
mod refusals;
mod schedules;
mod start;
mod suspended;
mod unread;
