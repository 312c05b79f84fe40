//! The command line's reference is generated: this test writes it down, and fails where it has changed.

use std::{fs, path::PathBuf};

use clap::{Command, CommandFactory};

use crate::args::Cli;

#[test]
fn the_reference_is_what_the_binary_says() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let now = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == now, "docs/cli.md is old. Run: UPDATE_DOCS=1 cargo test -p tenure docs");
}

fn reference() -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut page = String::from(
        "# The command line\n\n\
         Generated from the binary's own help; every verb also answers `--help`. \
         Ids may be shortened to any beginning that no other id has.\n",
    );
    chapter(command, "tenure", false, &mut page);
    page
}

/// One command's help and its subcommands'. What holds everywhere is said once, at the top.
fn chapter(command: Command, name: &str, inner: bool, page: &mut String) {
    let mut command = command.mut_args(|arg| {
        let hidden = (inner && arg.is_global_set()) || arg.get_id() == "help";
        arg.hide_env_values(true).hide(hidden)
    });
    let help = command.render_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        chapter(sub.clone(), &format!("{name} {}", sub.get_name()), true, page);
    }
}
