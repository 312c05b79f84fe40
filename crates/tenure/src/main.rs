//! The binary: `serve`, and every operator's verb. Verbs reach a ledger only through the client: over a
//! socket, or over the same router in this process when they open a ledger themselves.

mod args;
mod connect;
mod contexts;
mod demo;
#[cfg(test)]
mod docs;
mod exit;
mod home;
mod logs;
mod render;
mod top;
mod verbs;

use std::process::ExitCode;

use clap::FromArgMatches;

/// Group commits allocate many small pieces on several threads: the system's allocator takes a fifth of a
/// drain's time for them, and keeps more of the freed memory.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Threads for blocking calls such as file reads. More would wait for the same two readers, and each takes
/// memory.
const BLOCKING: usize = 8;

fn main() -> ExitCode {
    let typed = args::command().try_get_matches().and_then(|typed| args::Cli::from_arg_matches(&typed));
    let cli = typed.unwrap_or_else(|error| args::unasked(error).exit());
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().enable_all().max_blocking_threads(BLOCKING).build()
        {
            Ok(runtime) => runtime,
            Err(error) => {
                eprintln!("tenure: cannot start threads: {error}");
                return exit::Exit::Error.into();
            }
        };
    match runtime.block_on(verbs::run(cli)) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("tenure: {}", render::safe(&failure.message));
            }
            failure.exit.into()
        }
    }
}
