//! The history of the clients: one record for each call and its outcome.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_api::{
    Error,
    wire::{Claim, Code, CommandId, Ingest, State, StepVerb, WaitId, WorkId},
};
use tokio::sync::watch;

/// How long a run waits for its clients to make progress before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// One call of one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub client: String,
    /// Microseconds since the Unix epoch, by the clients' clock.
    pub asked_us: u64,
    pub answered_us: u64,
    pub call: Call,
    pub outcome: Outcome,
}

/// The request. Lease tokens are left out, since they are not checked here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Ingest(Box<Ingest>),
    Claim(Box<Claim>),
    Renew {
        work: WorkId,
        fence: u64,
    },
    Progress {
        work: WorkId,
        fence: u64,
        request_id: String,
        progress: Value,
    },
    Step {
        work: WorkId,
        fence: u64,
        step: String,
        verb: StepVerb,
        result: Option<Value>,
    },
    SetWait {
        work: WorkId,
        fence: u64,
        reference: String,
    },
    Answer {
        wait: WaitId,
        payload: Value,
    },
    Reserve {
        work: WorkId,
        fence: u64,
        tool: String,
        slot: String,
    },
    Dispatch {
        command: CommandId,
        fence: u64,
        request_id: String,
    },
    Receipt {
        command: CommandId,
        fence: u64,
        external_id: String,
    },
    /// A person records that a command in doubt happened.
    Happened {
        command: CommandId,
        external_id: String,
    },
    Fail {
        work: WorkId,
        fence: u64,
    },
    Release {
        work: WorkId,
        fence: u64,
    },
    CloseOut {
        work: WorkId,
        fence: u64,
        state: State,
        result: Value,
    },
    Cancel {
        work: WorkId,
    },
    /// A read of one work item.
    Look {
        work: WorkId,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The body of a 2xx.
    Ok(Value),
    /// A typed refusal: nothing was written.
    Refused(String),
    /// Unknown: it may or may not have taken effect.
    Unknown(String),
}

impl Outcome {
    fn of<T: Serialize>(answer: &Result<T, Error>) -> Self {
        match answer {
            Ok(body) => Outcome::Ok(serde_json::to_value(body).expect("wire types are JSON")),
            Err(Error::Problem(problem)) => match problem.code.known() {
                // An `internal` failure may have written something too.
                Some(Code::OutcomeUnknown | Code::Internal) | None => Outcome::Unknown(problem.to_string()),
                Some(code) => Outcome::Refused(code.to_string()),
            },
            Err(Error::Unreachable { .. }) => Outcome::Refused("unreachable".to_owned()),
            Err(error) => Outcome::Unknown(error.to_string()),
        }
    }
}

/// Why a call returned nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Miss {
    /// Nothing was sent: there is no daemon now.
    Away,
    /// It refused, with a reason.
    Refused(Code),
    Unknown,
}

/// The records of a run, in memory and as lines of JSON in a file.
pub struct History {
    folder: PathBuf,
    kept: Mutex<Kept>,
    acknowledged: watch::Sender<u64>,
}

struct Kept {
    records: Vec<Record>,
    file: BufWriter<File>,
}

impl History {
    pub fn new(folder: &Path) -> std::io::Result<Self> {
        fs::create_dir_all(folder)?;
        let file = BufWriter::new(File::create(folder.join("history.jsonl"))?);
        let kept = Mutex::new(Kept { records: Vec::new(), file });
        Ok(Self { folder: folder.to_owned(), kept, acknowledged: watch::channel(0).0 })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes a call, and records its outcome. A call that reached nobody leaves no record.
    pub async fn call<T: Serialize>(
        &self,
        client: &str,
        call: Call,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Miss> {
        let asked_us = now_us();
        let answer = answer.await;
        let answered_us = now_us();
        if matches!(answer, Err(Error::Unreachable { .. })) {
            return Err(Miss::Away);
        }
        let outcome = Outcome::of(&answer);
        let write = !matches!(call, Call::Look { .. });
        let record = Record { client: client.to_owned(), asked_us, answered_us, call, outcome };
        let miss = match &record.outcome {
            Outcome::Ok(_) => None,
            Outcome::Unknown(_) => Some(Miss::Unknown),
            Outcome::Refused(_) => {
                Some(answer.as_ref().err().and_then(Error::code).map_or(Miss::Unknown, Miss::Refused))
            }
        };
        self.keep(record);
        if answer.is_ok() && write {
            self.acknowledged.send_modify(|count| *count += 1);
        }
        match (answer, miss) {
            (Ok(body), _) => Ok(body),
            (Err(_), miss) => Err(miss.unwrap_or(Miss::Unknown)),
        }
    }

    fn keep(&self, record: Record) {
        let mut kept = self.kept();
        let line = serde_json::to_string(&record).expect("a record is JSON");
        // A full disk here does not change the recorded responses.
        let _written = writeln!(kept.file, "{line}");
        kept.records.push(record);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every record so far, in the order of the responses.
    pub fn records(&self) -> Vec<Record> {
        let mut kept = self.kept();
        let _flushed = kept.file.flush();
        kept.records.clone()
    }

    /// The number of acknowledged writes so far.
    pub fn acknowledged(&self) -> u64 {
        *self.acknowledged.borrow()
    }

    /// Waits until this many more writes were acknowledged.
    pub async fn more(&self, writes: u64) -> Result<(), String> {
        let mut watched = self.acknowledged.subscribe();
        let wanted = self.acknowledged() + writes;
        let waited = tokio::time::timeout(PATIENCE, watched.wait_for(|count| *count >= wanted)).await;
        match waited {
            Ok(_) => Ok(()),
            Err(_) => Err(format!(
                "{} of {writes} writes were acknowledged within {PATIENCE:?}",
                writes - (wanted - self.acknowledged()).min(writes)
            )),
        }
    }
}

/// The clock of all clients.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// The part of a history up to a time: calls without a response by then are unknown.
pub fn until(records: &[Record], moment_us: u64) -> Vec<Record> {
    let asked = records.iter().filter(|record| record.asked_us < moment_us);
    asked
        .map(|record| match record.answered_us < moment_us {
            true => record.clone(),
            false => Record { outcome: Outcome::Unknown("cut off here".to_owned()), ..record.clone() },
        })
        .collect()
}
