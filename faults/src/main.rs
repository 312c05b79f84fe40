//! The command line of the fault suite: faults by name, in rounds, with a seed that repeats them.

use std::{
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Parser;
use tenure_faults::{
    daemon::{self, Kind},
    fault::{self, NAMES, Plan, Tally},
};

/// Injects faults into the built binary under load, and checks the responses that its clients got.
#[derive(Parser)]
#[command(name = "faults")]
struct Args {
    /// The faults; all of them by default
    #[arg(value_parser = NAMES.to_vec())]
    faults: Vec<String>,
    /// How often each fault is injected, on each database
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Repeats a run's choices; random by default
    #[arg(long)]
    seed: Option<u64>,
    /// The minimum number of acknowledged writes between two faults
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(4..=100_000))]
    writes: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let plan = Plan { seed: args.seed.unwrap_or(now), rounds: args.rounds, writes: args.writes };
    match daemon::binary() {
        Ok(binary) => println!("binary {}, seed {}", binary.display(), plan.seed),
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    }
    let all = || NAMES.iter().map(|name| (*name).to_owned()).collect();
    let faults = if args.faults.is_empty() { all() } else { args.faults };
    println!(
        "{:<15} {:<8} {:>6} {:>12} {:>6} {:>11} {:>13}",
        "fault", "database", "faults", "acknowledged", "lost", "violations", "serving again"
    );
    let mut clean = true;
    for fault in &faults {
        for kind in [Kind::Sqlite, Kind::Postgres] {
            match fault::run(fault, kind, &plan).await {
                Ok(Some(tally)) => {
                    clean &= tally.problems.is_empty();
                    show(&tally);
                }
                Ok(None) => {}
                Err(why) => {
                    clean = false;
                    println!("{fault:<15} {:<8} did not end: {why}", kind.name());
                }
            }
        }
    }
    if clean {
        return ExitCode::SUCCESS;
    }
    println!(
        "\nTo repeat it: scripts/faults --seed {} --rounds {} --writes {}",
        plan.seed, plan.rounds, plan.writes
    );
    ExitCode::FAILURE
}

fn show(tally: &Tally) {
    println!(
        "{:<15} {:<8} {:>6} {:>12} {:>6} {:>11} {:>11} ms",
        tally.fault,
        tally.kind.name(),
        tally.faults,
        tally.acknowledged,
        tally.lost,
        tally.problems.len(),
        tally.slowest.as_millis()
    );
    for problem in &tally.problems {
        println!("    {problem}");
    }
    if let Some(kept) = &tally.kept {
        println!("    its files are in {}", kept.display());
    }
}
