//! The intake.

use tenure_api::wire as w;
use tenure_core::intake::Pause;
use tenure_store::IntakeChange;

use super::{actor, at};

pub(crate) fn intake_pause(pause: &Pause) -> w::IntakePause {
    w::IntakePause {
        tenant: pause.tenant.clone(),
        at: at(pause.at),
        actor: actor(&pause.by),
        reason: pause.reason.clone(),
        next: pause.resume().to_string(),
    }
}

pub(crate) fn intake_change(change: &IntakeChange) -> w::IntakeChange {
    w::IntakeChange {
        tenant: change.tenant.clone(),
        paused: change.paused,
        at: at(change.at),
        actor: actor(&change.actor),
        reason: change.reason.clone(),
    }
}
