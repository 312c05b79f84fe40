//! Benchmarks of Tenure. Figures are compared only within one run: a disk's speed drifts by a factor of 2
//! within minutes.

mod args;
mod bare;
mod bars;
mod cases;
mod commands;
mod http;
mod lite;
mod pg;
mod plan;
mod policy;
mod raw;
mod report;
mod run;
mod site;
mod stats;
mod subject;

use std::{error::Error, process::ExitCode};

use clap::Parser;

use args::{Bench, Cli, Common};
use plan::Plan;

/// The same allocator as `tenure` itself.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match &Cli::parse().bench {
        Bench::Ledger(args) => ledger(args).await,
        Bench::Commands(args) => commands::run(args).await,
        Bench::Http(args) => http::run(args).await,
        // It has no database, and so no rows.
        Bench::Policy => policy::run().map(|()| Vec::new()),
    };
    match outcome {
        Ok(mut rows) => {
            report::judge(&mut rows);
            rows.iter().for_each(|row| println!("{}", row.json()));
            if !rows.is_empty() {
                eprint!("\n{}", report::table(&rows));
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {}", told(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn ledger(args: &Common) -> Result<Vec<report::Row>> {
    let plan = if args.quick { Plan::quick() } else { Plan::full() };
    let mut rows = Vec::new();
    for store in args.stores() {
        rows.extend(run::store(store, args, &plan).await?);
    }
    Ok(rows)
}

/// An error with its causes: PostgreSQL's own message alone does not contain them.
fn told(error: &(dyn Error + 'static)) -> String {
    let mut told = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        told.push(error.to_string());
        cause = error.source();
    }
    told.dedup();
    told.join(": ")
}
