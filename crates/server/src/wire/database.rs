//! The database's diagnosis.

use std::{os::unix::fs::PermissionsExt, path::Path};

use tenure_api::wire as w;
use tenure_store::{CheckpointFailure, CounterSnapshot, Damaged, Diagnosis, IntakeTable, Setting, Wal};

use super::at;

pub(crate) fn database(told: Diagnosis, stats: &CounterSnapshot, passed_over: Vec<Damaged>) -> w::Database {
    let damaged =
        |one: Damaged| w::Damaged { id: one.id, why: one.why, since: at(one.since), newer: one.newer };
    let setting = |setting: Setting| w::Setting {
        name: setting.name.to_owned(),
        value: setting.value,
        wanted: setting.wanted.to_owned(),
        safe: setting.safe,
    };
    w::Database {
        engine: told.engine.to_owned(),
        version: told.version,
        schema: told.schema.map(|schema| w::Schema { known: schema.known, applied: schema.applied }),
        settings: told.settings.into_iter().map(setting).collect(),
        wal: told.wal.map(wal),
        clock: Some(w::LedgerClock { jumps: stats.clock_jumps, offset_ms: stats.clock_offset_ms }),
        file: told.file.and_then(|path| file(&path)),
        commits: (stats.groups > 0).then(|| w::Commits {
            count: stats.groups,
            mean_ms: stats.group_time.as_millis() as u64 / stats.groups,
        }),
        backup: told
            .backup
            .map(|copied| w::BackupProgress { bytes: copied.bytes, total_bytes: copied.total }),
        damaged: passed_over.into_iter().map(damaged).collect(),
        intake: None,
    }
}

pub(crate) fn intake_table(table: IntakeTable) -> w::IntakeTable {
    w::IntakeTable {
        waiting: table.waiting,
        oldest_at: table.oldest_at.map(at),
        rejected: table.rejected,
        newest_reason: table.newest_reason,
    }
}

fn wal(wal: Wal) -> w::Wal {
    let failure = |failed: CheckpointFailure| w::CheckpointFailure {
        count: failed.count,
        since: at(failed.since),
        why: failed.why,
    };
    w::Wal {
        bytes: wal.bytes,
        checkpointed_at: wal.checkpointed_at.map(at),
        behind_since: wal.behind_since.map(at),
        failure: wal.failure.map(failure),
    }
}

/// None: the file is gone, which its next commit will report.
fn file(path: &Path) -> Option<w::DatabaseFile> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let disk = rustix::fs::statvfs(path).ok()?;
    let path = std::path::absolute(path).ok()?;
    Some(w::DatabaseFile {
        path: path.display().to_string(),
        mode: format!("{mode:o}"),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
    })
}
