//! The commands that the relay sends, in which order, how often, and its reports.

use std::sync::Arc;

use serde_json::json;
use tenure_core::{Actor, CommandState, command::BlockCode, model::ErrorClass};
use tenure_testkit::{Provider, Reply};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{bed::Bed, names::Names};

/// A low-risk tool that calls this provider.
fn hook(provider: &Provider, more: &str) -> String {
    format!(
        "[tools.hook]\nexecutor = \"http\"\nrisk = \"low\"\nretry = {{ jitter = \"none\", initial = \"1s\" }}\n{more}\n\
         [tools.hook.http]\nurl = \"{}\"\nnetworks = [\"127.0.0.0/8\"]\ntimeout = \"5s\"\nexternal_id = \"/id\"\n",
        provider.url("/hook")
    )
}

const DONE: &str = r#"{"id":"m-1"}"#;

#[tokio::test]
async fn due_commands_are_dispatched_then_called_and_the_response_is_the_receipt() {
    let provider = Provider::always(Reply::json(200, DONE));
    let mut bed = Bed::new(&hook(&provider, "")).await;
    let ids = bed.outbox("one", "hook", &["a", "b", "c"]).await;
    assert_eq!(bed.relay.run_once().await.unwrap(), 3);
    for id in &ids {
        let command = bed.command(*id).await;
        assert_eq!(command.state, CommandState::Succeeded);
        assert_eq!(command.body.receipt.as_ref().unwrap().external_id.as_deref(), Some("m-1"));
        assert_eq!(bed.story(*id).await, ["command_reserved", "command_dispatched", "command_succeeded"]);
    }
    let calls = provider.calls();
    let keys: Vec<&str> = calls.iter().filter_map(|call| call.header("webhook-id")).collect();
    for id in &ids {
        let key = bed.command(*id).await.idempotency_key();
        assert_eq!(keys.iter().filter(|seen| **seen == key).count(), 1);
    }
    assert_eq!(bed.relay.run_once().await.unwrap(), 0, "nothing is left");
    assert_eq!(provider.calls().len(), 3);
}

#[tokio::test]
async fn each_response_is_recorded_as_the_outcome_it_proves() {
    let provider = Provider::start(|call| {
        let text = String::from_utf8_lossy(&call.body);
        let target = |name: &str| text.contains(&format!("\"target\":\"{name}\""));
        if target("refused") {
            Reply::status(422)
        } else if target("busy") {
            Reply::status(429).with("retry-after", "30")
        } else if target("lost") {
            Reply::Drop
        } else {
            Reply::status(500)
        }
    });
    let mut bed = Bed::new(&hook(&provider, "idempotency = \"native\"")).await;
    let ids = bed.outbox("one", "hook", &["refused", "busy", "lost", "broken"]).await;
    bed.relay.run_once().await.unwrap();
    let refused = bed.command(ids[0]).await;
    assert_eq!(refused.state, CommandState::Failed);
    assert_eq!(refused.body.error.as_ref().unwrap().class, ErrorClass::Validation);
    let busy = bed.command(ids[1]).await;
    assert_eq!(busy.state, CommandState::Pending, "rate limited: nothing happened");
    assert!(busy.body.next_at.unwrap() >= crate::bed::START + 30_000, "when the provider says");
    for id in &ids[2..] {
        let doubtful = bed.command(*id).await;
        assert_eq!(doubtful.state, CommandState::Uncertain);
        assert!(doubtful.body.next_at.is_some(), "sent again with the same key");
    }
    bed.relay.run_once().await.unwrap();
    assert_eq!(provider.calls().len(), 4, "not before its time");
    bed.pass(2_000).await;
    bed.relay.run_once().await.unwrap();
    assert_eq!(provider.calls().len(), 6, "the two in doubt");
    assert_eq!(bed.command(ids[2]).await.body.dispatches, 2);
}

#[tokio::test]
async fn a_call_that_was_not_made_is_tried_again_by_the_one_backoff() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toml = format!(
        "[tools.hook]\nexecutor = \"http\"\nrisk = \"low\"\nretry = {{ jitter = \"none\", initial = \"1s\", max_attempts = 2 }}\n\
         [tools.hook.http]\nurl = \"http://{closed}/\"\nnetworks = [\"127.0.0.0/8\"]\n"
    );
    let mut bed = Bed::new(&toml).await;
    let id = bed.outbox("one", "hook", &["a"]).await[0];
    bed.relay.run_once().await.unwrap();
    let command = bed.command(id).await;
    assert_eq!(
        (command.state, command.body.next_at),
        (CommandState::Pending, Some(crate::bed::START + 1_000))
    );
    bed.pass(1_000).await;
    bed.relay.run_once().await.unwrap();
    assert_eq!(bed.state(id).await, CommandState::Failed, "twice is enough");
}

#[tokio::test]
async fn ordered_commands_to_one_target_go_one_after_another() {
    let provider = Provider::always(Reply::json(200, DONE));
    let mut bed = Bed::new(&hook(&provider, "ordered = true")).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.extend(bed.outbox(&format!("w{n}"), "hook", &["a", "b"]).await);
    }
    assert_eq!(bed.relay.run_once().await.unwrap(), 10);
    let calls = provider.calls();
    for target in ["a", "b"] {
        let of = |call: &&tenure_testkit::Call| {
            let told: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
            told["data"]["target"] == json!(target)
        };
        let order: Vec<String> =
            calls.iter().filter(of).map(|call| call.header("webhook-id").unwrap().to_owned()).collect();
        let mut wanted = Vec::new();
        for id in &ids {
            let command = bed.command(*id).await;
            if command.spec.target == target {
                wanted.push(command.idempotency_key());
            }
        }
        assert_eq!(order, wanted, "{target}");
    }
}

#[tokio::test]
async fn a_first_that_fails_holds_its_line_up_and_no_other() {
    let provider = Provider::start(|call| {
        let bad = String::from_utf8_lossy(&call.body).contains("\"target\":\"a\"");
        if bad { Reply::status(429) } else { Reply::json(200, DONE) }
    });
    let mut bed = Bed::new(&hook(&provider, "ordered = true")).await;
    let first = bed.outbox("one", "hook", &["a", "b"]).await;
    let second = bed.outbox("two", "hook", &["a", "b"]).await;
    bed.relay.run_once().await.unwrap();
    assert_eq!(bed.state(first[0]).await, CommandState::Pending);
    assert_eq!(bed.command(second[0]).await.body.dispatches, 0, "it comes after the one that waits");
    assert_eq!(
        (bed.state(first[1]).await, bed.state(second[1]).await),
        (CommandState::Succeeded, CommandState::Succeeded)
    );
}

#[tokio::test]
async fn rate_limited_commands_wait_without_a_dispatch() {
    let provider = Provider::always(Reply::json(200, DONE));
    let toml = hook(&provider, "rate_limit = { per_s = 1, burst = 2 }")
        + &hook(&provider, "").replace("[tools.hook", "[tools.other");
    let mut bed = Bed::new(&toml).await;
    let slow = bed.outbox("one", "hook", &["a", "b", "c", "d"]).await;
    let quick = bed.outbox("two", "other", &["a", "b", "c"]).await;
    assert_eq!(bed.relay.run_once().await.unwrap(), 5);
    for id in quick {
        assert_eq!(bed.state(id).await, CommandState::Succeeded, "no other tool waits for it");
    }
    let mut waiting = 0;
    for id in slow {
        let command = bed.command(id).await;
        waiting += usize::from(command.state == CommandState::Pending && command.body.dispatches == 0);
    }
    assert_eq!(waiting, 2);
}

#[tokio::test]
async fn policy_as_of_now_stops_it_and_lets_it_go_again() {
    let provider = Provider::always(Reply::json(200, DONE));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deny.cedar");
    std::fs::write(&file, "forbid (principal, action == Action::\"hook\", resource);").unwrap();
    let allowed = hook(&provider, "");
    let denied = format!("policy = {{ files = [\"{}\"] }}\n{allowed}", file.display());
    let mut bed = Bed::new(&denied).await;
    let id = bed.outbox("one", "hook", &["a"]).await[0];
    bed.relay.run_once().await.unwrap();
    let command = bed.command(id).await;
    assert_eq!((command.state, command.body.blocked), (CommandState::Blocked, Some(BlockCode::PolicyDenied)));
    assert!(provider.calls().is_empty());
    bed.reload(&allowed);
    bed.pass(60_000).await;
    bed.relay.run_once().await.unwrap();
    assert_eq!(bed.state(id).await, CommandState::Succeeded);
}

#[tokio::test]
async fn a_budget_stops_it_until_there_is_room() {
    let provider = Provider::always(Reply::json(200, DONE));
    let budget = "[[budgets]]\nper = \"tool\"\nunit = \"calls\"\nperiod = \"day\"\nmax = 1\n";
    let mut bed = Bed::new(&format!("{budget}{}", hook(&provider, ""))).await;
    let ids = bed.outbox("one", "hook", &["a", "b"]).await;
    bed.relay.run_once().await.unwrap();
    let mut states = [bed.state(ids[0]).await, bed.state(ids[1]).await];
    states.sort();
    assert_eq!(states, [CommandState::Blocked, CommandState::Succeeded]);
    bed.pass(24 * 3_600_000).await;
    bed.relay.run_once().await.unwrap();
    assert_eq!(bed.state(ids[0]).await, CommandState::Succeeded, "another day");
    assert_eq!(bed.state(ids[1]).await, CommandState::Succeeded);
}

#[tokio::test]
async fn a_target_that_is_gone_is_called_again_only_by_a_replay() {
    let provider = Provider::start({
        let gone = std::sync::atomic::AtomicBool::new(true);
        move |_| {
            if gone.swap(false, std::sync::atomic::Ordering::SeqCst) {
                Reply::status(410)
            } else {
                Reply::json(200, DONE)
            }
        }
    });
    let mut bed = Bed::new(&hook(&provider, "")).await;
    let first = bed.outbox("one", "hook", &["a"]).await[0];
    bed.relay.run_once().await.unwrap();
    assert_eq!(bed.state(first).await, CommandState::Failed);
    let second = bed.outbox("two", "hook", &["a"]).await[0];
    bed.relay.run_once().await.unwrap();
    let refused = bed.command(second).await;
    assert_eq!((refused.state, provider.calls().len()), (CommandState::Failed, 1));
    assert!(refused.body.message.as_ref().unwrap().contains("replay"), "{:?}", refused.body.message);
    let person = bed.ledger.caller(Actor::person("ada"));
    let evaluation = bed.new_command("hook", "a", &json!({})).evaluation;
    person.replay(first, evaluation, Default::default(), "it is back").await.unwrap();
    bed.relay.run_once().await.unwrap();
    assert_eq!(bed.state(first).await, CommandState::Succeeded);
    let third = bed.outbox("three", "hook", &["a"]).await[0];
    bed.relay.run_once().await.unwrap();
    assert_eq!(bed.state(third).await, CommandState::Succeeded, "a success opened it again");
}

#[tokio::test]
async fn a_tool_that_is_no_longer_declared_is_not_called_and_says_so() {
    let provider = Provider::always(Reply::json(200, DONE));
    let mut bed = Bed::new(&hook(&provider, "")).await;
    let id = bed.outbox("one", "hook", &["a"]).await[0];
    bed.reload("");
    bed.relay.run_once().await.unwrap();
    let command = bed.command(id).await;
    assert_eq!(command.body.blocked, Some(BlockCode::ApprovalRequired), "an undeclared tool is high risk");
    let ada = bed.ledger.caller(Actor::person("ada"));
    ada.approve(id, command.seal(), false, "go").await.unwrap();
    bed.relay.run_once().await.unwrap();
    let command = bed.command(id).await;
    assert_eq!(command.state, CommandState::Failed);
    assert!(command.body.message.as_ref().unwrap().contains("declare one"), "{:?}", command.body.message);
    assert!(provider.calls().is_empty());
}

#[tokio::test]
async fn a_dispatch_that_was_answered_too_late_is_not_called_on() {
    let provider = Provider::always(Reply::json(200, DONE));
    let mut bed = Bed::new(&hook(&provider, "")).await;
    let id = bed.outbox("one", "hook", &["a"]).await[0];
    let (seen, outbound) = (bed.live.subscribe(), crate::bed::outbound(Default::default()));
    let mut slow =
        tenure_server::Relay::alone(bed.ledger.clone(), seen, outbound).answered_within(Default::default());
    slow.run_once().await.unwrap();
    let command = bed.command(id).await;
    assert_eq!((command.state, command.body.dispatches), (CommandState::Pending, 1), "proven unsent");
    assert!(command.body.message.as_ref().unwrap().contains("so late"), "{:?}", command.body.message);
    assert!(provider.calls().is_empty());
    bed.pass(10_000).await;
    bed.relay.run_once().await.unwrap();
    assert_eq!((bed.state(id).await, provider.calls().len()), (CommandState::Succeeded, 1));
}

#[tokio::test]
async fn several_relays_send_each_command_once() {
    let provider = Provider::always(Reply::json(200, DONE));
    let toml = hook(&provider, "");
    let mut bed = Bed::new(&toml).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        ids.extend(bed.outbox(&format!("w{n}"), "hook", &["a", "b", "c", "d", "e"]).await);
    }
    let other = || Bed::over(bed.ledger.clone(), bed.clock.clone(), &toml, Arc::default());
    let (mut second, mut third) = (other(), other());
    let ran = tokio::join!(bed.relay.run_once(), second.relay.run_once(), third.relay.run_once());
    assert!(ran.0.is_ok() && ran.1.is_ok() && ran.2.is_ok());
    for id in ids {
        let command = bed.command(id).await;
        assert_eq!((command.state, command.body.dispatches), (CommandState::Succeeded, 1));
    }
    assert_eq!(provider.calls().len(), 100);
}

#[tokio::test]
async fn a_name_that_turns_inward_between_two_commands_reaches_nothing() {
    let provider = Provider::always(Reply::json(200, DONE));
    let toml = "[tools.hook]\nexecutor = \"http\"\nrisk = \"low\"\nretry = { max_attempts = 1 }\n[tools.hook.http]\n";
    let public = "198.51.100.7:80".parse().unwrap();
    // First a public address that cannot be reached here, then this machine's.
    let names = Names::new(&[("rebind.test", &[provider.address(), provider.address(), public])]);
    let mut bed = Bed::with(toml, names).await;
    let target = format!("http://rebind.test:{}/hook", provider.address().port());
    let ids = bed.outbox("one", "hook", &[&target, &target]).await;
    bed.relay.run_once().await.unwrap();
    assert_eq!(provider.connections(), 0);
    for id in ids {
        let command = bed.command(id).await;
        assert_eq!(command.state, CommandState::Failed);
        let message = command.body.message.clone().unwrap();
        assert!(message.contains("127.0.0.1"), "{message}");
    }
}

#[tokio::test]
async fn a_stopping_relay_finishes_its_calls() {
    let provider = Provider::always(Reply::Held(Box::new(Reply::json(200, DONE))));
    let bed = Bed::new(&hook(&provider, "")).await;
    let (stopping, woken) = (CancellationToken::new(), Arc::new(Notify::new()));
    let ids = bed.outbox("one", "hook", &["a"]).await;
    let ledger = bed.ledger.clone();
    let running = tokio::spawn(bed.relay.run(woken, stopping.clone(), std::time::Duration::from_secs(60)));
    let provider = tokio::task::spawn_blocking(move || {
        provider.wait_for(1);
        provider
    })
    .await
    .unwrap();
    stopping.cancel();
    provider.release();
    running.await.unwrap();
    assert_eq!(ledger.command(ids[0]).await.unwrap().state, CommandState::Succeeded);
}

#[tokio::test]
async fn unfinished_calls_stay_dispatched_and_become_uncertain() {
    let provider = Provider::always(Reply::Hang);
    let bed = Bed::new(&hook(&provider, "idempotency = \"native\"")).await;
    let id = bed.outbox("one", "hook", &["a"]).await[0];
    let (stopping, woken) = (CancellationToken::new(), Arc::new(Notify::new()));
    let mut after = Bed::over(bed.ledger.clone(), bed.clock.clone(), &hook(&provider, ""), Arc::default());
    let running = tokio::spawn(bed.relay.run(woken, stopping.clone(), std::time::Duration::ZERO));
    let provider = tokio::task::spawn_blocking(move || {
        provider.wait_for(1);
        provider
    })
    .await
    .unwrap();
    stopping.cancel();
    running.await.unwrap();
    assert_eq!(after.state(id).await, CommandState::Dispatched);
    after.pass(15_001).await;
    assert_eq!(after.state(id).await, CommandState::Uncertain);
    assert_eq!(provider.calls().len(), 1);
}

#[tokio::test]
async fn a_running_relay_is_woken_and_needs_no_second_look() {
    let provider = Provider::always(Reply::json(200, DONE));
    let bed = Bed::new(&hook(&provider, "")).await;
    let (stopping, woken) = (CancellationToken::new(), Arc::new(Notify::new()));
    let ledger = bed.ledger.clone();
    let other = Bed::over(ledger.clone(), bed.clock.clone(), &hook(&provider, ""), Arc::default());
    let running = tokio::spawn(bed.relay.run(woken.clone(), stopping.clone(), std::time::Duration::ZERO));
    let ids = other.outbox("one", "hook", &["a"]).await;
    woken.notify_one();
    let provider = tokio::task::spawn_blocking(move || {
        provider.wait_for(1);
        provider
    })
    .await
    .unwrap();
    while ledger.command(ids[0]).await.unwrap().state != CommandState::Succeeded {
        tokio::task::yield_now().await;
    }
    stopping.cancel();
    running.await.unwrap();
    drop(provider);
}

#[tokio::test]
async fn a_tenant_whose_calls_hang_holds_up_no_others_commands() {
    let provider = Provider::start(|call| {
        let quick = String::from_utf8_lossy(&call.body).contains("\"target\":\"quick\"");
        if quick { Reply::json(200, DONE) } else { Reply::Held(Box::new(Reply::json(200, DONE))) }
    });
    let toml = hook(&provider, "").replace("timeout = \"5s\"", "timeout = \"60s\"");
    let bed = Bed::new(&toml).await;
    let (stopping, woken) = (CancellationToken::new(), Arc::new(Notify::new()));
    let ledger = bed.ledger.clone();
    let other = Bed::over(ledger.clone(), bed.clock.clone(), &toml, Arc::default());
    // Far more than one tenant may have in progress and buffered, of one tool.
    for n in 0..10 {
        other.outbox_of("hostile", &format!("h{n}"), "hook", &["slow"; 100]).await;
    }
    let quick = other.outbox_of("quiet", "q", "hook", &["quick"]).await[0];
    let running = tokio::spawn(bed.relay.run(woken, stopping.clone(), std::time::Duration::ZERO));
    let sent = async {
        while ledger.command(quick).await.unwrap().state != CommandState::Succeeded {
            tokio::task::yield_now().await;
        }
    };
    let sent = tokio::time::timeout(std::time::Duration::from_secs(50), sent).await;
    assert!(sent.is_ok(), "it waits for another tenant's calls");
    stopping.cancel();
    running.await.unwrap();
    provider.release();
}
