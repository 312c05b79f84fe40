//! Work items at risk, and recovery plans.

use tenure_api::wire::{LastReceipt, PossibleEffect, RecoveryPlan, RecoveryRow, Victim};

use super::{
    Style, Table,
    light::Light,
    safe,
    table::{Cell, Endings},
    text::{age, span},
};

const NOTHING: &str = "Nothing is at risk: every lease is renewed in time. `tenure recover victims --all` shows what each holder's loss would do.";
/// Other work items may be at risk.
const NO_MATCH: &str = "Nothing that matches --worker, --tenant and --kind is at risk. `tenure recover victims` shows the others.";

/// The first to be decided comes first; below each row, the sentence and the effects that may have happened.
pub fn victims(victims: &[Victim], is_filtered: bool, style: &Style) -> Table {
    let mut table = Table::new(
        &["STATE", "WORK", "TITLE", "OWNER", "MISSED", "DECIDED", "LAST RECEIPT"],
        if is_filtered { NO_MATCH } else { NOTHING },
    );
    let ids = Endings::of(victims.iter().map(|victim| victim.work.as_str()), style);
    for victim in victims {
        let lease = victim.lease.as_ref();
        let decided = match victim.if_silent.decided_at {
            Some(at) if at.0 <= style.now.0 => "now".to_owned(),
            Some(at) => format!("in {}", span(at.0 - style.now.0)),
            None => "by news only".to_owned(),
        };
        table.row(vec![
            Cell::lit(Light::of_held(&victim.state, lease), victim.state.as_str()),
            Cell::whole(ids.short(victim.work.as_str())),
            (&victim.title).into(),
            lease.map_or("-", |lease| &lease.worker).into(),
            lease.map_or("-".to_owned(), |lease| lease.missed.to_string()).into(),
            decided.into(),
            last_receipt(victim.last_receipt.as_ref(), style).into(),
        ]);
        table.under(&victim.if_silent.sentence);
        victim.possibly_done.iter().for_each(|effect| table.under(&may_have_happened(effect)));
    }
    table
}

fn last_receipt(receipt: Option<&LastReceipt>, style: &Style) -> String {
    receipt.map_or("-".to_owned(), |done| format!("{} {} ago", done.tool, age(done.at, style.now)))
}

fn may_have_happened(effect: &PossibleEffect) -> String {
    let PossibleEffect { tool, target, state, command, .. } = effect;
    format!("May have happened: {tool} to {target} ({}, {})", state.as_str(), command.as_str())
}

/// The verdict, or the state that a request to cancel leads to.
fn verdict(row: &RecoveryRow) -> &str {
    row.verdict.as_ref().map_or(row.to.as_str(), |verdict| verdict.as_str())
}

fn proof(row: &RecoveryRow) -> String {
    match (&row.proof_of_death, &row.liveness) {
        (Some(proof), _) => proof.clone(),
        (None, Some(liveness)) => format!("none: {}", liveness.as_str()),
        (None, None) => "-".to_owned(),
    }
}

/// Below each row, its rule, why it is not done now, and the effects that may have happened.
pub fn recovery_plan(plan: &RecoveryPlan, apply: &str, style: &Style) -> String {
    let mut table = Table::new(
        &["VERDICT", "WORK", "TITLE", "STEP", "LAST RECEIPT", "SAFE", "PROOF OF DEATH"],
        "Recovery would do nothing: no work item lost its holder, and none is set aside because of that.",
    );
    for row in &plan.rows {
        let light = if row.safe { Light::of_held(&row.to, None) } else { Light::of_held(&row.state, None) };
        table.row(vec![
            Cell::lit(light, verdict(row)),
            row.work.as_str().into(),
            (&row.title).into(),
            row.step.as_deref().unwrap_or("-").into(),
            last_receipt(row.last_receipt.as_ref(), style).into(),
            if row.safe { "yes" } else { "no" }.into(),
            proof(row).into(),
        ]);
        table.under(&format!("{} -> {}. {}", row.state.as_str(), row.to.as_str(), row.rule));
        row.waits_for.iter().for_each(|why| table.under(why));
        row.possibly_done.iter().for_each(|effect| table.under(&may_have_happened(effect)));
    }
    let safe_rows = plan.rows.iter().filter(|row| row.safe).count();
    let mut text = table.draw(style);
    if !plan.rows.is_empty() {
        let rows = plan.rows.len();
        let plural = if rows == 1 { "" } else { "s" };
        text.push_str(&format!("\nPlan {}: {rows} row{plural}, {safe_rows} of them safe.\n", plan.id));
    }
    if !plan.complete {
        text.push_str("There are more: narrow the plan with --tenant, --kind or --worker.\n");
    }
    if safe_rows > 0 {
        text.push_str(&format!("To carry it out, with a reason: {apply}\n"));
    }
    text
}

/// The plan as Markdown, for people who were not there.
pub fn recovery_report(plan: &RecoveryPlan, apply: &str) -> String {
    let safe_rows = plan.rows.iter().filter(|row| row.safe).count();
    let mut text = format!(
        "# Recovery plan {}\n\nComputed at {}. {} work items, of which {safe_rows} can be recovered safely now.\n",
        plan.id,
        plan.at,
        plan.rows.len()
    );
    for row in &plan.rows {
        text.push_str(&format!("\n## {}: {}\n\n", safe(verdict(row)), safe(&row.title)));
        let mut line = |name: &str, value: &str| text.push_str(&format!("- {name}: {}\n", safe(value)));
        line("Work item", &format!("{} (kind {}, tenant {})", row.work.as_str(), row.kind, row.tenant));
        line("State", &format!("{}, then {}", row.state.as_str(), row.to.as_str()));
        line("Rule", &row.rule);
        line("Safe to carry out now", if row.safe { "yes" } else { "no" });
        row.waits_for.iter().for_each(|why| line("Waits for", why));
        row.report.iter().for_each(|report| line("Report", report));
        if let Some(lease) = &row.lease {
            line("Holder", &format!("{} (incarnation {})", lease.worker, lease.incarnation));
        }
        line("Proof of death", &proof(row));
        row.step.iter().for_each(|step| line("Step", step));
        row.from_step.iter().for_each(|step| line("Goes on after step", step));
        let receipt = match &row.last_receipt {
            Some(done) => {
                let id = done.external_id.as_deref().unwrap_or("without an external id");
                format!("{} to {} ({id}) at {}", done.tool, done.target, done.at)
            }
            None => "none".to_owned(),
        };
        line("Last receipt", &receipt);
        row.possibly_done.iter().for_each(|effect| line("Effect", &may_have_happened(effect)));
    }
    if safe_rows > 0 {
        text.push_str(&format!("\nTo carry out the safe rows, with a reason: `{apply}`\n"));
    }
    text
}
