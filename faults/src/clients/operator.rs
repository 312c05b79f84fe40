//! People: two of them answer each wait at once, some work items are cancelled, commands in doubt are
//! recorded as happened.

use serde_json::json;
use tenure_api::wire::{
    Cancel, CommandQuery, CommandState, RecordCommand, RecordOutcome, ResolveWait, State, WaitId, WaitQuery,
    WaitState, WorkQuery,
};

use super::{Hand, provider::external_id};
use crate::history::Call;

const PAGE: Option<u32> = Some(20);

pub async fn run(mut hand: Hand) {
    while !hand.is_stopped() {
        hand.pause().await;
        let client = hand.client.clone();
        let open = WaitQuery { state: Some(WaitState::Open), limit: PAGE, ..WaitQuery::default() };
        if let Ok(page) = client.waits(&open).await {
            for wait in page.items {
                answer(&hand, &wait.id).await;
            }
        }
        let state = vec![CommandState::Uncertain];
        if let Ok(page) =
            client.commands(&CommandQuery { state, limit: PAGE, ..CommandQuery::default() }).await
        {
            for command in page.items.iter().filter(|command| hand.shop.knows(&command.idempotency_key)) {
                let external_id = external_id(&command.idempotency_key);
                let call = Call::Happened { command: command.id.clone(), external_id: external_id.clone() };
                let record = RecordCommand {
                    reason: "the provider has it".into(),
                    outcome: RecordOutcome::Happened,
                    external_id: Some(external_id),
                    reference: None,
                    response: None,
                };
                let _recorded =
                    hand.history.call("operator", call, client.record(&command.id, &record)).await;
            }
        }
        if hand.dice.one_in(4) {
            look_and_cancel(&mut hand).await;
        }
    }
}

/// Two people at once: one of them wins, and the other gets the winner's answer.
async fn answer(hand: &Hand, wait: &WaitId) {
    let say = async |who: &'static str| {
        let payload = json!({ "says": who });
        let call = Call::Answer { wait: wait.clone(), payload: payload.clone() };
        let resolve = ResolveWait { token: None, seal: None, payload, claim: None };
        let _answered = hand.history.call(who, call, hand.client.resolve_wait(wait, &resolve)).await;
    };
    tokio::join!(say("person-1"), say("person-2"));
}

async fn look_and_cancel(hand: &mut Hand) {
    let client = hand.client.clone();
    let state = vec![State::Succeeded, State::Queued, State::WaitingUser];
    let Ok(page) = client.works(&WorkQuery { state, limit: PAGE, ..WorkQuery::default() }).await else {
        return;
    };
    let Some(work) = page.items.get(hand.dice.below(20) as usize) else { return };
    let call = Call::Look { work: work.id.clone() };
    let _seen = hand.history.call(&hand.name, call, client.work(&work.id)).await;
    if work.state == State::Queued && hand.dice.one_in(4) {
        let cancel = Cancel { reason: "no longer needed".into(), if_seq: None, deadline_ms: None };
        let call = Call::Cancel { work: work.id.clone() };
        let _cancelled = hand.history.call(&hand.name, call, client.cancel(&work.id, &cancel)).await;
    }
}
