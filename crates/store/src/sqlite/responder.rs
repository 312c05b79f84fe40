//! Tells the callers of large groups how they fared, so that the writer can go on with the next one.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use super::group::JobResult;
use crate::{Error, batch::Batch, job::Job};

/// Smaller groups are answered on the spot: waking another thread would take longer.
const LARGE: usize = 32;

type Finished = Vec<(Box<Job>, JobResult)>;

/// What nobody needs any more: to take it apart takes as long as to answer.
type Spent = [Batch; 2];

pub(super) struct Responder(Sender<(Finished, Spent)>);

impl Responder {
    pub fn start() -> Result<Self, Error> {
        let (sender, told) = channel();
        thread::Builder::new()
            .name("ledger-answers".into())
            .spawn(move || run(&told))
            .map_err(|error| Error::Unavailable(format!("no thread for answers: {error}")))?;
        Ok(Self(sender))
    }

    /// Answers each caller. Their commit has returned.
    pub fn tell(&self, told: Finished, spent: Spent) {
        let here = match told.len() >= LARGE {
            true => self.0.send((told, spent)).err().map(|refused| refused.0),
            false => Some((told, spent)),
        };
        if let Some((told, _spent)) = here {
            answer(told);
        }
    }
}

fn run(handed: &Receiver<(Finished, Spent)>) {
    while let Ok((told, _spent)) = handed.recv() {
        answer(told);
    }
}

fn answer(told: Finished) {
    told.into_iter().for_each(|(job, answer)| job.answer(answer));
}
