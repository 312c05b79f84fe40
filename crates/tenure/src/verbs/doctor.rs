//! What is healthy, what is not, and the fix. It looks, and changes nothing but a scratch file that it removes.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use serde::Serialize;
use tenure_api::wire::{LeaseLiveness, State, WorkQuery};

use super::Context;
use crate::{
    exit::{Exit, Failure},
    render::{Light, Style, Table, safe},
};

const SYNCS: u32 = 32;
/// A disk that syncs more slowly makes every commit slow.
const SLOW: u32 = 50;
/// No disk that keeps its promises syncs faster.
const TOO_FAST: u32 = 50_000;
const WAL_BYTES: u64 = 256 * 1024 * 1024;
const FREE_BYTES: u64 = 1024 * 1024 * 1024;
/// How far two clocks may drift apart while we look.
const DRIFT: Duration = Duration::from_millis(20);
const LOOK: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    fix: &'static str,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, detail: detail.into(), fix: "" }
    }

    fn bad(check: &'static str, verdict: Verdict, detail: impl Into<String>, fix: &'static str) -> Self {
        Self { check, verdict, detail: detail.into(), fix }
    }
}

pub async fn doctor(cx: &Context) -> Result<Exit, Failure> {
    let mut findings = vec![daemon(cx).await];
    if findings[0].verdict != Verdict::Fail {
        findings.extend(ready(cx).await);
        findings.extend(works(cx).await);
    }
    findings.push(clock().await);
    if let Some(db) = cx.db.as_deref().filter(|db| !db.contains("://")) {
        let db = PathBuf::from(db);
        findings.push(wal(&db));
        findings.push(disk(&db));
        findings.push(fsync(&db));
    }
    cx.out.list(&findings, table)?;
    let worst = findings.iter().map(|finding| finding.verdict).max();
    Ok(if worst == Some(Verdict::Fail) { Exit::Unsuccessful } else { Exit::Ok })
}

fn table(findings: &[Finding], _: &Style) -> Table {
    let mut table = Table::new(&["VERDICT", "CHECK", "DETAIL"], "Nothing was checked.");
    for finding in findings {
        let (light, word) = match finding.verdict {
            Verdict::Ok => (Light::Done, "ok"),
            Verdict::Warn => (Light::Risk, "warn"),
            Verdict::Fail => (Light::Fail, "fail"),
        };
        let fix = if finding.fix.is_empty() { String::new() } else { format!(" Fix: {}", finding.fix) };
        let detail = format!("{}{fix}", safe(&finding.detail));
        table.row(vec![crate::render::Cell::lit(light, word), finding.check.into(), detail.into()]);
    }
    table
}

async fn daemon(cx: &Context) -> Finding {
    match cx.client.health().await {
        Ok(health) if health.version == env!("CARGO_PKG_VERSION") => {
            Finding::ok("daemon", format!("answers, version {}", health.version))
        }
        Ok(health) => Finding::bad(
            "daemon",
            Verdict::Warn,
            format!("answers, version {}; this is {}", health.version, env!("CARGO_PKG_VERSION")),
            "run the same version on both sides",
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
            return vec![Finding::bad("ready", Verdict::Fail, error.to_string(), "look at the daemon's log")];
        }
    };
    let finding = |check: tenure_api::wire::Check| {
        let detail = check.detail.map(|detail| format!(": {detail}")).unwrap_or_default();
        if check.ok {
            Finding::ok("ready", format!("{}{detail}", check.name))
        } else {
            Finding::bad(
                "ready",
                Verdict::Fail,
                format!("{}{detail}", check.name),
                "look at the daemon's log",
            )
        }
    };
    readiness.checks.into_iter().map(finding).collect()
}

/// Whether the token works, and whether leases are where they should be.
async fn works(cx: &Context) -> Vec<Finding> {
    let workers = match cx.client.workers().await {
        Ok(workers) => workers.items,
        Err(error) => {
            let fix = "set TENURE_TOKEN, or run where the token file lies";
            return vec![Finding::bad("token", Verdict::Fail, error.to_string(), fix)];
        }
    };
    let mut findings = vec![Finding::ok("token", "may look")];
    let late: Vec<&str> = workers
        .iter()
        .filter(|worker| worker.liveness != LeaseLiveness::Alive)
        .map(|worker| worker.id.as_str())
        .collect();
    findings.push(if late.is_empty() {
        Finding::ok("leases", format!("workers with leases: {}, none expired", workers.len()))
    } else {
        let detail = format!("past their expiry: {}", late.join(", "));
        Finding::bad(
            "leases",
            Verdict::Warn,
            detail,
            "`tenure workers` shows the proof; `tenure ps` the works",
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
        Err(error) => findings.push(Finding::bad(
            "stalled",
            Verdict::Fail,
            error.to_string(),
            "look at the daemon's log",
        )),
    }
    findings
}

/// A wall clock that is being moved makes every deadline a guess.
async fn clock() -> Finding {
    let (wall, steady) = (SystemTime::now(), Instant::now());
    tokio::time::sleep(LOOK).await;
    let (wall, steady) = (wall.elapsed(), steady.elapsed());
    let fix = "let one time service slew the clock, and none step it";
    match wall {
        Ok(wall) if wall.abs_diff(steady) <= DRIFT => Finding::ok("clock", "wall and monotonic clocks agree"),
        Ok(wall) => {
            Finding::bad("clock", Verdict::Warn, format!("they differ by {:?}", wall.abs_diff(steady)), fix)
        }
        Err(_) => Finding::bad("clock", Verdict::Warn, "the wall clock went back", fix),
    }
}

fn wal(db: &Path) -> Finding {
    let mut name = db.as_os_str().to_owned();
    name.push("-wal");
    let bytes = fs::metadata(name).map_or(0, |file| file.len());
    let detail = format!("{} KiB", bytes / 1024);
    if bytes < WAL_BYTES {
        return Finding::ok("wal", detail);
    }
    Finding::bad("wal", Verdict::Warn, detail, "find the reader that keeps an old snapshot open, and end it")
}

fn disk(db: &Path) -> Finding {
    let folder = folder(db);
    match rustix::fs::statvfs(folder) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let detail = format!("{} MiB free at {}", free >> 20, folder.display());
            if free >= FREE_BYTES {
                return Finding::ok("disk", detail);
            }
            Finding::bad("disk", Verdict::Warn, detail, "`tenure prune`, or give it more room")
        }
        Err(error) => {
            Finding::bad("disk", Verdict::Warn, error.to_string(), "check the folder's permissions")
        }
    }
}

fn folder(db: &Path) -> &Path {
    db.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn fsync(db: &Path) -> Finding {
    let scratch = folder(db).join(format!(".tenure-doctor-{}", std::process::id()));
    let measured = measure(&scratch);
    let _ = fs::remove_file(&scratch);
    match measured {
        Ok(rate) => {
            let detail = format!("{rate} syncs a second");
            if rate < SLOW {
                return Finding::bad("fsync", Verdict::Warn, detail, "put the ledger on a faster disk");
            }
            if rate > TOO_FAST {
                let fix =
                    "check that the disk really writes: memory file systems and some virtual disks do not";
                return Finding::bad("fsync", Verdict::Warn, detail, fix);
            }
            Finding::ok("fsync", detail)
        }
        Err(error) => {
            Finding::bad("fsync", Verdict::Fail, error.to_string(), "make the ledger's folder writable")
        }
    }
}

fn measure(scratch: &Path) -> io::Result<u32> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(scratch)?;
    let start = Instant::now();
    for _ in 0..SYNCS {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
    }
    Ok((f64::from(SYNCS) / start.elapsed().as_secs_f64().max(1e-6)) as u32)
}
