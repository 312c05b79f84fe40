//! Replay: a person has a failed command executed again, which is recorded. Limited in number, and never
//! without a reason.

use super::{
    CommandState, Effect, Evaluation, ReplayLimits, Risk, ToolFacts,
    budget::{Account, BudgetKey, Shift, Unit},
    current_policy, draft,
    event::Replayed,
    finish, found, person, settle, wrong_state,
};
use crate::{
    decide::{Context, Decision},
    event::Fact,
    ids::CommandId,
    limits,
    refusal::{Code, Refusal},
    work::draft::Said,
};

pub(super) fn decide(
    cx: Context<'_>,
    id: CommandId,
    evaluation: &Evaluation,
    limits: ReplayLimits,
    minute: i64,
    reason: &str,
) -> Result<Decision, Refusal> {
    limits::reason(reason)?;
    person(cx, "replay")?;
    evaluation.check()?;
    current_policy(cx, evaluation)?;
    let (work, command) = found(cx, id)?;
    if command.state != CommandState::Failed {
        return Err(wrong_state(command.state, "replaying"));
    }
    if command.is_worker() && work.state.is_terminal() {
        return Err(Refusal::new(
            Code::Terminal,
            format!(
                "{} has ended, so it has no holder to execute this command. Rerun the work item.",
                work.id
            ),
        ));
    }
    if evaluation.decision.effect == Effect::Deny {
        let why = evaluation.decision.reasons.first().map_or("no reason is given", String::as_str);
        return Err(Refusal::new(Code::PolicyDenied, format!("Policy denies it: {why}. Change the policy.")));
    }
    let counter = counter(&command.spec.tenant, minute);
    let this_minute = cx.records.budgets.get(&counter).copied().unwrap_or_default().spent;
    for (of, done, max) in [
        ("this command", u64::from(command.body.replays), limits.per_command),
        ("its work item", u64::from(work.body.commands.replays), limits.per_work),
        ("this minute", this_minute, limits.per_minute),
    ] {
        if done >= u64::from(max) {
            return Err(Refusal::new(
                Code::LimitReached,
                format!(
                    "{done} replays of {of} are the most that are allowed (at most {max}). Find out why \
                 it fails."
                ),
            ));
        }
    }
    let tool = ToolFacts { executor: command.spec.executor, ..evaluation.tool.clone() };
    let review = tool.risk == Risk::High || evaluation.decision.effect == Effect::NeedsApproval;
    let now = if review { CommandState::Blocked } else { CommandState::Pending };
    let mut draft = draft(cx, work, command);
    settle::shift(&mut draft, &counter, Shift { spent: 1, ..Shift::default() });
    let said = Said { message: Some(reason), ..Said::default() };
    let (tool, decision) = (Box::new(tool), Box::new(evaluation.decision.clone()));
    draft.change_command(id, now, said, |moved| Fact::CommandReplayed(Replayed { moved, tool, decision }));
    finish(cx, draft, id)
}

/// The counter of a tenant's replays in one minute.
pub(super) fn counter(tenant: &str, minute: i64) -> BudgetKey {
    BudgetKey {
        tenant: tenant.to_owned(),
        account: Account::Replays,
        unit: Unit::Calls,
        period: minute.to_string(),
        only: None,
    }
}
