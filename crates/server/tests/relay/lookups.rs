//! The reconciler's lookups, and the end of a doubt.

use std::sync::Arc;

use serde_json::json;
use tenure_core::{
    Actor, CommandId, CommandState,
    command::{CallError, EvidenceKind},
    model::ErrorClass,
};
use tenure_testkit::{Provider, Reply};
use tokio_util::sync::CancellationToken;

use crate::bed::Bed;

/// A worker's low-risk tool whose lookup is this program.
fn by_program(script: &str) -> String {
    format!(
        "[tools.mail]\nrisk = \"low\"\nretry = {{ jitter = \"none\", initial = \"1s\" }}\n\
         [tools.mail.lookup]\nby = \"exec\"\ninterval = \"1s\"\nmax_unknowns = 3\n\
         exec = {{ command = [\"sh\", \"-c\", {}], timeout = \"2s\" }}\n",
        json!(script)
    )
}

/// A worker's command that was sent and lost its response.
async fn doubtful(bed: &Bed) -> CommandId {
    doubtful_of(bed, "default", "one", "mail").await
}

async fn doubtful_of(bed: &Bed, tenant: &str, id: &str, tool: &str) -> CommandId {
    let worker = bed.ledger.caller(Actor::worker("w"));
    let held = bed.held_by(tenant, id).await;
    let new = bed.new_command(tool, "bob", &json!({ "text": "hi" }));
    let evaluation = new.evaluation.clone();
    let id = worker.reserve(&held.lease, new).await.unwrap().command.id;
    worker.dispatch(&held.lease, id, evaluation, None).await.unwrap();
    let error = CallError { class: ErrorClass::Timeout, message: "no answer".into(), retry_after_ms: None };
    worker.uncertain(&held.lease, id, error).await.unwrap();
    id
}

#[tokio::test]
async fn a_found_effect_is_the_receipt() {
    let mut bed = Bed::new(&by_program(r#"echo '{"outcome":"found","external_id":"m-7"}'"#)).await;
    let id = doubtful(&bed).await;
    assert_eq!(bed.reconciler.run_once().await.unwrap(), 1);
    let command = bed.command(id).await;
    let receipt = command.body.receipt.as_ref().unwrap();
    assert_eq!((receipt.evidence, receipt.external_id.as_deref()), (EvidenceKind::Lookup, Some("m-7")));
    assert_eq!(bed.reconciler.run_once().await.unwrap(), 0);
}

#[tokio::test]
async fn an_absent_command_may_be_sent_again() {
    let mut bed = Bed::new(&by_program(r#"echo '{"outcome":"absent"}'"#)).await;
    let id = doubtful(&bed).await;
    bed.reconciler.run_once().await.unwrap();
    assert_eq!(bed.state(id).await, CommandState::Pending);
}

/// Programs that are missing, hang, fail or print nonsense: each lookup leaves it unknown with the reason,
/// and the last one leaves it to a person.
#[tokio::test]
async fn unknown_lookups_end_with_a_person() {
    let missing = by_program("x").replace("\"sh\", \"-c\", ", "\"/no/such/lookup\", ");
    for (toml, reason) in [
        (by_program("echo garbage"), "not a finding"),
        (by_program("exit 3"), "exited with 3"),
        (by_program("tail -f /dev/null").replace("2s", "100ms"), "timed out"),
        (missing, "/no/such/lookup"),
    ] {
        let mut bed = Bed::new(&toml).await;
        let id = doubtful(&bed).await;
        for unknowns in 1..=3 {
            assert_eq!(bed.reconciler.run_once().await.unwrap(), 1, "{reason}");
            assert_eq!(bed.reconciler.run_once().await.unwrap(), 0, "not again at once");
            let command = bed.command(id).await;
            assert_eq!(command.body.unknowns, unknowns);
            assert!(command.body.message.as_ref().unwrap().contains(reason), "{:?}", command.body.message);
            bed.pass(60_000).await;
        }
        let command = bed.command(id).await;
        assert!(command.body.needs_person && command.state == CommandState::Uncertain);
        assert_eq!(bed.reconciler.run_once().await.unwrap(), 0, "no more lookups");
    }
}

#[tokio::test]
async fn a_tool_that_lost_its_lookup_ends_with_a_person_too() {
    for (toml, reason) in
        [("", "no longer declared"), ("[tools.mail]\nrisk = \"low\"", "no longer has a lookup")]
    {
        let mut bed = Bed::new(&by_program("exit 1")).await;
        let id = doubtful(&bed).await;
        bed.reload(toml);
        for _ in 0..3 {
            bed.reconciler.run_once().await.unwrap();
            bed.pass(60_000).await;
        }
        let command = bed.command(id).await;
        assert!(command.body.needs_person, "{command:?}");
        assert!(command.body.message.as_ref().unwrap().contains(reason), "{:?}", command.body.message);
    }
}

#[tokio::test]
async fn lookups_of_one_tenant_that_hang_keep_no_other_waiting() {
    let hanging = Provider::always(Reply::Hang);
    let toml = format!(
        "{}[tools.slow]\nrisk = \"low\"\n[tools.slow.lookup]\nby = \"http\"\n\
         http = {{ url = \"{}\", networks = [\"127.0.0.0/8\"], timeout = \"1h\" }}\n",
        by_program(r#"echo '{"outcome":"found","external_id":"m-7"}'"#),
        hanging.url("/find")
    );
    let mut bed = Bed::new(&toml).await;
    for n in 0..40 {
        doubtful_of(&bed, "hostile", &n.to_string(), "slow").await;
    }
    bed.pass(1_000).await;
    let own = doubtful_of(&bed, "quiet", "own", "mail").await;
    let Bed { ledger, reconciler, .. } = bed;
    let stopping = CancellationToken::new();
    let running = tokio::spawn(reconciler.run(Arc::default(), stopping.clone()));
    while ledger.command(own).await.unwrap().state != CommandState::Succeeded {
        tokio::task::yield_now().await;
    }
    stopping.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn lookups_of_workers_are_left_to_them() {
    let mut bed = Bed::new("[tools.mail]\nrisk = \"low\"\nlookup = { by = \"worker\" }").await;
    let id = doubtful(&bed).await;
    assert_eq!(bed.reconciler.run_once().await.unwrap(), 0);
    let command = bed.command(id).await;
    assert_eq!((command.state, command.body.unknowns), (CommandState::Uncertain, 0));
    assert!(
        bed.ledger.caller(Actor::worker("w")).take_lookup(id, 1_000).await.is_ok(),
        "the lookup is still free"
    );
}

#[tokio::test]
async fn two_reconcilers_ask_once() {
    let provider = Provider::always(Reply::json(200, r#"{"outcome":"unknown"}"#));
    let toml = format!(
        "[tools.mail]\nrisk = \"low\"\n[tools.mail.lookup]\nby = \"http\"\n\
         http = {{ url = \"{}\", networks = [\"127.0.0.0/8\"] }}\n",
        provider.url("/find")
    );
    let mut bed = Bed::new(&toml).await;
    doubtful(&bed).await;
    let mut other = Bed::over(bed.ledger.clone(), bed.clock.clone(), &toml, Default::default());
    let (one, two) = tokio::join!(bed.reconciler.run_once(), other.reconciler.run_once());
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(provider.calls().len(), 1);
}

/// The script of the guide, as printed there.
#[tokio::test]
async fn the_guide_s_script_finds_what_is_there_and_nothing_else() {
    let guide = include_str!("../../../../docs/tools.md");
    let from = guide.split("```sh\n").nth(1).expect("the guide has a script");
    let script = from.split("```").next().unwrap();
    let sent = |found: &'static str| Provider::start(move |_| Reply::json(200, found));
    for (answer, state) in [
        (r#"{"id":"m-7"}"#, CommandState::Succeeded),
        ("{}", CommandState::Pending),
        ("<html>", CommandState::Uncertain),
    ] {
        let mail = sent(answer);
        let mut bed = Bed::new(&by_program(&script.replace("https://mail.internal", &mail.url("")))).await;
        let id = doubtful(&bed).await;
        bed.reconciler.run_once().await.unwrap();
        assert_eq!(bed.state(id).await, state, "{answer}: {:?}", bed.command(id).await.body.message);
        let key = bed.command(id).await.idempotency_key();
        assert_eq!(mail.calls()[0].path, format!("/search?key={key}"));
    }
}
