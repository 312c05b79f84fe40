//! The full life of a work item on the command line: the same in every environment.

use crate::bed::Bed;

#[test]
fn on_a_file_without_a_daemon() {
    live(&Bed::embedded());
}

#[test]
fn through_a_daemon_on_sqlite() {
    live(&Bed::sqlite());
}

#[test]
fn through_a_daemon_on_postgres() {
    live(&Bed::postgres());
}

/// A lease as the holder's verbs need it.
struct Lease {
    fence: String,
    token: String,
}

impl Lease {
    fn args(&self) -> [&str; 4] {
        ["--fence", &self.fence, "--lease", &self.token]
    }
}

fn claim(bed: &Bed, id: &str) -> Lease {
    let leases = bed.run(&["claim", "--worker", "me", id, "-o", "json"]).json();
    Lease { fence: leases[0]["fence"].to_string(), token: leases[0]["token"].as_str().unwrap().to_owned() }
}

fn ingest(bed: &Bed, id: &str) -> String {
    let args =
        ["ingest", "manual", id, "--kind", "review", "--disposition", "rerunnable", "--input", "{\"n\":1}"];
    let said = bed.run(&args).ends(0);
    said.out.trim().to_owned()
}

fn live(bed: &Bed) {
    let id = ingest(bed, "one");
    assert!(id.starts_with("w_") && id.len() == 34, "{id}");
    assert_eq!(ingest(bed, "one"), id, "a repeat returns the same work item");
    let other =
        ["ingest", "manual", "one", "--kind", "review", "--disposition", "rerunnable", "--input", "2"];
    let refused = bed.run(&other).ends(4);
    assert!(refused.err.contains("idempotency_mismatch") && refused.out.is_empty(), "{}", refused.err);

    tried_first(bed, &id);
    paused_and_answered(bed, &id);
    ended_and_run_again(bed, &id);
    as_it_was(bed, &id);
    set_aside_and_decided(bed);
    asked_to_stop(bed);
    past_its_deadline(bed);

    let verified = bed.run(&["verify", "-o", "json"]).json();
    assert_eq!(verified["faults"].as_array().unwrap().len(), 0);
}

/// Every verb that changes something has a dry run.
fn tried_first(bed: &Bed, id: &str) {
    let try_out = |args: &[&str]| {
        let tried = bed.run(&[args, &["--dry-run"]].concat()).ends(0);
        assert!(tried.err.contains("nothing was written"), "{args:?}: {}", tried.err);
        tried.out
    };
    let new = try_out(&["ingest", "manual", "tried", "--kind", "review", "--disposition", "rerunnable"]);
    bed.run(&["show", new.trim()]).ends(3);
    let cancel = ["cancel", id, "--reason", "a look"];
    assert_eq!(try_out(&cancel), format!("{id} cancelled\n"));
    let refused = bed.run(&["requeue", id, "--reason", "a look", "--dry-run"]).ends(4);
    assert!(refused.err.contains("illegal_state"), "{}", refused.err);

    let lease = claim(bed, id);
    let held =
        |verb: &'static str, more: &[&'static str]| try_out(&[&[verb, id], more, &lease.args()[..]].concat());
    assert_eq!(held("release", &[]), format!("{id} queued\n"));
    assert_eq!(held("close-out", &["--no-output"]), format!("{id} succeeded\n"));
    assert!(held("wait", &["--kind", "user", "--ref", "colour"]).starts_with(&format!("{id} waiting_user")));
    assert!(held("renew", &[]).starts_with("expires "));
    try_out(&["resolve", "colour", "--payload", "1"]);
    assert!(try_out(&["drain", "me", "--reason", "a look"]).contains(id));
    assert_eq!(bed.run(&["show", id, "-o", "json"]).json()["seq"], 2, "it was recorded and claimed");
    bed.run(&[&["release", id], &lease.args()[..]].concat()).ends(0);
}

fn paused_and_answered(bed: &Bed, id: &str) {
    let lease = claim(bed, id);
    let busy = bed.run(&["claim", "--worker", "you", id]).ends(4);
    assert!(busy.err.contains("busy") && busy.err.contains("me"), "the holder is named: {}", busy.err);
    let renewed = bed.run(&[&["renew", id, "-o", "json"], &lease.args()[..]].concat()).json();
    assert_eq!(renewed["cancel_requested"], false);
    let held = bed.run(&["ps", "-o", "json"]).json();
    assert_eq!(held[0]["lease"]["worker"], "me");

    let ask = ["wait", id, "--kind", "approval", "--ref", "deploy", "--prompt", "Deploy it?"];
    bed.run(&[&ask, &lease.args()[..]].concat()).ends(0);
    let shown = bed.run(&["show", &id[..20]]).ends(0).out;
    for part in [
        "waiting_approval",
        "Since:       20",
        "Why:         Waiting",
        "Deploy it?",
        "Next:        tenure approve w_",
        "\n             tenure reject w_",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    bed.run(&["wait", id, "--for=terminal", "--timeout", "10ms"]).ends(8);
    let seal = shown.lines().find_map(|line| line.strip_prefix("Seal:")).expect("what is approved").trim();
    let unasked = bed.run(&["approve", id]).ends(2);
    assert!(unasked.err.contains("--reason and --yes") && unasked.err.contains(seal), "{}", unasked.err);
    bed.run(&["approve", id, "--seal", &"0".repeat(64)]).ends(4);
    let approved = bed.run(&["approve", id, "--reason", "fine", "--yes", "-o", "json"]).json();
    assert_eq!(approved["answers"][0]["payload"]["approved"], true);
    let again = bed.run(&["reject", id]).ends(5);
    assert!(again.err.contains("answered before"), "{}", again.err);
    let lost = bed.run(&[&["release", id], &lease.args()[..]].concat()).ends(4);
    assert!(lost.err.contains("lease_lost"), "{}", lost.err);
}

fn ended_and_run_again(bed: &Bed, id: &str) {
    let lease = claim(bed, id);
    let bare = bed.run(&[&["close-out", id], &lease.args()[..]].concat()).ends(4);
    assert!(bare.err.contains("result_missing"), "a success needs proof: {}", bare.err);
    let used = "{\"model\":\"m\",\"input_tokens\":7,\"cost_micros\":1500,\"currency\":\"EUR\"}";
    let close = ["close-out", id, "--result", "{\"ok\":true}", "--usage", used, "-o", "json"];
    let close = [&close, &lease.args()[..]].concat();
    assert_eq!(bed.run(&close).json()["state"], "succeeded");
    assert_eq!(bed.run(&close).json()["state"], "succeeded", "repeated, it says so again");
    let shown = bed.run(&["show", id]).ends(0).out;
    assert!(shown.contains("m: 7 tokens in, 0.001500 EUR"), "{shown}");
    bed.run(&["wait", id, "--for=terminal"]).ends(0);
    let watched = bed.run(&["watch", id]).ends(0).out;
    assert!(watched.lines().last().unwrap().contains("close_out"), "{watched}");

    let events = bed.run(&["events", id, "-o", "jsonl"]).ends(0).out;
    let kinds: Vec<String> = events
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "work_created",
            "claimed",
            "lease_released",
            "claimed",
            "waiting_set",
            "wait_resolved",
            "claimed",
            "close_out"
        ]
    );

    let alone = bed.run(&["rerun", id, "--reason", "once more"]).ends(2);
    assert!(alone.err.contains("--yes") && alone.out.is_empty(), "{}", alone.err);
    let dry = bed.run(&["rerun", id, "--reason", "once more", "--dry-run", "-o", "json"]).ends(0);
    assert!(dry.err.contains("nothing was written"), "{}", dry.err);
    let dry = dry.json();
    assert_eq!((&dry["state"], &dry["rerun_of"]), (&"queued".into(), &id.into()));
    bed.run(&["show", dry["id"].as_str().unwrap()]).ends(3);
    let new = bed.run(&["rerun", id, "--reason", "once more", "--yes", "-o", "json"]).json();
    assert_eq!(new["rerun_of"], id);
    let new = new["id"].as_str().unwrap();
    let lease = claim(bed, new);
    let fail = ["close-out", new, "--state", "failed", "--class", "validation", "--message", "no"];
    bed.run(&[&fail, &lease.args()[..]].concat()).ends(0);
    bed.run(&["wait", new, "--for=terminal"]).ends(7);
}

fn as_it_was(bed: &Bed, id: &str) {
    let events = bed.run(&["events", id, "-o", "json"]).json();
    let at = events[4]["at"].as_str().unwrap();
    assert_eq!(events[4]["type"], "waiting_set");
    let past = bed.run(&["show", id, "--at", at, "-o", "json"]).json();
    assert_eq!((&past["as_of"]["at"], &past["state"]), (&at.into(), &"waiting_approval".into()));
    assert_eq!(past["waits"][0]["prompt"], "Deploy it?");
    let shown = bed.run(&["show", id, "--at", at]).ends(0).out;
    for part in ["from the log", "waiting_approval", "Deploy it?", "Unrecorded:  due_at", "waits for"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains("succeeded"), "nothing of what came later: {shown}");
    let listed = bed.run(&["list", "--state", "waiting_approval", "--at", at]).ends(0);
    assert!(
        listed.out.contains("waiting_approval") && listed.err.contains("does not record"),
        "{}",
        listed.err
    );
    let running = bed.run(&["ps", "--at", events[3]["at"].as_str().unwrap(), "-o", "json"]).json();
    assert_eq!(running[0]["lease"]["worker"], "me");
    let early = bed.run(&["list", "--at", "2001-01-01T00:00:00Z"]).ends(4);
    assert!(early.err.contains("before_log"), "{}", early.err);
    assert!(bed.run(&["show", id, "--at", "2999-01-01T00:00:00Z"]).ends(4).err.contains("in_future"));
    bed.run(&["ps", "--at", at, "--watch"]).ends(2);
}

fn set_aside_and_decided(bed: &Bed) {
    let (two, three) = (ingest(bed, "two"), ingest(bed, "three"));
    let ended = bed.run(&["list", "--state", "succeeded", "-o", "json"]).json();
    let over = ended[0]["id"].as_str().unwrap();
    let reason = ["--reason", "odd", "--yes"];
    let partly = bed.run(&[&["quarantine", &two, over, &three], &reason[..]].concat()).ends(6);
    assert!(partly.err.contains(over) && partly.err.contains("terminal"), "{}", partly.err);
    bed.run(&[&["requeue", &two], &reason[..]].concat()).ends(0);
    let decided = bed.run(&[&["decide", &three, "failed", "-o", "json"], &reason[..]].concat()).json();
    assert_eq!(decided["state"], "failed");
    let queued = bed.run(&["list", "--state", "queued", "--source-id", "two", "-o", "json"]).json();
    assert_eq!(queued[0]["id"], *two);

    // The consequence is shown before the confirmation.
    let bound = ["ingest", "manual", "bound", "--kind", "review", "--disposition", "owner_bound"];
    let bound = bed.run(&bound).ends(0).out.trim().to_owned();
    claim(bed, &bound);
    bed.run(&[&["quarantine", &bound], &reason[..]].concat()).ends(0);
    for verb in [&["requeue", &bound][..], &["decide", &bound, "requeue"]] {
        let asked = bed.run(&[verb, &["--reason", "odd"]].concat()).ends(2);
        assert!(asked.err.contains("Only incarnation"), "{}", asked.err);
        // And again afterwards, for callers who confirmed in advance.
        let done = bed.run(&[verb, &reason[..]].concat()).ends(0);
        let told = "does not return within the lease's ttl and grace, the work item stalls: then abandon it";
        assert!(done.err.contains("of me, which started it") && done.err.contains(told), "{}", done.err);
        bed.run(&[&["quarantine", &bound], &reason[..]].concat()).ends(0);
    }
    bed.run(&[&["decide", &bound, "failed"], &reason[..]].concat()).ends(0);
}

fn asked_to_stop(bed: &Bed) {
    let id = ingest(bed, "four");
    let lease = claim(bed, &id);
    let drained = bed.run(&["drain", "me", "--reason", "the host goes", "--yes"]).ends(0);
    assert!(drained.out.contains(&id), "{}", drained.out);
    let renewed = bed.run(&[&["renew", &id], &lease.args()[..]].concat()).ends(0);
    assert!(renewed.err.contains("this worker is draining. Release it"), "{}", renewed.err);
    bed.run(&[&["release", &id], &lease.args()[..]].concat()).ends(0);
    assert_eq!(bed.run(&["show", &id, "-o", "json"]).json()["state"], "queued", "a drain ends nothing");
    let idle = bed.run(&["ps"]).ends(0);
    assert!(idle.out.is_empty() && idle.err.contains("Nothing is running"), "{}", idle.err);
}

/// The next process that opens the ledger does everything that is due.
fn past_its_deadline(bed: &Bed) {
    let id = ingest(bed, "five");
    let lease = claim(bed, &id);
    let ask = ["wait", &id, "--kind", "user", "--ref", "colour", "--timeout", "1ms", "--on-timeout", "fail"];
    bed.run(&[&ask, &lease.args()[..]].concat()).ends(0);
    bed.run(&["wait", &id, "--for=terminal", "--timeout", "30s"]).ends(7);
    assert_eq!(bed.run(&["show", &id, "-o", "json"]).json()["state"], "failed");
}
