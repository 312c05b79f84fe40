//! Commands: loaded, saved, listed. Works without commands never come here.

use std::{collections::BTreeMap, collections::hash_map::Entry, sync::Arc};

use rusqlite::{Row, params, params_from_iter};
use tenure_core::{
    Command, CommandId, CommandState, Millis, Records, Scope, WorkId,
    action::Tenants,
    command::{
        Duty,
        budget::{Budget, BudgetKey},
        due,
    },
    document::Document,
    records::{Sought, TargetKey, Touch, target_key},
};

use super::{
    fault::Fault,
    read::{Conditions, Reader, bound},
    row::{self, Read},
    tables::Tables,
};
use crate::{CommandFilter, batch::Batch, line::line};

macro_rules! columns {
    () => {
        "c.id, c.work, c.spec, c.state, c.seq, c.created_at, c.updated_at, c.due_at, c.body"
    };
}

const BY_ID: &str = concat!("SELECT ", columns!(), " FROM command c WHERE c.id = ?1");
const BY_KEY: &str =
    concat!("SELECT ", columns!(), " FROM command c WHERE c.work = ?1 AND c.key = ?2 AND c.superseded = 0");
/// The worker's, that something may still happen to.
const OPEN: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM command_status s INDEXED BY command_work CROSS JOIN command c ON c.id = s.command \
     WHERE s.work = ?1 AND s.state <= 4 AND c.executor = 'worker' ORDER BY c.id"
);
const WORK_OF: &str = "SELECT work FROM command WHERE id = ?1";
/// The newest of all earlier generations that was sent, or may yet be.
const EARLIER: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM work n CROSS JOIN work w ON w.tenant = n.tenant AND w.system = n.system \
     AND w.source_id = n.source_id AND w.run_id = n.run_id AND w.generation < n.generation \
     CROSS JOIN command c ON c.work = w.id AND c.key = ?2 AND c.superseded = 0 \
     WHERE n.id = ?1 AND (c.state = 5 OR c.dispatches > 0 OR (c.executor <> 'worker' AND c.state <= 4)) \
     ORDER BY w.generation DESC LIMIT 1"
);
const HEAD: &str = "SELECT command FROM command_status INDEXED BY command_line \
     WHERE line = ?1 AND line IS NOT NULL AND state <= 4 ORDER BY command LIMIT 1";
const BUDGET: &str = "SELECT spent, reserved FROM budget WHERE key = ?1";

const ALL_BUDGETS: &str = "SELECT spent, reserved, key FROM budget WHERE key > ?1 ORDER BY key LIMIT ?2";
const ANY_PRUNED: &str = "SELECT EXISTS (SELECT 1 FROM tombstone)";

pub const INSERT: &str = "INSERT OR ROLLBACK INTO command (id, work, tenant, tool, target, executor, key, input_hash, \
     created_at, spec, state, seq, updated_at, due_at, dispatches, superseded, blocked, needs_person, body) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";
pub const UPDATE: &str = "UPDATE OR ROLLBACK command SET state = ?2, seq = ?3, updated_at = ?4, due_at = ?5, \
     dispatches = ?6, superseded = ?7, blocked = ?8, needs_person = ?9, body = ?10 WHERE id = ?1";
const ARM: &str = "UPDATE OR ROLLBACK command SET due_at = ?2 WHERE id = ?1";
pub const STATUS: &str = "INSERT OR ROLLBACK INTO command_status (command, work, tenant, state, duty, due_at, line) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (command) DO UPDATE SET state = excluded.state, \
     duty = excluded.duty, due_at = excluded.due_at, line = excluded.line";
const SAVE_BUDGET: &str = "INSERT OR ROLLBACK INTO budget (key, spent, reserved) VALUES (?1, ?2, ?3) \
     ON CONFLICT (key) DO UPDATE SET spent = excluded.spent, reserved = excluded.reserved";

/// What is to be sent in order is due only where nothing of its line comes first.
const DUE: &str = "SELECT s.due_at, s.command FROM command_status s INDEXED BY command_due \
     WHERE s.duty = ?1 AND s.due_at IS NOT NULL AND s.due_at <= ?2 AND (s.due_at, s.command) > (?3, ?4) \
     AND (s.duty <> 1 OR s.line IS NULL OR NOT EXISTS (SELECT 1 FROM command_status e INDEXED BY command_line \
     WHERE e.line = s.line AND e.line IS NOT NULL AND e.state <= 4 AND e.command < s.command)) \
     ORDER BY s.due_at, s.command LIMIT ?5";
const NEXT_DUE: &str = "SELECT due_at FROM command_status INDEXED BY command_due \
     WHERE duty = ?1 AND due_at IS NOT NULL ORDER BY due_at LIMIT 1";

pub(super) fn state(row: &Row<'_>, column: usize) -> Read<CommandState> {
    let code: u8 = row.get(column)?;
    let known = CommandState::from_code(code);
    known.ok_or_else(|| Fault::stored(format!("there is no command state {code}")))
}

fn command(row: &Row<'_>) -> Read<Command> {
    Ok(Command {
        id: CommandId(row::uuid(row, 0)?),
        work: WorkId(row::uuid(row, 1)?),
        spec: Arc::new(row::json(row, 2)?),
        state: state(row, 3)?,
        seq: row.get::<_, i64>(4)? as u64,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
        due_at: row.get(7)?,
        body: Document::stored(row::text(row, 8)?).map_err(Fault::stored)?,
    })
}

fn budget(row: &Row<'_>) -> Read<Budget> {
    Ok(Budget { spent: row.get::<_, i64>(0)? as u64, reserved: row.get::<_, i64>(1)? as u64 })
}

impl Tables<'_> {
    pub fn load_commands(&mut self, scope: &Scope, records: &mut Records) -> Read<()> {
        for id in &scope.command_ids {
            if !records.command_ids.contains_key(id)
                && let Some(work) =
                    self.one(WORK_OF, [id.0.as_bytes()], |row| Ok(WorkId(row::uuid(row, 0)?)))?
            {
                self.load_work(work, records)?;
                records.command_ids.insert(*id, work);
            }
        }
        for sought in &scope.commands {
            if !records.looked_for.insert(*sought) || !sought.may_be_there(records) {
                continue;
            }
            let found = match sought {
                Sought::Id(id) => self.all(BY_ID, [id.0.as_bytes()], command)?,
                Sought::Key(work, key) => {
                    self.all(BY_KEY, params![work.0.as_bytes(), &key.0[..]], command)?
                }
                Sought::Open(work) => self.all(OPEN, [work.0.as_bytes()], command)?,
            };
            found.into_iter().for_each(|command| records.take_in(command));
        }
        for (work, key) in &scope.earlier {
            if let Entry::Vacant(entry) = records.earlier.entry((*work, *key)) {
                entry.insert(self.one(EARLIER, params![work.0.as_bytes(), &key.0[..]], command)?);
            }
        }
        for key in &scope.heads {
            if !records.heads.contains_key(key) {
                let head = self.one(HEAD, [line(key)], |row| Ok(CommandId(row::uuid(row, 0)?)))?;
                records.heads.insert(key.clone(), head);
            }
        }
        for key in &scope.budgets {
            if let Entry::Vacant(entry) = records.budgets.entry(key.clone()) {
                entry.insert(self.one(BUDGET, [key.text()], budget)?.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// What is superseded makes room before what takes its place.
    pub fn save_commands(&mut self, batch: &Batch) -> Read<()> {
        let commands = batch.commands();
        for new in [false, true] {
            for (command, touch) in commands.iter().filter(|(_, touch)| (*touch == Touch::Insert) == new) {
                self.save_command(command, *touch)?;
            }
        }
        for (key, budget) in batch.budgets() {
            let values = params![key.text(), amount(budget.spent), amount(budget.reserved)];
            self.cached(SAVE_BUDGET)?.execute(values)?;
        }
        Ok(())
    }

    fn save_command(&mut self, command: &Command, touch: Touch) -> Read<()> {
        let (id, spec, body) = (command.id.0.as_bytes(), &command.spec, &command.body);
        let blocked = body.blocked.filter(|_| command.state == CommandState::Blocked).map(row::name_of);
        let superseded = !command.is_current();
        match touch {
            Touch::Insert => self.cached(INSERT)?.execute(params![
                id,
                command.work.0.as_bytes(),
                spec.tenant,
                spec.tool,
                spec.target,
                row::name_of(spec.executor),
                &spec.key.0[..],
                &spec.input_hash.0[..],
                command.created_at,
                row::to_json(&**spec)?,
                command.state.code(),
                command.seq as i64,
                command.updated_at,
                command.due_at,
                body.dispatches,
                superseded,
                blocked,
                body.needs_person,
                body.text(),
            ])?,
            Touch::Event => self.cached(UPDATE)?.execute(params![
                id,
                command.state.code(),
                command.seq as i64,
                command.updated_at,
                command.due_at,
                body.dispatches,
                superseded,
                blocked,
                body.needs_person,
                body.text(),
            ])?,
            Touch::Due | Touch::Flags | Touch::Renewal => {
                self.cached(ARM)?.execute(params![id, command.due_at])?
            }
        };
        let duty = due::duty(command).filter(|_| command.due_at.is_some()).map(Duty::code);
        let place = body.tool.ordered.then(|| line(&target_key(command)));
        self.cached(STATUS)?.execute(params![
            id,
            command.work.0.as_bytes(),
            spec.tenant,
            command.state.code(),
            duty,
            command.due_at,
            place
        ])?;
        Ok(())
    }
}

/// Beyond what the column holds nothing fits any budget anyway.
fn amount(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

impl Reader {
    pub fn commands(&mut self, ids: &[CommandId]) -> Read<Vec<Command>> {
        let mut commands = Vec::with_capacity(ids.len());
        for id in ids {
            commands.extend(self.all(BY_ID, [id.0.as_bytes()], command)?);
        }
        Ok(commands)
    }

    pub fn list_commands(
        &mut self,
        filter: &CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> Read<Vec<Command>> {
        let mut all = Conditions::default().and_tenants("s.tenant", filter.tenants.as_ref());
        if let Some(states) = filter.admitted() {
            let codes: Vec<String> = states.iter().map(|state| state.code().to_string()).collect();
            all = all.plain(format!("s.state IN ({})", codes.join(", ")));
        }
        if let Some(work) = filter.work {
            all = all.and("s.work = ?", work.0.as_bytes().to_vec());
        }
        if let Some(before) = before {
            all = all.and("s.command < ?", before.0.as_bytes().to_vec());
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
        let lead =
            concat!("SELECT ", columns!(), " FROM command_status s CROSS JOIN command c ON c.id = s.command");
        let (sql, values) = all.select(lead, "ORDER BY s.command DESC", limit);
        self.all(&sql, params_from_iter(values), command)
    }

    pub fn command_counts(&mut self, tenants: &Tenants) -> Read<BTreeMap<CommandState, u64>> {
        let conditions = Conditions::default().and_tenants("tenant", Some(tenants));
        let lead = "SELECT state, count(*) FROM command_status";
        let (sql, values) = conditions.select(lead, "GROUP BY state", usize::MAX);
        let counts = self.all(&sql, params_from_iter(values), |row| {
            Ok((row.get::<_, u8>(0)?, row.get::<_, i64>(1)? as u64))
        })?;
        let known = |(code, count)| Some((CommandState::from_code(code)?, count));
        Ok(counts.into_iter().filter_map(known).collect())
    }

    pub fn due_commands(
        &mut self,
        duty: Duty,
        at: Millis,
        after: Option<(Millis, CommandId)>,
        limit: usize,
    ) -> Read<Vec<(Millis, CommandId)>> {
        let (due, command) = match &after {
            Some((due, command)) => (*due, &command.0.as_bytes()[..]),
            None => (Millis::MIN, &[][..]),
        };
        self.all(DUE, params![duty.code(), at, due, command, bound(limit)], |row| {
            Ok((row.get(0)?, CommandId(row::uuid(row, 1)?)))
        })
    }

    pub fn heads(&mut self, lines: &[TargetKey]) -> Read<Vec<Option<CommandId>>> {
        let mut heads = Vec::with_capacity(lines.len());
        for key in lines {
            heads.push(self.all(HEAD, [line(key)], |row| Ok(CommandId(row::uuid(row, 0)?)))?.pop());
        }
        Ok(heads)
    }

    pub fn next_due_command(&mut self, duty: Duty) -> Read<Option<Millis>> {
        Ok(self.all(NEXT_DUE, [duty.code()], |row| Ok(row.get(0)?))?.into_iter().next())
    }

    pub fn budgets(&mut self, keys: &[BudgetKey]) -> Read<Vec<(BudgetKey, Budget)>> {
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let here = self.all(BUDGET, [key.text()], budget)?;
            found.extend(here.into_iter().map(|budget| (key.clone(), budget)));
        }
        Ok(found)
    }

    pub fn all_budgets(&mut self, after: &str, limit: usize) -> Read<Vec<(BudgetKey, Budget)>> {
        self.all(ALL_BUDGETS, params![after, bound(limit)], |row| Ok((row::json(row, 2)?, budget(row)?)))
    }

    pub fn any_pruned(&mut self) -> Read<bool> {
        Ok(self.all(ANY_PRUNED, [], |row| Ok(row.get(0)?))?.pop().unwrap_or(false))
    }
}
