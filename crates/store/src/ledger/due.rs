//! Due commands with everything that is needed to act on them, read a page at a time instead of one by one.

use std::{collections::HashMap, slice};

use tenure_core::{Command, CommandId, Millis, Payload, Work, WorkId, command::Duty, limits};

use super::{Ledger, reads::PAGE_MAX};
use crate::Error;

/// Read at a time: arguments are up to a mebibyte each, and their sizes are known only when they are read.
const CHUNK: usize = 32;

/// A due command.
#[derive(Clone, Debug)]
pub struct Due {
    /// The command.
    pub command: Command,
    /// Its work item.
    pub work: Work,
    /// None if they were erased.
    pub arguments: Option<Payload>,
}

/// A position in the list of due commands.
pub type DueCursor = (Millis, CommandId);

/// A part of the due commands, and the cursor of the next part if there is more.
#[derive(Clone, Debug, Default)]
pub struct DuePage {
    /// Commands that are due.
    pub items: Vec<Due>,
    /// Where the next page begins.
    pub next: Option<DueCursor>,
}

impl Ledger {
    /// The commands that are due now, earliest first, except those of some tenants and those that the caller
    /// skips. Of ordered tools, only the first command of each target. The page ends early if arguments are
    /// large.
    pub async fn due_page(
        &self,
        duty: Duty,
        after: Option<DueCursor>,
        except: &[String],
        limit: usize,
        skip: impl Fn(CommandId) -> bool,
    ) -> Result<DuePage, Error> {
        let limit = limit.min(PAGE_MAX);
        let now = self.now().await?;
        let rows = self.store().due_commands(duty, now, after, except, limit).await?;
        let last = rows.last().copied().filter(|_| rows.len() == limit);
        let wanted: Vec<DueCursor> = rows.into_iter().filter(|(_, id)| !skip(*id)).collect();
        let mut page = DuePage { items: Vec::with_capacity(wanted.len()), next: last };
        let mut bytes = 0;
        for (n, chunk) in wanted.chunks(CHUNK).enumerate() {
            if bytes > limits::PAGE_BYTES {
                page.next = Some(wanted[n * CHUNK - 1]);
                break;
            }
            let ids: Vec<CommandId> = chunk.iter().map(|(_, id)| *id).collect();
            let read = self.readable_items(&ids, now).await?;
            bytes += read.iter().filter_map(|due| Some(due.arguments.as_ref()?.text().len())).sum::<usize>();
            page.items.extend(read);
        }
        Ok(page)
    }

    /// The commands that can be read. The others are recorded as damaged and delay nothing.
    async fn readable_items(&self, ids: &[CommandId], now: Millis) -> Result<Vec<Due>, Error> {
        let damaged = self.store().damaged();
        match self.due_items(ids).await {
            Ok(items) => {
                if !damaged.is_empty() {
                    ids.iter().for_each(|id| damaged.remove(&id.to_string()));
                }
                return Ok(items);
            }
            Err(error) if error.is_of_stored() => {}
            Err(error) => return Err(error),
        }
        let mut items = Vec::with_capacity(ids.len());
        for id in ids {
            match self.due_items(slice::from_ref(id)).await {
                Ok(item) => {
                    damaged.remove(&id.to_string());
                    items.extend(item);
                }
                Err(error) if error.is_of_stored() => damaged.add(id.to_string(), &error, now),
                Err(error) => return Err(error),
            }
        }
        Ok(items)
    }

    /// Commands with their work items and arguments; fails if one cannot be read.
    async fn due_items(&self, ids: &[CommandId]) -> Result<Vec<Due>, Error> {
        let commands = self.store().commands(ids).await?.whole()?;
        let mut works: Vec<WorkId> = commands.iter().map(|command| command.work).collect();
        works.sort_unstable();
        works.dedup();
        let works = self.works(&works).await?;
        let works: HashMap<WorkId, Work> = works.into_iter().map(|work| (work.id, work)).collect();
        let keys: Vec<(WorkId, u64)> =
            commands.iter().map(|command| (command.work, command.body.arguments)).collect();
        let mut payloads = self.store().payloads(&keys).await?;
        let with = |command: Command| {
            let arguments = payloads.remove(&(command.work, command.body.arguments));
            Some(Due { work: works.get(&command.work)?.clone(), arguments, command })
        };
        Ok(commands.into_iter().filter_map(with).collect())
    }
}
