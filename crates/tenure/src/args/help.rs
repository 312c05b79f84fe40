//! The help of the whole binary: its verbs in groups, by what a person wants to do.

use clap::{Command, CommandFactory};

use super::Cli;

/// The groups with their verbs. A verb that is in none is listed under `OTHERS`.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Look",
        &[
            "needs", "top", "ps", "list", "show", "explain", "events", "watch", "commands", "workers",
            "stuck", "alerts",
        ],
    ),
    ("Answer", &["approve", "reject", "resolve", "reconnect", "waits"]),
    (
        OTHERS,
        &[
            "cancel",
            "retry",
            "requeue",
            "decide",
            "rerun",
            "quarantine",
            "abandon",
            "drain",
            "recover",
            "schedule",
            "intake",
        ],
    ),
    (
        "Work as a holder",
        &[
            "ingest",
            "claim",
            "accept",
            "renew",
            "progress",
            "step",
            "wait",
            "close-out",
            "complete",
            "fail",
            "release",
        ],
    ),
    (
        "Keep house",
        &[
            "serve",
            "demo",
            "doctor",
            "verify",
            "backup",
            "restore",
            "prune",
            "erase",
            "anchor",
            "token",
            "config",
            "tools",
            "login",
            "logout",
            "completions",
        ],
    ),
];
const OTHERS: &str = "Operate";

/// The command line with its grouped help.
pub fn command() -> Command {
    let command = Cli::command();
    let groups = groups(&command);
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

fn groups(command: &Command) -> String {
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    let width = verbs.iter().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    let grouped = |name: &str| GROUPS.iter().any(|(_, verbs)| verbs.contains(&name));
    let mut text = String::new();
    for (title, names) in GROUPS {
        let named = names.iter().filter_map(|name| verbs.iter().find(|verb| verb.get_name() == *name));
        let others =
            verbs.iter().filter(|verb| title == OTHERS && !grouped(verb.get_name()) && !verb.is_hide_set());
        text.push_str(&format!("{title}:\n"));
        for verb in named.chain(others) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            // The list is an overview; each verb's own help has the rest.
            let about = about.split(": ").next().unwrap_or_default();
            text.push_str(&format!("  {:width$}  {about}\n", verb.get_name()));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verb_is_in_one_group_and_every_name_is_a_verb() {
        let help = command().render_help().to_string();
        let verbs = Cli::command();
        for verb in verbs.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let line = format!("\n  {} ", verb.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{} in {help}", verb.get_name());
        }
        for (title, names) in GROUPS {
            assert!(help.contains(&format!("\n{title}:\n")), "{help}");
            for name in names {
                assert!(verbs.find_subcommand(name).is_some(), "{name} is no verb");
            }
        }
    }
}
