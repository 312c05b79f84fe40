//! Generates the command line reference: this test writes docs/cli.md, and fails if it is out of date.

use std::{
    fs,
    path::{Path, PathBuf},
};

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
    assert!(kept == now, "docs/cli.md is out of date. Run: UPDATE_DOCS=1 cargo test -p tenure docs");
}

fn reference() -> String {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut page = String::from(
        "# The command line\n\n\
         Generated from the binary's own help; `--help` prints it for each verb. \
         Ids may be shortened to any unique prefix.\n",
    );
    chapter(command, "tenure", false, &mut page);
    page
}

/// The help of one command and its subcommands. Global options are listed once, at the top.
fn chapter(command: Command, name: &str, inner: bool, page: &mut String) {
    let mut command = command.mut_args(|arg| {
        let hidden = (inner && arg.is_global_set()) || arg.is_hide_set() || arg.get_id() == "help";
        arg.hide_env_values(true).hide(hidden)
    });
    let help = command.render_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        chapter(sub.clone(), &format!("{name} {}", sub.get_name()), true, page);
    }
}

/// Every command line in explanations, refusals and guides exists, with its flags.
#[test]
fn quoted_command_lines_exist() {
    let mut command = Cli::command();
    command.build();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts = Vec::new();
    for folder in ["crates/core/src", "crates/store/src", "crates/server/src", "crates/tenure/src", "docs"] {
        read_all(&root.join(folder), &mut texts);
    }
    let mut wrong = Vec::new();
    for (file, text) in &texts {
        // A line that ends with a backslash continues in the next.
        let text = text.replace("\\\n", " ");
        for typed in text.split("`tenure ").skip(1) {
            let typed = typed.split(['`', '"', '\n']).next().unwrap_or_default();
            if let Err(what) = exists(&command, typed) {
                wrong.push(format!("{}: `tenure {typed}`: {what}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn read_all(folder: &Path, texts: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.extension().and_then(|extension| extension.to_str()) {
            _ if path.is_dir() => read_all(&path, texts),
            Some("rs" | "md") => texts.push((path.clone(), fs::read_to_string(&path).unwrap())),
            _ => {}
        }
    }
}

fn exists(root: &Command, typed: &str) -> Result<(), String> {
    let mut command = root;
    let mut words = typed.split_whitespace();
    while command.has_subcommands() {
        // Without a verb, the flags cannot be checked.
        let Some(word) = words.next().filter(|word| !word.starts_with(['-', '{', '…'])) else {
            return Ok(());
        };
        command = command.find_subcommand(word).ok_or_else(|| format!("there is no {word}"))?;
    }
    for word in words {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let name: String = flag.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let known = command.get_arguments().any(|arg| {
            let also = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(&name) || also.contains(&&*name)
        });
        if !known && !name.is_empty() {
            return Err(format!("there is no --{name}"));
        }
    }
    Ok(())
}
