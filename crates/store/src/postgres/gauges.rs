//! Figures of the open work items and commands, from narrow tables and partial indexes.

use std::collections::BTreeMap;

use tenure_core::{Millis, command::Duty};
use tokio_postgres::Row;

use super::{
    Postgres, command,
    connection::params,
    read::Reader,
    row::{self, get},
};
use crate::{
    CommandGauges, CommandGroupGauges, Error, Gauges,
    gauges::{Sources, StateGauges, WaitGauges},
    states::sql,
    store::{GaugeStore, StoreFuture},
};

/// Ids are ordered by time, so the first one of a state is the oldest.
const STATES: &str = sql!(
    "SELECT k.state, c.works, o.created_at FROM unnest({array of open}) AS k(state) \
     CROSS JOIN LATERAL (SELECT count(*) AS works FROM status s WHERE s.state = k.state) c \
     CROSS JOIN LATERAL (SELECT s.created_at FROM status s WHERE s.state = k.state ORDER BY s.work LIMIT 1) o"
);
const READY: &str = "SELECT r.system, r.kind, count(*), min(r.created_at) FROM ready r \
     GROUP BY r.tenant, r.kind, r.system";
/// OFFSET and LIMIT fix the order of the joins, regardless of the planner's statistics.
const HELD: &str = sql!(
    "SELECT w.system, w.kind, k.state, count(*), \
     count(*) FILTER (WHERE w.lapsed_at IS NULL AND w.expires_at < $1::bigint) \
     FROM unnest({array of held}) AS k(state) \
     CROSS JOIN LATERAL (SELECT s.work FROM status s WHERE s.state = k.state OFFSET 0) s \
     CROSS JOIN LATERAL (SELECT v.* FROM work v WHERE v.id = s.work LIMIT 1) w \
     GROUP BY w.system, w.kind, k.state"
);
const WAITS: &str =
    "SELECT t.kind, count(*), min(t.deadline_at) FROM wait t WHERE t.state = 'open' GROUP BY t.kind";

const OPEN_COUNTS: &str = sql!(
    "SELECT k.state, c.commands FROM unnest({command array of open}) AS k(state) \
     CROSS JOIN LATERAL (SELECT count(*) AS commands FROM command_status s WHERE s.state = k.state) c \
     WHERE c.commands > 0"
);
/// Stopped, sent, or in doubt. Commands that wait for their turn may be a long queue, so they are not counted here.
const PLACES: &str = sql!(
    "SELECT c.tool, c.state, c.blocked, c.needs_person, count(*), min(c.updated_at) \
     FROM unnest({command array of stopped_or_sent}) AS k(state) \
     CROSS JOIN LATERAL (SELECT s.command FROM command_status s WHERE s.state = k.state OFFSET 0) s \
     CROSS JOIN LATERAL (SELECT v.* FROM command v WHERE v.id = s.command LIMIT 1) c \
     GROUP BY c.tool, c.state, c.blocked, c.needs_person"
);

impl Reader {
    async fn command_facts(&self, at: Millis) -> Result<CommandGauges, Error> {
        let mut states = BTreeMap::new();
        for row in self.query(OPEN_COUNTS, params![]).await? {
            states.insert(command::state(get(&row, 0)?)?, count(&row, 1)?);
        }
        let mut places = Vec::new();
        for row in self.query(PLACES, params![]).await? {
            places.push(CommandGroupGauges {
                tool: get(&row, 0)?,
                state: command::state(get(&row, 1)?)?,
                blocked: get::<Option<&str>>(&row, 2)?.map(row::parse_name).transpose()?,
                needs_person: get(&row, 3)?,
                commands: count(&row, 4)?,
                since: get(&row, 5)?,
            });
        }
        let due = self.next_due_command(Duty::Send).await?;
        Ok(CommandGauges::new(states, places, due, at))
    }
}

impl GaugeStore for Postgres {
    fn gauges(&self, at: Millis) -> StoreFuture<'_, Gauges> {
        Box::pin(async move {
            let mut gauges = Gauges { at, ..Gauges::default() };
            for row in self.gauges.query(STATES, params![]).await? {
                let state = StateGauges { works: count(&row, 1)?, oldest: get(&row, 2)? };
                gauges.states.insert(row::state(get(&row, 0)?)?, state);
            }
            let mut sources = Sources::default();
            for row in self.gauges.query(READY, params![]).await? {
                sources.ready(get(&row, 0)?, get(&row, 1)?, count(&row, 2)?, get(&row, 3)?);
            }
            for row in self.gauges.query(HELD, params![at]).await? {
                let state = row::state(get(&row, 2)?)?;
                sources.held(get(&row, 0)?, get(&row, 1)?, state, count(&row, 3)?, count(&row, 4)?);
            }
            gauges.sources = sources.most();
            for row in self.gauges.query(WAITS, params![]).await? {
                let wait = WaitGauges { open: count(&row, 1)?, nearest_deadline: get(&row, 2)? };
                gauges.waits.insert(row::parse_name(get(&row, 0)?)?, wait);
            }
            gauges.commands = self.gauges.command_facts(at).await?;
            Ok(gauges)
        })
    }
}

fn count(row: &Row, at: usize) -> Result<u64, Error> {
    get::<i64>(row, at).map(|count| count as u64)
}
