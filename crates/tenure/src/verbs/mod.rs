//! The verbs, one file for each group. Each reads its arguments, calls the client and prints.

mod answer;
mod ask;
mod command;
mod doctor;
mod hold;
mod intake;
mod keep;
mod login;
mod names;
mod needs;
mod operate;
mod read;
mod recovery;
mod restore;
mod schedule;
mod serve;
mod tools;

pub use needs::all as all_needs;
pub use read::{Full, end};
pub use serve::bind;

use std::{future::Future, io::Write, time::Duration};

use tenure_api::{
    Client,
    client::ServerClock,
    wire::{Timestamp, Unreadable},
};

use crate::{
    args::{Cli, RecoverVerb, ToolsVerb, Verb, WaitsVerb, command},
    connect::Connection,
    exit::{Exit, Failure},
    render::{Out, say},
};

/// How often `--watch` redraws.
const REDRAW: Duration = Duration::from_secs(2);

/// Everything a verb needs.
pub struct Context {
    pub client: Client,
    pub out: Out,
    /// The ledger's name for people.
    pub place: String,
    /// Where its token came from or was looked for.
    pub token_hint: String,
    /// The ledger's file, if this process opened it.
    pub db: Option<String>,
    /// Nothing is written.
    pub dry_run: bool,
}

impl Context {
    /// The server's current time.
    async fn now(&self) -> Result<Timestamp, Failure> {
        self.client.health().await?;
        Ok(self.client.clock().now())
    }
}

pub async fn run(cli: Cli) -> Result<Exit, Failure> {
    let Cli { global, verb } = cli;
    let verb = match verb {
        Verb::Serve(args) => return serve::serve(&global, args).await,
        Verb::Demo(args) => {
            let out = Out::stdout(global.output, ServerClock::default());
            return crate::demo::demo(&global, &out, args).await;
        }
        Verb::Config(verb) => return serve::config(verb),
        Verb::Restore(args) => return restore::restore(&global, &args).await,
        Verb::Tools(ToolsVerb::Check(args)) => {
            return tools::check(&Out::stdout(global.output, ServerClock::default()), &args);
        }
        Verb::Login(args) => return login::login(&global, args).await,
        Verb::Logout(args) => return login::logout(&args),
        Verb::Completions { shell } => {
            // Written at once, so that a reader that closes early is not an error.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "tenure", &mut script);
            std::io::stdout().write_all(&script)?;
            return Ok(Exit::Ok);
        }
        verb => verb,
    };
    let dry_run = verb.dry_run();
    let backups = match &verb {
        Verb::Backup(args) => args.folder()?,
        _ => None,
    };
    let create = matches!(verb, Verb::Ingest(_)) && !dry_run;
    let connection = Connection::open(&global, create, backups).await?;
    let place = match &global.db {
        // A database URL may contain a password.
        Some(db) if db.contains("://") => "a ledger on PostgreSQL".to_owned(),
        Some(file) => file.clone(),
        None => connection.url.clone().unwrap_or_default(),
    };
    let token_hint = connection.token_hint.clone();
    let out = Out::stdout(global.output, connection.client.clock().clone());
    let client = connection.client.clone();
    let client = if dry_run { client.dry_run() } else { client };
    let cx = Context { client, out, place, token_hint, db: global.db, dry_run };
    let done = interruptible(dispatch(&cx, verb)).await.map_err(|failure| connection.explain(failure));
    if dry_run && done.is_ok() {
        say("Dry run: nothing was written.");
    }
    drop(cx);
    connection.close().await?;
    done
}

async fn dispatch(cx: &Context, verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Ingest(args) => read::ingest(cx, *args).await,
        Verb::Ps(args) => read::ps(cx, &args).await,
        Verb::List(args) => read::list(cx, &args).await,
        Verb::Show(args) => read::show(cx, &args).await,
        Verb::Events(args) => read::events(cx, args).await,
        Verb::Explain(args) => read::explain(cx, &args).await,
        Verb::Watch(args) => read::watch(cx, args).await,
        Verb::Top => crate::top::top(cx).await,
        Verb::Workers(args) => read::workers(cx, &args).await,
        Verb::Recover(RecoverVerb::Victims(args)) | Verb::Victims(args) => recovery::victims(cx, &args).await,
        Verb::Recover(RecoverVerb::Plan(args)) => recovery::plan(cx, &args).await,
        Verb::Recover(RecoverVerb::Apply(args)) => recovery::apply(cx, args).await,
        Verb::Stuck(args) => recovery::stuck(cx, &args).await,
        Verb::Needs(args) => needs::needs(cx, &args).await,
        Verb::Commands(verb) => command::commands(cx, verb).await,
        Verb::Alerts => read::alerts(cx).await,
        Verb::Claim(args) => hold::claim(cx, args).await,
        Verb::Renew(args) => hold::renew(cx, args).await,
        Verb::Accept(args) => hold::accept(cx, args).await,
        Verb::Progress(args) => hold::progress(cx, args).await,
        Verb::Complete(args) => hold::complete(cx, args).await,
        Verb::Wait(args) => hold::wait(cx, args).await,
        Verb::Hold(verb) => hold::hold(cx, verb).await,
        Verb::Resolve(args) => answer::resolve(cx, args).await,
        Verb::Approve(args) => answer::decide(cx, &args.of, true, args.decision).await,
        Verb::Reject(args) => answer::decide(cx, &args.of, false, args.decision).await,
        Verb::Reconnect(args) => answer::reconnect(cx, &args).await,
        Verb::Retry(args) => operate::retry(cx, &args).await,
        Verb::Cancel(args) => operate::cancel(cx, &args).await,
        Verb::Requeue(args) => operate::requeue(cx, &args).await,
        Verb::Decide(args) => operate::decide(cx, &args).await,
        Verb::Rerun(args) => operate::rerun(cx, &args).await,
        Verb::Quarantine(args) => operate::quarantine(cx, &args).await,
        Verb::Abandon(args) => operate::abandon(cx, &args).await,
        Verb::Drain(args) => operate::drain(cx, args).await,
        Verb::Schedule(verb) => schedule::schedule(cx, verb).await,
        Verb::Intake(verb) => intake::intake(cx, verb).await,
        Verb::Waits(WaitsVerb::Revoke(args)) => answer::revoke(cx, args).await,
        Verb::Prune(args) => keep::prune(cx, &args).await,
        Verb::Erase(args) => keep::erase(cx, &args).await,
        Verb::Verify(args) => keep::verify(cx, &args).await,
        Verb::Anchor(args) => keep::anchor(cx, args).await,
        Verb::Backup(args) => keep::backup(cx, args).await,
        Verb::Token(verb) => keep::token(cx, verb).await,
        Verb::Doctor => doctor::doctor(cx).await,
        Verb::Serve(_)
        | Verb::Demo(_)
        | Verb::Config(_)
        | Verb::Restore(_)
        | Verb::Tools(_)
        | Verb::Login(_)
        | Verb::Logout(_)
        | Verb::Completions { .. } => {
            unreachable!("these need no connection, and were done before one was opened")
        }
    }
}

/// Ctrl-C ends a waiting verb, and closes the ledger properly.
async fn interruptible(verb: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    tokio::select! {
        done = verb => done,
        () = tenure_api::worker::termination() => Err(Failure::new(Exit::Error, "")),
    }
}

/// Keeps the requested number of a list that has one more, and says if there are more.
fn cut<T>(mut items: Vec<T>, limit: usize) -> Vec<T> {
    if items.len() > limit {
        items.truncate(limit);
        say(&format!("There are more: --limit {} shows twice as many.", limit.saturating_mul(2)));
    }
    items
}

/// Lists the unreadable rows of a page, on stderr.
fn say_unreadable(rows: &[Unreadable]) {
    for Unreadable { id, why } in rows {
        say(&format!("{id} is stored but cannot be read: {why}. `tenure verify` shows more."));
    }
}

/// Draws once, or repeatedly.
async fn draw<F: Future<Output = Result<(), Failure>>>(
    cx: &Context,
    again: bool,
    once: impl Fn() -> F,
) -> Result<Exit, Failure> {
    if again {
        return redraw(&cx.out, once, || tokio::time::sleep(REDRAW)).await;
    }
    once().await?;
    Ok(Exit::Ok)
}

/// Draws until it fails.
async fn redraw<F: Future<Output = Result<(), Failure>>, P: Future<Output = ()>>(
    out: &Out,
    once: impl Fn() -> F,
    pause: impl Fn() -> P,
) -> Result<Exit, Failure> {
    loop {
        out.clear()?;
        once().await?;
        pause().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::*;
    use crate::args::Format;

    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The output of two redraws and a third that fails.
    async fn redrawn(terminal: bool) -> String {
        let paper = Paper::default();
        let out = Out::to(Box::new(paper.clone()), terminal, Format::Table, ServerClock::default());
        let (drawn, paused) = (Cell::new(0), Cell::new(0));
        let once = || async {
            drawn.set(drawn.get() + 1);
            match drawn.get() {
                3 => Err(Failure::new(Exit::Unreachable, "gone")),
                n => out.next(&n, |n, _| format!("drawn {n}\n")),
            }
        };
        let pause = || {
            paused.set(paused.get() + 1);
            std::future::ready(())
        };
        let failure = redraw(&out, once, pause).await.unwrap_err();
        assert_eq!((failure.exit, paused.get()), (Exit::Unreachable, 2), "it pauses between, and ends");
        let printed = paper.0.lock().unwrap().clone();
        String::from_utf8(printed).unwrap()
    }

    #[tokio::test]
    async fn a_redraw_begins_at_the_top_of_a_terminal_and_follows_on_in_a_pipe() {
        let clear = "\x1b[H\x1b[2J";
        assert_eq!(redrawn(true).await, format!("{clear}drawn 1\n{clear}drawn 2\n{clear}"));
        assert_eq!(redrawn(false).await, "drawn 1\ndrawn 2\n");
    }
}
