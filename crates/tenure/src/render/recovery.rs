//! Work items at risk.

use tenure_api::wire::Victim;

use super::{
    Style, Table,
    light::Light,
    table::{Cell, Endings},
    text::{age, span},
};

/// The first to be decided comes first; below each row, the sentence and the effects that may have happened.
pub fn victims(victims: &[Victim], style: &Style) -> Table {
    let mut table = Table::new(
        &["STATE", "WORK", "TITLE", "OWNER", "MISSED", "DECIDED", "LAST RECEIPT"],
        "Nothing is at risk: every lease is renewed in time. `tenure victims --all` shows what each holder's loss would do.",
    );
    let ids = Endings::of(victims.iter().map(|victim| victim.work.as_str()), style);
    for victim in victims {
        let lease = victim.lease.as_ref();
        let decided = match victim.if_silent.decided_at {
            Some(at) if at.0 <= style.now.0 => "now".to_owned(),
            Some(at) => format!("in {}", span(at.0 - style.now.0)),
            None => "by news only".to_owned(),
        };
        let receipt = victim.last_receipt.as_ref();
        table.row(vec![
            Cell::lit(Light::of_held(&victim.state, lease), victim.state.as_str()),
            Cell::whole(ids.short(victim.work.as_str())),
            (&victim.title).into(),
            lease.map_or("-", |lease| &lease.worker).into(),
            lease.map_or("-".to_owned(), |lease| lease.missed.to_string()).into(),
            decided.into(),
            receipt
                .map_or("-".to_owned(), |done| format!("{} {} ago", done.tool, age(done.at, style.now)))
                .into(),
        ]);
        table.under(&victim.if_silent.sentence);
        for effect in &victim.possibly_done {
            table.under(&format!(
                "May have happened: {} to {} ({}, {})",
                effect.tool,
                effect.target,
                effect.state.as_str(),
                effect.command.as_str()
            ));
        }
    }
    table
}
