//! Forecasts and work items at risk.

use tenure_api::wire as w;
use tenure_core::{Command, Millis, Work, work::forecast::Forecast};
use tenure_store::AtRisk;

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
        source: w::Source {
            system: spec.source.system.clone(),
            id: spec.source.id.clone(),
            run_id: spec.source.run_id.clone(),
        },
        kind: spec.kind.clone(),
        tenant: spec.tenant.clone(),
        session: spec.session.clone(),
        state: work.state.to_wire().into(),
        disposition: spec.disposition.to_wire().into(),
        step: work.body.step.clone(),
        lease: lease(work, now),
        last_receipt: last.and_then(last_receipt),
        possibly_done: risk
            .commands
            .iter()
            .filter(|command| command.is_worker() && command.state.is_unsettled())
            .map(possible_effect)
            .collect(),
        if_silent: forecast(&risk.forecast),
    }
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
