//! Erasure of content: of one ended work item, or of those of a tenant or of one of its sessions.

use tenure_core::{
    Ack, Action, ActorKind, Code, WorkId,
    action::{Kinds, Tenants},
    limits,
    work::erase,
};
use tokio::task::JoinSet;

use super::{Caller, Ledger, reads::PAGE_MAX};
use crate::{Error, WorkFilter};

/// The part of a tenant's or session's content that one call has erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Work items whose content was erased, or would be.
    pub works: u64,
    /// Work items that keep their content, because they are open, have open commands, or cannot be read.
    pub kept: u64,
    /// Early answers that were deleted. Only the first page of a whole tenant deletes them.
    pub early_answers: u64,
    /// The key for the next page; None after the last.
    pub next: Option<WorkId>,
}

impl Caller {
    /// Erases the content of an ended work item: its input, results, answers, arguments, responses and free texts. Its events
    /// stay, and one that names who did it and why is added. Nothing is added if nothing was left to erase.
    pub async fn erase(&self, work: WorkId, reason: &str) -> Result<Ack, Error> {
        limits::reason(reason)?;
        let found = self.work(work).await?;
        // The relay's commands that were sent: a lookup needs their arguments.
        if found.state.is_terminal()
            && self.actor.kind == ActorKind::Person
            && let Some(command) = self.ledger.open_commands(&found).await?.first()
        {
            return Err(erase::open(command).into());
        }
        self.ack(Action::Erase { work, reason: reason.to_owned() }).await
    }

    /// Erases the content of a tenant's ended work items, or of those of one session, page by page, newest first. The early
    /// answers of a whole tenant are deleted with the first page.
    pub async fn erase_of(
        &self,
        tenant: &str,
        session: Option<&str>,
        before: Option<WorkId>,
        limit: usize,
        reason: &str,
    ) -> Result<Erased, Error> {
        limits::reason(reason)?;
        let filter = WorkFilter {
            tenants: Some(Tenants::Only(vec![tenant.to_owned()])),
            session: session.map(str::to_owned),
            ..WorkFilter::default()
        };
        let page = self.list(&filter, before, limit.min(PAGE_MAX)).await?;
        let mut erased = Erased { next: page.next().copied(), ..Erased::default() };
        let unreadable = page.unreadable.len();
        let (ended, open): (Vec<_>, Vec<_>) =
            page.rows.into_iter().partition(|work| work.state.is_terminal());
        erased.kept = (open.len() + unreadable) as u64;
        let left = ended.into_iter().filter(|work| work.body.erased_at != Some(work.updated_at));
        // At once, so that they share commits.
        let mut erasing = JoinSet::new();
        for work in left {
            let (caller, reason) = (self.clone(), reason.to_owned());
            erasing.spawn(async move { caller.erase(work.id, &reason).await });
        }
        while let Some(outcome) = erasing.join_next().await {
            match outcome.map_err(|failed| Error::OutcomeUnknown(failed.to_string()))? {
                Ok(_) => erased.works += 1,
                Err(Error::Refused(refusal)) if refusal.code == Code::CommandsOpen => erased.kept += 1,
                Err(error) => return Err(error),
            }
        }
        let whole = session.is_none() && self.tenants.allow(tenant) && self.kinds == Kinds::All;
        if before.is_none() && whole && !self.dry_run {
            erased.early_answers = self.ledger.store().forget_kept_of(tenant).await?;
        }
        Ok(erased)
    }
}

impl Ledger {
    /// Overwrites what the ledger's own files still have of erased and pruned content. False: that is up to the database
    /// (PostgreSQL's VACUUM), or a reader such as a backup still needs it; call again.
    pub async fn overwrite_erased(&self) -> Result<bool, Error> {
        self.store().overwrite_erased().await
    }
}
