//! What people must do, the most useful first; the verbs that answer; the holder's smaller verbs; and what
//! happened, in sentences.

use crate::bed::Bed;

fn ingest(bed: &Bed, id: &str) -> String {
    let args = ["ingest", "manual", id, "--kind", "errand", "--disposition", "rerunnable", "--title"];
    bed.run(&[&args[..], &[&format!("Errand {id}")]].concat()).ends(0).out.trim().to_owned()
}

/// The holder's options of a new claim.
fn claim(bed: &Bed, id: &str) -> [String; 4] {
    let lease = bed.run(&["claim", "--worker", "me", id, "-o", "json"]).json()[0].clone();
    let token = lease["token"].as_str().unwrap().to_owned();
    ["--fence".into(), lease["fence"].to_string(), "--lease".into(), token]
}

fn hold(bed: &Bed, lease: &[String; 4], verb: &str, id: &str, more: &[&str]) -> String {
    let lease: Vec<&str> = lease.iter().map(String::as_str).collect();
    bed.run(&[&[verb, id], more, &lease].concat()).ends(0).out
}

fn wait(bed: &Bed, id: &str, kind: &str, reference: &str, more: &[&str]) {
    let lease = claim(bed, id);
    hold(bed, &lease, "wait", id, &[&["--kind", kind, "--ref", reference], more].concat());
}

fn state(bed: &Bed, id: &str) -> String {
    bed.run(&["show", id, "-o", "json"]).json()["state"].as_str().unwrap().to_owned()
}

#[test]
fn one_login_resumes_everything_that_waits_for_it() {
    let bed = Bed::sqlite();
    let colour = ingest(&bed, "colour");
    wait(&bed, &colour, "user", "colour", &["--timeout", "10m", "--on-timeout", "cancel"]);
    let drive = ["a", "b", "c"].map(|id| ingest(&bed, id));
    for id in &drive {
        wait(&bed, id, "auth", "drive", &["--prompt", "Connect Drive again"]);
    }
    let needs = bed.run(&["needs", "-o", "json"]).json();
    let told: Vec<_> = needs
        .as_array()
        .unwrap()
        .iter()
        .map(|need| (need["kind"].clone(), need["unblocks"].clone()))
        .collect();
    assert_eq!(told, [("auth".into(), 3.into()), ("user".into(), 1.into())], "the most useful first");
    assert_eq!((&needs[0]["ref"], &needs[0]["title"]), (&"drive".into(), &"Errand a".into()));
    let shown = bed.run(&["needs"]).ends(0).out;
    for part in
        ["Once resolved, 3 work items go on.", "Connect Drive again", "10m, then cancel", "Errand colour"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let asked = bed.run(&["reconnect", &drive[1]]).ends(2).err;
    assert!(asked.contains("3 work items continue") && asked.contains("--reason and --yes"), "{asked}");
    bed.run(&["reconnect", &drive[1], "--reason", "logged in again", "--yes"]).ends(0);
    assert!(drive.iter().all(|id| state(&bed, id) == "queued"));
    let again = bed.run(&["reconnect", &drive[1]]).ends(5).err;
    assert!(again.contains("answered before"), "{again}");
    assert_eq!(bed.run(&["needs", "-o", "json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn an_answer_may_claim_its_work_item() {
    let bed = Bed::sqlite();
    let id = ingest(&bed, "a");
    wait(&bed, &id, "user", "colour", &[]);
    let resolve = ["resolve", "colour", "--payload", "\"blue\"", "--claim"];
    bed.run(&resolve).ends(2);
    let lease = bed.run(&[&resolve[..], &["--worker", "you", "-o", "json"]].concat()).json()["lease"].clone();
    assert_eq!(lease["work"]["id"], *id);
    assert_eq!(state(&bed, &id), "running");
}

#[test]
fn what_happened_is_told_in_sentences() {
    let bed = Bed::sqlite();
    let id = ingest(&bed, "a");
    let lease = claim(&bed, &id);
    assert_eq!(hold(&bed, &lease, "accept", &id, &[]), format!("{id} running\n"));
    hold(&bed, &lease, "progress", &id, &["{\"done\":3}"]);
    assert_eq!(bed.run(&["show", &id, "-o", "json"]).json()["progress"]["done"], 3);
    hold(&bed, &lease, "step", &id, &["draft"]);
    hold(&bed, &lease, "step", &id, &["draft", "--result", "{\"file\":\"a.md\"}"]);
    hold(&bed, &lease, "wait", &id, &["--kind", "user", "--ref", "colour", "--prompt", "Which colour?"]);
    bed.run(&["resolve", "colour", "--payload", "\"blue\""]).ends(0);
    let told = bed.run(&["events", &id]).ends(0).out;
    let shown = bed.run(&["show", &id]).ends(0).out;
    for part in [
        "me claims it",
        "admin hands it to the agent",
        "admin reports progress: {\"done\":3}",
        "step `draft` begins",
        "step `draft` is completed: {\"file\":\"a.md\"}",
        "answers `colour`: blue",
    ] {
        assert!(told.contains(part), "{part} in {told}");
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // The question is not part of the event.
    assert!(told.contains("waits for the user, `colour`: Which colour?"), "{told}");
}

#[test]
fn the_owner_completes_externally_owned_work() {
    let bed = Bed::sqlite();
    let args = ["ingest", "manual", "x", "--kind", "k", "--disposition", "externally_owned"];
    let ingested = bed.run(&args).ends(0).out;
    let token = ingested.lines().find_map(|line| line.strip_prefix("completion token: ")).unwrap();
    let complete = ["complete", "x", "--completion-token", token];
    assert!(bed.run(&complete).ends(4).err.contains("result_missing"));
    let done = bed.run(&[&complete[..], &["--result", "{\"ok\":true}"]].concat()).ends(0).out;
    assert!(done.ends_with(" succeeded\n"), "{done}");
}

#[test]
fn an_unknown_source_names_the_line_that_declares_it() {
    let bed = Bed::empty();
    let said = bed.run(&["ingest", "fax", "1", "--kind", "k", "--disposition", "rerunnable"]).ends(4).err;
    assert!(said.contains("unknown_source") && said.contains("`[sources.fax]`"), "{said}");
}

#[test]
fn completions_offer_the_words_of_closed_lists() {
    let bed = Bed::embedded();
    let script = bed.run(&["completions", "bash"]).ends(0).out;
    for word in ["waiting_approval", "rate_limited", "externally_owned", "quarantined"] {
        assert!(script.contains(word), "{word}");
    }
    let wrong = bed.run(&["list", "--state", "wating_user"]).ends(2).err;
    assert!(wrong.contains("waiting_user"), "{wrong}");
}
