//! The intake, and revoked waits, on the command line: the same in every environment.

use crate::bed::{Bed, Said};

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

fn ingest(bed: &Bed, id: &str) -> Said {
    bed.run(&["ingest", "manual", id, "--kind", "job", "--disposition", "rerunnable", "--session", "chat"])
}

fn live(bed: &Bed) {
    assert_eq!(bed.run(&["intake", "show"]).ends(0).out, "New work items are accepted.\n");
    let old = ingest(bed, "old").ends(0).out;
    let pause = ["intake", "pause", "--reason", "the database moves"];
    let unasked = bed.run(&pause).ends(2);
    assert!(unasked.err.contains("give --yes"), "{}", unasked.err);
    let tried = bed.run(&[&pause[..], &["--dry-run"]].concat()).ends(0);
    assert!(tried.out.contains("Paused for every tenant") && tried.err.contains("nothing was written"));
    ingest(bed, "let in").ends(0);
    let paused = bed.run(&[&pause[..], &["--yes"]].concat()).ends(0);
    assert!(paused.out.contains("the database moves\nNext: tenure intake resume\n"), "{}", paused.out);
    let refused = ingest(bed, "new").ends(4);
    assert!(refused.err.contains("Intake of every tenant was paused by"), "{}", refused.err);
    assert_eq!(ingest(bed, "old").ends(0).out, old, "what is here is answered");
    let doctor = bed.run(&["doctor"]).out;
    assert!(
        doctor.contains("paused for every tenant by") && doctor.contains("tenure intake resume"),
        "{doctor}"
    );
    bed.run(&["intake", "resume", "--reason", "moved", "--yes"]).ends(0);
    let told = bed.run(&["intake", "show", "-o", "json"]).json();
    assert_eq!((&told["pauses"], told["changes"].as_array().unwrap().len()), (&serde_json::json!([]), 2));

    let id = old.trim();
    let lease = bed.run(&["claim", "--worker", "me", id, "-o", "json"]).json()[0].take();
    let behind = ingest(bed, "behind").ends(0).out;
    let why = bed.run(&["explain", behind.trim()]).ends(0).out;
    assert!(why.contains("me holds its session `chat`") && why.contains(id), "{why}");
    let busy = bed.run(&["claim", "--worker", "you", id]).ends(4).err;
    assert!(busy.contains("held by me until 2") && busy.contains("Z, unless it renews"), "{busy}");
    let (fence, token) = (lease["fence"].to_string(), lease["token"].as_str().unwrap().to_owned());
    let wait = ["wait", id, "--fence", &fence, "--lease", &token, "--kind", "user", "--ref", "ask me"];
    bed.run(&wait).ends(0);
    let why = bed.run(&["explain", id]).ends(0).out;
    assert!(why.contains("in 24 h") && why.contains("\n  tenure resolve 'ask me'\n"), "{why}");
    let needs = bed.run(&["needs"]).ends(0).out;
    assert!(needs.contains("24h"), "{needs}");
    let revoke = ["waits", "revoke", "--session", "chat", "--reason", "the user has left"];
    bed.run(&revoke).ends(2);
    assert_eq!(bed.run(&[&revoke[..], &["--yes"]].concat()).ends(0).out, format!("{id} queued\n"));
    let nothing = bed.run(&[&revoke[..], &["--yes"]].concat()).ends(0);
    assert!(nothing.err.contains("This session has no open waits."), "{}", nothing.err);
}
