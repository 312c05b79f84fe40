//! What can be asked on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

/// Measures the ledger beside the databases it stands on.
#[derive(Debug, Parser)]
#[command(name = "tenure-bench", version)]
pub struct Cli {
    #[command(subcommand)]
    pub bench: Bench,
}

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The ledger in process, against bare and raw transitions of the same run
    Ledger(LedgerArgs),
}

#[derive(Debug, Args)]
pub struct LedgerArgs {
    /// Short slices and smaller tables: under a minute, every case, rougher figures
    #[arg(long)]
    pub quick: bool,

    /// Only this database [default: both]
    #[arg(long, value_enum)]
    pub store: Option<Store>,

    /// Where SQLite's files go: a folder on the disk to measure. PostgreSQL's go where TMPDIR says
    #[arg(long, value_name = "FOLDER")]
    pub dir: Option<PathBuf>,
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
        let Bench::Ledger(args) = parse("tenure-bench ledger --quick --store sqlite").unwrap().bench;
        assert!(args.quick);
        assert_eq!(args.store, Some(Store::Sqlite));

        let Bench::Ledger(args) = parse("tenure-bench ledger").unwrap().bench;
        assert!(!args.quick);
        assert_eq!((args.store, args.dir), (None, None));

        for wrong in ["tenure-bench", "tenure-bench ledgers", "tenure-bench ledger --store mysql"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
