//! The faults, one module each, and their common parts: a daemon under load, and the checks at the end.

mod backup;
mod clock;
mod commit;
mod failover;
mod full;
mod kill;
mod points;
mod postgres;
mod power;
mod proxy;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use failover::Replication;
use tempfile::TempDir;

use crate::{
    checker::{Losses, Report, check},
    clients::{Load, Mix},
    collect,
    daemon::{Daemon, Home, Kind},
    dice::Dice,
    history::History,
    run::Run,
};

/// Every fault, with its name on the command line.
pub const NAMES: &[&str] = &[
    "kill",
    "points",
    "commit",
    "postgres",
    "failover-sync",
    "failover-async",
    "power",
    "sync",
    "clock",
    "backup",
    "full",
];

/// The size of a fault, and its seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub rounds: u32,
    /// The minimum number of acknowledged writes between two faults.
    pub writes: u64,
}

/// The result of a fault.
#[derive(Clone, Debug)]
pub struct Tally {
    pub fault: String,
    pub kind: Kind,
    /// The number of kills, cuts or failovers.
    pub faults: u32,
    pub acknowledged: u64,
    /// Acknowledged writes that were lost, if the fault may lose some.
    pub lost: usize,
    /// Violations of invariants, and all other problems: a sentence each.
    pub problems: Vec<String>,
    /// The longest time from a restart until a write was acknowledged again.
    pub slowest: Duration,
    /// From the start of the first daemon until it acknowledged a write.
    pub first_start: Duration,
    /// The files of a run with problems.
    pub kept: Option<PathBuf>,
}

/// Runs one fault on one database; `None` if it does not apply to it.
pub async fn run(name: &str, kind: Kind, plan: &Plan) -> Result<Option<Tally>, String> {
    match (name, kind) {
        ("kill", _) => kill::run(kind, plan).await.map(Some),
        ("points", _) => points::run(kind, plan).await.map(Some),
        ("commit", Kind::Postgres) => commit::run(plan).await.map(Some),
        ("postgres", Kind::Postgres) => postgres::run(plan).await.map(Some),
        ("failover-sync", Kind::Postgres) => {
            failover::run(name, Replication::Synchronous, plan).await.map(Some)
        }
        ("failover-async", Kind::Postgres) => {
            failover::run(name, Replication::Asynchronous, plan).await.map(Some)
        }
        ("power", Kind::Sqlite) => power::cut(plan).await.map(Some),
        ("sync", Kind::Sqlite) => power::failed_sync(plan).await.map(Some),
        ("clock", Kind::Sqlite) => clock::run(plan).await.map(Some),
        ("backup", Kind::Sqlite) => backup::run(plan).await.map(Some),
        ("full", Kind::Sqlite) => full::run(plan).await.map(Some),
        _ if NAMES.contains(&name) => Ok(None),
        _ => Err(format!("there is no fault `{name}`; there are {}", NAMES.join(", "))),
    }
}

/// A daemon under load.
struct Scene {
    home: Home,
    /// Deleted with the run, unless there are problems to examine.
    folder: TempDir,
    load: Load,
    dice: Dice,
    tally: Tally,
}

impl Scene {
    /// An empty ledger, and clients that wait for its daemon.
    fn open(fault: &str, kind: Kind, plan: &Plan) -> Result<Self, String> {
        let folder = folder()?;
        let home = match kind {
            Kind::Sqlite => Home::sqlite(folder.path())?,
            Kind::Postgres => Home::postgres(folder.path(), &tenure_testkit::shared().create_database())?,
        };
        Self::at(fault, folder, home, plan)
    }

    fn at(fault: &str, mut folder: TempDir, home: Home, plan: &Plan) -> Result<Self, String> {
        // Kept until the check: a run that ends early leaves its files too.
        folder.disable_cleanup(true);
        let history = History::new(folder.path()).map_err(|error| error.to_string())?;
        let load = Load::start(&home.client(), Arc::new(history), Mix::default(), plan.seed);
        let tally = Tally::new(fault, home.kind);
        let dice = Dice::of(plan.seed, fault);
        Ok(Self { home, folder, load, dice, tally })
    }

    /// Waits until this many more writes were acknowledged, or up to twice as many.
    async fn writes(&mut self, at_least: u64) -> Result<(), String> {
        let writes = self.dice.between(at_least, 2 * at_least + 1);
        self.more(writes).await
    }

    async fn more(&self, writes: u64) -> Result<(), String> {
        let waited = self.load.history.more(writes).await;
        waited.map_err(|why| format!("{why}; its files are in {}", self.folder.path().display()))
    }

    /// Starts the first daemon, and measures the time until its first acknowledged write on this machine.
    async fn start(&mut self) -> Result<Daemon, String> {
        let began = Instant::now();
        let daemon = self.home.start().await?;
        self.more(1).await?;
        self.tally.first_start = began.elapsed();
        Ok(daemon)
    }

    /// Waits for the first acknowledged write after a fault.
    async fn serves_again(&mut self, since: Instant) -> Result<(), String> {
        self.more(1).await?;
        self.tally.served_again(since.elapsed());
        Ok(())
    }

    /// Starts a daemon and waits until it has acknowledged a write.
    async fn restart(&mut self) -> Result<Daemon, String> {
        let began = Instant::now();
        let daemon = self.home.start().await?;
        self.serves_again(began).await?;
        Ok(daemon)
    }

    /// Ends the load, reads everything back from the running daemon, and checks it.
    async fn end(mut self, losses: Losses) -> Result<Tally, String> {
        let client = self.home.client();
        self.tally.acknowledged = self.load.history.acknowledged();
        let run = match collect::end(self.load, &client).await {
            Ok(run) => run,
            Err(why) => return Err(format!("{why}; its files are in {}", self.folder.path().display())),
        };
        let Report { violations, lost } = check(&run, losses);
        self.tally.lost = lost;
        self.tally.problems.extend(violations.iter().map(ToString::to_string));
        self.tally.close(self.folder, &run)
    }
}

impl Tally {
    fn new(fault: &str, kind: Kind) -> Self {
        Self {
            fault: fault.to_owned(),
            kind,
            faults: 0,
            acknowledged: 0,
            lost: 0,
            problems: Vec::new(),
            slowest: Duration::ZERO,
            first_start: Duration::ZERO,
            kept: None,
        }
    }

    /// The sum of both.
    fn with(mut self, other: Tally) -> Self {
        self.faults += other.faults;
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.problems.extend(other.problems);
        self.slowest = self.slowest.max(other.slowest);
        self.kept = self.kept.or(other.kept);
        self
    }

    fn served_again(&mut self, after: Duration) {
        let bar = self.kind.serves_again_within(self.first_start);
        if after > bar {
            self.problems.push(format!("it served again after {after:?}; {bar:?} is allowed"));
        }
        self.slowest = self.slowest.max(after);
    }

    /// Keeps the files if somebody has to examine them.
    fn close(mut self, mut folder: TempDir, run: &Run) -> Result<Self, String> {
        if self.problems.is_empty() {
            folder.disable_cleanup(false);
        } else {
            run.save(folder.path()).map_err(|error| error.to_string())?;
            self.kept = Some(folder.keep());
        }
        Ok(self)
    }
}

fn folder() -> Result<TempDir, String> {
    let made = tempfile::Builder::new().prefix("tenure-faults-").tempdir();
    made.map_err(|error| format!("no folder can be made: {error}"))
}

/// Runs code that waits for other processes on a separate thread, while the clients continue.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}

/// A wrapper that records or injects with `strace`. The daemon itself is the child.
fn strace(args: &[&str], output: &Path) -> Vec<String> {
    let output = output.display().to_string();
    let all = ["strace", "-D", "-qq", "-o", &output].into_iter().chain(args.iter().copied());
    all.map(str::to_owned).collect()
}
