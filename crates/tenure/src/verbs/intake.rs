//! `intake`: showing, pausing and resuming it.

use tenure_api::wire::{Intake, SetIntake};

use super::{Context, ask::confirm};
use crate::{
    args::{IntakeAct, IntakeVerb},
    exit::{Exit, Failure},
    render,
};

pub async fn intake(cx: &Context, verb: IntakeVerb) -> Result<Exit, Failure> {
    let standing = match verb {
        IntakeVerb::Show => cx.client.intake().await?,
        IntakeVerb::Pause(args) => set(cx, args, true).await?,
        IntakeVerb::Resume(args) => set(cx, args, false).await?,
    };
    cx.out.one(&standing, render::intake)?;
    Ok(Exit::Ok)
}

async fn set(cx: &Context, args: IntakeAct, paused: bool) -> Result<Intake, Failure> {
    let IntakeAct { tenant, act } = args;
    let whose =
        tenant.as_ref().map_or_else(|| "every tenant".to_owned(), |tenant| format!("tenant {tenant}"));
    let then = match paused {
        true => format!("New work items of {whose} will be refused until resumed; recorded work goes on."),
        false => format!("New work items of {whose} will be accepted again."),
    };
    let reason = confirm(&act, &then)?;
    let request = SetIntake { paused, tenant, reason };
    Ok(cx.client.set_intake(&request).await?)
}
