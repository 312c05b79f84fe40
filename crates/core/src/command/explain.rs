//! Explains in one sentence why a command is in its state, and what a person can do about it.

use super::{BlockCode, CancelCode, Command, CommandState, Duty, due::next};
use crate::{Millis, explain::Explanation, model::Wait, next::Next, span::span};

/// Explains an ordered command that waits for an earlier one, by what the first one waits for.
pub fn explain_behind(command: &Command, first: &Command, handed: Option<&Wait>, now: Millis) -> Explanation {
    let spec = &command.spec;
    let first_of_it = explain(first, handed, now);
    let sentence = format!(
        "{} to {} waits behind {}, which is {}: {}",
        spec.tool, spec.target, first.id, first.state, first_of_it.sentence
    );
    Explanation { sentence, ..first_of_it }
}

/// Explains a command from its row, and from the open wait that it was handed over to.
pub fn explain(command: &Command, handed: Option<&Wait>, now: Millis) -> Explanation {
    let (body, spec, id) = (&command.body, &command.spec, command.id);
    let what = format!("{} to {}", spec.tool, spec.target);
    let ago = |at: Millis| format!("{} ago", span(now - at));
    let why = body.message.as_deref().unwrap_or("no reason is given");
    let then = if command.is_worker() { "" } else { "; the relay retries every minute" };
    let nothing = |because: &str| (format!("nothing: {because}"), Vec::new());
    let (sentence, (advice, next)) = match command.state {
        CommandState::Pending if command.is_worker() => {
            (format!("{what} is allowed and waits for its worker."), nothing("its worker dispatches it"))
        }
        CommandState::Pending => {
            let when = match body.next_at {
                Some(at) if at > now => format!("in {}", span(at - now)),
                Some(_) | None => "now".to_owned(),
            };
            (format!("{what} is to be sent by the relay {when}."), nothing("the relay sends it"))
        }
        CommandState::Blocked => match body.blocked {
            Some(BlockCode::PolicyDenied) => (
                format!("{what} is denied by policy {}: {why}.", body.decision.policy_version),
                (format!("change the policy{then}; or reject it"), vec![Next::RejectCommand(id)]),
            ),
            Some(BlockCode::Budget) => (
                format!("{what} is stopped by a budget: {why}."),
                (format!("raise the budget, or wait for its period{then}"), Vec::new()),
            ),
            Some(BlockCode::ApprovalRequired) | None => (
                format!("{what} waits {} for an approval: {why}.", span(now - command.updated_at)),
                (
                    "approve exactly this command, or reject it".to_owned(),
                    vec![Next::ApproveCommand(id), Next::RejectCommand(id)],
                ),
            ),
        },
        CommandState::Approved => {
            let by = body.approval.as_ref().map_or("a person", |approval| approval.by.label());
            let until = body.approval.as_ref().map_or(now, |approval| approval.expires_at);
            let sentence = format!("{what} was approved by {by}, for {} more.", span(until - now));
            (sentence, nothing("it is dispatched next"))
        }
        CommandState::Dispatched => {
            let at = body.dispatch.as_ref().map_or(command.updated_at, |dispatch| dispatch.at);
            let by = body.dispatch.as_ref().map_or("its worker", |dispatch| dispatch.by.label());
            let sent = format!("{what} was dispatched {} by {by}", ago(at));
            match handed {
                Some(wait) => answered(&sent, wait, now),
                None => {
                    let end = if command.is_worker() { "a lapse" } else { "the deadline of its call" };
                    let then = format!("its receipt is expected, and {end} makes it uncertain");
                    (format!("{sent}; no receipt yet."), nothing(&then))
                }
            }
        }
        CommandState::Uncertain => uncertain(command, &what, why, now),
        CommandState::Succeeded => {
            let receipt = body.receipt.as_ref();
            let proof =
                receipt.and_then(|receipt| receipt.external_id.as_ref().or(receipt.reference.as_ref()));
            let proof = proof.map_or("the provider's response", String::as_str);
            (format!("{what} happened {}: {proof}.", ago(command.updated_at)), nothing("it is done"))
        }
        CommandState::Failed => (
            format!("{what} did not happen: {why}."),
            ("replay it once the cause is fixed".to_owned(), vec![Next::Replay(id)]),
        ),
        CommandState::Cancelled => {
            let how = match body.cancelled {
                Some(CancelCode::Rejected) => "was rejected",
                Some(CancelCode::Superseded) => "was superseded",
                Some(CancelCode::WorkEnded) => "was not done before its work item ended",
                Some(CancelCode::Requested) | None => "was cancelled",
            };
            (format!("{what} {how}: {why}."), nothing("it never happened and will not"))
        }
    };
    Explanation { sentence, advice, next }
}

/// The answer of its wait is its receipt.
fn answered(sent: &str, wait: &Wait, now: Millis) -> (String, (String, Vec<Next>)) {
    let reference = &wait.reference;
    let then = match wait.deadline_at {
        Some(at) => format!("unanswered, it is uncertain in {}", span(at - now)),
        None => "it waits without a deadline".to_owned(),
    };
    let sentence =
        format!("{sent} and handed over to the wait `{reference}`, whose answer is its receipt; {then}.");
    (sentence, ("answer it once its outcome is known".to_owned(), vec![Next::answer(wait)]))
}

fn uncertain(command: &Command, what: &str, why: &str, now: Millis) -> (String, (String, Vec<Next>)) {
    let since = span(now - command.updated_at);
    let id = command.id;
    let record = vec![Next::Record(id, true), Next::Record(id, false)];
    if command.body.needs_person {
        let sentence = format!(
            "It is unknown whether {what} happened ({why}); since {since} only a person can find out."
        );
        return (sentence, ("find out whether it happened, and record it".to_owned(), record));
    }
    let plan = match next(command) {
        Some((Duty::Lookup, _)) => "a lookup asks the provider",
        Some((Duty::Send, _)) => "the relay sends it again with the same key",
        Some((Duty::Tick, _)) | None => "its worker may send it again with the same key",
    };
    (
        format!("It is unknown whether {what} happened ({why}); {plan}."),
        (format!("nothing: {plan}; if you know what happened, record it"), record),
    )
}
