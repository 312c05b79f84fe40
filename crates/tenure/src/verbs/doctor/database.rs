//! Checks the daemon's database.

use tenure_api::wire::{
    Code, Commits, Damaged, Database, DatabaseFile, IntakeTable, LedgerClock, Schema, Timestamp, Wal,
};

use super::{Finding, Verdict};
use crate::{render::age, verbs::Context};

/// A checkpoint starts every few MiB: a log this large, part of which has not been checkpointed for this
/// long, keeps growing.
const WAL_BYTES: u64 = 32 * 1024 * 1024;
const BEHIND_MS: i64 = 60_000;
/// A healthy log never becomes this large.
const HUGE_WAL_BYTES: u64 = 256 * 1024 * 1024;
const FREE_BYTES: u64 = 1024 * 1024 * 1024;
/// Slower commits make every call slow.
const SLOW_MS: u64 = 20;

pub async fn look(cx: &Context) -> Vec<Finding> {
    match cx.client.database().await {
        Ok(told) => judge(&told, cx.out.style().now),
        // The token check reports this one.
        Err(error) if error.code() == Some(Code::Unauthorized) => Vec::new(),
        Err(error) if error.code() == Some(Code::Forbidden) => {
            let fix = "use an access token with the scope `operate` that is not bound to tenants";
            vec![Finding::bad("database", Verdict::Info, error.to_string(), fix)]
        }
        Err(error) => {
            vec![Finding::bad("database", Verdict::Fail, error.to_string(), "read the daemon's log")]
        }
    }
}

fn judge(told: &Database, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![if told.engine == "memory" {
        let fix = "use a file or PostgreSQL: `tenure serve --help`";
        Finding::bad("database", Verdict::Warn, "memory: all data is lost when the daemon stops", fix)
    } else {
        Finding::ok("database", format!("{} {}", told.engine, told.version))
    }];
    findings.extend(told.schema.map(schema));
    for setting in &told.settings {
        let detail = format!("{} = {}", setting.name, setting.value);
        findings.push(if setting.safe {
            Finding::ok("setting", detail)
        } else {
            let fix = match told.engine.as_str() {
                "postgres" => {
                    format!("in postgresql.conf set {} = {}, and reload", setting.name, setting.wanted)
                }
                _ => "put the file on a local disk, and start without `allow_weak_settings`".to_owned(),
            };
            Finding::bad("setting", Verdict::Fail, format!("{detail}: confirmed commits can be lost"), fix)
        });
    }
    findings.extend(told.wal.clone().map(|log| wal(log, now)));
    if let Some(file) = &told.file {
        findings.extend([readers(file), disk(file)]);
    }
    findings.extend(told.clock.map(clock));
    findings.extend(told.commits.map(commits));
    findings.extend(told.damaged.iter().map(damaged));
    findings.extend(told.intake.as_ref().and_then(|table| intake(table, now)));
    findings
}

/// A row becomes a work item within a second, unless its tenant is held back.
const INTAKE_LATE_MS: i64 = 60_000;

/// Rows of the intake table that nobody takes.
fn intake(table: &IntakeTable, now: Timestamp) -> Option<Finding> {
    if table.rejected > 0 {
        let reason = table.newest_reason.as_deref().unwrap_or_default();
        let detail =
            format!("{} rows of tenure_intake were rejected, the last one for: {reason}", table.rejected);
        return Some(Finding::bad(
            "intake",
            Verdict::Warn,
            detail,
            "correct and retry them, or delete them, by SQL",
        ));
    }
    let age = table.oldest_at.map_or(0, |at| now.0 - at.0);
    (age > INTAKE_LATE_MS).then(|| {
        let detail = format!("{} rows of tenure_intake wait, the first for {} s", table.waiting, age / 1_000);
        Finding::bad(
            "intake",
            Verdict::Warn,
            detail,
            "look whether the intake is paused: `tenure intake show`",
        )
    })
}

/// The file contains payloads and the key of every token.
fn readers(file: &DatabaseFile) -> Finding {
    let detail = format!("{} has mode {}", file.path, file.mode);
    let private = u32::from_str_radix(&file.mode, 8).is_ok_and(|mode| mode & 0o077 == 0);
    if private {
        return Finding::ok("file", detail);
    }
    let path = &file.path;
    let fix = format!("`chmod 600 {path} {path}-wal {path}-shm`, and the backups");
    Finding::bad(
        "file",
        Verdict::Warn,
        format!("{detail}: others can read payloads and the key of tokens"),
        fix,
    )
}

fn damaged(damaged: &Damaged) -> Finding {
    if damaged.newer {
        let detail = format!("{}: {}", damaged.id, damaged.why);
        return Finding::bad("newer", Verdict::Warn, detail, "upgrade this daemon");
    }
    let detail = format!("{} cannot be read: {}", damaged.id, damaged.why);
    let fix = "copy the database, run `tenure verify`, then restore a backup or repair it";
    Finding::bad("damaged", Verdict::Fail, detail, fix)
}

fn disk(file: &DatabaseFile) -> Finding {
    let detail = format!("{} MiB free for {}", file.free_bytes >> 20, file.path);
    if file.free_bytes >= FREE_BYTES {
        return Finding::ok("disk", detail);
    }
    Finding::bad(
        "disk",
        Verdict::Warn,
        detail,
        "delete what ended long ago (`tenure prune --help`), or enlarge the disk",
    )
}

fn commits(commits: Commits) -> Finding {
    let Commits { count, mean_ms } = commits;
    let took = if mean_ms == 0 { "less than 1".to_owned() } else { mean_ms.to_string() };
    let detail = format!("{count} synced, {took} ms each");
    if mean_ms <= SLOW_MS {
        return Finding::ok("commits", detail);
    }
    Finding::bad("commits", Verdict::Warn, detail, "put the ledger on a faster disk")
}

/// The daemon's clock; this machine's is a separate check.
fn clock(clock: LedgerClock) -> Finding {
    let LedgerClock { jumps, offset_ms } = clock;
    if jumps == 0 && offset_ms == 0 {
        return Finding::ok("ledger time", "the daemon's clock has not jumped");
    }
    let side = if offset_ms < 0 { "behind" } else { "ahead of" };
    let detail = format!(
        "{jumps} clock jumps since the daemon started; the ledger's time is {} s {side} it",
        offset_ms.abs() / 1_000
    );
    Finding::bad(
        "ledger time",
        Verdict::Warn,
        detail,
        "use one time service that slews the clock, and none that steps it",
    )
}

fn schema(schema: Schema) -> Finding {
    let Schema { known, applied } = schema;
    let detail = format!("migrations known: {known}, applied: {applied}");
    match applied.cmp(&known) {
        std::cmp::Ordering::Equal => Finding::ok("schema", detail),
        std::cmp::Ordering::Greater => {
            let fix = "a newer version has migrated it: run that version everywhere";
            Finding::bad("schema", Verdict::Warn, detail, fix)
        }
        std::cmp::Ordering::Less => {
            Finding::bad("schema", Verdict::Fail, detail, "restart the daemon to apply the missing ones")
        }
    }
}

fn wal(wal: Wal, now: Timestamp) -> Finding {
    let checkpoint = match wal.checkpointed_at {
        Some(at) => format!("last checkpoint {} ago", age(at, now)),
        None => "no checkpoint has been due since it was opened".to_owned(),
    };
    let detail = format!("{} KiB, {checkpoint}", wal.bytes / 1024);
    if let Some(failed) = wal.failure {
        let since = age(failed.since, now);
        let detail =
            format!("{detail}; {} checkpoints failed since {since} ago: {}", failed.count, failed.why);
        return Finding::bad(
            "wal",
            Verdict::Warn,
            detail,
            "check the disk; the log grows until a checkpoint succeeds",
        );
    }
    let behind = wal.behind_since.is_some_and(|since| now.0 - since.0 >= BEHIND_MS);
    if wal.bytes < HUGE_WAL_BYTES && !(behind && wal.bytes >= WAL_BYTES) {
        return Finding::ok("wal", detail);
    }
    let fix = "end the reader that keeps an old snapshot open, for example a backup";
    Finding::bad("wal", Verdict::Warn, detail, fix)
}

#[cfg(test)]
mod tests {
    use tenure_api::wire::{CheckpointFailure, Setting};

    use super::*;

    fn told(engine: &str) -> Database {
        let setting = |name: &str, value: &str, safe| Setting {
            name: name.to_owned(),
            value: value.to_owned(),
            wanted: "on".to_owned(),
            safe,
        };
        Database {
            engine: engine.to_owned(),
            version: "17.2".to_owned(),
            schema: Some(Schema { known: 8, applied: 8 }),
            settings: vec![setting("fsync", "on", true), setting("synchronous_commit", "off", false)],
            wal: None,
            file: None,
            clock: None,
            commits: None,
            backup: None,
            damaged: Vec::new(),
            intake: None,
        }
    }

    fn verdicts(told: &Database) -> Vec<(&'static str, Verdict)> {
        judge(told, Timestamp(60_000)).iter().map(|finding| (finding.check, finding.verdict)).collect()
    }

    #[test]
    fn a_setting_that_loses_commits_fails_and_names_its_cure() {
        let found = judge(&told("postgres"), Timestamp(0));
        let (fine, weak) = (&found[2], &found[3]);
        assert_eq!((fine.verdict, fine.detail.as_str()), (Verdict::Ok, "fsync = on"));
        assert_eq!(weak.verdict, Verdict::Fail);
        assert!(weak.fix.contains("synchronous_commit = on"), "{}", weak.fix);
    }

    #[test]
    fn a_file_that_others_read_names_its_chmod() {
        let of = |mode: &str, free_bytes| {
            let file = DatabaseFile { path: "/l/t.db".to_owned(), mode: mode.to_owned(), free_bytes };
            (readers(&file), disk(&file).verdict)
        };
        let (wide, full) = of("644", 1);
        assert_eq!((wide.verdict, full), (Verdict::Warn, Verdict::Warn));
        assert!(wide.fix.contains("chmod 600 /l/t.db /l/t.db-wal"), "{}", wide.fix);
        let (private, room) = of("600", FREE_BYTES);
        assert_eq!((private.verdict, room), (Verdict::Ok, Verdict::Ok));
        assert_eq!(commits(Commits { count: 3, mean_ms: SLOW_MS + 1 }).verdict, Verdict::Warn);
        assert_eq!(commits(Commits { count: 3, mean_ms: 0 }).detail, "3 synced, less than 1 ms each");
    }

    #[test]
    fn another_version_of_the_schema_shows() {
        for (applied, verdict) in [(8, Verdict::Ok), (9, Verdict::Warn), (7, Verdict::Fail)] {
            let told = Database { schema: Some(Schema { known: 8, applied }), ..told("postgres") };
            assert!(verdicts(&told).contains(&("schema", verdict)), "{applied}");
        }
        assert_eq!(verdicts(&told("memory"))[0], ("database", Verdict::Warn));
    }

    #[test]
    fn a_log_that_only_grows_is_told_with_the_age_of_its_last_checkpoint() {
        let log = |bytes| Wal {
            bytes,
            checkpointed_at: Some(Timestamp(15_000)),
            behind_since: None,
            failure: None,
        };
        let of = |log| wal(log, Timestamp(60_000));
        assert_eq!(of(log(4_096)).verdict, Verdict::Ok);
        let large = of(log(HUGE_WAL_BYTES));
        assert_eq!(
            (large.verdict, large.detail.as_str()),
            (Verdict::Warn, "262144 KiB, last checkpoint 45s ago")
        );
        // A log keeps its size after a checkpoint: only the part not yet checkpointed counts.
        assert_eq!(of(log(WAL_BYTES)).verdict, Verdict::Ok);
        let behind = |since| of(Wal { behind_since: Some(Timestamp(since)), ..log(WAL_BYTES) }).verdict;
        assert_eq!((behind(0), behind(1)), (Verdict::Warn, Verdict::Ok));
    }

    #[test]
    fn a_checkpoint_that_fails_is_told_with_its_reason_however_small_the_log_is() {
        let why = "disk I/O error".to_owned();
        let failure = Some(CheckpointFailure { count: 2, since: Timestamp(0), why });
        let found = wal(
            Wal { bytes: 4_096, checkpointed_at: None, behind_since: Some(Timestamp(0)), failure },
            Timestamp(60_000),
        );
        assert_eq!(found.verdict, Verdict::Warn);
        assert!(
            found.detail.contains("2 checkpoints failed since") && found.detail.contains("disk I/O error")
        );
        assert!(found.fix.contains("check the disk"), "{}", found.fix);
    }

    #[test]
    fn a_clock_jump_is_reported() {
        let of = |jumps, offset_ms| clock(LedgerClock { jumps, offset_ms });
        assert_eq!(of(0, 0).verdict, Verdict::Ok);
        let jumped = of(1, -7_200_000);
        assert_eq!(jumped.verdict, Verdict::Warn);
        assert!(jumped.detail.contains("7200 s behind"), "{}", jumped.detail);
    }
}
