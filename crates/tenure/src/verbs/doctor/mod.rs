//! `doctor`: healthy and unhealthy parts, and the fixes. It only reads, apart from a scratch file that it
//! removes.

mod database;
mod machine;

use std::{borrow::Cow, path::Path};

use serde::Serialize;
use tenure_api::wire::{Code, IntakePause, LeaseLiveness, State, WorkQuery};

use super::Context;
use crate::{
    exit::{Exit, Failure},
    render::{self, Cell, Light, Style, Table, safe},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Worth knowing, but not a fault.
    Info,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    fix: Cow<'static, str>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, detail: detail.into(), fix: "".into() }
    }

    fn bad(
        check: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        fix: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { check, verdict, detail: detail.into(), fix: fix.into() }
    }
}

pub async fn doctor(cx: &Context) -> Result<Exit, Failure> {
    let mut findings = vec![daemon(cx).await];
    if findings[0].verdict != Verdict::Fail {
        findings.extend(ready(cx).await);
        findings.extend(database::look(cx).await);
        findings.extend(works(cx).await);
    }
    findings.push(machine::clock().await);
    if let Some(db) = cx.db.as_deref().filter(|db| !db.contains("://")).map(Path::new) {
        findings.push(machine::fsync(db));
    }
    findings.push(machine::hooks());
    cx.out.list(&findings, table)?;
    let worst = findings.iter().map(|finding| finding.verdict).max();
    Ok(if worst == Some(Verdict::Fail) { Exit::Unsuccessful } else { Exit::Ok })
}

fn table(findings: &[Finding], _: &Style) -> Table {
    let mut table = Table::new(&["VERDICT", "CHECK", "DETAIL"], "Nothing was checked.");
    for finding in findings {
        let (light, word) = match finding.verdict {
            Verdict::Ok => (Light::Done, "ok"),
            Verdict::Info => (Light::Idle, "info"),
            Verdict::Warn => (Light::Risk, "warn"),
            Verdict::Fail => (Light::Fail, "fail"),
        };
        let fix =
            if finding.fix.is_empty() { String::new() } else { format!(" Fix: {}", safe(&finding.fix)) };
        let detail = format!("{}{fix}", safe(&finding.detail));
        table.row(vec![Cell::lit(light, word), finding.check.into(), detail.into()]);
    }
    table
}

async fn daemon(cx: &Context) -> Finding {
    match cx.client.health().await {
        Ok(health) if health.version == env!("CARGO_PKG_VERSION") => {
            Finding::ok("daemon", format!("responds, version {}", health.version))
        }
        Ok(health) => Finding::bad(
            "daemon",
            Verdict::Warn,
            format!("responds, version {}; this is {}", health.version, env!("CARGO_PKG_VERSION")),
            "use the same version for both",
        ),
        Err(error) => Finding::bad(
            "daemon",
            Verdict::Fail,
            error.to_string(),
            "start it with `tenure serve`, or check --url",
        ),
    }
}

async fn ready(cx: &Context) -> Vec<Finding> {
    let readiness = match cx.client.readiness().await {
        Ok(readiness) => readiness,
        Err(error) => {
            return vec![Finding::bad("ready", Verdict::Fail, error.to_string(), "read the daemon's log")];
        }
    };
    let finding = |check: tenure_api::wire::Check| {
        let detail = check.detail.map(|detail| format!(": {detail}")).unwrap_or_default();
        if check.ok {
            Finding::ok("ready", format!("{}{detail}", check.name))
        } else {
            Finding::bad("ready", Verdict::Fail, format!("{}{detail}", check.name), "read the daemon's log")
        }
    };
    readiness.checks.into_iter().map(finding).collect()
}

/// A pause is intended, but easily forgotten.
async fn intake(cx: &Context) -> Finding {
    match cx.client.intake().await {
        Ok(intake) if intake.pauses.is_empty() => Finding::ok("intake", "new work items are accepted"),
        Ok(intake) => {
            let told = |pause: &IntakePause| {
                format!("paused for {} by {}: {}", render::whose(pause), pause.actor.label(), pause.reason)
            };
            let detail = intake.pauses.iter().map(told).collect::<Vec<_>>().join("; ");
            let fix =
                format!("run `{}` once the reason no longer applies", render::resume(&intake.pauses[0]));
            Finding::bad("intake", Verdict::Warn, detail, fix)
        }
        Err(error) => Finding::bad("intake", Verdict::Fail, error.to_string(), "read the daemon's log"),
    }
}

/// Whether the token works, and whether leases are renewed in time.
async fn works(cx: &Context) -> Vec<Finding> {
    let workers = match cx.client.workers().await {
        Ok(workers) => workers.items,
        Err(error) if matches!(error.code(), Some(Code::Unauthorized | Code::Forbidden)) => {
            let fix = cx.token_hint.clone();
            return vec![Finding::bad("token", Verdict::Fail, error.to_string(), fix)];
        }
        // An unavailable ledger was reported above, and says nothing about the token.
        Err(error) => {
            let detail = format!("not checked: {error}");
            return vec![Finding::bad(
                "token",
                Verdict::Info,
                detail,
                "check again once the ledger responds",
            )];
        }
    };
    let mut findings = vec![Finding::ok("token", "has the scope to read"), intake(cx).await];
    let late: Vec<&str> = workers
        .iter()
        .filter(|worker| worker.liveness != LeaseLiveness::Alive)
        .map(|worker| worker.id.as_str())
        .collect();
    findings.push(if late.is_empty() {
        Finding::ok("leases", {
            let held = workers.iter().filter(|worker| worker.leases > 0).count();
            format!("workers with leases: {held}, none expired")
        })
    } else {
        let detail = format!("past their expiry: {}", late.join(", "));
        Finding::bad(
            "leases",
            Verdict::Warn,
            detail,
            "`tenure workers` shows signs of life; `tenure ps` the work items",
        )
    });
    let stalled = WorkQuery { state: vec![State::Stalled], limit: Some(1), ..WorkQuery::default() };
    match cx.client.works(&stalled).await {
        Ok(page) if page.items.is_empty() => findings.push(Finding::ok("stalled", "none")),
        Ok(_) => findings.push(Finding::bad(
            "stalled",
            Verdict::Warn,
            "some",
            "`tenure list --state stalled`, then `tenure explain`",
        )),
        Err(error) => {
            findings.push(Finding::bad("stalled", Verdict::Fail, error.to_string(), "read the daemon's log"))
        }
    }
    findings
}
