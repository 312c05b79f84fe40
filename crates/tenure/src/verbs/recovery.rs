//! What a lost holder puts at risk, what recovery would do about it now, and doing exactly that.

use tenure_api::wire::{
    ApplyRecovery, OverrideVerdict, PlanRecovery, RecoveryOverride, RecoveryPlan, RecoveryReport, StuckQuery,
    Victim, VictimQuery, WorkId,
};

use super::{Context, draw, find, operate::confirm, say_unreadable};
use crate::{
    args::{RecoverApply, RecoverFilter, RecoverPlan, Stuck, Victims},
    exit::{Exit, Failure},
    render::{self, say},
};

pub async fn victims(cx: &Context, args: &Victims) -> Result<Exit, Failure> {
    let query = VictimQuery {
        worker: args.worker.clone(),
        tenant: args.tenant.clone(),
        kind: args.kind.clone(),
        alive: args.all.then_some(true),
        limit: Some(1_000),
        ..VictimQuery::default()
    };
    draw(cx, args.redraw.watch, || async {
        let victims = all(cx, &query).await?;
        cx.out.list(&victims, render::victims)
    })
    .await
}

/// Page by page. The first to be decided comes first; those that only news decides come last.
async fn all(cx: &Context, query: &VictimQuery) -> Result<Vec<Victim>, Failure> {
    let mut victims = Vec::new();
    let mut query = query.clone();
    loop {
        let page = cx.client.victims(&query).await?;
        say_unreadable(&page.unreadable);
        victims.extend(page.items);
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    victims.sort_by_key(|victim: &Victim| {
        let decided = victim.if_silent.decided_at;
        (decided.is_none(), decided, victim.work.clone())
    });
    Ok(victims)
}

pub async fn plan(cx: &Context, args: &RecoverPlan) -> Result<Exit, Failure> {
    draw(cx, args.redraw.watch, || async {
        let plan = planned(cx, &args.filter).await?;
        let apply = apply_line(&plan, &args.filter);
        cx.out.one(&plan, |plan, style| {
            if args.report {
                render::recovery_report(plan, &apply)
            } else {
                render::recovery_plan(plan, &apply, style)
            }
        })
    })
    .await
}

async fn planned(cx: &Context, filter: &RecoverFilter) -> Result<RecoveryPlan, Failure> {
    let RecoverFilter { worker, tenant, kind } = filter.clone();
    let plan = cx.client.recovery_plan(&PlanRecovery { tenant, kind, worker }).await?;
    say_unreadable(&plan.unreadable);
    Ok(plan)
}

/// The command that carries out the plan; only the reason is to be added.
fn apply_line(plan: &RecoveryPlan, filter: &RecoverFilter) -> String {
    let mut line = format!("tenure recover apply {}", plan.id);
    let options = [("worker", &filter.worker), ("tenant", &filter.tenant), ("kind", &filter.kind)];
    for (name, value) in options.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        line.push_str(&format!(" --{name} '{}'", value.replace('\'', r"'\''")));
    }
    line + " --reason"
}

/// The shortest prefix of a plan's id that is accepted: a mistyped one must not match by chance.
const PLAN_PREFIX: usize = 6;

pub async fn apply(cx: &Context, args: RecoverApply) -> Result<Exit, Failure> {
    let plan = planned(cx, &args.filter).await?;
    let prefix = args.plan.len() >= PLAN_PREFIX && plan.id.starts_with(&args.plan);
    if !prefix {
        say(&format!(
            "The plan is {} now, not {}: the ledger has changed, or the filter is another one. Nothing was done.",
            plan.id, args.plan
        ));
        let style = cx.out.style();
        render::show(&render::recovery_plan(&plan, &apply_line(&plan, &args.filter), &style));
        return Ok(Exit::StateChanged);
    }
    let request = request(cx, args.clone(), &plan).await?;
    let chosen = |id: &WorkId| request.rows.is_empty() || request.rows.contains(id);
    let other = |id: &WorkId| request.overrides.iter().find(|other| other.work == *id);
    let mut consequences = Vec::new();
    for row in &plan.rows {
        let then = match other(&row.work) {
            Some(other) => format!("instead {}", other.verdict),
            None if chosen(&row.work) && row.safe => format!("becomes {}", row.to.as_str()),
            None => continue,
        };
        consequences.push(format!("{} {then}", row.work.as_str()));
    }
    if consequences.is_empty() {
        say(
            "Nothing in this plan can be carried out now. `tenure recover plan` says what each row waits for.",
        );
        return Ok(if request.rows.is_empty() { Exit::Ok } else { Exit::Refused });
    }
    confirm(&args.act, &format!("{}.", consequences.join(", ")))?;
    let report = cx.client.apply_recovery(&request).await?;
    cx.out.one(&report, |report, _| told(report))?;
    Ok(outcome(&report, &request))
}

async fn request(cx: &Context, args: RecoverApply, plan: &RecoveryPlan) -> Result<ApplyRecovery, Failure> {
    let mut rows = Vec::new();
    for id in &args.rows {
        rows.push(find(cx, id).await?.id);
    }
    let mut overrides = Vec::new();
    let lists = [
        (args.quarantine, OverrideVerdict::Quarantine),
        (args.abandon, OverrideVerdict::Abandon),
        (args.leave, OverrideVerdict::Leave),
    ];
    for (ids, verdict) in lists {
        for id in ids {
            let work = find(cx, &id).await?.id;
            overrides.push(RecoveryOverride { work, verdict, reason: args.act.reason.clone() });
        }
    }
    let RecoverFilter { worker, tenant, kind } = args.filter;
    let reason = args.act.reason;
    Ok(ApplyRecovery { plan: plan.id.clone(), tenant, kind, worker, rows, overrides, reason })
}

fn told(report: &RecoveryReport) -> String {
    let mut text = String::new();
    for row in &report.applied {
        text.push_str(&format!("applied  {} {}\n", row.work.as_str(), row.state.as_str()));
    }
    for row in &report.left {
        text.push_str(&format!("left     {}: {}\n", row.work.as_str(), render::safe(&row.because)));
    }
    for row in &report.refused {
        text.push_str(&format!("refused  {}: {}\n", row.work.as_str(), render::safe(&row.because)));
    }
    text
}

/// A row that was named and left is a failure; one that was not named is not.
fn outcome(report: &RecoveryReport, request: &ApplyRecovery) -> Exit {
    let named = report.left.iter().any(|row| request.rows.contains(&row.work));
    match (report.applied.is_empty(), report.refused.is_empty() && !named) {
        (_, true) => Exit::Ok,
        (false, false) => Exit::Partial,
        (true, false) => Exit::Refused,
    }
}

pub async fn stuck(cx: &Context, args: &Stuck) -> Result<Exit, Failure> {
    let limit = Some(u32::try_from(args.limit).unwrap_or(u32::MAX));
    let query = StuckQuery { tenant: args.tenant.clone(), limit };
    draw(cx, args.redraw.watch, || async {
        let found = cx.client.stuck(&query).await?;
        cx.out.one(&found, |found, style| {
            if found.groups.is_empty() {
                say(&render::nothing_stuck(found, style));
                return String::new();
            }
            render::stuck(found, style)
        })
    })
    .await
}
