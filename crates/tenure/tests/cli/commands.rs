//! Commands on the command line: a worker executes them, a person reads, decides and resolves. The same on
//! both databases.

use serde_json::{Value, json};
use tenure_api::{
    Client, Error,
    wire::{
        CallFailure, Claim, Code, Command, CommandState, DispatchCommand, ErrorClass, FailCommand, Grant,
        Intent, Liveness, NewWait, Problem, Renew, RenewLease, Renewals, Reserve, SetWait, UncertainCommand,
        WaitKind, WorkId, Worker,
    },
};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::bed::{Bed, Said};

/// `pay` is not declared: high risk, and only a person can find out its outcome.
const TOOLS: &str = r#"
[tools.send_email]
risk = "low"
lookup = { by = "worker" }

[tools.post]
risk = "low"
"#;

#[test]
fn through_a_daemon_on_sqlite() {
    live(&Bed::configured("ledger.db", TOOLS));
}

#[test]
fn through_a_daemon_on_postgres() {
    live(&Bed::configured(&tenure_testkit::shared().create_database(), TOOLS));
}

/// One tool for each reason to refuse a dispatch.
const REFUSING: &str = r#"
[tools.note]
risk = "low"

[tools.slow]
risk = "low"
rate_limit = { per_s = 1, burst = 1 }

[tools.costly]
risk = "low"

[[budgets]]
per = "tenant"
unit = "calls"
period = "total"
max = 1
tool = "costly"
"#;

const POLICY: &str = r#"
permit (principal, action, resource);
@reason("nobody wipes") forbid (principal, action == Action::"wipe", resource);
@unless("approved") forbid (principal, action == Action::"pay", resource);
"#;

#[test]
fn refused_dispatches_are_shown_on_sqlite() {
    refused("ledger.db");
}

#[test]
fn refused_dispatches_are_shown_on_postgres() {
    refused(&tenure_testkit::shared().create_database());
}

fn refused(db: &str) {
    let policy = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(policy.path(), POLICY).unwrap();
    let bed = Bed::configured(db, &format!("{REFUSING}\n[policy]\nfiles = [{:?}]\n", policy.path()));
    let worker = Hands::of(&bed);
    let lease = worker.hold(&bed, "order");
    let shown = |id: &str| bed.run(&["commands", "show", id, "-o", "json"]).json();
    let stopped = |tool: &str, target: &str, code: Code| {
        let command = worker.reserve(&lease, tool, target, json!({}));
        let problem = worker.not_dispatched(&lease, &command);
        let command = problem.command.unwrap();
        assert_eq!((problem.status, problem.code.known()), (409, Some(code)), "{}", problem.detail);
        let seen = shown(command.id.as_str());
        assert_eq!(
            (&seen["state"], &seen["reason"]["code"], &seen["dispatches"]),
            (&json!("blocked"), &json!(code.as_str()), &json!(0)),
            "the refusal is committed"
        );
        let listed = bed.run(&["commands", "list", "--state", "blocked", "--tool", tool]).ends(0).out;
        assert!(listed.contains(&format!("blocked {}", code.as_str())), "{listed}");
        command
    };
    stopped("wipe", "disk-1", Code::PolicyDenied);
    let pay = stopped("pay", "acct-7", Code::ApprovalRequired);
    worker.dispatch(&lease, &worker.reserve(&lease, "costly", "m-1", json!({})));
    stopped("costly", "m-2", Code::Budget);
    bed.run(&["approve", pay.id.as_str(), "--reason", "it is right", "--yes"]).ends(0);
    worker.dispatch(&lease, &pay);

    let limited = worker.too_fast(&lease);
    let wait = limited.retry_after_ms.unwrap();
    assert!((limited.status, limited.code.known()) == (429, Some(Code::RateLimited)) && wait <= 1_000);
    assert_eq!(shown(limited.command.unwrap().id.as_str())["state"], "pending");

    let lease = worker.hold(&bed, "letter");
    let old = worker.reserve(&lease, "note", "bob", json!({ "text": "hi" }));
    let (fence, work) = (lease.fence.to_string(), lease.work.id.as_str());
    let proof = [work, "--fence", &fence, "--lease", &lease.token];
    bed.run(&[&["release"], &proof[..]].concat()).ends(0);
    let next = worker.take(&lease.work.id);
    let lost = bed.run(&[&["renew"], &proof[..]].concat()).ends(4);
    assert!(lost.err.contains("lease_lost"), "{}", lost.err);
    assert_eq!(worker.renew(&[&lease, &next]).lost, std::slice::from_ref(&lease.work.id));
    assert_eq!(worker.not_dispatched(&lease, &old).code, Code::LeaseLost);

    let new = worker.reserve(&next, "note", "bob", json!({ "text": "hello" }));
    let superseded = worker.not_dispatched(&next, &old);
    assert_eq!(superseded.code, Code::Superseded);
    assert_eq!(superseded.command.unwrap().superseded_by, Some(new.id.clone()));
    bed.run(&["cancel", work, "--reason", "enough", "--yes"]).ends(0);
    let cancelling = worker.not_dispatched(&next, &new);
    assert_eq!(cancelling.code, Code::CancelRequested);
    assert_eq!(cancelling.command.unwrap().state, CommandState::Pending);
}

#[test]
fn empty_lists_say_so() {
    let bed = Bed::empty();
    let none = bed.run(&["commands", "list"]).ends(0);
    assert!(none.out.is_empty() && none.err.contains("No command matches"), "{}", none.err);
    let nobody = bed.run(&["needs"]).ends(0);
    assert_eq!((&*nobody.out, &*nobody.err), ("", "Nothing waits for a person.\n"));
    for list in [&["commands", "list"][..], &["needs"]] {
        assert_eq!(bed.run(&[list, &["-o", "json"]].concat()).json(), json!([]));
        assert_eq!(bed.run(&[list, &["-o", "jsonl"]].concat()).ends(0).out, "");
    }
    for verb in [&["commands", "show", "c_00"][..], &["commands", "show", "w_00"], &["explain", "c_00"]] {
        bed.run(verb).ends(3);
    }
    bed.run(&["approve", "c_00", "--reason", "x", "--yes"]).ends(3);
    bed.run(&["commands", "list", "--state", "gone"]).ends(2);
    bed.run(&["commands", "record", "c_00", "--reason", "x"]).ends(2);
    let both = ["commands", "record", "c_00", "--did-not-happen", "--ref", "r", "--reason", "x"];
    bed.run(&both).ends(2);
}

#[test]
fn everything_that_waits_for_people_is_in_one_list() {
    let bed = Bed::embedded();
    let ingest = |id| {
        let args = ["ingest", "manual", id, "--kind", "errand", "--disposition", "rerunnable"];
        bed.run(&args).ends(0).out.trim().to_owned()
    };
    let ask = |id: &str, more: &[&str]| {
        let lease = bed.run(&["claim", "--worker", "me", id, "-o", "json"]).json();
        let (fence, token) = (lease[0]["fence"].to_string(), lease[0]["token"].as_str().unwrap());
        bed.run(&[&["wait", id, "--fence", &fence, "--lease", token], more].concat()).ends(0);
    };
    let (set_aside, asks, asks_soon) = (ingest("1"), ingest("2"), ingest("3"));
    bed.run(&["quarantine", &set_aside, "--reason", "it looks odd", "--yes"]).ends(0);
    ask(&asks, &["--kind", "user", "--ref", "colour", "--endless", "--prompt", "Which colour?"]);
    let soon = [
        "--kind",
        "approval",
        "--ref",
        "go",
        "--timeout",
        "1h",
        "--on-timeout",
        "cancel",
        "--assignee",
        "ana",
    ];
    ask(&asks_soon, &soon);
    let needs = bed.run(&["needs", "-o", "json"]).json();
    let kinds: Vec<&str> =
        needs.as_array().unwrap().iter().map(|need| need["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["approval", "decision", "user"], "what ends by itself comes first, then the oldest");
    assert_eq!((&needs[0]["assignee"], &needs[0]["on_timeout"]), (&json!("ana"), &json!("cancel")));
    let shown = bed.run(&["needs"]).ends(0).out;
    for part in [
        "1h, then cancel",
        &format!("\n    tenure approve {asks_soon}\n    tenure reject {asks_soon}\n"),
        "Which colour?",
        "\n    tenure resolve colour\n",
        "x decision",
        "it looks odd",
        &format!("\n    tenure requeue {set_aside}\n    tenure decide {set_aside} failed\n"),
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(bed.run(&["needs", "--limit", "1", "-o", "jsonl"]).ends(0).out.lines().count(), 1);
    assert_eq!(bed.run(&["needs", "--tenant", "nobody", "-o", "json"]).json(), json!([]));
}

fn live(bed: &Bed) {
    let worker = Hands::of(bed);
    approved_and_settled_by_a_person(bed, &worker);
    rejected_while_its_work_waits(bed, &worker);
    recorded_and_queued_in_one_decision(bed, &worker);
    let mailed = a_lost_reply_is_looked_up(bed, &worker);
    done_again_or_called_off(bed, &worker);
    shown_before_a_rerun(bed, &worker, &mailed);
    let verified = bed.run(&["verify", "-o", "json"]).json();
    assert_eq!(verified["faults"], json!([]));
}

/// A worker: it does everything that operators' verbs do not.
struct Hands {
    client: Client,
    runtime: Runtime,
}

impl Hands {
    fn of(bed: &Bed) -> Self {
        let client = Client::http(&bed.daemon.as_ref().unwrap().url, Some(&bed.token())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { client, runtime }
    }

    /// A work item that it holds.
    fn hold(&self, bed: &Bed, id: &str) -> Grant {
        let args = ["ingest", "manual", id, "--kind", "errand", "--disposition", "rerunnable"];
        let work = WorkId::from(bed.run(&args).ends(0).out.trim());
        self.take(&work)
    }

    fn take(&self, work: &WorkId) -> Grant {
        let worker = Worker { id: "hands".into(), incarnation: "1".into(), liveness: Liveness::Opaque };
        let request = format!("{work}-{}", self.work(work)["seq"]);
        let claim = Claim { ids: vec![work.clone()], ..Claim::new(worker, &request) };
        self.runtime.block_on(self.client.claim(&claim)).unwrap().leases.remove(0)
    }

    fn work(&self, id: &WorkId) -> Value {
        serde_json::to_value(self.runtime.block_on(self.client.work(id)).unwrap()).unwrap()
    }

    fn reserve(&self, lease: &Grant, tool: &str, target: &str, arguments: Value) -> Command {
        let intent = Intent { step: Some("act".to_owned()), ..Intent::new(tool, target, arguments) };
        let new = Reserve::new(lease.fence, &lease.token, intent);
        self.runtime.block_on(self.client.reserve(&lease.work.id, &new)).unwrap()
    }

    fn dispatch(&self, lease: &Grant, command: &Command) {
        let (fence, token) = (lease.fence, lease.token.clone());
        let dispatch = DispatchCommand { fence, token, request_id: None, estimate: None };
        let told = self.runtime.block_on(self.client.dispatch(&command.id, &dispatch)).unwrap();
        assert_eq!(told.state, CommandState::Dispatched, "{told:?}");
    }

    fn not_dispatched(&self, lease: &Grant, command: &Command) -> Problem {
        let (fence, token) = (lease.fence, lease.token.clone());
        let dispatch = DispatchCommand { fence, token, request_id: None, estimate: None };
        match self.runtime.block_on(self.client.dispatch(&command.id, &dispatch)) {
            Err(Error::Problem(problem)) => *problem,
            other => panic!("a refusal was expected, not {other:?}"),
        }
    }

    /// Dispatches at once more than the rate of `slow` allows, and returns one of the refusals.
    fn too_fast(&self, lease: &Grant) -> Problem {
        let commands: Vec<Command> =
            (0..6).map(|n| self.reserve(lease, "slow", &format!("m-{n}"), json!({}))).collect();
        let (fence, token) = (lease.fence, lease.token.clone());
        let dispatch = DispatchCommand { fence, token, request_id: None, estimate: None };
        let mut crowd = JoinSet::new();
        for Command { id, .. } in commands {
            let (client, dispatch) = (self.client.clone().without_retries(), dispatch.clone());
            crowd.spawn_on(async move { client.dispatch(&id, &dispatch).await }, self.runtime.handle());
        }
        let refused = self.runtime.block_on(crowd.join_all()).into_iter().find_map(Result::err);
        let Some(Error::Problem(problem)) = refused else { panic!("one a second: {refused:?}") };
        *problem
    }

    fn renew(&self, leases: &[&Grant]) -> Renewals {
        let lease = |held: &&Grant| RenewLease {
            id: held.work.id.clone(),
            fence: held.fence,
            token: held.token.clone(),
            progress: None,
        };
        let renew = Renew { leases: leases.iter().map(lease).collect() };
        self.runtime.block_on(self.client.renew(&renew)).unwrap()
    }

    /// The call was made, but its response was lost.
    fn lose_the_reply(&self, lease: &Grant, command: &Command) {
        let error = CallFailure::new(ErrorClass::Timeout, "no reply came");
        let lost =
            UncertainCommand { fence: lease.fence, token: lease.token.clone(), dispatch: Some(1), error };
        self.runtime.block_on(self.client.uncertain(&command.id, &lost)).unwrap();
    }

    fn fail(&self, lease: &Grant, command: &Command) {
        let error = CallFailure::new(ErrorClass::Validation, "no such board");
        let failed = FailCommand {
            fence: lease.fence,
            token: lease.token.clone(),
            dispatch: None,
            error,
            unsent: false,
        };
        self.runtime.block_on(self.client.fail_command(&command.id, &failed)).unwrap();
    }

    fn wait_for(&self, lease: &Grant, command: &Command) {
        let wait = NewWait {
            assignee: Some("ana".to_owned()),
            timeout_ms: Some(3_600_000),
            ..NewWait::new(WaitKind::Approval, &format!("command:{}", command.id))
        };
        let set = SetWait {
            fence: lease.fence,
            token: lease.token.clone(),
            waits: vec![wait],
            reason: None,
            usage: vec![],
        };
        self.runtime.block_on(self.client.wait(&lease.work.id, &set)).unwrap();
    }

    fn close(&self, bed: &Bed, lease: &Grant) {
        let fence = lease.fence.to_string();
        let close = ["close-out", lease.work.id.as_str(), "--no-output", "--fence", &fence, "--lease"];
        bed.run(&[&close[..], &[&lease.token]].concat()).ends(0);
    }
}

/// The verbs with a machine's token, which cannot have the scopes of a person.
fn machine(bed: &Bed) -> impl Fn(&[&str]) -> Said {
    let make = |scopes| bed.run(&["token", "create", "agent", "--scope", scopes, "-o", "json"]);
    for persons in ["approve", "replay"] {
        assert!(make(persons).ends(4).err.contains("person"));
    }
    let secret = make("view,payload,submit,work,resolve,operate,admin").json()["secret"].clone();
    move |args| Said::of(bed.command(args).env("TENURE_TOKEN", secret.as_str().unwrap()).output().unwrap())
}

fn approved_and_settled_by_a_person(bed: &Bed, worker: &Hands) {
    let lease = worker.hold(bed, "invoice");
    let long = format!("{}\u{1b}]0;owned\u{7}\u{202e}", "x".repeat(200));
    let pay = worker.reserve(&lease, "pay", "acct-7", json!({ "amount": 500, "memo": long }));
    let id = pay.id.as_str();
    let listed = bed.run(&["commands", "list", "--needs-approval", "--tool", "pay"]).ends(0).out;
    for part in ["? blocked approval_required", "pay -> acct-7", "needs_approval", &pay.command_key[..12]] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    assert!(listed.contains(&format!("tenure approve {id}\n")), "{listed}");
    let needs = bed.run(&["needs"]).ends(0).out;
    for part in [
        "? approval",
        "high",
        "pay to acct-7 waits",
        "Arguments: amount: 500, memo: xxx",
        &format!("\n    tenure approve {id}\n"),
    ] {
        assert!(needs.contains(part), "{part} in {needs}");
    }

    let bare = bed.run(&["approve", id, "--yes"]).ends(2);
    assert!(bare.err.contains("--reason"), "{}", bare.err);
    let unasked = bed.run(&["approve", id, "--reason", "the invoice is right"]).ends(2);
    let harmless = |text: &str| {
        assert!(text.contains(&long[..200]) && text.contains("owned"), "it is shown whole: {text}");
        assert!(!text.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{text:?}");
    };
    harmless(&unasked.err);
    for part in ["acct-7", &pay.seal, &pay.input_hash, "needs_approval by version", "give --yes"] {
        assert!(unasked.err.contains(part), "{part} in {}", unasked.err);
    }
    let agent = machine(bed);
    let refused = agent(&["approve", id, "--reason", "me", "--yes"]).ends(4);
    assert!(refused.err.contains("forbidden"), "{}", refused.err);
    let dry = bed.run(&["approve", id, "--reason", "a look", "--dry-run", "-o", "json"]).json();
    assert_eq!((&dry["state"], &dry["approval"]["seal"]), (&json!("approved"), &json!(pay.seal)));
    assert_eq!(bed.run(&["commands", "show", id, "-o", "json"]).json()["state"], "blocked", "only tried");
    let begin = &id[..id.len() - 4];
    let approved =
        bed.run(&["approve", begin, "--reason", "the invoice is right", "--yes", "-o", "json"]).json();
    assert_eq!((&approved["state"], &approved["approval"]["seal"]), (&json!("approved"), &json!(pay.seal)));
    bed.run(&["reject", id, "--reason", "too late", "--yes"]).ends(4);

    worker.dispatch(&lease, &pay);
    worker.lose_the_reply(&lease, &pay);
    let needs = bed.run(&["needs", "-o", "json"]).json();
    assert_eq!((&needs[0]["kind"], &needs[0]["command"]), (&json!("outcome"), &json!(id)));
    let why = bed.run(&["explain", id]).ends(0).out;
    assert!(why.contains("only a person can find out") && why.contains("commands record"), "{why}");
    let nothing = ["commands", "record", id, "--happened", "--reason", "seen", "--yes"];
    let nothing = bed.run(&nothing).ends(4);
    assert!(nothing.err.contains("evidence_missing"), "{}", nothing.err);
    let seen = ["commands", "record", id, "--happened", "--external-id", "tx-7", "--reason", "seen", "--yes"];
    agent(&seen).ends(4);
    assert_eq!(bed.run(&seen).ends(0).out, format!("{id} succeeded\n"));
    let shown = bed.run(&["commands", "show", begin]).ends(0).out;
    harmless(&shown);
    for part in [
        "+ succeeded",
        "Why:         pay to acct-7 happened",
        "Advice:      nothing: it is done",
        "Approved:",
        "evidence: person",
        "External id: tx-7",
        "no reply came. Nobody knows whether pay to acct-7 happened: only a person can find out",
        "admin records that pay to acct-7 happened: tx-7: seen",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let work = bed.run(&["show", lease.work.id.as_str()]).ends(0).out;
    assert!(work.contains(&format!("Command:     + succeeded pay -> acct-7: tx-7 ({id})")), "{work}");
    let work = bed.run(&["show", lease.work.id.as_str(), "-o", "json"]).json();
    assert_eq!((&work["state"], &work["commands"][0]["id"]), (&json!("running"), &json!(id)));
    worker.close(bed, &lease);
}

fn recorded_and_queued_in_one_decision(bed: &Bed, worker: &Hands) {
    let lease = worker.hold(bed, "transfer");
    let work = lease.work.id.as_str();
    let pay = worker.reserve(&lease, "pay", "acct-9", json!({ "amount": 7 }));
    let id = pay.id.as_str();
    bed.run(&["approve", id, "--reason", "it is right", "--yes"]).ends(0);
    worker.dispatch(&lease, &pay);
    worker.lose_the_reply(&lease, &pay);
    bed.run(&["quarantine", work, "--reason", "the bank is silent", "--yes"]).ends(0);
    let why = bed.run(&["explain", work, "-o", "json"]).json();
    assert_eq!(why["next"][1], format!("tenure commands record {id} --did-not-happen"), "{why}");
    let record =
        ["commands", "record", id, "--did-not-happen", "--requeue", "--reason", "the bank has no record"];
    let asked = bed.run(&record).ends(2).err;
    assert!(asked.contains("may be replayed. Then w_") && asked.contains("will be queued again"), "{asked}");
    let done = bed.run(&[&record[..], &["--yes"]].concat()).ends(0);
    assert_eq!(done.out, format!("{id} failed\n"));
    assert!(done.err.contains(&format!("{work} is queued.")), "{}", done.err);
    worker.close(bed, &worker.take(&lease.work.id));
}

fn rejected_while_its_work_waits(bed: &Bed, worker: &Hands) {
    let lease = worker.hold(bed, "refund");
    let work = lease.work.id.as_str();
    let pay = worker.reserve(&lease, "pay", "acct-8", json!({ "amount": 9_000 }));
    let id = pay.id.as_str();
    worker.wait_for(&lease, &pay);
    let needs = bed.run(&["needs", "-o", "jsonl"]).ends(0).out;
    assert_eq!(needs.lines().count(), 1, "the command asks, and its work does not ask again: {needs}");
    let need: Value = serde_json::from_str(&needs).unwrap();
    assert_eq!((&need["assignee"], &need["on_timeout"]), (&json!("ana"), &json!("time_out")));
    assert_eq!((&need["step"], &need["risk"], &need["work"]), (&json!("act"), &json!("high"), &json!(work)));
    let why = bed.run(&["explain", work]).ends(0).out;
    assert!(why.contains(&format!("\n  tenure approve {id}\n  tenure reject {id}\n")), "{why}");
    let listed = bed.run(&["list", "--state", "waiting_approval"]).ends(0).out;
    assert!(listed.contains(&format!("tenure approve {id}\n")), "{listed}");
    let blanket = bed.run(&["approve", work]).ends(4);
    assert!(blanket.err.contains(&format!("run `tenure approve {id}`")), "{}", blanket.err);
    let rejected = bed.run(&["reject", id, "--reason", "paid already", "--yes"]).ends(0).out;
    assert_eq!(rejected, format!("{id} cancelled rejected\n"));
    let lease = worker.take(&lease.work.id);
    assert_eq!(lease.answers[0].answer.as_ref().unwrap()["state"], "cancelled");
    worker.close(bed, &lease);
    assert_eq!(bed.run(&["needs", "-o", "json"]).json(), json!([]));
    let nobody = bed.run(&["needs"]).ends(0).err;
    assert!(nobody.starts_with("Nothing waits for a person. Last answer "), "{nobody}");
    assert!(nobody.contains(" ago), "), "with the person who gave it: {nobody}");
    let elsewhere = bed.run(&["needs", "--tenant", "nobody"]).ends(0).err;
    assert_eq!(elsewhere, "Nothing waits for a person.\n");
}

fn a_lost_reply_is_looked_up(bed: &Bed, worker: &Hands) -> String {
    let lease = worker.hold(bed, "letter");
    let mail = worker.reserve(&lease, "send_email", "bob@example.com", json!({ "text": "hello" }));
    let id = mail.id.as_str();
    worker.dispatch(&lease, &mail);
    worker.lose_the_reply(&lease, &mail);
    let doubtful = bed.run(&["commands", "list", "--state", "uncertain", "--target", "bob@example.com"]);
    assert!(doubtful.out.contains("! uncertain in_doubt"), "{}", doubtful.out);
    assert_eq!(bed.run(&["needs", "-o", "json"]).json(), json!([]), "a lookup may tell");
    let say = |outcome: &[&str]| {
        bed.run(&[&["commands", "reconcile", id], outcome, &["--reason", "looked", "--yes"]].concat())
    };
    assert_eq!(say(&["unknown"]).ends(0).out, format!("{id} uncertain in_doubt\n"));
    assert!(say(&["found"]).ends(4).err.contains("evidence_missing"));
    say(&["absent", "--external-id", "m-1"]).ends(4);
    assert_eq!(say(&["found", "--external-id", "m-1"]).ends(0).out, format!("{id} succeeded\n"));
    let shown = bed.run(&["commands", "show", id, "-o", "json"]).json();
    assert_eq!(shown["receipt"]["evidence"]["kind"], "lookup");
    worker.close(bed, &lease);
    lease.work.id.to_string()
}

fn done_again_or_called_off(bed: &Bed, worker: &Hands) {
    let lease = worker.hold(bed, "notice");
    let post = worker.reserve(&lease, "post", "board-1", json!({}));
    let id = post.id.as_str();
    worker.dispatch(&lease, &post);
    worker.fail(&lease, &post);
    let replay = |more| ["commands", "replay", id, "--reason", "there is a board now", more];
    let dry = bed.run(&replay("--dry-run")).ends(0);
    assert_eq!(dry.out, format!("{id} pending\n"));
    assert!(dry.err.contains("nothing was written") && dry.err.contains("no such board"), "{}", dry.err);
    assert_eq!(bed.run(&["commands", "show", id, "-o", "json"]).json()["state"], "failed");
    bed.run(&replay("--output=json")).ends(2);
    let refused = machine(bed)(&replay("--yes")).ends(4);
    assert!(refused.err.contains("forbidden"), "{}", refused.err);
    assert_eq!(bed.run(&replay("--yes")).ends(0).out, format!("{id} pending\n"));
    let cancel = ["commands", "cancel", id, "--reason", "not any more", "--yes"];
    assert_eq!(bed.run(&cancel).ends(0).out, format!("{id} cancelled requested\n"));
    bed.run(&replay("--yes")).ends(4);
    worker.close(bed, &lease);
}

fn shown_before_a_rerun(bed: &Bed, worker: &Hands, mailed: &str) {
    let plan = bed.run(&["commands", "plan", mailed]).ends(0).out;
    assert!(plan.contains("+ reuse_receipt") && plan.contains("m-1"), "{plan}");
    let plan = bed.run(&["commands", "plan", mailed, "-o", "json"]).json();
    let command = &plan[0]["command"];
    let key = command["command_key"].as_str().unwrap();
    for named in [key, &key[..8], command["id"].as_str().unwrap()] {
        let again = bed.run(&["commands", "plan", mailed, "--execute", named, "-o", "json"]).json();
        assert_eq!(again[0]["planned"], "execute", "{named}");
    }
    bed.run(&["commands", "plan", mailed, "--execute", "zzz"]).ends(3);
    let rerun = |more: &[&str]| bed.run(&[&["rerun", mailed, "--reason", "once more"], more].concat());
    assert!(rerun(&["--dry-run"]).ends(0).err.contains("reuse_receipt"));
    let several = bed.run(&["rerun", mailed, mailed, "--execute", key, "--reason", "x", "--yes"]).ends(2);
    assert!(several.err.contains("one work"), "{}", several.err);
    let new = rerun(&["--yes", "-o", "json"]);
    assert!(new.err.contains("reuse_receipt"), "it is shown first: {}", new.err);
    let new = WorkId::from(new.json()["id"].as_str().unwrap());
    let lease = worker.take(&new);
    let mail = worker.reserve(&lease, "send_email", "bob@example.com", json!({ "text": "hello" }));
    assert_eq!(mail.state, CommandState::Succeeded, "it is not sent again");
    worker.close(bed, &lease);
    let again =
        bed.run(&["rerun", new.as_str(), "--execute", &key[..8], "--reason", "lost", "--yes", "-o", "json"]);
    assert!(again.err.contains("execute"), "{}", again.err);
    let lease = worker.take(&WorkId::from(again.json()["id"].as_str().unwrap()));
    let mail = worker.reserve(&lease, "send_email", "bob@example.com", json!({ "text": "hello" }));
    assert_eq!(mail.state, CommandState::Pending, "it was replayed on request");
    bed.run(&["commands", "cancel", mail.id.as_str(), "--reason", "enough", "--yes"]).ends(0);
    worker.close(bed, &lease);
}
