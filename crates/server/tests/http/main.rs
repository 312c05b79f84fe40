//! The daemon over HTTP, in process or over a socket.

mod bad_input;
mod batch;
mod bed;
mod budget;
mod command_rules;
mod commands;
mod contract;
mod dispatch;
mod drain;
mod dry_run;
mod evidence;
mod in_process;
mod intake;
mod life;
mod metrics;
mod outage;
mod plan;
mod recovery;
mod rights;
mod schedules;
mod stopped;
mod stream;
mod tls;
mod usage;
