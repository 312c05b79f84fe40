//! Figures of the open work items and commands, from narrow tables and partial indexes.

use rusqlite::Row;
use tenure_core::{Millis, command::Duty};

use super::{
    SqliteStore,
    command::{self, OPEN_COUNTS, at_work, settled},
    read::Reader,
    row::{self, Read},
};
use crate::{
    CommandGauges, CommandGroupGauges, Gauges,
    gauges::{Sources, StateGauges, WaitGauges},
    states::sql,
    store::{GaugeStore, StoreFuture},
};

/// Ids are ordered by time, so the first one of a state is the oldest.
const STATES: &str = sql!(
    "SELECT f.state, f.works, s.created_at FROM (SELECT state, count(*) AS works, \
     min(work) AS work FROM status WHERE {state is open} GROUP BY state) f CROSS JOIN status s ON s.work = f.work"
);
const READY: &str = "SELECT system, kind, count(*), min(created_at) FROM ready GROUP BY tenant, kind, system";
const HELD: &str = sql!(
    "SELECT w.system, w.kind, s.state, count(*), sum(w.lapsed_at IS NULL AND w.expires_at < ?1) \
     FROM (SELECT state, work FROM status WHERE {state is running} UNION ALL \
     SELECT state, work FROM status WHERE {state is stalled} UNION ALL \
     SELECT state, work FROM status WHERE {state is cancel_requested}) s CROSS JOIN work w ON w.id = s.work \
     GROUP BY w.system, w.kind, s.state"
);
const WAITS: &str = "SELECT kind, count(*), min(deadline_at) FROM wait WHERE state = 'open' GROUP BY kind";

/// Stopped, sent, or in doubt. Commands that wait for their turn may be a long queue, so they are not counted here.
const PLACES: &str = sql!(
    "SELECT tool, state, blocked, needs_person, count(*), min(updated_at) FROM (\
     SELECT c.tool, c.state, c.blocked, c.needs_person, c.updated_at FROM command c INDEXED BY command_state WHERE ",
    settled!(),
    " AND {command c.state is stopped_or_sent} UNION ALL \
     SELECT c.tool, c.state, c.blocked, c.needs_person, c.updated_at FROM command c INDEXED BY command_open WHERE ",
    at_work!(),
    " AND {command c.state is dispatched}) GROUP BY tool, state, blocked, needs_person"
);

impl Reader {
    fn command_facts(&mut self, at: Millis) -> Read<CommandGauges> {
        let states = self.all(OPEN_COUNTS, [], |row| Ok((command::state(row, 0)?, count(row, 1)?)))?;
        let places = self.all(PLACES, [], |row| {
            let blocked: Option<String> = row.get(2)?;
            Ok(CommandGroupGauges {
                tool: row.get(0)?,
                state: command::state(row, 1)?,
                blocked: blocked.map(|code| row::named(&code)).transpose()?,
                needs_person: row.get(3)?,
                commands: count(row, 4)?,
                since: row.get(5)?,
            })
        })?;
        let due = self.next_due_command(Duty::Send)?;
        Ok(CommandGauges::new(states.into_iter().collect(), places, due, at))
    }
}

impl GaugeStore for SqliteStore {
    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges> {
        self.read(move |reader| {
            let states = reader.all(STATES, [], |row| {
                Ok((row::state(row, 0)?, StateGauges { works: count(row, 1)?, oldest: row.get(2)? }))
            })?;
            let mut sources = Sources::default();
            for (system, kind, works, oldest) in
                reader.all(READY, [], |row| Ok((row.get(0)?, row.get(1)?, count(row, 2)?, row.get(3)?)))?
            {
                sources.ready(system, kind, works, oldest);
            }
            for (system, kind, state, works, expired) in reader.all(HELD, [at], |row| {
                let expired = row.get::<_, Option<i64>>(4)?.unwrap_or(0) as u64;
                Ok((row.get(0)?, row.get(1)?, row::state(row, 2)?, count(row, 3)?, expired))
            })? {
                sources.held(system, kind, state, works, expired);
            }
            let waits = reader.all(WAITS, [], |row| {
                let gauges = WaitGauges { open: count(row, 1)?, nearest_deadline: row.get(2)? };
                Ok((row::named(row::text(row, 0)?)?, gauges))
            })?;
            Ok(Gauges {
                at,
                states: states.into_iter().collect(),
                sources: sources.most(),
                waits: waits.into_iter().collect(),
                commands: reader.command_facts(at)?,
            })
        })
    }
}

fn count(row: &Row<'_>, column: usize) -> Read<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plan::{plan, tables};

    /// No query scans a table that also holds ended work items or payloads.
    #[test]
    fn no_figure_reads_what_has_ended() {
        let conn = tables();
        for sql in [STATES, READY, HELD, WAITS, OPEN_COUNTS, PLACES] {
            let plan = plan(&conn, sql);
            let scans = plan.lines().filter(|step| step.starts_with("SCAN "));
            let narrow = [
                "SCAN f",
                "SCAN s",
                "SCAN ready",
                "SCAN wait USING COVERING INDEX wait_kind",
                "SCAN c USING INDEX command_open",
                "SCAN (",
            ];
            let wide: Vec<_> =
                scans.filter(|step| !narrow.iter().any(|fine| step.starts_with(fine))).collect();
            assert!(wide.is_empty(), "{sql}\n{plan}");
        }
    }
}
