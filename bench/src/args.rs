//! The command line of the benchmarks.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

/// Measures the ledger beside the databases that it uses.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    pub bench: Bench,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The ledger in process, compared with bare and raw transitions of the same run
    Ledger(Common),
    /// Commands from intent to receipt, compared with raw ones; and the relay with a local sink
    Commands(Common),
    /// The daemon over HTTP: single ingests, batches, starts, memory, cold start, and a quiet tenant beside
    /// an attacking one
    Http(HttpArgs),
    /// Evaluation of one command by 50 policies
    Policy,
}

#[derive(Debug, Args)]
pub struct HttpArgs {
    #[command(flatten)]
    pub common: Common,

    /// The daemon's binary [default: `tenure` beside this program]
    #[arg(long, value_name = "PATH")]
    pub tenure: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Common {
    /// Short slices and smaller tables: under a minute, every case, less precise figures
    #[arg(long)]
    pub quick: bool,

    /// Only this database [default: both]
    #[arg(long, value_enum)]
    pub store: Option<Store>,

    /// The folder for SQLite's files, on the disk to measure. PostgreSQL's are below TMPDIR: its write-ahead
    /// log alone takes 6.4 GB, 1 GB in a quick run
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
}

impl Common {
    pub fn stores(&self) -> impl Iterator<Item = Store> {
        Store::ALL.into_iter().filter(|store| self.store.is_none_or(|only| only == *store))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Store {
    Sqlite,
    Postgres,
}

impl Store {
    pub const ALL: [Store; 2] = [Store::Sqlite, Store::Postgres];

    pub fn name(self) -> &'static str {
        match self {
            Store::Sqlite => "sqlite",
            Store::Postgres => "postgres",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn arguments_are_read_and_mistakes_refused() {
        let Ok(Bench::Ledger(args)) =
            parse("tenure-bench ledger --quick --store sqlite").map(|cli| cli.bench)
        else {
            panic!("a run of the ledger");
        };
        assert!(args.quick);
        assert_eq!(args.stores().collect::<Vec<_>>(), [Store::Sqlite]);

        let Ok(Bench::Http(args)) = parse("tenure-bench http --tenure ./tenure").map(|cli| cli.bench) else {
            panic!("a run over HTTP");
        };
        assert!(!args.common.quick && args.common.dir.is_none());
        assert_eq!(args.common.stores().collect::<Vec<_>>(), Store::ALL);
        assert_eq!(args.tenure, Some(PathBuf::from("./tenure")));

        for wrong in ["tenure-bench", "tenure-bench ledgers", "tenure-bench ledger --store mysql"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
