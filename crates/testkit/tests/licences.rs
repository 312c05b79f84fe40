//! Everything that is built into Tenure may be used under terms as free as its own.

use std::process::Command;

mod repo;

const ALLOWED: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

#[test]
fn every_dependency_has_an_allowed_licence() {
    let metadata = repo::output(Command::new(env!("CARGO")).args(["metadata", "--format-version", "1"]));
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("cargo prints JSON");
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    assert!(packages.iter().any(|package| package["name"] == "tenure-testkit"));
    let refused: Vec<_> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(is_allowed))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    repo::assert_none("these licences are not on the list", &refused);
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    for (expression, allowed) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT OR GPL-3.0-only", true),
        ("GPL-3.0-only OR MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND MPL-2.0", false),
        ("MIT OR Apache-2.0 AND MPL-2.0", true),
        ("Apache-2.0 WITH LLVM-exception OR MPL-2.0", true),
        ("GPL-2.0-only WITH Classpath-exception-2.0", false),
        ("Unlicense/MIT", true),
        ("Unlicense", false),
        ("", false),
        ("MIT OR", false),
        ("(MIT", false),
        ("MIT MIT", false),
    ] {
        assert_eq!(is_allowed(expression), allowed, "{expression}");
    }
}

/// One alternative of an OR suffices; an AND needs both. What is no SPDX expression is not allowed.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    matches!(either(&words), Some((true, [])))
}

/// What an expression amounts to, and the words that follow it; `None` if it is none.
type Reading<'a> = Option<(bool, &'a [&'a str])>;

fn either<'a>(words: &'a [&'a str]) -> Reading<'a> {
    let (left, rest) = both(words)?;
    let ["OR", rest @ ..] = rest else {
        return Some((left, rest));
    };
    let (right, rest) = either(rest)?;
    Some((left || right, rest))
}

fn both<'a>(words: &'a [&'a str]) -> Reading<'a> {
    let (left, rest) = licence(words)?;
    let ["AND", rest @ ..] = rest else {
        return Some((left, rest));
    };
    let (right, rest) = both(rest)?;
    Some((left && right, rest))
}

fn licence<'a>(words: &'a [&'a str]) -> Reading<'a> {
    match words {
        ["(", rest @ ..] => {
            let (inner, rest) = either(rest)?;
            let [")", rest @ ..] = rest else { return None };
            Some((inner, rest))
        }
        [name, "WITH", exception, rest @ ..] => {
            Some((ALLOWED.contains(&format!("{name} WITH {exception}").as_str()), rest))
        }
        [name, rest @ ..] => Some((ALLOWED.contains(name), rest)),
        [] => None,
    }
}
