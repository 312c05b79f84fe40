//! Tells the callers of large groups how they fared, so that the writer can go on with the next one.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use super::group::Answer;
use crate::{Error, job::Job};

/// Smaller groups are answered on the spot: waking another thread would take longer.
const LARGE: usize = 32;

type Told = Vec<(Box<Job>, Answer)>;

pub(super) struct Answers(Sender<Told>);

impl Answers {
    pub fn start() -> Result<Self, Error> {
        let (sender, told) = channel();
        thread::Builder::new()
            .name("ledger-answers".into())
            .spawn(move || run(&told))
            .map_err(|error| Error::Unavailable(format!("no thread for answers: {error}")))?;
        Ok(Self(sender))
    }

    /// Answers each. Their commit has returned.
    pub fn tell(&self, told: Told) {
        let told = match told.len() >= LARGE {
            true => self.0.send(told).err().map(|refused| refused.0),
            false => Some(told),
        };
        told.into_iter().flatten().for_each(|(job, answer)| job.answer(answer));
    }
}

fn run(told: &Receiver<Told>) {
    while let Ok(told) = told.recv() {
        told.into_iter().for_each(|(job, answer)| job.answer(answer));
    }
}
