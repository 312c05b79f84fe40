//! A page of a list: the rows, the rows that cannot be read, and the key of the next page. A damaged row
//! never fails a list.

use std::{ops::Deref, slice, vec};

use tenure_core::WorkId;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use tenure_core::{CommandId, CredentialId, Millis, WaitId};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::schedule;
use crate::{Error, Position};

/// A stored row that cannot be read. `verify` reports details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its id; for an event, its work item and number; for a schedule, its tenant and name.
    pub id: String,
    /// The work item that it is or belongs to.
    pub work: Option<WorkId>,
    /// Why it cannot be read.
    pub why: String,
    /// A newer version wrote it: there is no damage.
    pub newer: bool,
}

impl Unreadable {
    /// For callers that cannot continue without the row.
    pub(crate) fn error(&self) -> Error {
        if self.newer { Error::Newer(self.why.clone()) } else { Error::Corrupt(self.why.clone()) }
    }
}

/// A page of rows, with `K` as the key for paging.
#[derive(Clone, Debug)]
pub struct Listed<T, K> {
    /// The rows that can be read.
    pub rows: Vec<T>,
    /// The rows that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// The key of the last row, readable or not.
    pub last: Option<K>,
    /// The page is full: more rows may follow.
    pub full: bool,
}

impl<T, K> Default for Listed<T, K> {
    fn default() -> Self {
        Self { rows: Vec::new(), unreadable: Vec::new(), last: None, full: false }
    }
}

impl<T, K> Listed<T, K> {
    /// A page of at most `limit` rows that are all readable.
    pub(crate) fn of(rows: Vec<T>, limit: usize, key: impl Fn(&T) -> K) -> Self {
        Self { last: rows.last().map(key), full: rows.len() >= limit, rows, unreadable: Vec::new() }
    }

    /// The key after which the next page begins; None if this is the last page.
    pub fn next(&self) -> Option<&K> {
        self.last.as_ref().filter(|_| self.full)
    }

    /// All rows, or an error if one of them cannot be read: for callers that need every row.
    pub fn whole(self) -> Result<Vec<T>, Error> {
        match self.unreadable.into_iter().next() {
            Some(newer) if newer.newer => Err(Error::Newer(format!("{}: {}", newer.id, newer.why))),
            Some(Unreadable { id, why, .. }) => Err(Error::Corrupt(format!("{id} cannot be read: {why}"))),
            None => Ok(self.rows),
        }
    }

    /// The number of rows, readable or not.
    pub fn count(&self) -> usize {
        self.rows.len() + self.unreadable.len()
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl<T, K> Listed<T, K> {
    /// Adds the row of this key, or the reason why it cannot be read.
    pub(crate) fn take(&mut self, key: K, row: Result<T, Error>)
    where
        K: RowKey,
    {
        match row {
            Ok(row) => self.rows.push(row),
            Err(error) => {
                let newer = matches!(error, Error::Newer(_));
                let why = match error {
                    Error::Corrupt(why) => why,
                    error => error.to_string(),
                };
                let unreadable = Unreadable {
                    id: key.name(),
                    work: key.work(),
                    why: crate::schema::shortened(why),
                    newer,
                };
                tracing::warn!(id = unreadable.id, why = unreadable.why, "a stored row cannot be read");
                self.unreadable.push(unreadable);
            }
        }
        self.last = Some(key);
    }

    /// The page to return: with fewer rows than requested it is the last.
    pub(crate) fn up_to(self, limit: usize) -> Self {
        Self { full: self.count() >= limit, ..self }
    }
}

impl<T, K> Deref for Listed<T, K> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.rows
    }
}

impl<T, K> IntoIterator for Listed<T, K> {
    type Item = T;
    type IntoIter = vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<'a, T, K> IntoIterator for &'a Listed<T, K> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

/// The position of an event in the feed and in the log of its work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKey {
    /// Its position in the feed.
    pub position: Position,
    /// The work item.
    pub work: WorkId,
    /// Its number in the work item's log.
    pub seq: u64,
}

/// The key of a row, and its name in messages.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) trait RowKey {
    fn name(&self) -> String;

    fn work(&self) -> Option<WorkId> {
        None
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl RowKey for WorkId {
    fn name(&self) -> String {
        self.to_string()
    }

    fn work(&self) -> Option<WorkId> {
        Some(*self)
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl RowKey for CommandId {
    fn name(&self) -> String {
        self.to_string()
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl RowKey for CredentialId {
    fn name(&self) -> String {
        self.to_string()
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl RowKey for (Millis, WaitId) {
    fn name(&self) -> String {
        self.1.to_string()
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl RowKey for EventKey {
    fn name(&self) -> String {
        format!("{} event {}", self.work, self.seq)
    }

    fn work(&self) -> Option<WorkId> {
        Some(self.work)
    }
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl RowKey for schedule::Key {
    fn name(&self) -> String {
        format!("{}/{}", self.0, self.1)
    }
}
