//! Commands: loading, saving, lists. A batch without commands never gets here. A command is one row: a narrow twin, as
//! in PostgreSQL, would be a second row to write and would save nothing.

use std::{
    collections::{BTreeMap, BTreeSet, hash_map::Entry},
    sync::Arc,
};

use rusqlite::{Row, params, params_from_iter, types::Value};
use tenure_core::{
    Command, CommandId, CommandState, LoadSet, Millis, Records, WorkId,
    action::Tenants,
    command::{CommandSpec, Duty, due},
    document::Document,
    payload::Digest,
    records::{Sought, TargetKey, Touch, target_key},
};

use super::{
    SqliteStore,
    budget::{self, BUDGETS, SAVE_BUDGETS},
    fault::Fault,
    read::{Conditions, Reader, bound, take, undamaged},
    row::{self, Read},
    table::table,
    tables::Tables,
};
use crate::{
    CommandFilter, Listed,
    batch::Batch,
    columns::{Column, Columns, marks, names, names_of, sets, statement},
    line::line,
    states::sql,
    store::{CommandStore, StoreFuture},
};

const BY_ID: &str =
    statement!("SELECT " { names_of("c", CommandRow::COLUMNS) } " FROM command c WHERE c.id = ?1");
pub(super) const BY_KEY: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    " FROM command c WHERE c.work = ?1 AND c.key = ?2 AND c.superseded = 0"
);
/// The open commands that a worker executes.
const OPEN: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    " FROM command c INDEXED BY command_open \
     WHERE c.work = ?1 AND {command c.state is open} AND c.executor = 'worker' ORDER BY c.id"
);
const OUTGOING: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    " FROM command c INDEXED BY command_open \
     WHERE c.work = ?1 AND {command c.state is open} AND {command c.state is idle} AND c.executor <> 'worker' ORDER BY c.id"
);
const WORKS_OF: &str = "SELECT work FROM command WHERE id = ?1";
/// The newest command of all earlier generations that was sent, or may still be sent.
const EARLIER: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    " FROM work n CROSS JOIN work w ON w.tenant = n.tenant AND w.system = n.system \
     AND w.source_id = n.source_id AND w.run_id = n.run_id AND w.generation < n.generation \
     CROSS JOIN command c ON c.work = w.id AND c.key = ?2 AND c.superseded = 0 \
     WHERE n.id = ?1 AND ({command c.state is succeeded} OR c.dispatches > 0 \
     OR (c.executor <> 'worker' AND {command c.state is open})) \
     ORDER BY w.generation DESC LIMIT 1"
);
const HEADS: &str = sql!(
    "SELECT id FROM command INDEXED BY command_line \
     WHERE line = ?1 AND line IS NOT NULL AND {command state is open} ORDER BY id LIMIT 1"
);

/// Inserts a new command.
pub const INSERT: &str = statement!(
    "INSERT OR ROLLBACK INTO command (" { names(CommandRow::COLUMNS) } ", " { names(CommandKeys::COLUMNS) }
    ", " { names(SUPERSEDED) } ") VALUES (" { marks(CommandRow::COLUMNS, 1) }
    ", " { marks(CommandKeys::COLUMNS, 1 + CommandRow::COLUMNS.len()) }
    ", " { marks(SUPERSEDED, 1 + CommandRow::COLUMNS.len() + CommandKeys::COLUMNS.len()) } ")"
);
const SUPERSEDED: Columns = &[Column { name: "superseded", kind: "" }];
/// Saves the changes of a command, except `superseded`: naming that column would make SQLite rewrite the entry in the
/// index of keys each time.
pub const UPDATE: &str = statement!(
    "UPDATE OR ROLLBACK command SET " { sets(CommandRow::CHANGING, 2) }
    ", " { sets(CommandKeys::COLUMNS, 2 + CommandRow::CHANGING.len()) } " WHERE id = ?1"
);
const SUPERSEDE: &str = "UPDATE OR ROLLBACK command SET superseded = 1 WHERE id = ?1";
const ARM: &str = "UPDATE OR ROLLBACK command SET duty = ?2, due_at = ?3 WHERE id = ?1";

/// An ordered command is due only if no open command for the same target comes before it. The tenants in the exception
/// list are left out.
macro_rules! wanted {
    ($tenants:literal) => {
        concat!(
            "(c.duty <> 1 OR c.line IS NULL OR NOT EXISTS (SELECT 1 FROM command e INDEXED BY command_line \
             WHERE e.line = c.line AND e.line IS NOT NULL AND {command e.state is open} AND e.id < c.id)) \
             AND c.tenant NOT IN (SELECT value FROM json_each(",
            $tenants,
            "))"
        )
    };
}
macro_rules! due_by {
    ($index:literal) => {
        concat!(
            "SELECT c.due_at, c.id FROM command c ",
            $index,
            " WHERE c.duty = ?1 AND c.due_at IS NOT NULL AND c.due_at <= ?2 AND (c.due_at, c.id) > (?3, ?4) AND ",
            wanted!("?5"),
            " ORDER BY c.due_at, c.id LIMIT ?6"
        )
    };
}
const DUE: &str = sql!(due_by!("INDEXED BY command_due"));
/// Reads the index only: if a page of the table is damaged, the index still has every key.
const DUE_KEYS: &str = "SELECT due_at, id FROM command INDEXED BY command_due WHERE duty = ?1 \
     AND due_at IS NOT NULL AND due_at <= ?2 AND (due_at, id) > (?3, ?4) ORDER BY due_at, id LIMIT ?5";
const WANTED: &str = sql!("SELECT c.due_at FROM command c WHERE c.id = ?1 AND ", wanted!("?2"));
/// Reads the table only: if a page of the index is damaged, the table still has every row.
const DUE_FROM_TABLE: &str = sql!(due_by!("NOT INDEXED"));
const LOOKUPS: &str = "SELECT due_at, id FROM command INDEXED BY command_lookup WHERE tenant = ?1 AND duty = 2 \
     AND due_at IS NOT NULL AND due_at <= ?2 AND (due_at, id) > (?3, ?4) ORDER BY due_at, id LIMIT ?5";
const NEXT_DUE: &str = "SELECT due_at FROM command INDEXED BY command_due \
     WHERE duty = ?1 AND due_at IS NOT NULL ORDER BY due_at LIMIT 1";
const NEXT_DUE_FROM_TABLE: &str = "SELECT due_at FROM command NOT INDEXED \
     WHERE duty = ?1 AND due_at IS NOT NULL ORDER BY due_at LIMIT 1";

/// The index of the primary key.
const BY_ID_INDEX: &str = "sqlite_autoindex_command_1";
const LIST: &str = statement!("SELECT " { names_of("c", CommandRow::COLUMNS) } " FROM command c");
/// Commands that a worker is about to make or is making. They are found through the index of open commands.
macro_rules! at_work {
    () => {
        "{command c.state is open} AND c.executor = 'worker' AND {command c.state is brief}"
    };
}
pub(super) use at_work;

/// The condition of the index of states: without succeeded commands, and without those that a worker makes.
macro_rules! settled {
    () => {
        "{command c.state is not succeeded} AND (c.executor <> 'worker' OR NOT {command c.state is brief})"
    };
}
pub(super) use settled;

const AT_WORK: &str = sql!(at_work!());
const SETTLED: &str = sql!(settled!());

/// Counts commands by state, without succeeded ones, for a condition on `state`.
macro_rules! counted {
    ($states:literal) => {
        concat!(
            "WITH some AS (SELECT c.state, count(*) AS n FROM command c INDEXED BY command_state WHERE ",
            settled!(),
            $states,
            " GROUP BY c.state UNION ALL SELECT c.state, count(*) FROM command c INDEXED BY command_open WHERE ",
            at_work!(),
            " GROUP BY c.state) SELECT state, sum(n) FROM some GROUP BY state"
        )
    };
}

const COUNTS: &str = sql!(
    counted!(""),
    " UNION ALL SELECT {command code of succeeded}, \
     (SELECT count(*) FROM command) - (SELECT coalesce(sum(n), 0) FROM some)"
);
pub(super) const OPEN_COUNTS: &str = sql!(counted!(" AND {command c.state is open}"));

pub(super) fn state(row: &Row<'_>, column: usize) -> Read<CommandState> {
    let code: u8 = row.get(column)?;
    let known = CommandState::from_code(code);
    known.ok_or_else(|| Fault::newer(format!("the command state {code}")))
}

table! {
    /// The columns of a command that are read back.
    pub(super) CommandRow(command: &Command) {
        id = &command.id.0.as_bytes()[..],
        work = &command.work.0.as_bytes()[..],
        tenant = command.spec.tenant,
        tool = command.spec.tool,
        target = command.spec.target,
        kind = row::name_of(command.spec.kind),
        executor = row::name_of(command.spec.executor),
        key = &command.spec.key.0[..],
        input_hash = &command.spec.input_hash.0[..],
        step = command.spec.step,
        slot = command.spec.slot,
        created_at = command.created_at,
    }
    changing {
        state = command.state.code(),
        seq = command.seq as i64,
        updated_at = command.updated_at,
        due_at = command.due_at,
        body = command.body.text(),
    }
    read(row) -> Command {
        let spec = CommandSpec {
            tenant: row.get(tenant)?,
            tool: row.get(tool)?,
            target: row.get(target)?,
            kind: row::named(row::text(row, kind)?)?,
            executor: row::named(row::text(row, executor)?)?,
            key: row::digest(row, key)?,
            input_hash: row::digest(row, input_hash)?,
            step: row.get(step)?,
            slot: row.get(slot)?,
        };
        Ok(Command {
            id: CommandId(row::uuid(row, id)?),
            work: WorkId(row::uuid(row, work)?),
            spec: Arc::new(spec),
            created_at: row.get(created_at)?,
            state: self::state(row, state)?,
            seq: row.get::<_, i64>(seq)? as u64,
            updated_at: row.get(updated_at)?,
            due_at: row.get(due_at)?,
            body: Document::stored(row::text(row, body)?).map_err(Fault::stored)?,
        })
    }
}

table! {
    /// The columns that a command is found by, and its last event. They change with it.
    pub(super) CommandKeys(saved: (&Command, i64)) {
        duty = duty(saved.0),
        line = saved.0.body.tool.ordered.then(|| line(&target_key(saved.0))),
        dispatches = saved.0.body.dispatches,
        blocked = saved.0.body.blocked.filter(|_| saved.0.state == CommandState::Blocked).map(row::name_of),
        needs_person = saved.0.body.needs_person,
        last_event = saved.1,
    }
}

fn command(row: &Row<'_>) -> Read<Command> {
    CommandRow::read(row, 0)
}

impl Tables<'_> {
    pub fn load_commands(&mut self, load_set: &LoadSet, records: &mut Records) -> Read<()> {
        for id in &load_set.command_ids {
            if !records.command_ids.contains_key(id)
                && let Some(work) =
                    self.one(WORKS_OF, [id.0.as_bytes()], |row| Ok(WorkId(row::uuid(row, 0)?)))?
            {
                self.load_work(work, records)?;
                records.command_ids.insert(*id, work);
            }
        }
        for sought in &load_set.commands {
            if !records.looked_for.insert(*sought) || !sought.may_be_there(records) {
                continue;
            }
            match sought {
                Sought::Id(id) => self.all(BY_ID, [id.0.as_bytes()], command)?,
                Sought::Key(work, key) => self.of_key(*work, key)?.into_iter().collect(),
                Sought::Open(work) => self.all(OPEN, [work.0.as_bytes()], command)?,
                Sought::Outgoing(work) => self.all(OUTGOING, [work.0.as_bytes()], command)?,
            }
            .into_iter()
            .for_each(|command| records.take_in(command));
        }
        for (work, key) in &load_set.earlier {
            if let Entry::Vacant(entry) = records.earlier.entry((*work, *key)) {
                entry.insert(self.one(EARLIER, params![work.0.as_bytes(), &key.0[..]], command)?);
            }
        }
        for key in &load_set.heads {
            if !records.heads.contains_key(key) {
                let head = self.one(HEADS, [line(key)], |row| Ok(CommandId(row::uuid(row, 0)?)))?;
                records.heads.insert(key.clone(), head);
            }
        }
        for key in &load_set.budgets {
            if let Entry::Vacant(entry) = records.budgets.entry(key.clone()) {
                entry.insert(self.one(BUDGETS, [key.text()], budget::budget)?.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// A superseded command must give up its key before its successor takes it.
    pub fn save_commands(&mut self, batch: &Batch) -> Read<()> {
        let commands = batch.commands();
        for new in [false, true] {
            for (command, touch) in commands.iter().filter(|(_, touch)| (*touch == Touch::Insert) == new) {
                self.save_command(command, *touch)?;
            }
        }
        for (key, budget) in batch.budgets() {
            let values = params![key.text(), amount(budget.spent), amount(budget.reserved)];
            self.cached(SAVE_BUDGETS)?.execute(values)?;
        }
        Ok(())
    }

    fn of_key(&mut self, work: WorkId, key: &Digest) -> Read<Option<Command>> {
        let mut rows = self.hot.command_of_key.query(params![work.0.as_bytes(), &key.0[..]])?;
        rows.next()?.map(command).transpose()
    }

    fn save_command(&mut self, command: &Command, touch: Touch) -> Read<()> {
        match touch {
            Touch::Insert => {
                let last_event = self.event_place(command.work, command.seq)?;
                let statement = &mut self.hot.command_insert;
                let at = CommandRow::bind(statement, 1, command)?;
                let at = CommandKeys::bind(statement, at, (command, last_event))?;
                statement.raw_bind_parameter(at, !command.is_current())?;
                statement.raw_execute()?;
                Ok(())
            }
            Touch::Event => {
                let last_event = self.event_place(command.work, command.seq)?;
                let statement = &mut self.hot.command_update;
                statement.raw_bind_parameter(1, &command.id.0.as_bytes()[..])?;
                let at = CommandRow::bind_changing(statement, 2, command)?;
                CommandKeys::bind(statement, at, (command, last_event))?;
                statement.raw_execute()?;
                if !command.is_current() {
                    self.cached(SUPERSEDE)?.execute([command.id.0.as_bytes()])?;
                }
                Ok(())
            }
            Touch::Due | Touch::Flags | Touch::Renewal | Touch::Progress => {
                let values = params![command.id.0.as_bytes(), duty(command), command.due_at];
                self.cached(ARM)?.execute(values)?;
                Ok(())
            }
        }
    }
}

fn duty(command: &Command) -> Option<u8> {
    due::duty(command).filter(|_| command.due_at.is_some()).map(Duty::code)
}

/// A larger amount does not fit any budget, so it may be cut off at the largest number that the column can store.
fn amount(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// One statement over all access paths of a filter, so that it reads one state of the file. None: the filter allows no
/// state.
fn list(filter: &CommandFilter, before: Option<CommandId>, limit: usize) -> Option<(String, Vec<Value>)> {
    let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
    let conditions = Conditions::of_commands(filter).and("c.id < ?", before);
    let (mut parts, mut values) = (Vec::new(), Vec::new());
    for (index, part) in ways(filter) {
        let here = conditions.clone().plain(part);
        let (sql, here) = here.select(&format!("{LIST} INDEXED BY {index}"), "ORDER BY c.id DESC", limit);
        parts.push(format!("SELECT * FROM ({sql})"));
        values.extend(here);
    }
    values.push(bound(limit).into());
    let sql = format!("{} ORDER BY 1 DESC LIMIT ?", parts.join(" UNION ALL "));
    (!parts.is_empty()).then_some((sql, values))
}

/// The indexes for a filter, each with a condition from which SQLite can see that the partial index applies. Together
/// they find every matching row once.
fn ways(filter: &CommandFilter) -> Vec<(&'static str, String)> {
    let by_state = |state: &CommandState| {
        let settled = ("command_state", format!("{SETTLED} AND c.state = {}", state.code()));
        let at_work = ("command_open", format!("{AT_WORK} AND c.state = {}", state.code()));
        match state {
            CommandState::Succeeded if of_tenants(filter) => {
                vec![("command_tenant", sql!("{command c.state is succeeded}").to_owned())]
            }
            CommandState::Succeeded => vec![(BY_ID_INDEX, sql!("{command c.state is succeeded}").to_owned())],
            CommandState::Pending | CommandState::Dispatched => vec![settled, at_work],
            _ => vec![settled],
        }
    };
    let within = |states: &[CommandState]| {
        let codes: Vec<String> = states.iter().map(|state| state.code().to_string()).collect();
        format!("c.state IN ({})", codes.join(", "))
    };
    match (filter.work, filter.admitted()) {
        // Most commands have succeeded. For some tenants, those are found through the index of tenants.
        (None, None) if of_tenants(filter) => vec![("command_tenant", "TRUE".to_owned())],
        (None, None) => vec![(BY_ID_INDEX, "TRUE".to_owned())],
        (None, Some(states)) => states.iter().flat_map(by_state).collect(),
        (Some(_), Some(states)) if states.iter().all(|state| state.is_open()) => {
            vec![("command_open", format!("{} AND {}", sql!("{command c.state is open}"), within(&states)))]
        }
        (Some(_), states) => {
            let wanted = states.map_or("TRUE".to_owned(), |states| within(&states));
            vec![
                ("command_key", format!("c.superseded = 0 AND {wanted}")),
                ("command_superseded", format!("c.superseded = 1 AND {wanted}")),
            ]
        }
    }
}

fn of_tenants(filter: &CommandFilter) -> bool {
    matches!(filter.tenants, Some(Tenants::Only(_)))
}

impl Conditions {
    /// [`CommandFilter::matches`] in SQL, without the states.
    fn of_commands(filter: &CommandFilter) -> Self {
        let mut all = Self::default().and_names("c.tenant", filter.tenants.as_ref());
        if let Some(work) = filter.work {
            all = all.and("c.work = ?", work.0.as_bytes().to_vec());
        }
        for (part, value) in [("c.tool = ?", &filter.tool), ("c.target = ?", &filter.target)] {
            if let Some(value) = value {
                all = all.and(part, value.clone());
            }
        }
        for (part, at) in
            [("c.created_at > ?", filter.created_after), ("c.created_at < ?", filter.created_before)]
        {
            if let Some(at) = at {
                all = all.and(part, at);
            }
        }
        if filter.needs_person {
            all = all.plain("c.needs_person = 1".to_owned());
        }
        if filter.needs_approval {
            all = all.plain("c.blocked = 'approval_required'".to_owned());
        }
        all
    }
}

impl Reader {
    /// Selects the wanted commands among due ones, and those that cannot be read, which the caller reports as damaged.
    fn wanted(&self, keys: Vec<(Millis, CommandId)>, except: &str) -> Read<Vec<(Millis, CommandId)>> {
        let mut wanted = Vec::with_capacity(keys.len());
        for (due, id) in keys {
            let found =
                self.all(WANTED, params![id.0.as_bytes(), except], |row| Ok(row.get::<_, Millis>(0)?));
            match found {
                Ok(rows) if rows.is_empty() => {}
                Ok(_) | Err(Fault::Data(_)) => wanted.push((due, id)),
                Err(fault) => return Err(fault),
            }
        }
        Ok(wanted)
    }

    pub fn next_due_command(&mut self, duty: Duty) -> Read<Option<Millis>> {
        let read = |sql| self.all(sql, [duty.code()], |row| Ok(row.get(0)?));
        Ok(undamaged(read(NEXT_DUE), || read(NEXT_DUE_FROM_TABLE))?.into_iter().next())
    }
}

impl CommandStore for SqliteStore {
    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>> {
        let ids = ids.to_vec();
        self.read(move |reader| {
            let mut commands = Listed::default();
            for id in ids {
                match reader.all(BY_ID, [id.0.as_bytes()], command) {
                    Ok(found) => found.into_iter().try_for_each(|one| take(&mut commands, id, Ok(one)))?,
                    Err(fault) => take(&mut commands, id, Err(fault))?,
                }
            }
            Ok(commands)
        })
    }

    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>> {
        let filter = filter.clone();
        self.read(move |reader| {
            let key = |row: &Row<'_>| Ok(CommandId(row::uuid(row, 0)?));
            match list(&filter, before, limit) {
                Some((sql, values)) => reader.listed(&sql, params_from_iter(values), limit, key, command),
                None => Ok(Listed::default()),
            }
        })
    }

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>> {
        let tenants = tenants.clone();
        self.read(move |reader| {
            // For all tenants, the number of succeeded commands is the total minus the others. For some tenants they
            // are counted.
            let (sql, values) = match tenants {
                Tenants::All => (COUNTS.to_owned(), Vec::new()),
                Tenants::Only(_) => {
                    let conditions = Conditions::default().and_names("tenant", Some(&tenants));
                    conditions.select("SELECT state, count(*) FROM command", "GROUP BY state", usize::MAX)
                }
            };
            let counts = reader.all(&sql, params_from_iter(values), |row| {
                Ok((state(row, 0)?, row.get::<_, i64>(1)? as u64))
            })?;
            Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
        })
    }

    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>> {
        let lines = lines.to_vec();
        self.read(move |reader| {
            let mut heads = Vec::with_capacity(lines.len());
            for key in &lines {
                heads.push(reader.all(HEADS, [line(key)], |row| Ok(CommandId(row::uuid(row, 0)?)))?.pop());
            }
            Ok(heads)
        })
    }

    fn due_commands<'a>(
        &'a self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        except: &'a [String],
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        let except = except.to_vec();
        self.read(move |reader| {
            let (due, command) = match &after {
                Some((due, command)) => (*due, &command.0.as_bytes()[..]),
                None => (Millis::MIN, &[][..]),
            };
            let except = row::to_json(&except)?;
            let key = |row: &Row<'_>| Ok((row.get(0)?, CommandId(row::uuid(row, 1)?)));
            let read =
                |sql| reader.all(sql, params![duty.code(), at, due, command, except, bound(limit)], key);
            undamaged(read(DUE), || {
                let keys = reader.all(DUE_KEYS, params![duty.code(), at, due, command, bound(limit)], key);
                undamaged(keys.and_then(|keys| reader.wanted(keys, &except)), || read(DUE_FROM_TABLE))
            })
        })
    }

    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        let tenants: BTreeSet<String> = tenants.iter().cloned().collect();
        self.read(move |reader| {
            let (due, command) = match &after {
                Some((due, command)) => (*due, &command.0.as_bytes()[..]),
                None => (Millis::MIN, &[][..]),
            };
            let mut all = Vec::new();
            for tenant in tenants {
                let values = params![tenant, at, due, command, bound(limit)];
                all.extend(
                    reader.all(LOOKUPS, values, |row| Ok((row.get(0)?, CommandId(row::uuid(row, 1)?))))?,
                );
            }
            all.sort_unstable();
            all.truncate(limit);
            Ok(all)
        })
    }

    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>> {
        self.read(move |reader| reader.next_due_command(duty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::plan::{plan, tables};

    /// Rows are wide and numerous: every query uses an index, and only lists of one work item or of open commands are
    /// sorted.
    #[test]
    fn no_question_scans_the_rows() {
        let conn = tables();
        let work = WorkId(uuid::Uuid::nil());
        let of = |work, states: &[CommandState]| {
            let filter = CommandFilter { work, states: states.to_vec(), ..CommandFilter::default() };
            list(&filter, None, 10).unwrap().0
        };
        for (sql, by) in [
            (BY_ID, "sqlite_autoindex_command_1 (id=?)"),
            (BY_KEY, "command_key (work=? AND key=?)"),
            (OPEN, "command_open (work=? AND executor=?)"),
            (EARLIER, "command_key (work=? AND key=?)"),
            (HEADS, "command_line (line=?)"),
            (DUE, "command_due (duty=?"),
            (LOOKUPS, "COVERING INDEX command_lookup (tenant=? AND (due_at,id)>(?,?)"),
            (NEXT_DUE, "COVERING INDEX command_due (duty=?"),
            (COUNTS, "COVERING INDEX command_state"),
            (&of(None, &[]), "sqlite_autoindex_command_1 (id<?)"),
            (&of(None, &[CommandState::Succeeded]), "sqlite_autoindex_command_1 (id<?)"),
            (&of(None, &[CommandState::Failed]), "command_state (state=? AND id<?)"),
            (&of(None, &CommandState::ALL), "command_state (state=? AND id<?)"),
            (&of(None, &[CommandState::Dispatched]), "SCAN c USING INDEX command_open"),
            (&of(Some(work), &[]), "command_key (work=?)"),
            (&of(Some(work), &[]), "command_superseded (work=?)"),
            (&of(Some(work), &[CommandState::Pending]), "command_open (work=?)"),
        ] {
            let plan = plan(&conn, sql);
            assert!(plan.contains(by), "{sql}\n{plan}");
            let few = |step: &str| step.contains("COVERING INDEX") || step.ends_with("INDEX command_open");
            let rows = |step: &&str| step.starts_with("SCAN c") && !few(step);
            assert_eq!(plan.lines().find(rows), None, "{sql}\n{plan}");
        }
    }
}
