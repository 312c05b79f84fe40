//! Commands: loading, saving, lists. A batch without commands never gets here.

use std::{collections::BTreeMap, sync::Arc};

use tenure_core::{
    Command, CommandId, CommandState, LoadSet, Millis, Records,
    action::Tenants,
    command::{Duty, budget::BudgetKey, due},
    document::Document,
    payload::Digest,
    records::{Sought, TargetKey, Touch, target_key},
};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Postgres,
    around::{Look, pages},
    budget::{self, LOCK_BUDGETS, OPEN_BUDGETS, SAVE_BUDGETS},
    connection::{Pipeline, Results, params},
    read::{List, Reader, first, listed},
    row::{self, get, json, name},
    table::table,
};
use crate::{
    CommandFilter, Error, Listed,
    batch::Batch,
    columns::{names, names_of, sets_from, statement, unnested},
    line::line,
    states::sql,
    store::{CommandStore, StoreFuture},
};

const WORKS_OF: &str = "SELECT id, work FROM command WHERE id = ANY($1::uuid[])";
const BY_ID: &str = statement!("SELECT " { names_of("c", CommandRow::COLUMNS) } " FROM command c WHERE c.id = ANY($1::uuid[])");
const BY_KEY: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    " FROM unnest($1::uuid[], $2::bytea[]) AS k(work, key) \
     JOIN command c ON c.work = k.work AND c.key = k.key AND NOT c.superseded"
);
/// The open commands that a worker executes.
const OPEN: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    " FROM unnest($1::uuid[]) AS k(work) JOIN command_status s ON s.work = k.work AND {command s.state is open} \
     JOIN command c ON c.id = s.command WHERE c.executor = 'worker'"
);
const OUTGOING: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    " FROM unnest($1::uuid[]) AS k(work) JOIN command_status s ON s.work = k.work AND {command s.state is idle} \
     JOIN command c ON c.id = s.command WHERE c.executor <> 'worker'"
);
/// The newest command of all earlier generations that was sent, or may still be sent.
const EARLIER: &str = statement!(
    "SELECT " { names_of("c", CommandRow::COLUMNS) }
    ", k.work, k.key FROM unnest($1::uuid[], $2::bytea[]) AS k(work, key) JOIN work n ON n.id = k.work \
     CROSS JOIN LATERAL (SELECT c.* FROM work w JOIN command c ON c.work = w.id AND c.key = k.key \
     AND NOT c.superseded WHERE w.tenant = n.tenant AND w.system = n.system AND w.source_id = n.source_id \
     AND w.run_id = n.run_id AND w.generation < n.generation \
     AND ({command c.state is succeeded} OR c.dispatches > 0 OR c.executor <> 'worker' AND {command c.state is open}) \
     ORDER BY w.generation DESC LIMIT 1) c"
);
const HEADS: &str = sql!(
    "SELECT k.line, (SELECT s.command FROM command_status s WHERE s.line = k.line \
     AND s.line IS NOT NULL AND {command s.state is open} ORDER BY s.command LIMIT 1) FROM unnest($1::bigint[]) AS k(line)"
);
/// Inserts the new commands of a batch.
pub const INSERT: &str = statement!(
    "INSERT INTO command (" { names(CommandRow::COLUMNS) } ", " { names(CommandSpecKeys::COLUMNS) }
    ", " { names(CommandKeys::COLUMNS) } ") SELECT " { unnested(CommandRow::COLUMNS, 1) }
    ", " { unnested(CommandSpecKeys::COLUMNS, 1 + CommandRow::COLUMNS.len()) }
    ", " { unnested(CommandKeys::COLUMNS, 1 + CommandRow::COLUMNS.len() + CommandSpecKeys::COLUMNS.len()) }
);
/// Saves the commands that a batch changed.
pub const UPDATE: &str = statement!(
    "UPDATE command c SET " { sets_from("v", CommandRow::CHANGING) }
    ", " { sets_from("v", CommandKeys::COLUMNS) } " FROM (SELECT unnest($1::uuid[]), "
    { unnested(CommandRow::CHANGING, 2) }
    ", " { unnested(CommandKeys::COLUMNS, 2 + CommandRow::CHANGING.len()) }
    ") AS v(id, " { names(CommandRow::CHANGING) } ", " { names(CommandKeys::COLUMNS) } ") WHERE c.id = v.id"
);
const ARM: &str = "UPDATE command c SET due_at = v.due_at FROM unnest($1::uuid[], $2::bigint[]) \
     AS v(id, due_at) WHERE c.id = v.id";
/// Saves the rows of the narrow table.
pub const STATUS: &str = statement!(
    "INSERT INTO command_status (" { names(StatusRow::COLUMNS) } ") SELECT " { unnested(StatusRow::COLUMNS, 1) }
    " ON CONFLICT (command) DO UPDATE SET " { sets_from("excluded", StatusRow::CHANGING) }
);

const COUNTS: &str = "SELECT state, count(*) FROM command_status WHERE $1::text[] IS NULL OR tenant = ANY($1) \
     GROUP BY state";
/// An ordered command is due only if no open command for the same target comes before it.
macro_rules! due_of {
    ($table:literal) => {
        concat!(
            "SELECT s.due_at, s.command FROM ",
            $table,
            " s WHERE s.duty = $1::smallint AND s.due_at IS NOT NULL AND s.due_at <= $2::bigint \
             AND (s.due_at, s.command) > ($3::bigint, $4::uuid) \
             AND (s.duty <> 1 OR s.line IS NULL OR s.command = (SELECT e.command FROM command_status e \
             WHERE e.line = s.line AND e.line IS NOT NULL AND {command e.state is open} ORDER BY e.command LIMIT 1)) \
             AND s.tenant <> ALL($5::text[]) ORDER BY s.due_at, s.command LIMIT $6::bigint"
        )
    };
}
macro_rules! next_due_of {
    ($table:literal) => {
        concat!(
            "SELECT due_at FROM ",
            $table,
            " WHERE duty = $1::smallint AND due_at IS NOT NULL ORDER BY due_at, command LIMIT 1"
        )
    };
}
const DUE: Look = Look {
    table: "command_status",
    purpose: "commands that are due",
    indexed: sql!(due_of!("command_status")),
    paged: sql!(pages!("command_status", "$7", "$8"), due_of!("part")),
};
const NEXT_DUE: Look = Look {
    table: "command_status",
    purpose: "the next command that is due",
    indexed: next_due_of!("command_status"),
    paged: concat!(pages!("command_status", "$2", "$3"), next_due_of!("part")),
};
const LOOKUPS: &str = "SELECT d.due_at, d.command FROM (SELECT DISTINCT unnest($1::text[]) AS tenant) t \
     CROSS JOIN LATERAL (SELECT s.due_at, s.command FROM command_status s WHERE s.tenant = t.tenant AND s.duty = 2 \
     AND s.due_at IS NOT NULL AND s.due_at <= $2::bigint AND (s.due_at, s.command) > ($3::bigint, $4::uuid) \
     ORDER BY s.due_at, s.command LIMIT $5::bigint) d ORDER BY d.due_at, d.command LIMIT $5::bigint";

pub(super) fn state(code: i16) -> Result<CommandState, Error> {
    let known = u8::try_from(code).ok().and_then(CommandState::from_code);
    known.ok_or_else(|| Error::Newer(format!("the command state {code}")))
}

fn key(row: &Row) -> Result<CommandId, Error> {
    get(row, 0).map(CommandId)
}

table! {
    /// The columns of a command that are read back.
    each CommandRow(command: Command) {
        id: "uuid" = command.id.0,
        work: "uuid" = command.work.0,
        spec: "text" = json(&*command.spec),
        created_at: "bigint" = command.created_at,
    }
    changing {
        state: "smallint" = i16::from(command.state.code()),
        seq: "bigint" = command.seq as i64,
        updated_at: "bigint" = command.updated_at,
        due_at: "bigint" = command.due_at,
        body: "text" = command.body.text(),
    }
    read(row) -> Command {
        Ok(Command {
            id: CommandId(get(row, id)?),
            work: row::id(row, work)?,
            spec: Arc::new(row::parse(get(row, spec)?)?),
            state: self::state(get(row, state)?)?,
            seq: get::<i64>(row, seq)? as u64,
            created_at: get(row, created_at)?,
            updated_at: get(row, updated_at)?,
            due_at: get(row, due_at)?,
            body: Document::stored(get(row, body)?).map_err(row::unread)?,
        })
    }
}

table! {
    /// The immutable columns that a command is found by.
    each CommandSpecKeys(command: Command) {
        key: "bytea" = &command.spec.key.0[..],
        input_hash: "bytea" = &command.spec.input_hash.0[..],
        tenant: "text" = command.spec.tenant.as_str(),
        tool: "text" = command.spec.tool.as_str(),
        target: "text" = command.spec.target.as_str(),
        executor: "text" = name(&command.spec.executor),
    }
}

table! {
    /// The other columns that a command is found by.
    each CommandKeys(command: Command) {
        dispatches: "int" = command.body.dispatches as i32,
        superseded: "boolean" = !command.is_current(),
        needs_person: "boolean" = command.body.needs_person,
        blocked: "text" =
            command.body.blocked.as_ref().filter(|_| command.state == CommandState::Blocked).map(name),
    }
}

table! {
    /// The row of the narrow table.
    each StatusRow(command: Command) {
        command: "uuid" = command.id.0,
        work: "uuid" = command.work.0,
        tenant: "text" = command.spec.tenant.as_str(),
    }
    changing {
        due_at: "bigint" = command.due_at,
        line: "bigint" = command.body.tool.ordered.then(|| line(&target_key(command))),
        state: "smallint" = i16::from(command.state.code()),
        duty: "smallint" =
            due::duty(command).filter(|_| command.due_at.is_some()).map(|duty| i16::from(duty.code())),
    }
}

fn command(row: &Row) -> Result<Command, Error> {
    CommandRow::read(row, 0)
}

/// The places of the results of one round.
#[derive(Default)]
pub(super) struct Loading {
    works: Option<usize>,
    ids: Option<usize>,
    keys: Option<usize>,
    open: Option<usize>,
    outgoing: Option<usize>,
    earlier: Option<usize>,
    heads: Option<usize>,
    budgets: Option<usize>,
}

pub(super) fn load<'a>(pipeline: &mut Pipeline<'a>, load_set: &'a LoadSet) -> Loading {
    let mut loading = Loading::default();
    if !load_set.command_ids.is_empty() {
        let ids: Vec<Uuid> = load_set.command_ids.iter().map(|id| id.0).collect();
        loading.works = Some(pipeline.add(WORKS_OF, params![ids]));
    }
    let (mut ids, mut keys, mut open, mut outgoing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for sought in &load_set.commands {
        match sought {
            Sought::Id(id) => ids.push(id.0),
            Sought::Key(work, key) => keys.push((work.0, &key.0[..])),
            Sought::Open(work) => open.push(work.0),
            Sought::Outgoing(work) => outgoing.push(work.0),
        }
    }
    loading.ids = pipeline.add_if(!ids.is_empty(), BY_ID, || params![distinct(ids)]);
    loading.keys = pipeline.add_if(!keys.is_empty(), BY_KEY, || {
        let (works, keys): (Vec<Uuid>, Vec<&[u8]>) = distinct(keys).into_iter().unzip();
        params![works, keys]
    });
    loading.open = pipeline.add_if(!open.is_empty(), OPEN, || params![distinct(open)]);
    loading.outgoing = pipeline.add_if(!outgoing.is_empty(), OUTGOING, || params![distinct(outgoing)]);
    loading.earlier = pipeline.add_if(!load_set.earlier.is_empty(), EARLIER, || {
        let wanted = distinct(load_set.earlier.iter().map(|(work, key)| (work.0, &key.0[..])).collect());
        let (works, keys): (Vec<Uuid>, Vec<&[u8]>) = wanted.into_iter().unzip();
        params![works, keys]
    });
    loading.heads = pipeline.add_if(!load_set.heads.is_empty(), HEADS, || {
        params![distinct(load_set.heads.iter().map(line).collect())]
    });
    if !load_set.budgets.is_empty() {
        let keys = distinct(load_set.budgets.iter().map(BudgetKey::text).collect::<Vec<String>>());
        pipeline.add(OPEN_BUDGETS, params![keys.clone()]);
        loading.budgets = Some(pipeline.add(LOCK_BUDGETS, params![keys]));
    }
    loading
}

/// Sorted, without duplicates.
fn distinct<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

impl Loading {
    pub fn take(self, results: &mut Results, load_set: &LoadSet, records: &mut Records) -> Result<(), Error> {
        for row in results.maybe(self.works) {
            records.command_ids.insert(CommandId(get(&row, 0)?), row::id(&row, 1)?);
        }
        records.looked_for.extend(&load_set.commands);
        for rows in [self.ids, self.keys, self.open, self.outgoing] {
            for row in results.maybe(rows) {
                records.take_in(command(&row)?);
            }
        }
        records.earlier.extend(load_set.earlier.iter().map(|key| (*key, None)));
        for row in results.maybe(self.earlier) {
            let after = CommandRow::COLUMNS.len();
            let key: Digest = row::digest(get(&row, after + 1)?)?;
            records.earlier.insert((row::id(&row, after)?, key), Some(command(&row)?));
        }
        let mut heads = BTreeMap::new();
        for row in results.maybe(self.heads) {
            heads.insert(get::<i64>(&row, 0)?, get::<Option<Uuid>>(&row, 1)?.map(CommandId));
        }
        for key in &load_set.heads {
            records.heads.insert(key.clone(), heads.get(&line(key)).copied().flatten());
        }
        let mut budgets = BTreeMap::new();
        for row in results.maybe(self.budgets) {
            budgets.insert(get::<String>(&row, 0)?, budget::budget(&row)?);
        }
        for key in &load_set.budgets {
            records.budgets.insert(key.clone(), budgets.get(&key.text()).copied().unwrap_or_default());
        }
        Ok(())
    }
}

/// One column of a list.
fn each<'a, T, U>(rows: &'a [T], column: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(column).collect()
}

/// Runs after the events. A superseded command must give up its key before its successor takes it.
pub(super) fn save<'a>(pipeline: &mut Pipeline<'a>, batch: &'a Batch) {
    let commands = batch.commands();
    let touched = |wanted: &dyn Fn(Touch) -> bool| -> Vec<&'a Command> {
        commands.iter().filter(|(_, touch)| wanted(*touch)).map(|(command, _)| *command).collect()
    };
    let changed = touched(&|touch| touch == Touch::Event);
    pipeline.add_if(!changed.is_empty(), UPDATE, || {
        let mut params = params![each(&changed, |c| c.id.0)];
        CommandRow::bind_changing(&changed, &mut params);
        CommandKeys::bind(&changed, &mut params);
        params
    });
    let armed = touched(&|touch| touch < Touch::Event);
    pipeline.add_if(!armed.is_empty(), ARM, || params![each(&armed, |c| c.id.0), each(&armed, |c| c.due_at)]);
    let new = touched(&|touch| touch == Touch::Insert);
    pipeline.add_if(!new.is_empty(), INSERT, || {
        let mut params = Vec::new();
        CommandRow::bind(&new, &mut params);
        CommandSpecKeys::bind(&new, &mut params);
        CommandKeys::bind(&new, &mut params);
        params
    });
    let all = touched(&|_| true);
    pipeline.add_if(!all.is_empty(), STATUS, || {
        let mut params = Vec::new();
        StatusRow::bind(&all, &mut params);
        params
    });
    let budgets = batch.budgets();
    pipeline.add_if(!budgets.is_empty(), SAVE_BUDGETS, || {
        params![
            each(&budgets, |(key, _)| key.text()),
            each(&budgets, |(_, budget)| amount(budget.spent)),
            each(&budgets, |(_, budget)| amount(budget.reserved)),
        ]
    });
}

/// A larger amount does not fit any budget, so it may be cut off at the largest number that the column can store.
fn amount(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

impl Reader {
    pub async fn next_due_command(&self, duty: Duty) -> Result<Option<Millis>, Error> {
        let rows = self.look(&NEXT_DUE, true, || params![i16::from(duty.code())]).await?;
        let due: Result<Vec<Millis>, Error> = rows.iter().map(|row| get(row, 0)).collect();
        Ok(due?.into_iter().min())
    }
}

impl CommandStore for Postgres {
    fn commands<'a>(&'a self, ids: &'a [CommandId]) -> StoreFuture<'a, Listed<Command, CommandId>> {
        Box::pin(async move {
            let wanted: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
            let rows = self.points.query(BY_ID, params![wanted]).await?;
            let mut found = row::listed(&rows, usize::MAX, key, command)?;
            let mut by_id: BTreeMap<CommandId, Command> = found.rows.into_iter().map(|c| (c.id, c)).collect();
            found.rows = ids.iter().filter_map(|id| by_id.remove(id)).collect();
            Ok(found)
        })
    }

    fn list_commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> StoreFuture<'a, Listed<Command, CommandId>> {
        Box::pin(async move {
            let mut list = List::default();
            list.command_conditions(filter, before);
            let at_most = list.param(limit as i64);
            let wanted = list.wanted.join(" AND ");
            let columns = statement!({ names_of("c", CommandRow::COLUMNS) });
            let states = filter.admitted().map(|states| {
                let codes: Vec<i16> = states.iter().map(|state| i16::from(state.code())).collect();
                list.param(codes)
            });
            let sql = match states {
                // For some tenants, the rows of others are not read.
                None if filter.work.is_none()
                    && let Some(Tenants::Only(tenants)) = &filter.tenants =>
                {
                    let tenants = list.param(tenants.as_slice());
                    format!(
                        "SELECT {columns} FROM unnest({tenants}::text[]) AS o(tenant) CROSS JOIN LATERAL ( \
                         SELECT c.* FROM command_status s JOIN command c ON c.id = s.command \
                         WHERE s.tenant = o.tenant AND {wanted} ORDER BY s.command DESC LIMIT {at_most}) c \
                         ORDER BY c.id DESC LIMIT {at_most}"
                    )
                }
                None => format!(
                    "SELECT {columns} FROM command_status s JOIN command c ON c.id = s.command WHERE {wanted} \
                     ORDER BY s.command DESC LIMIT {at_most}"
                ),
                Some(codes) => format!(
                    "SELECT {columns} FROM unnest({codes}::smallint[]) AS k(state) CROSS JOIN LATERAL ( \
                     SELECT c.* FROM command_status s JOIN command c ON c.id = s.command \
                     WHERE s.state = k.state AND {wanted} ORDER BY s.command DESC LIMIT {at_most}) c \
                     ORDER BY c.id DESC LIMIT {at_most}"
                ),
            };
            row::listed(&self.lists.page(&sql, &list.params).await?, limit, key, command)
        })
    }

    fn command_counts<'a>(&'a self, tenants: &'a Tenants) -> StoreFuture<'a, BTreeMap<CommandState, u64>> {
        Box::pin(async move {
            let rows = self.lists.query(COUNTS, params![listed(tenants)]).await?;
            rows.iter().map(|row| Ok((state(get(row, 0)?)?, get::<i64>(row, 1)? as u64))).collect()
        })
    }

    fn heads<'a>(&'a self, lines: &'a [TargetKey]) -> StoreFuture<'a, Vec<Option<CommandId>>> {
        Box::pin(async move {
            let mut heads = BTreeMap::new();
            for row in self.points.query(HEADS, params![distinct(lines.iter().map(line).collect())]).await? {
                heads.insert(get::<i64>(&row, 0)?, get::<Option<Uuid>>(&row, 1)?.map(CommandId));
            }
            Ok(lines.iter().map(|key| heads.get(&line(key)).copied().flatten()).collect())
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
        Box::pin(async move {
            let (due, command) = after.map_or((i64::MIN, Uuid::nil()), |(due, id)| (due, id.0));
            let params = || params![i16::from(duty.code()), at, due, command, except, limit as i64];
            let rows = self.points.look(&DUE, after.is_none(), params).await?;
            let due: Result<Vec<_>, Error> =
                rows.iter().map(|row| Ok((get(row, 0)?, CommandId(get(row, 1)?)))).collect();
            Ok(first(due?, limit))
        })
    }

    fn due_lookups<'a>(
        &'a self,
        tenants: &'a [String],
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<(Millis, CommandId)>> {
        Box::pin(async move {
            let (due, command) = after.map_or((i64::MIN, Uuid::nil()), |(due, id)| (due, id.0));
            let rows = self.points.query(LOOKUPS, params![tenants, at, due, command, limit as i64]).await?;
            rows.iter().map(|row| Ok((get(row, 0)?, CommandId(get(row, 1)?)))).collect()
        })
    }

    fn next_due_command(&self, duty: Duty) -> StoreFuture<'_, Option<Millis>> {
        Box::pin(self.points.next_due_command(duty))
    }
}

impl<'a> List<'a> {
    fn command_conditions(&mut self, filter: &'a CommandFilter, before: Option<CommandId>) {
        self.wanted.push("true".to_owned());
        self.names("s.tenant", filter.tenants.as_ref());
        if let Some(work) = filter.work {
            self.want("s.work =", work.0);
        }
        if let Some(before) = before {
            self.want("s.command <", before.0);
        }
        for (column, value) in [("c.tool =", &filter.tool), ("c.target =", &filter.target)] {
            if let Some(value) = value {
                self.want(column, value.as_str());
            }
        }
        if let Some(at) = filter.created_after {
            self.want("c.created_at >", at);
        }
        if let Some(at) = filter.created_before {
            self.want("c.created_at <", at);
        }
        if filter.needs_person {
            self.wanted.push("c.needs_person".to_owned());
        }
        if filter.needs_approval {
            self.wanted.push("c.blocked = 'approval_required'".to_owned());
        }
    }
}
