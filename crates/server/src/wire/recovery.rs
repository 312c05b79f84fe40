//! Forecasts, work items at risk, and recovery plans.

use tenure_api::wire as w;
use tenure_core::{Command, Millis, Work, work::forecast::Forecast};
use tenure_store::{AtRisk, PlannedRecovery};

use super::{ToWire, at, work::lease};

pub(crate) fn forecast(forecast: &Forecast) -> w::Forecast {
    let doubted = forecast.in_doubt.iter().map(|doubted| w::DoubtedCommand {
        id: doubted.command.to_string().into(),
        tool: doubted.tool.clone(),
        target: doubted.target.clone(),
    });
    w::Forecast {
        decided_at: forecast.at.map(at),
        verdict: forecast.verdict.map(|verdict| verdict.to_wire().into()),
        state: forecast.to.to_wire().into(),
        from_step: forecast.from_step.clone(),
        in_doubt: doubted.collect(),
        sentence: forecast.sentence.clone(),
    }
}

pub(crate) fn victim(work: &Work, risk: &AtRisk, last: Option<&Command>, now: Millis) -> w::Victim {
    let spec = &work.spec;
    w::Victim {
        work: work.id.to_string().into(),
        seq: work.seq,
        title: spec.label().to_owned(),
        source: source(work),
        kind: spec.kind.clone(),
        tenant: spec.tenant.clone(),
        session: spec.session.clone(),
        state: work.state.to_wire().into(),
        disposition: spec.disposition.to_wire().into(),
        step: work.body.step.clone(),
        lease: lease(work, now),
        last_receipt: last.and_then(last_receipt),
        possibly_done: possibly_done(&risk.commands),
        if_silent: forecast(&risk.forecast),
    }
}

pub(crate) fn recovery_row(planned: &PlannedRecovery, last: Option<&Command>, now: Millis) -> w::RecoveryRow {
    let PlannedRecovery { work, row, commands, .. } = planned;
    let spec = &work.spec;
    w::RecoveryRow {
        work: work.id.to_string().into(),
        seq: row.seq,
        title: spec.label().to_owned(),
        source: source(work),
        kind: spec.kind.clone(),
        tenant: spec.tenant.clone(),
        session: spec.session.clone(),
        state: work.state.to_wire().into(),
        disposition: spec.disposition.to_wire().into(),
        step: work.body.step.clone(),
        verdict: row.verdict.map(|verdict| verdict.to_wire().into()),
        to: row.to.to_wire().into(),
        from_step: row.from_step.clone(),
        rule: row.rule.to_owned(),
        safe: row.waits_for.is_none(),
        waits_for: row.waits_for.clone(),
        lease: lease(work, now),
        liveness: row.grade.map(|grade| grade.to_wire().into()),
        proof_of_death: row.proof.clone(),
        last_receipt: last.and_then(last_receipt),
        possibly_done: possibly_done(commands),
        report: work.body.reason.as_ref().and_then(|reason| reason.message.clone()),
    }
}

fn source(work: &Work) -> w::Source {
    let source = &work.spec.source;
    w::Source { system: source.system.clone(), id: source.id.clone(), run_id: source.run_id.clone() }
}

/// The worker's effects of which nobody knows whether they happened.
fn possibly_done(commands: &[Command]) -> Vec<w::PossibleEffect> {
    let unsettled = |command: &&Command| command.is_worker() && command.state.is_unsettled();
    commands.iter().filter(unsettled).map(possible_effect).collect()
}

fn last_receipt(command: &Command) -> Option<w::LastReceipt> {
    let receipt = command.body.receipt.as_ref()?;
    Some(w::LastReceipt {
        command: command.id.to_string().into(),
        tool: command.spec.tool.clone(),
        target: command.spec.target.clone(),
        at: at(receipt.at),
        external_id: receipt.external_id.clone(),
    })
}

fn possible_effect(command: &Command) -> w::PossibleEffect {
    w::PossibleEffect {
        command: command.id.to_string().into(),
        tool: command.spec.tool.clone(),
        target: command.spec.target.clone(),
        state: command.state.to_wire().into(),
        dispatched_at: command.body.dispatch.as_ref().map(|dispatch| at(dispatch.at)),
    }
}
