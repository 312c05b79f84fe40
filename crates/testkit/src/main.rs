//! `tenure-testkit pg -- CMD ARGS…`: runs a command beside a PostgreSQL server that lives as long as it does.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use tenure_testkit::{Cluster, OUTER_SERVER};

const USAGE: &str = "usage: tenure-testkit pg -- CMD ARGS…
Starts a private PostgreSQL, runs CMD with TENURE_TEST_POSTGRES set to its URL, and removes it again.";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&[u8]> = args.iter().map(|arg| arg.as_encoded_bytes()).collect();
    let [b"pg", b"--", _, ..] = words[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    run(&args[2], &args[3..])
}

fn run(program: &OsString, args: &[OsString]) -> ExitCode {
    let cluster = Cluster::start();
    match Command::new(program).args(args).env(OUTER_SERVER, cluster.base()).status() {
        // The shells' convention for a command that a signal ended.
        Ok(status) => ExitCode::from(status.code().unwrap_or(128 + status.signal().unwrap_or(0)) as u8),
        Err(error) => {
            eprintln!("{}: {error}", program.display());
            ExitCode::from(127)
        }
    }
}
