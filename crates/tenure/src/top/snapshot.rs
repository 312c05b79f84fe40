//! The data of the view at one time: held work items, items that wait for people, and the figures above them.

use tenure_api::{
    Client, Error,
    wire::{
        Command, CommandQuery, CommandState, Lease, LeaseLiveness, Phase, State, Timestamp, Work, WorkId,
        WorkPage, WorkQuery,
    },
};

use crate::verbs::{Full, all_needs};

/// The maximum number of rows; the footer says if there are more.
const ROWS: u32 = 500;
/// How many items of the queue and the finished work are read.
const BACK: u32 = 200;

pub struct Snapshot {
    pub at: Timestamp,
    /// Held work items by remaining lease time, then those that wait for a person.
    pub rows: Vec<Work>,
    /// Whether there are more than the rows.
    pub more: bool,
    pub queue: Queue,
    /// Commands in doubt, and whether there are more than were counted.
    pub uncertain: (usize, bool),
    pub last_finish: Option<Timestamp>,
    /// Work items and commands that only a person can resolve, including commands that no work item waits
    /// for.
    pub needs_you: usize,
    /// The work item shown in full.
    pub full: Option<Full>,
}

/// Queued work items.
#[derive(Default)]
pub struct Queue {
    pub count: usize,
    /// There are more: the count and the age of the oldest are lower bounds.
    pub more: bool,
    pub oldest: Option<Timestamp>,
    pub sources: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tiles {
    pub alive: usize,
    pub at_risk: usize,
    pub silent: usize,
    pub needs_you: usize,
}

const HELD: [State; 3] = [State::Running, State::CancelRequested, State::Stalled];
const YOURS: [State; 4] =
    [State::WaitingApproval, State::WaitingAuth, State::WaitingUser, State::Quarantined];

impl Snapshot {
    pub async fn fetch(client: &Client, open: Option<&WorkId>) -> Result<Self, Error> {
        let held = list(client, &HELD, ROWS).await?;
        let yours = list(client, &YOURS, ROWS).await?;
        let queue = Queue::of(list(client, &[State::Queued], BACK).await?);
        let doubts = CommandQuery {
            state: vec![CommandState::Uncertain],
            limit: Some(BACK),
            ..CommandQuery::default()
        };
        let doubts = client.commands(&doubts).await?;
        let uncertain = (doubts.items.len(), doubts.next.is_some());
        let ended = WorkQuery { phase: Some(Phase::Terminal), limit: Some(BACK), ..WorkQuery::default() };
        let last_finish = match held.items.is_empty() {
            true => {
                client.works(&ended).await?.items.iter().filter_map(|work| work.timestamps.completed).max()
            }
            false => None,
        };
        let needs_you = all_needs(&asking(client).await?, &yours.items).len();
        let full = match open {
            Some(id) => Some(Full::of(client, client.work(id).await?).await?),
            None => None,
        };
        let more = held.next.is_some() || yours.next.is_some();
        let rows = sorted(held.items, yours.items);
        Ok(Self { at: client.clock().now(), rows, more, queue, uncertain, last_finish, needs_you, full })
    }

    pub fn tiles(&self) -> Tiles {
        let mut tiles = Tiles { needs_you: self.needs_you, ..Tiles::default() };
        for work in &self.rows {
            match &work.lease {
                _ if work.state.known().is_some_and(|state| YOURS.contains(&state)) => {}
                Some(lease) if is_alive(lease) && work.state != State::Stalled => {
                    let tile = if lease.missed == 0 { &mut tiles.alive } else { &mut tiles.at_risk };
                    *tile += 1;
                }
                Some(_) | None => tiles.silent += 1,
            }
        }
        tiles
    }
}

fn is_alive(lease: &Lease) -> bool {
    lease.liveness == LeaseLiveness::Alive
}

async fn list(client: &Client, states: &[State], limit: u32) -> Result<WorkPage, Error> {
    let query = WorkQuery { state: states.to_vec(), limit: Some(limit), ..WorkQuery::default() };
    client.works(&query).await
}

/// Commands that wait for a person.
async fn asking(client: &Client) -> Result<Vec<Command>, Error> {
    let any = CommandQuery { limit: Some(ROWS), ..CommandQuery::default() };
    let mut commands = client.commands(&CommandQuery { needs_approval: true, ..any.clone() }).await?.items;
    commands.extend(client.commands(&CommandQuery { needs_person: true, ..any }).await?.items);
    Ok(commands)
}

fn sorted(mut held: Vec<Work>, mut yours: Vec<Work>) -> Vec<Work> {
    held.sort_by_key(|work| work.lease.as_ref().map(|lease| lease.expires_at));
    yours.sort_by_key(|work| work.timestamps.updated);
    held.append(&mut yours);
    held
}

impl Queue {
    fn of(page: WorkPage) -> Self {
        let mut sources: Vec<String> = page.items.iter().map(|work| work.source.system.clone()).collect();
        sources.sort();
        sources.dedup();
        let oldest = page.items.iter().map(|work| work.timestamps.acknowledged).min();
        Self { count: page.items.len(), more: page.next.is_some(), oldest, sources }
    }
}
