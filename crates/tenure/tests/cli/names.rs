//! What people may type for an id, and how tables show ids on terminals.

use std::process::Command;

use serde_json::Value;

use crate::bed::{Bed, Said};

fn ingest(bed: &Bed, args: &[&str]) -> String {
    let more = ["--kind", "k", "--disposition", "rerunnable"];
    bed.run(&[&["ingest"], args, &more].concat()).ends(0).out.trim().to_owned()
}

fn shown(bed: &Bed, args: &[&str]) -> String {
    let work = bed.run(&[&["show", "-o", "json"], args].concat()).json();
    work["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_sources_own_id_names_a_work_item() {
    let bed = Bed::sqlite();
    let deposit = ingest(&bed, &["manual", "deposit-1"]);
    for name in ["deposit-1", "manual/deposit-1"] {
        assert_eq!(shown(&bed, &[name]), deposit);
        assert_eq!(bed.run(&["explain", name, "-o", "json"]).json()["id"], *deposit);
        assert_eq!(bed.run(&["events", name, "-o", "json"]).json()[0]["work"], *deposit);
    }
    let cancel = bed.run(&["cancel", "deposit-1", "--reason", "twice", "--yes"]).ends(0).out;
    assert_eq!(cancel, format!("{deposit} cancelled\n"));
    let again = bed.run(&["rerun", "deposit-1", "--reason", "after all", "--yes"]).ends(0).out;
    let again = again.split(' ').next().unwrap();
    assert_eq!(shown(&bed, &["deposit-1"]), again, "the latest generation");
    bed.run(&["show", "deposit-2"]).ends(3);
}

#[test]
fn a_name_that_fits_several_is_refused_with_the_candidates() {
    let bed = Bed::sqlite();
    let ids = [
        ingest(&bed, &["manual", "7"]),
        ingest(&bed, &["control", "7"]),
        ingest(&bed, &["manual", "7", "--tenant", "acme"]),
    ];
    let said = bed.run(&["cancel", "7", "--reason", "x", "--yes"]).ends(2).err;
    for part in [&*ids[0], &ids[1], &ids[2], "ambiguous", "manual/7", "control/7", "tenant acme"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert_eq!(shown(&bed, &["control/7"]), ids[1]);
    let said = bed.run(&["show", &ids[0][..4]]).ends(2).err;
    assert!(ids.iter().all(|id| said.contains(id.as_str())), "{said}");
}

#[test]
fn an_id_is_shortened_at_either_end() {
    let bed = Bed::sqlite();
    let ids = ["1", "2", "3"].map(|id| ingest(&bed, &["manual", id]));
    for id in &ids {
        let ending = &id[id.len() - 10..];
        for name in [ending, &format!("w_{ending}"), &id[..id.len() - 1], &id[2..], &ending.to_uppercase()] {
            assert_eq!(shown(&bed, &[name]), *id, "{name}");
        }
    }
    bed.run(&["show", "fff"]).ends(3);
}

#[test]
fn the_last_one_is_the_one_that_was_named_last() {
    let bed = Bed::sqlite();
    let home = |args: &[&str]| Said::of(bed.command(args).env("HOME", bed.folder.path()).output().unwrap());
    let last = || home(&["show", "--last", "-o", "json"]).json()["id"].as_str().unwrap().to_owned();
    home(&["show", "--last"]).ends(3);
    let ids = ["1", "2"].map(|id| ingest(&bed, &["manual", id]));
    assert_eq!(last(), ids[1], "the newest");
    home(&["show", &ids[0]]).ends(0);
    assert_eq!(last(), ids[0], "the one that was looked at");
    home(&["cancel", "--last", "--reason", "x", "--yes"]).ends(0);
    home(&["show", "--last", &ids[0]]).ends(2);
    home(&["show"]).ends(2);
    let mine = home(&["ingest", "manual", "3", "--kind", "k", "--disposition", "rerunnable"]).ends(0).out;
    assert_eq!(last(), mine.trim(), "the one that was recorded");
}

#[test]
fn lists_are_sorted_on_request() {
    let bed = Bed::sqlite();
    for (id, title) in [("1", "beta"), ("2", "alpha"), ("3", "gamma")] {
        ingest(&bed, &["manual", id, "--title", title]);
    }
    let titles = |sort: &str| {
        let list = bed.run(&["list", "--sort", sort, "-o", "json"]).json();
        let title = |work: &Value| work["title"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(title).collect::<Vec<_>>()
    };
    assert_eq!(titles("newest"), ["gamma", "alpha", "beta"]);
    assert_eq!(titles("oldest"), ["beta", "alpha", "gamma"]);
    assert_eq!(titles("title"), ["alpha", "beta", "gamma"]);
    bed.run(&["list", "--sort", "colour"]).ends(2);
    bed.run(&["commands", "list", "--sort", "tool"]).ends(0);
}

/// On a terminal a table fits, and each shown id can be typed.
#[test]
fn tables_fit_the_terminal_and_show_ids_that_can_be_typed() {
    let bed = Bed::sqlite();
    let long = "a title that is as long as people write them when nobody tells them to stop";
    let ids = ["1", "2", "3"].map(|id| ingest(&bed, &["manual", id, "--title", long]));
    bed.run(&["claim", "--worker", "a-worker-with-a-name", &ids[0]]).ends(0);
    for (columns, verb) in [(60, "list"), (80, "list"), (80, "ps"), (120, "list"), (200, "list")] {
        let list = format!("stty rows 24 cols {columns}; exec {} {verb}", env!("CARGO_BIN_EXE_tenure"));
        let mut script = Command::new("script");
        script.args(["-qec", &list, "/dev/null"]).current_dir(bed.folder.path()).env_clear();
        script.env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm").env("NO_COLOR", "1");
        script.env("LANG", "C.UTF-8").env("TENURE_URL", &bed.daemon.as_ref().unwrap().url);
        script.env("TENURE_TOKEN_FILE", "token").stdin(std::process::Stdio::null());
        let said = Said::of(script.output().unwrap()).ends(0).out;
        let rows: Vec<&str> = said.lines().map(|line| line.trim_end_matches('\r')).collect();
        assert_eq!(rows.len(), if verb == "ps" { 2 } else { 4 }, "{said}");
        for row in &rows {
            assert!(row.chars().count() <= columns, "{columns}: {row:?}");
        }
        for row in &rows[1..] {
            let shown = row.split("  ").filter(|part| !part.is_empty()).nth(1).unwrap().trim();
            assert!(ids.iter().any(|id| id.ends_with(shown)), "{shown} in {row}");
            assert!(shown.len() < 20, "{shown}");
            bed.run(&["show", shown]).ends(0);
        }
    }
    let piped = bed.run(&["list"]).ends(0).out;
    assert!(piped.contains(long) && ids.iter().all(|id| piped.contains(id.as_str())), "{piped}");
}
