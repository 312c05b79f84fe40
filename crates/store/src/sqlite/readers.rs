//! Threads for reads, each with its own connection. Reads on behalf of tenants take turns and have a time limit. The
//! daemon's own reads and those of credentials have separate threads, so tenants' reads cannot delay them.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Instant,
};

use tokio::sync::oneshot;

use super::{fault::Fault, read::Reader, row::Read, settings};
use crate::{Error, aside::aside, error::READ_WITHIN, fair};

/// The number of threads for tenants' reads, and how many of them one tenant may use. More threads would only compete
/// for the few cores of a small machine; with fewer, one tenant could use all of them.
const TENANTS: usize = 3;
const SHARE: usize = 2;
/// The number of threads for the daemon's own reads: a slow query of figures must not delay the feed.
const OWN: usize = 2;
/// Credentials are found by their hash: one thread serves thousands a second.
const CREDENTIALS: usize = 1;

/// SQLite instructions between two checks of the clock: well below a millisecond.
const LOOK_EVERY: i32 = 20_000;

type Task = Box<dyn FnOnce(&mut Reader) + Send>;

/// Threads that share one queue.
struct Pool(Sender<Task>);

pub(super) struct Readers {
    tenants: Pool,
    own: Pool,
    credentials: Pool,
    turns: Arc<fair::Fair>,
}

impl Readers {
    pub fn start(path: &Path) -> Result<Self, Error> {
        Ok(Self {
            tenants: Pool::start(path, "tenant-reads", TENANTS)?,
            own: Pool::start(path, "ledger-reads", OWN)?,
            credentials: Pool::start(path, "credential-reads", CREDENTIALS)?,
            turns: fair::Fair::new(TENANTS, SHARE),
        })
    }

    /// A read, in the turn of its tenant if it is on behalf of one.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Reader) -> Read<T> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(tenant) = fair::beneficiary() else { return self.own.read(read, None).await };
        let until = Instant::now() + READ_WITHIN;
        let turn = tokio::time::timeout_at(until.into(), self.turns.turn(tenant)).await;
        let turn = turn.map_err(|_| Error::ReadTimeout)?;
        let in_turn = move |reader: &mut Reader| {
            let _turn = turn;
            read(reader)
        };
        self.tenants.read(in_turn, Some(until)).await
    }

    pub async fn credentials<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Reader) -> Read<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.credentials.read(read, None).await
    }
}

/// A read without a time limit, on its own connection.
pub(super) async fn at_leisure<T: Send + 'static>(
    path: &Path,
    read: impl FnOnce(&mut Reader) -> Read<T> + Send + 'static,
) -> Result<T, Error> {
    let path = path.to_owned();
    let reading = move || read(&mut Reader::new(settings::reader(&path)?)).map_err(Fault::into_error);
    let done = aside("long-read", reading).await;
    done.map_err(|error| Error::Unavailable(error.to_string()))?
}

impl Pool {
    fn start(path: &Path, name: &str, threads: usize) -> Result<Self, Error> {
        let (tasks, taken) = mpsc::channel();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..threads {
            let (reader, taken) = (Reader::new(settings::reader(path)?), taken.clone());
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(reader, &taken));
            thread.map_err(|error| Error::Unavailable(format!("no thread for reads: {error}")))?;
        }
        Ok(Self(tasks))
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut Reader) -> Read<T> + Send + 'static,
        until: Option<Instant>,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let task = move |reader: &mut Reader| {
            // No caller waits for it any more.
            if reply.is_closed() {
                return;
            }
            let found = reader.stop_at(until).and_then(|()| read(reader)).map_err(Fault::into_error);
            let _gone = reply.send(found);
        };
        let unfinished = || Error::Unavailable("the read did not finish".to_owned());
        self.0.send(Box::new(task)).map_err(|_| unfinished())?;
        answer.await.map_err(|_| unfinished())?
    }
}

/// Runs until the store is closed. A panic fails only its own read, because readers do not write.
fn run(mut reader: Reader, tasks: &Mutex<Receiver<Task>>) {
    loop {
        let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = next else { return };
        let read = std::panic::AssertUnwindSafe(|| task(&mut reader));
        let _told_by_the_hook = std::panic::catch_unwind(read);
    }
}

impl Reader {
    /// Sets the time limit of later reads.
    fn stop_at(&mut self, until: Option<Instant>) -> Read<()> {
        let late = until.map(|until| move || Instant::now() >= until);
        Ok(self.conn.progress_handler(LOOK_EVERY, late)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ENDLESS: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

    #[test]
    fn a_read_that_never_ends_is_stopped_at_its_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        drop(settings::writer(&path, false).unwrap());
        let mut reader = Reader::new(settings::reader(&path).unwrap());
        let endless = |reader: &mut Reader| reader.all(ENDLESS, [], |row| Ok(row.get::<_, i64>(0)?));
        reader.stop_at(Some(Instant::now() + Duration::from_millis(50))).unwrap();
        let stopped = endless(&mut reader).map_err(Fault::into_error);
        assert!(matches!(stopped, Err(Error::ReadTimeout)), "{stopped:?}");
        reader.stop_at(None).unwrap();
        let one = reader.all("SELECT 1", [], |row| Ok(row.get::<_, i64>(0)?));
        assert_eq!(one.map_err(Fault::into_error).unwrap(), [1], "the connection goes on");
    }
}
