//! The reading verbs, and `ingest`.

use std::cmp::Reverse;

use serde::Serialize;
use tenure_api::{
    Client, Error,
    client::{EventStream, Streamed},
    story::Narrator,
    wire::{
        AsOf, Command, CommandQuery, Event, EventQuery, Explanation, Ingest as NewWork, Source, State,
        Timeouts, Timestamp, WaitQuery, Work, WorkEventQuery, WorkId, WorkPolicy, WorkQuery,
    },
};

use super::{
    Context, command, cut, draw,
    names::{self, Named},
    say_unreadable,
};
use crate::{
    args::{Events, Explain, Ingest, List, Ps, Show, Sort, Watch, Workers},
    exit::{Exit, Failure},
    render::{self, Style, say},
};

/// The largest page size.
const PAGE: usize = 1_000;
/// How many events `show` prints.
const LAST: u64 = 10;

pub async fn ingest(cx: &Context, args: Ingest) -> Result<Exit, Failure> {
    let source = Source { system: args.system, id: args.id, run_id: args.run_id };
    let ms = |period: std::time::Duration| u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
    let timeouts = Timeouts {
        start_ms: args.start_within.map(ms),
        overall_ms: args.end_within.map(ms),
        ..Timeouts::default()
    };
    let parent = match args.parent {
        Some(parent) => Some(names::work(cx, &parent).await?.id),
        None => None,
    };
    let new = NewWork {
        title: args.title,
        priority: args.priority,
        session: args.session,
        tenant: args.tenant,
        correlation_id: args.correlation_id,
        parent,
        policy: (timeouts != Timeouts::default())
            .then(|| WorkPolicy { timeouts: Some(timeouts), ..WorkPolicy::default() }),
        ..NewWork::new(source, &args.kind, args.disposition, args.input)
    };
    let ingested = cx.client.ingest(&new).await?;
    names::remember(cx, &ingested.work.id);
    if !ingested.created {
        say("It existed already.");
    }
    cx.out.one(&ingested, |ingested, _| {
        let mut text = format!("{}\n", ingested.work.id);
        if let Some(token) = &ingested.completion_token {
            text.push_str(&format!("completion token: {token}\n"));
        }
        text
    })?;
    Ok(Exit::Ok)
}

pub async fn ps(cx: &Context, args: &Ps) -> Result<Exit, Failure> {
    let query = WorkQuery {
        state: vec![State::Running, State::CancelRequested, State::Stalled],
        tenant: args.tenant.clone(),
        owner: args.owner.clone(),
        ..WorkQuery::default()
    };
    if let Some(at) = args.at.at {
        return past_list(cx, query, at, PAGE).await;
    }
    draw(cx, args.redraw.watch, || async {
        let mut works = pages(cx, &query, PAGE).await?;
        works.sort_by_key(|work| work.lease.as_ref().map(|lease| lease.expires_at));
        cx.out.list(&works, render::running)
    })
    .await
}

pub async fn list(cx: &Context, args: &List) -> Result<Exit, Failure> {
    let query = args.filter.query();
    if let Some(at) = args.at.at {
        return past_list(cx, query, at, args.filter.limit).await;
    }
    draw(cx, args.redraw.watch, || async {
        let limit = args.filter.limit;
        let mut works = cut(pages(cx, &query, limit.saturating_add(1)).await?, limit);
        sort(&mut works, args.filter.sort);
        cx.out.list(&works, render::works)
    })
    .await
}

/// The list is the newest first already.
fn sort(works: &mut [Work], order: Sort) {
    match order {
        Sort::Newest => {}
        Sort::Oldest => works.reverse(),
        Sort::Updated => works.sort_by_key(|work| Reverse(work.timestamps.updated)),
        Sort::State => works.sort_by(|a, b| a.state.as_str().cmp(b.state.as_str())),
        Sort::Kind => works.sort_by(|a, b| a.kind.cmp(&b.kind)),
        Sort::Title => works.sort_by(|a, b| a.title.cmp(&b.title)),
        Sort::Attempts => works.sort_by_key(|work| Reverse(work.attempt)),
        Sort::Priority => works.sort_by_key(|work| (work.priority, work.timestamps.acknowledged)),
        Sort::Due => works.sort_by_key(|work| (work.due_at.is_none(), work.due_at)),
    }
}

/// Work items as of a past moment.
async fn past_list(cx: &Context, mut query: WorkQuery, at: Timestamp, limit: usize) -> Result<Exit, Failure> {
    query.at = Some(at);
    let (works, as_of) = whole_pages(cx, &query, limit.saturating_add(1)).await?;
    let works = cut(works, limit);
    cx.out.list(&works, |works, style| render::past(works, &Style { now: at, ..*style }))?;
    if let Some(as_of) = as_of {
        say(&format!("As of {at}, from the log, which does not record {}.", as_of.not_recorded.join(", ")));
        if as_of.pruned_since {
            say("Work items were pruned since then, so some may be missing.");
        }
    }
    Ok(Exit::Ok)
}

/// The requested number of work items, page by page.
pub(super) async fn pages(cx: &Context, query: &WorkQuery, limit: usize) -> Result<Vec<Work>, Failure> {
    Ok(whole_pages(cx, query, limit).await?.0)
}

/// The same, with the past moment that they show.
async fn whole_pages(
    cx: &Context,
    query: &WorkQuery,
    limit: usize,
) -> Result<(Vec<Work>, Option<AsOf>), Failure> {
    let (mut works, mut as_of) = (Vec::new(), None);
    let mut query = query.clone();
    while works.len() < limit {
        query.limit = Some((limit - works.len()).min(PAGE) as u32);
        let page = cx.client.works(&query).await?;
        say_unreadable(&page.unreadable);
        works.extend(page.items);
        as_of = page.as_of;
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    Ok((works, as_of))
}

pub async fn show(cx: &Context, args: &Show) -> Result<Exit, Failure> {
    let id = match names::either(cx, &names::of(cx, &args.of).await?).await? {
        Named::Command(command) => {
            return command::show(cx, command.id.as_str(), args.redraw.watch).await;
        }
        Named::Work(work) => work.id,
    };
    names::remember(cx, &id);
    if let Some(at) = args.at.at {
        return show_past(cx, &id, at).await;
    }
    draw(cx, args.redraw.watch, || async {
        let full = Full::of(&cx.client, cx.client.work(&id).await?).await?;
        cx.out.one(&full, |Full { work, why, commands, last }, style| {
            render::describe(work, why, commands, last, style)
        })
    })
    .await
}

async fn show_past(cx: &Context, id: &WorkId, at: Timestamp) -> Result<Exit, Failure> {
    let work = cx.client.work_at(id, at).await?;
    let after = Some(work.seq.saturating_sub(LAST));
    let query = WorkEventQuery { after, limit: Some(LAST as u32) };
    let mut last = cx.client.work_events(&work.id, &query).await?.items;
    last.retain(|event| event.seq <= work.seq);
    let as_of = work.as_of.clone().unwrap_or(AsOf { at, not_recorded: Vec::new(), pruned_since: false });
    cx.out.one(&work, |work, style| render::describe_past(work, &as_of, &last, style))?;
    Ok(Exit::Ok)
}

/// A work item with its explanation. As a document: the work item and its commands.
#[derive(Serialize)]
pub struct Full {
    #[serde(flatten)]
    pub work: Work,
    #[serde(skip)]
    pub why: Explanation,
    /// Oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Command>,
    #[serde(skip)]
    pub last: Vec<Event>,
}

impl Full {
    pub async fn of(client: &Client, work: Work) -> Result<Self, Error> {
        let why = client.explain(&work.id).await?;
        let after = Some(work.seq.saturating_sub(LAST));
        let last = client.work_events(&work.id, &WorkEventQuery { after, limit: None }).await?.items;
        let of_work = CommandQuery { work: Some(work.id.clone()), ..CommandQuery::default() };
        let mut commands = client.commands(&of_work).await?.items;
        commands.reverse();
        Ok(Self { work, why, commands, last })
    }
}

pub async fn explain(cx: &Context, args: &Explain) -> Result<Exit, Failure> {
    let id = match names::either(cx, &names::of(cx, &args.of).await?).await? {
        Named::Command(command) => return command::explain(cx, &command.id).await,
        Named::Work(work) => work.id,
    };
    names::remember(cx, &id);
    let explained = cx.client.explain(&id).await?;
    let foretold = explained.if_silent.as_ref().map(|forecast| forecast.sentence.as_str());
    cx.out.one(&explained, |explained, _| {
        render::explained(&explained.sentence, foretold, &explained.advice, &explained.next)
    })?;
    Ok(Exit::Ok)
}

pub async fn workers(cx: &Context, args: &Workers) -> Result<Exit, Failure> {
    draw(cx, args.redraw.watch, || async {
        let workers = cx.client.workers().await?.items;
        cx.out.list(&workers, render::workers)
    })
    .await
}

pub async fn alerts(cx: &Context) -> Result<Exit, Failure> {
    let alerts = cx.client.alerts().await?.items;
    cx.out.list(&alerts, render::alerts)?;
    Ok(if alerts.is_empty() { Exit::Ok } else { Exit::Unsuccessful })
}

pub async fn events(cx: &Context, args: Events) -> Result<Exit, Failure> {
    match one_of(cx, args.id.as_deref(), args.last).await? {
        Some(work) => events_of(cx, &work, &args).await,
        None => feed(cx, &args).await,
    }
}

/// The work item that is named, if one is.
async fn one_of(cx: &Context, id: Option<&str>, last: bool) -> Result<Option<Work>, Failure> {
    let id = match id {
        Some(id) => id.to_owned(),
        None if last => names::last(cx).await?,
        None => return Ok(None),
    };
    let work = names::work(cx, &id).await?;
    names::remember(cx, &work.id);
    Ok(Some(work))
}

async fn events_of(cx: &Context, work: &Work, args: &Events) -> Result<Exit, Failure> {
    let number = |text: &String| {
        text.parse::<u64>().map_err(|_| {
            Failure::usage(format!(
                "`--after {text}`: the events of one work item are numbered. Give a number."
            ))
        })
    };
    let after = args.after.as_ref().map(number).transpose()?.unwrap_or(0);
    if !args.follow {
        let events = events_after(cx, &work.id, after, args.limit.saturating_add(1)).await?;
        let events = cut(events, args.limit);
        let narrator = narrator(cx, work).await?;
        cx.out.list(&events, |events, style| render::events(events, narrator, style))?;
        return Ok(Exit::Ok);
    }
    let mut narrator = narrator(cx, work).await?;
    let mut story = Story::begin(cx, work, after).await?;
    loop {
        cx.out.next(&story.next().await?, |event, style| render::event(event, &mut narrator, style))?;
    }
}

/// A narrator that knows the commands and the questions of this work item.
async fn narrator(cx: &Context, work: &Work) -> Result<Narrator, Failure> {
    let mut narrator = Narrator::default();
    if !cx.out.is_for_people() {
        return Ok(narrator);
    }
    let commands = CommandQuery { work: Some(work.id.clone()), ..CommandQuery::default() };
    for command in command::pages(cx, &commands, PAGE).await? {
        narrator.knows(&command);
    }
    let waits = WaitQuery { work: Some(work.id.clone()), limit: Some(PAGE as u32), ..WaitQuery::default() };
    for wait in cx.client.waits(&waits).await?.items {
        narrator.asks(&wait);
    }
    Ok(narrator)
}

/// The events of a work item after a number, page by page.
pub(super) async fn events_after(
    cx: &Context,
    id: &WorkId,
    after: u64,
    limit: usize,
) -> Result<Vec<Event>, Failure> {
    let mut events: Vec<Event> = Vec::new();
    let mut query = WorkEventQuery { after: Some(after), limit: None };
    while events.len() < limit {
        query.limit = Some((limit - events.len()).min(PAGE) as u32);
        let page = cx.client.work_events(id, &query).await?;
        say_unreadable(&page.unreadable);
        events.extend(page.items);
        query.after = page.next.and_then(|next| next.parse().ok());
        if query.after.is_none() {
            break;
        }
    }
    Ok(events)
}

/// The events of one work item: stored ones, then the live stream from there on, without a gap.
struct Story {
    id: WorkId,
    seq: u64,
    past: std::vec::IntoIter<Event>,
    present: EventStream,
}

impl Story {
    async fn begin(cx: &Context, work: &Work, after: u64) -> Result<Self, Failure> {
        // The last event is read in any case, since it has the position in the feed.
        let from = after.min(work.seq.saturating_sub(1));
        let past = events_after(cx, &work.id, from, usize::MAX).await?;
        let place = past.last().map(|event| event.position.clone());
        let present = cx.client.stream(EventQuery { after: place, ..EventQuery::default() });
        Ok(Self { id: work.id.clone(), seq: after, past: past.into_iter(), present })
    }

    async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            let event = match self.past.next() {
                Some(event) => event,
                None => match self.present.next().await? {
                    Streamed::Event(event) => *event,
                    Streamed::Unreadable(_) | Streamed::Alert(_) | Streamed::Gap(_) => continue,
                },
            };
            if event.work == self.id && event.seq > self.seq {
                self.seq = event.seq;
                return Ok(event);
            }
        }
    }
}

async fn feed(cx: &Context, args: &Events) -> Result<Exit, Failure> {
    let mut query = EventQuery { after: args.after.clone(), tenant: args.tenant.clone(), limit: None };
    if !args.follow {
        let mut seen: Vec<Event> = Vec::new();
        // One more than requested, to know whether there are more.
        let limit = args.limit.saturating_add(1);
        while seen.len() < limit {
            query.limit = Some((limit - seen.len()).min(PAGE) as u32);
            let page = cx.client.events(&query).await?;
            say_unreadable(&page.unreadable);
            seen.extend(page.items);
            // A page may be empty while more follow.
            let end = query.after.as_ref() == Some(&page.next);
            query.after = Some(page.next);
            if end {
                break;
            }
        }
        let seen = cut(seen, args.limit);
        cx.out.list(&seen, |events, style| render::feed(events, Narrator::default(), style))?;
        return Ok(Exit::Ok);
    }
    let mut stream = cx.client.stream(query);
    let mut narrator = Narrator::default();
    loop {
        match stream.next().await? {
            Streamed::Event(event) => {
                cx.out.next(&*event, |event, style| render::event(event, &mut narrator, style))?;
            }
            Streamed::Unreadable(event) => say_unreadable(&[event]),
            Streamed::Alert(alert) => say(&format!("alert: {}", alert.message)),
            Streamed::Gap(gap) => say(&format!("fell behind; continuing after {}", gap.after)),
        }
    }
}

pub async fn watch(cx: &Context, args: Watch) -> Result<Exit, Failure> {
    let moves = |event: &Event| event.from.as_ref() != Some(&event.to);
    if let Some(work) = one_of(cx, args.id.as_deref(), args.last).await? {
        let mut narrator = narrator(cx, &work).await?;
        let mut story = Story::begin(cx, &work, 0).await?;
        loop {
            let event = story.next().await?;
            if moves(&event) {
                cx.out.next(&event, |event, style| render::event(event, &mut narrator, style))?;
                if let Some(exit) = event.to.known().and_then(end) {
                    return Ok(exit);
                }
            }
        }
    }
    let mut stream = cx.client.stream(EventQuery { tenant: args.tenant, ..EventQuery::default() });
    let mut narrator = Narrator::default();
    loop {
        if let Streamed::Event(event) = stream.next().await?
            && moves(&event)
        {
            cx.out.next(&*event, |event, style| render::event(event, &mut narrator, style))?;
        }
    }
}

/// The exit code of a terminal state; None while it is open.
pub fn end(state: State) -> Option<Exit> {
    let success = matches!(state, State::Succeeded | State::CompletedWithWarnings);
    state.is_terminal().then_some(if success { Exit::Ok } else { Exit::Unsuccessful })
}
