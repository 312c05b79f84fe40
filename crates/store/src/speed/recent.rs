//! Work items as they were written last.

use std::sync::Arc;

use tenure_core::{Command, CommandId, Records, State, Work, WorkId, recent, records::Sought};

/// By work.
pub(crate) type Recent<T> = recent::Recent<WorkId, T>;

/// A work item as it was written last, and its worker's open commands. They change only by events of their work item, so the
/// proof that the item is unchanged is also the proof that they are.
pub(crate) struct Remembered {
    pub work: Arc<Work>,
    /// None: some of them are not in memory.
    open: Option<Vec<Command>>,
}

impl Remembered {
    /// Takes out of the records all work items that may be written to again.
    pub fn all(records: &mut Records) -> impl Iterator<Item = (WorkId, Self)> {
        let Records { works, commands, looked_for, .. } = records;
        works.extract_if(|_, work| !work.state.is_terminal()).map(move |(id, work)| {
            let mut open = None;
            if !work.body.commands.any_open() {
                open = Some(Vec::new());
            } else if looked_for.contains(&Sought::Open(id)) {
                let all = commands.remove(&id).unwrap_or_default();
                open = Some(all.into_iter().filter(|one| one.is_worker() && one.state.is_open()).collect());
            }
            (id, Self { work, open })
        })
    }

    /// Forgets the commands where one of them has a due date: that moves without an event.
    pub fn without_dated(mut self) -> Self {
        self.open = self.open.filter(|open| open.iter().all(|command| command.due_at.is_none()));
        self
    }

    pub fn has_none(&self) -> bool {
        self.work.body.commands.total == 0
    }

    pub fn knows_open(&self) -> bool {
        self.open.is_some()
    }

    pub fn open_ids(&self) -> impl Iterator<Item = CommandId> {
        self.open.iter().flatten().map(|command| command.id)
    }

    /// Puts it into the records, as if the store had just read it.
    pub fn recall(self, records: &mut Records) {
        let id = self.work.id;
        records.works.insert(id, self.work);
        for command in self.open.into_iter().flatten() {
            records.looked_for.extend([Sought::Open(id), Sought::Id(command.id)]);
            records.take_in(command);
        }
    }
}

/// Held work items in each generation: renewals and progress come back to them.
const HELD: usize = 16_384;

/// Other work items: one is often claimed soon after it was queued, but a long queue must not push out those that are
/// held.
const OTHERS: usize = 2_048;

/// Work items as they were written last. Ended ones are not kept: nothing is written to them again.
pub(crate) struct RecentWorks<T> {
    held: Recent<T>,
    others: Recent<T>,
}

impl<T> Default for RecentWorks<T> {
    fn default() -> Self {
        Self { held: Recent::new(HELD), others: Recent::new(OTHERS) }
    }
}

impl<T> RecentWorks<T> {
    pub fn contains(&self, id: WorkId) -> bool {
        self.held.contains(id) || self.others.contains(id)
    }

    /// The caller that takes a work item puts it back as it is then.
    pub fn take(&mut self, id: WorkId) -> Option<T> {
        self.held.take(id).or_else(|| self.others.take(id))
    }

    pub fn put(&mut self, id: WorkId, state: State, entry: T) {
        if state.holds_session() {
            self.held.put(id, entry);
        } else if !state.is_terminal() {
            self.others.put(id, entry);
        }
    }

    pub fn clear(&mut self) {
        self.held.clear();
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn id(number: usize) -> WorkId {
        WorkId(Uuid::from_u128(number as u128))
    }

    #[test]
    fn a_long_queue_pushes_out_no_held_work_item() {
        let mut works = RecentWorks::default();
        works.put(id(0), State::Running, "held");
        (1..=3 * OTHERS).for_each(|n| works.put(id(n), State::Queued, "queued"));
        works.put(id(1), State::Succeeded, "ended");
        assert!(works.contains(id(0)) && !works.contains(id(1)));
        assert_eq!(works.take(id(0)), Some("held"));
        assert_eq!(works.take(id(0)), None);
    }
}
