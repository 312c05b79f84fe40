//! Loads the records for a decision. It reads one key at a time: with prepared statements, an index search is cheaper
//! here than a set-based query.

use std::{collections::hash_map::Entry, sync::Arc};

use rusqlite::{CachedStatement, Params, Row, params};
use tenure_core::{
    Identity, LoadSet, Records, Submission, WaitId, Work, WorkId,
    records::{SessionView, TenantKey},
};

use super::{
    fault::Fault,
    log::RowRef,
    row::{self, AttemptEndRow, KeptRow, Read, StepRow, WaitRow},
    tables::Tables,
};
use crate::{
    columns::{MAC, names, statement},
    states::sql,
};

/// The maximum number of loading rounds. Rows that are still missing then count as absent.
const ROUNDS: usize = 6;

const NEWEST: &str = "SELECT id FROM work \
     WHERE tenant = ?1 AND system = ?2 AND source_id = ?3 AND run_id = ?4 ORDER BY generation DESC LIMIT 1";
const PRUNED_IDENTITY: &str = "SELECT 1 FROM tombstone \
     WHERE tenant = ?1 AND system = ?2 AND source_id = ?3 AND run_id = ?4 LIMIT 1";
const REFERENCES: &str = "SELECT DISTINCT work FROM wait WHERE tenant = ?1 AND reference = ?2";
const WAIT_IDS: &str = "SELECT work FROM wait WHERE id = ?1";
const REQUESTS: &str = "SELECT work, fence FROM attempt WHERE request = ?1 ORDER BY work, fence";
pub(super) const SESSION_HOLDER: &str = sql!(
    "SELECT work FROM status INDEXED BY status_holder \
     WHERE tenant = ?1 AND session = ?2 AND {state is held}"
);
pub(super) const SESSION_HEAD: &str = sql!(
    "SELECT work FROM status INDEXED BY status_line \
     WHERE tenant = ?1 AND session = ?2 AND {state is pending} ORDER BY created_at, work LIMIT 1"
);
const ENDS: &str =
    statement!("SELECT " { names(AttemptEndRow::COLUMNS) } " FROM attempt WHERE work = ?1 AND fence = ?2");
pub(super) const STEPS: &str =
    statement!("SELECT " { names(StepRow::COLUMNS) } " FROM step WHERE work = ?1 ORDER BY ordinal");
const WAITS: &str =
    statement!("SELECT " { names(WaitRow::COLUMNS) } " FROM wait WHERE work = ?1 ORDER BY opened_at, id");
pub(super) const KEPT: &str = statement!(
    "SELECT " { names(KeptRow::COLUMNS) } ", " { names(MAC) } " FROM kept WHERE tenant = ?1 AND reference = ?2"
);
const KEPT_COUNTS: &str = "SELECT count(*) FROM kept WHERE tenant = ?1";

impl<'c> Tables<'c> {
    /// Loads everything that these submissions need and the records lack.
    pub fn gather<'s>(
        &mut self,
        submissions: impl Iterator<Item = &'s Submission> + Clone,
        records: &mut Records,
    ) -> Read<()> {
        let mut load_set = LoadSet::default();
        submissions.clone().for_each(|submission| load_set.first(submission));
        for _ in 0..ROUNDS {
            if load_set.is_empty() {
                return Ok(());
            }
            self.load(&load_set, records)?;
            load_set = LoadSet::default();
            submissions.clone().for_each(|submission| load_set.then(submission, records));
        }
        Ok(())
    }

    fn load(&mut self, load_set: &LoadSet, records: &mut Records) -> Read<()> {
        records.works.reserve(load_set.works.len());
        records.looked_for.reserve(load_set.commands.len());
        records.command_ids.reserve(load_set.commands.len());
        for id in &load_set.works {
            self.load_work(*id, records)?;
        }
        for identity in &load_set.identities {
            self.load_identity(identity, records)?;
        }
        for key in &load_set.references {
            self.load_reference(key, records)?;
            self.load_kept(key, records)?;
        }
        for id in &load_set.wait_ids {
            self.load_wait_id(*id, records)?;
        }
        for request in &load_set.requests {
            if !records.requests.contains_key(request) {
                let given = self.all(REQUESTS, [request.0], |row| {
                    Ok((WorkId(row::uuid(row, 0)?), row.get::<_, i64>(1)? as u64))
                })?;
                for (work, _) in &given {
                    self.load_work(*work, records)?;
                }
                records.requests.insert(*request, given);
            }
        }
        for key in &load_set.sessions {
            if !records.sessions.contains_key(key) {
                let view = self.session(key)?;
                records.sessions.insert(key.clone(), view);
            }
        }
        for id in &load_set.peers {
            if !records.peers.contains_key(id) {
                let work = self.work(*id)?;
                records.peers.insert(*id, work);
            }
        }
        self.load_parts(load_set, records)?;
        self.load_commands(load_set, records)
    }

    fn load_parts(&mut self, load_set: &LoadSet, records: &mut Records) -> Read<()> {
        for (work, fence) in &load_set.ends {
            if let Entry::Vacant(entry) = records.ends.entry((*work, *fence)) {
                let key = params![work.0.as_bytes(), *fence as i64];
                entry.insert(self.one(ENDS, key, |row| AttemptEndRow::read(row, 0))?.flatten().map(Arc::new));
            }
        }
        for id in &load_set.steps {
            if let Entry::Vacant(entry) = records.steps.entry(*id) {
                entry.insert(self.all(STEPS, [id.0.as_bytes()], |row| StepRow::read(row, 0))?);
            }
        }
        for id in &load_set.waits {
            if let Entry::Vacant(entry) = records.waits.entry(*id) {
                entry.insert(self.all(WAITS, [id.0.as_bytes()], |row| WaitRow::read(row, 0))?);
            }
        }
        for key in &load_set.kept {
            self.load_kept(key, records)?;
        }
        for tenant in &load_set.kept_counts {
            if let Entry::Vacant(entry) = records.kept_counts.entry(tenant.clone()) {
                let count = self.one(KEPT_COUNTS, [tenant], |row| Ok(row.get::<_, i64>(0)?))?;
                entry.insert(count.unwrap_or(0) as usize);
            }
        }
        for id in &load_set.inputs {
            if !records.inputs.contains_key(id) {
                let input = self.payload(*id, 1)?;
                records.inputs.insert(*id, input);
            }
        }
        Ok(())
    }

    pub fn load_work(&mut self, id: WorkId, records: &mut Records) -> Read<()> {
        if records.works.contains_key(&id) {
            return Ok(());
        }
        if let Some((place, remembered)) = self.works.take(id) {
            self.places.insert(id, place);
            remembered.recall(records);
        } else if let Some(work) = self.work(id)? {
            records.works.insert(id, Arc::new(work));
        }
        Ok(())
    }

    fn load_identity(&mut self, identity: &Identity, records: &mut Records) -> Read<()> {
        if let Entry::Vacant(entry) = records.identities.entry(identity.clone()) {
            let source = &identity.source;
            let key = [&identity.tenant, &source.system, &source.id, &source.run_id];
            let newest = self.one(NEWEST, key, |row| Ok(WorkId(row::uuid(row, 0)?)))?;
            if newest.is_none() && self.one(PRUNED_IDENTITY, key, |_| Ok(()))?.is_some() {
                records.pruned.insert(identity.clone());
            }
            entry.insert(newest);
        }
        Ok(())
    }

    fn load_reference(&mut self, key: &TenantKey, records: &mut Records) -> Read<()> {
        if records.references.contains_key(key) {
            return Ok(());
        }
        let works = self.all(REFERENCES, params![key.0, key.1], |row| Ok(WorkId(row::uuid(row, 0)?)))?;
        for work in &works {
            self.load_work(*work, records)?;
        }
        records.references.insert(key.clone(), works);
        Ok(())
    }

    fn load_wait_id(&mut self, id: WaitId, records: &mut Records) -> Read<()> {
        if !records.wait_ids.contains_key(&id)
            && let Some(work) = self.one(WAIT_IDS, [id.0.as_bytes()], |row| Ok(WorkId(row::uuid(row, 0)?)))?
        {
            self.load_work(work, records)?;
            records.wait_ids.insert(id, work);
        }
        Ok(())
    }

    fn load_kept(&mut self, key: &TenantKey, records: &mut Records) -> Read<()> {
        if let Entry::Vacant(entry) = records.kept.entry(key.clone()) {
            let with_mac =
                |found: &Row<'_>| Ok((KeptRow::read(found, 0)?, row::mac(found, KeptRow::COLUMNS.len())?));
            let found = self.one(KEPT, params![key.0, key.1], with_mac)?;
            entry.insert(found.and_then(|(kept, mac)| self.key.genuine(kept, mac)));
        }
        Ok(())
    }

    pub fn work(&mut self, id: WorkId) -> Read<Option<Work>> {
        let mut rows = self.hot.work.query([id.0.as_bytes()])?;
        let Some(found) = rows.next()? else { return Ok(None) };
        let work = row::work(found, &mut self.specs, &mut self.hot.spec)?;
        let place = RowRef { rowid: found.get(0)?, last_event: found.get(1)?, seq: work.seq };
        self.places.insert(id, place);
        Ok(Some(work))
    }

    pub fn session(&mut self, key: &TenantKey) -> Read<SessionView> {
        let id = |row: &Row<'_>| Ok(WorkId(row::uuid(row, 0)?));
        let holder = self.one(SESSION_HOLDER, params![key.0, key.1], id)?;
        let head = self.one(SESSION_HEAD, params![key.0, key.1], id)?;
        Ok(SessionView { holder, head, unsure: false })
    }

    pub fn cached(&self, sql: &'static str) -> Read<CachedStatement<'c>> {
        self.conn.prepare_cached(sql).map_err(Fault::from)
    }

    pub fn one<T>(
        &self,
        sql: &'static str,
        key: impl Params,
        read: impl Fn(&Row<'_>) -> Read<T>,
    ) -> Read<Option<T>> {
        let mut statement = self.cached(sql)?;
        let mut rows = statement.query(key)?;
        rows.next()?.map(read).transpose()
    }

    pub fn all<T>(
        &self,
        sql: &'static str,
        key: impl Params,
        read: impl Fn(&Row<'_>) -> Read<T>,
    ) -> Read<Vec<T>> {
        let mut statement = self.cached(sql)?;
        let mut rows = statement.query(key)?;
        let mut all = Vec::new();
        while let Some(found) = rows.next()? {
            all.push(read(found)?);
        }
        Ok(all)
    }
}
