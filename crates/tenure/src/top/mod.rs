//! `top`: the live view of running work. It polls the ledger every second, and at once when the event stream
//! reports a change; while the ledger does not respond, it shows the last snapshot and its age.

mod act;
mod screen;
mod snapshot;
mod view;

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};
use tenure_api::{Client, Error, wire::EventQuery};
use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};

use crate::{
    exit::{Exit, Failure},
    render::Style,
    verbs::Context,
};
use act::Dialog;
use screen::{Screen, Then};
use snapshot::Snapshot;

/// Countdowns are updated once a second.
const TICK: Duration = Duration::from_secs(1);
/// The shortest interval between polls.
const CALM: Duration = Duration::from_millis(250);
/// How long the keyboard is polled at a time, so that its thread ends with the view.
const LISTEN: Duration = Duration::from_millis(200);

pub async fn top(cx: &Context) -> Result<Exit, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::usage("top needs a terminal. `tenure ps --watch` works without one."));
    }
    // A first failure is reported like that of any verb.
    let first = Snapshot::fetch(&cx.client, None).await?;
    let mut screen = Screen::new(cx.place.clone(), first);
    let style = cx.out.style();
    let mut view = View::open(cx.client.clone())?;
    let ended = view.run(&mut screen, style).await;
    drop(view);
    ended
}

/// Owns the terminal, and restores it when dropped.
struct View {
    terminal: ratatui::DefaultTerminal,
    client: Client,
    keys: mpsc::Receiver<Input>,
    bell: mpsc::Receiver<()>,
    /// The poll in progress.
    looking: JoinSet<Result<Snapshot, Error>>,
    looked: Instant,
    /// A decision that is being read or sent.
    acting: JoinSet<Acted>,
    _stream: JoinSet<()>,
}

impl Drop for View {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

impl View {
    fn open(client: Client) -> Result<Self, Failure> {
        let terminal = ratatui::try_init()?;
        // A failed poll is repeated with the next tick, and shown as stale until then.
        let client = client.without_retries();
        let mut stream = JoinSet::new();
        let (ring, bell) = mpsc::channel(1);
        stream.spawn(listen(client.clone(), ring));
        Ok(Self {
            terminal,
            keys: keyboard(),
            bell,
            looking: JoinSet::new(),
            looked: Instant::now(),
            acting: JoinSet::new(),
            client,
            _stream: stream,
        })
    }

    async fn run(&mut self, screen: &mut Screen, style: Style) -> Result<Exit, Failure> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let style = Style { now: self.client.clock().now(), ..style };
            self.terminal.draw(|frame| view::draw(frame, screen, &style))?;
            tokio::select! {
                input = self.keys.recv() => match input {
                    Some(Input::Key(key)) if key.kind == KeyEventKind::Press => match screen.press(key) {
                        Then::Quit => return Ok(Exit::Ok),
                        Then::Look => self.look(screen, Duration::ZERO),
                        Then::Propose(kind, work) if self.acting.is_empty() => {
                            let client = self.client.clone();
                            self.acting.spawn(async move {
                                Acted::Proposed(Box::new(Dialog::propose(&client, kind, &work).await))
                            });
                        }
                        Then::Act => if let Some(dialog) = screen.dialog.take() {
                            let client = self.client.clone();
                            self.acting.spawn(async move {
                                let done = dialog.carry_out(&client).await;
                                Acted::Done(done.unwrap_or_else(|error| format!("it failed: {error}")))
                            });
                        },
                        Then::Propose(..) => {}
                        Then::Stay => {}
                    },
                    Some(_) => {}
                    None => return Err(Failure::new(Exit::Error, "the keyboard was disconnected")),
                },
                Some(acted) = self.acting.join_next() => {
                    match acted {
                        Ok(Acted::Proposed(proposed)) => match *proposed {
                            Ok(dialog) => screen.dialog = Some(dialog),
                            Err(why) => screen.said = Some(why),
                        },
                        Ok(Acted::Done(said)) => screen.said = Some(said),
                        Err(panicked) => screen.said = Some(panicked.to_string()),
                    }
                    self.look(screen, Duration::ZERO);
                }
                Some(looked) = self.looking.join_next() => take(screen, looked),
                Some(()) = self.bell.recv() => self.look(screen, CALM),
                _ = tick.tick() => self.look(screen, Duration::ZERO),
            }
        }
    }

    /// Polls again, unless a poll is in progress or the last one is younger than `calm`: then the next tick
    /// does.
    fn look(&mut self, screen: &Screen, calm: Duration) {
        if !self.looking.is_empty() || self.looked.elapsed() < calm {
            return;
        }
        self.looked = Instant::now();
        let (client, open) = (self.client.clone(), screen.open.clone());
        self.looking.spawn(async move { Snapshot::fetch(&client, open.as_ref()).await });
    }
}

/// The outcome of reading or sending a decision.
enum Acted {
    Proposed(Box<Result<Dialog, String>>),
    Done(String),
}

fn take(screen: &mut Screen, looked: Result<Result<Snapshot, Error>, tokio::task::JoinError>) {
    match looked {
        Ok(Ok(mut snapshot)) => {
            // The poll was for a work item that is no longer the open one.
            let shown = snapshot.full.as_ref().map(|full| &full.work.id);
            if shown != screen.open.as_ref() {
                snapshot.full = screen.snapshot.full.take();
            }
            screen.snapshot = snapshot;
            screen.trouble = None;
        }
        Ok(Err(error)) => screen.trouble = Some(error.to_string()),
        Err(panicked) => screen.trouble = Some(panicked.to_string()),
    }
}

/// Notifies once for any number of events.
async fn listen(client: Client, ring: mpsc::Sender<()>) {
    let mut stream = client.stream(EventQuery::default());
    while stream.next().await.is_ok() {
        // A full channel already has a notification.
        let _ = ring.try_send(());
    }
}

/// Key presses, from a thread that ends with their receiver.
fn keyboard() -> mpsc::Receiver<Input> {
    let (pressed, keys) = mpsc::channel(16);
    std::thread::spawn(move || {
        while !pressed.is_closed() {
            let Ok(ready) = event::poll(LISTEN) else { return };
            if ready && event::read().is_ok_and(|input| pressed.blocking_send(input).is_ok()) {
                continue;
            }
            if ready {
                return;
            }
        }
    });
    keys
}
