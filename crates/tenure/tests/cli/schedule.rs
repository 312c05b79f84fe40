//! Schedules on the command line: the same in every environment.

use crate::bed::Bed;

#[test]
fn on_a_file_without_a_daemon() {
    live(&Bed::empty());
}

#[test]
fn through_a_daemon_on_sqlite() {
    live(&Bed::sqlite());
}

#[test]
fn through_a_daemon_on_postgres() {
    live(&Bed::postgres());
}

fn set<'a>(cron: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let set = ["schedule", "set", "digest", "--cron", cron, "--zone", "Asia/Tokyo", "--kind", "digest"];
    let what = ["--disposition", "rerunnable", "--input", "{\"n\":1}", "--reason", "asked for"];
    [&set[..], &what, more].concat()
}

fn live(bed: &Bed) {
    let empty = bed.run(&["schedule", "list"]).ends(0);
    assert!(empty.out.is_empty() && empty.err.contains("tenure schedule set --help"), "{}", empty.err);
    bed.run(&["schedule", "show", "digest"]).ends(3);
    let dry = bed.run(&set("0 7 * * *", &["--dry-run"])).ends(0);
    assert!(dry.out.starts_with("digest next 2") && dry.err.contains("nothing was written"), "{}", dry.err);
    let unasked = bed.run(&set("0 7 * * *", &[])).ends(2);
    assert!(unasked.err.contains("give --yes"), "{}", unasked.err);
    assert_eq!(bed.run(&["schedule", "list", "-o", "json"]).json(), serde_json::json!([]));

    let wrong = bed.run(&set("0 24 * * *", &["--yes"])).ends(4);
    assert!(wrong.err.contains("The hour field of `cron`, `24`"), "{}", wrong.err);
    let both = bed.run(&set("0 7 * * *", &["--every", "5m", "--yes"])).ends(2);
    assert!(both.err.contains("--every"), "{}", both.err);

    let made = bed.run(&set("0 7 * * *", &["--yes"])).ends(0);
    assert!(made.out.starts_with("digest next 2") && made.out.contains("T22:00:00.000Z"), "{}", made.out);
    let listed = bed.run(&["schedule", "list"]).ends(0).out;
    assert!(listed.contains("digest") && listed.contains("0 7 * * * (Asia/Tokyo)"), "{listed}");
    let shown = bed.run(&["schedule", "show", "digest"]).ends(0).out;
    assert_eq!(shown.matches("Next:").count(), 5, "{shown}");
    assert!(shown.contains(" set by ") && shown.contains("asked for"), "{shown}");

    let act = |verb, more: &[&str]| {
        bed.run(&[&["schedule", verb, "digest", "--reason", "a test"], more].concat()).ends(0).out
    };
    assert_eq!(act("pause", &["--yes"]), "digest paused\n");
    assert!(act("resume", &["--yes"]).starts_with("digest next 2"));
    let work = act("run", &["--yes", "--request-id", "r1"]);
    assert!(work.starts_with("w_"), "{work}");
    assert_eq!(act("run", &["--yes", "--request-id", "r1"]), work, "the same request is the same run");
    let busy = bed.run(&["schedule", "run", "digest", "--reason", "x", "--yes"]).ends(4);
    assert!(busy.err.contains(work.trim()), "{}", busy.err);
    let shown = bed.run(&["schedule", "show", "digest", "-o", "json"]).json();
    assert_eq!((&shown["fired"], &shown["last_run"]["run_id"]), (&1.into(), &"request:r1".into()));
    assert_eq!(act("delete", &["--dry-run"]), "digest deleted\n");
    assert_eq!(act("delete", &["--yes"]), "digest deleted\n");
    bed.run(&["schedule", "delete", "digest", "--reason", "x", "--yes"]).ends(3);
    bed.run(&["show", work.trim()]).ends(0);
}
