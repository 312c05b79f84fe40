//! Replies to the callers of large batches on a thread of its own, so that the SQLite writer can go on with the next one.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use crate::{Error, LedgerReply, batch::Batch, job::Job};

/// Smaller batches are answered on the spot: waking another thread would take longer.
const LARGE: usize = 32;

type Finished = Vec<(Box<Job>, Result<LedgerReply, Error>)>;

/// The batches, which are no longer needed: to free their memory takes as long as to reply.
type Spent = [Batch; 2];

pub(crate) struct Responder(Sender<(Finished, Spent)>);

impl Responder {
    pub fn start() -> Result<Self, Error> {
        let (sender, finished) = channel();
        thread::Builder::new()
            .name("ledger-answers".into())
            .spawn(move || run(&finished))
            .map_err(|error| Error::Unavailable(format!("no thread for replies: {error}")))?;
        Ok(Self(sender))
    }

    /// Replies to each caller. Their commit has returned.
    pub fn reply(&self, finished: Finished, spent: Spent) {
        let here = match finished.len() >= LARGE {
            true => self.0.send((finished, spent)).err().map(|refused| refused.0),
            false => Some((finished, spent)),
        };
        if let Some((finished, _spent)) = here {
            reply(finished);
        }
    }
}

fn run(inbox: &Receiver<(Finished, Spent)>) {
    while let Ok((finished, _spent)) = inbox.recv() {
        reply(finished);
    }
}

fn reply(finished: Finished) {
    finished.into_iter().for_each(|(job, reply)| job.answer(reply));
}
