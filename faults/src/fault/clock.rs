//! The daemon's wall clock jumps by hours and days: no holder that renews loses its lease or reaches a
//! deadline.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;
use tenure_api::{
    Client, Error,
    wire::{
        Claim, Disposition, Grant, Ingest, LeaseTimings, Liveness, Renew, RenewLease, Renewal, Source,
        Timeouts, WorkPolicy, Worker,
    },
};

use super::{Plan, Tally, folder};
use crate::{
    checker::{Losses, check, expired},
    collect,
    daemon::{Home, Kind},
    history::{Call, History},
};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// Relative to the true time, in this order.
const OFFSETS: &[i64] = &[2 * HOUR, 0, -2 * HOUR, 0, 30 * DAY, 0, -30 * DAY, 0];
const HOLDERS: usize = 4;
/// After each jump, holders renew for longer than a lease and its grace.
const WATCHED: Duration = Duration::from_secs(5);
const RENEW: Duration = Duration::from_millis(250);
const LEASE: LeaseTimings = LeaseTimings { ttl_ms: 3_000, renew_ms: 1_000, grace_ms: 1_000 };

/// On SQLite, whose clock is the daemon's.
pub async fn run(plan: &Plan) -> Result<Tally, String> {
    let folder = folder()?;
    let mut home = Home::sqlite(folder.path())?;
    let clock = folder.path().join("clock");
    set(&clock, 0)?;
    home.env = faked(folder.path(), &clock)?;
    let history = History::new(folder.path()).map_err(|error| error.to_string())?;
    let mut tally = Tally::new("clock", Kind::Sqlite);
    let _daemon = home.start().await?;
    let client = home.client();
    let mut grants = Vec::new();
    for number in 0..HOLDERS {
        grants.push(hold(&history, &client, number).await?);
    }
    for offset in OFFSETS.iter().cycle().take(plan.rounds as usize) {
        set(&clock, *offset)?;
        tally.faults += 1;
        if let Err(why) = watch(&history, &client, &grants).await {
            tally.problems.push(format!("after a jump of the clock to {offset} s, {why}"));
            break;
        }
    }
    tally.acknowledged = history.acknowledged();
    let run = collect::read(&client, history.records(), Vec::new()).await?;
    let violations = check(&run, Losses::Forbidden).violations.into_iter().chain(expired(&run));
    tally.problems.extend(violations.map(|violation| violation.to_string()));
    tally.close(folder, &run)
}

/// A work item for each holder, with deadlines that no jump may bring nearer.
async fn hold(history: &History, client: &Client, number: usize) -> Result<Grant, String> {
    let name = format!("holder-{number}");
    let source = Source { system: "manual".into(), id: name.clone(), run_id: String::new() };
    let mut new = Ingest::new(source, "plain", Disposition::Rerunnable, json!({}));
    let timeouts = Timeouts { execution_ms: Some(600_000), overall_ms: Some(1_200_000), start_ms: None };
    new.policy = Some(WorkPolicy { lease: Some(LEASE), timeouts: Some(timeouts), ..WorkPolicy::default() });
    let call = Call::Ingest(Box::new(new.clone()));
    let work = history.call(&name, call, client.ingest(&new)).await.map_err(|miss| format!("{miss:?}"))?.work;
    let worker = Worker { id: name.clone(), incarnation: "1".into(), liveness: Liveness::Opaque };
    let claim = Claim { ids: vec![work.id], ..Claim::new(worker, "1") };
    let call = Call::Claim(Box::new(claim.clone()));
    let grants = history.call(&name, call, client.claim(&claim)).await.map_err(|miss| format!("{miss:?}"))?;
    grants.leases.into_iter().next().ok_or_else(|| "nothing was granted".to_owned())
}

async fn watch(history: &History, client: &Client, grants: &[Grant]) -> Result<(), String> {
    let began = Instant::now();
    while began.elapsed() < WATCHED {
        for grant in grants {
            let renewed = renew(history, client, grant).await;
            renewed.map_err(|why| format!("the holder of {} got {why}", grant.work.id))?;
        }
        tokio::time::sleep(RENEW).await;
    }
    Ok(())
}

async fn renew(history: &History, client: &Client, grant: &Grant) -> Result<(), String> {
    let (id, fence, token) = (grant.work.id.clone(), grant.fence, grant.token.clone());
    let call = Call::Renew { work: id.clone(), fence };
    let renew = Renew { leases: vec![RenewLease { id, fence, token, progress: None }] };
    let ask = async {
        match client.renew(&renew).await?.leases.pop() {
            Some(Renewal::Refused { problem, .. }) => Err(Error::Problem(Box::new(problem))),
            Some(renewed) => Ok(renewed),
            None => Err(Error::protocol("no renewal was answered")),
        }
    };
    history.call("holder", call, ask).await.map(drop).map_err(|miss| format!("{miss:?}"))
}

/// Changes the daemon's clock in one step.
fn set(clock: &Path, offset: i64) -> Result<(), String> {
    let next = clock.with_extension("next");
    let written = fs::write(&next, format!("{offset:+}\n"));
    written.and_then(|()| fs::rename(&next, clock)).map_err(|error| error.to_string())
}

/// The wall clock is read from the file; the monotonic clock is unchanged.
fn faked(folder: &Path, clock: &Path) -> Result<Vec<(String, String)>, String> {
    let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
    fs::write(&source, include_str!("clock.c")).map_err(|error| error.to_string())?;
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]).output();
    let built = built.map_err(|error| format!("cc: {error}"))?;
    if !built.status.success() {
        return Err(format!("clock.c: {}", String::from_utf8_lossy(&built.stderr)));
    }
    let all = [("LD_PRELOAD", &*library), ("CLOCK_OFFSET_FILE", clock)];
    Ok(all.map(|(name, value)| (name.to_owned(), value.display().to_string())).to_vec())
}
