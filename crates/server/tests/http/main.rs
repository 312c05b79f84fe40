//! The daemon over HTTP, in process or over a socket.

mod anchor;
mod bad_input;
mod batch;
mod bed;
mod budget;
mod command_rules;
mod commands;
mod contract;
mod dispatch;
mod dry_run;
mod erase;
mod evidence;
mod in_process;
mod intake;
mod life;
mod metrics;
mod outage;
mod past;
mod recovery;
mod rights;
mod schedules;
mod stopped;
mod stream;
mod tls;
mod usage;
