//! The names that most embedding programs use: `use tenure_embed::prelude::*;`

pub use crate::{
    Tenure,
    client::{Client, Error},
    wire::{
        CallFailure, Disposition, End, ErrorClass, Failure, Ingest, Intent, NewWait, Source, State, WaitKind,
        WorkId,
    },
    worker::{
        self, Attempt, ClaimOptions, Evidence, Fate, Holder, Job, LeasedWork, Outcome, Recorded, Trouble,
    },
};
