//! Work items as readers see them: one, many, their events, and the explanation of their state.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::extract::State;
use tenure_api::wire as w;
use tenure_core::{
    Millis, State as WorkState, Wait, Work, WorkId,
    action::{Kinds, Tenants},
    model::{Output, WaitState},
};
use tenure_store::{Caller, WaitFilter, WorkFilter};
use tokio::time::Instant;

use super::{App, Json, JsonResult, Params, Problem, Segments, Who, error::Problems};
use crate::{
    auth::OpenCall,
    wire::{self, ToCore, ToWire, View},
};

const PAGE: u32 = 50;
const EVENT_PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;
const POLL: Duration = Duration::from_secs(30);
const POLL_MAX: Duration = Duration::from_secs(300);

/// The page size. An excessive limit is refused rather than capped: a shorter page than requested would look
/// like the last one.
pub(super) fn page_size(asked: Option<u32>, default: u32) -> Result<usize, Problem> {
    match asked.unwrap_or(default) {
        limit @ 1..=PAGE_MAX => Ok(limit as usize),
        _ => Err(Problem::invalid(
            "`limit` is from 1 to 1,000. Read a page, and continue with its `next` as `cursor`.",
        )),
    }
}

/// Finds a work item by its id, or by a prefix that only one has.
pub(super) async fn find(caller: &Caller, id: &str) -> Result<WorkId, Problem> {
    match id.parse() {
        Ok(id) => Ok(id),
        Err(_) => Ok(caller.find_work(id).await?),
    }
}

/// The open waits of these work items.
async fn open_waits(caller: &Caller, works: &[Work]) -> Result<HashMap<WorkId, Vec<Wait>>, Problem> {
    let mut found: HashMap<WorkId, Vec<Wait>> = HashMap::new();
    let works: Vec<WorkId> = works.iter().filter(|work| work.open_waits > 0).map(|work| work.id).collect();
    if works.is_empty() {
        return Ok(found);
    }
    let mut filter = WaitFilter { works, state: Some(WaitState::Open), ..WaitFilter::default() };
    loop {
        let page = caller.waits(&filter, PAGE_MAX as usize).await?;
        filter.after = page.next().copied();
        page.into_iter().for_each(|wait| found.entry(wait.work).or_default().push(wait));
        if filter.after.is_none() {
            return Ok(found);
        }
    }
}

/// Lists work items, newest first. With `at`, those of a past moment, from the log.
#[utoipa::path(get, path = "/v1/work", tag = "work", params(w::WorkQuery), security(("token" = ["view"])),
    responses((status = 200, description = "A page of work items.", body = w::WorkPage), Problems))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    who: Who,
    Params(query): Params<w::WorkQuery>,
) -> JsonResult<w::WorkPage> {
    let caller = who.caller();
    let limit = page_size(query.limit, PAGE)?;
    let before = query.cursor.as_deref().map(str::parse).transpose()?;
    if let Some(at) = query.at {
        return past_list(&who, &filter(query)?, at.0, before, limit).await;
    }
    let works = caller.list(&filter(query)?, before, limit).await?;
    let next = works.next().map(WorkId::to_string);
    let now = app.ledger.now().await?;
    let payloads = who.session.may(w::Scope::Payload);
    let waits = open_waits(&caller, &works).await?;
    let items = works.iter().map(|work| {
        let waits = waits.get(&work.id).map_or(&[][..], Vec::as_slice);
        wire::work(work, &View { now, waits, payloads, ..View::default() })
    });
    let items = items.collect();
    Ok(Json(w::WorkPage { items, unreadable: wire::unreadable(&works.unreadable), next, as_of: None }))
}

async fn past_list(
    who: &Who,
    filter: &WorkFilter,
    at: Millis,
    before: Option<WorkId>,
    limit: usize,
) -> JsonResult<w::WorkPage> {
    let page = who.caller().list_at(filter, at, before, limit).await?;
    let payloads = who.session.may(w::Scope::Payload);
    let items = page.works.iter().map(|past| {
        let view = View { waits: &past.waits, payloads, as_of: Some(at), ..View::default() };
        wire::work(&past.work, &view)
    });
    Ok(Json(w::WorkPage {
        items: items.collect(),
        unreadable: wire::unreadable(&page.unreadable),
        next: page.next.map(|id| id.to_string()),
        as_of: Some(wire::as_of(at, page.pruned_since)),
    }))
}

fn filter(query: w::WorkQuery) -> Result<WorkFilter, Problem> {
    Ok(WorkFilter {
        tenants: query.tenant.map(|tenant| Tenants::Only(vec![tenant])),
        states: query.state.into_iter().map(ToCore::to_core).collect(),
        phase: query.phase.map(ToCore::to_core),
        system: query.system,
        source_id: query.source_id,
        kind: query.kind,
        kinds: Kinds::All,
        workflow: query.workflow,
        session: query.session,
        owner: query.owner,
        parent: query.parent.map(|id| id.as_str().parse()).transpose()?,
        correlation_id: query.correlation_id,
        created_after: query.created_after.map(|at| at.0),
        created_before: query.created_before.map(|at| at.0),
        due_before: query.due_before.map(|at| at.0),
    })
}

/// Returns one work item, by its id or a unique prefix of it. With `wait=terminal` it responds once the work
/// item has ended or the time is over; with `at`, as of a past moment, from its log.
#[utoipa::path(get, path = "/v1/work/{id}", tag = "work", params(("id" = String, Path), w::WorkGet),
    security(("token" = ["view"])),
    responses((status = 200, description = "The work item's current state.", body = w::Work), Problems))]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
    Params(query): Params<w::WorkGet>,
) -> JsonResult<w::Work> {
    let caller = who.caller();
    let id = find(&caller, &id).await?;
    if let Some(at) = query.at {
        if query.wait.is_some() || query.timeout_ms.is_some() {
            return Err(Problem::invalid("A past moment does not change: leave out `wait`, or `at`."));
        }
        let past = caller.work_at(id, at.0).await?;
        let view =
            View { waits: &past.waits, evidence: &past.evidence, as_of: Some(at.0), ..View::default() };
        return shown(&app, &who, &past.work, view).await;
    }
    let work = match query.wait {
        None => caller.work(id).await?,
        Some(w::Until::Terminal) => {
            let timeout = query.timeout_ms.map_or(POLL, Duration::from_millis).min(POLL_MAX);
            let open = app.auth.open_call(&who.session);
            let work = ended(&app, &caller, &open, id, Instant::now() + timeout).await?;
            app.doors.end_of_poll(&who.session).await?;
            work
        }
    };
    let waits = open_waits(&caller, std::slice::from_ref(&work)).await?.remove(&id).unwrap_or_default();
    let now = app.ledger.now().await?;
    let evidence = app.ledger.evidence(&work).await?;
    shown(&app, &who, &work, View { now, waits: &waits, evidence: &evidence, ..View::default() }).await
}

/// One work item, with its payloads for a reader who may see them.
async fn shown(app: &App, who: &Who, work: &Work, view: View<'_>) -> JsonResult<w::Work> {
    let payloads = who.session.may(w::Scope::Payload);
    let result_seq = match &work.body.output {
        Some(Output::Inline { seq, .. }) => Some(*seq),
        Some(Output::Reference(_) | Output::NoOutput) | None => None,
    };
    let (mut input, mut result) = (None, None);
    if payloads {
        input = app.ledger.payload(work.id, 1).await?;
        if let Some(seq) = result_seq {
            result = app.ledger.payload(work.id, seq).await?;
        }
    }
    let view = View { payloads, input: input.as_ref(), result: result.as_ref(), ..view };
    Ok(Json(wire::work(work, &view)))
}

/// The work item once it has ended, or its state when the time is over. Woken by the feed.
async fn ended(
    app: &App,
    caller: &Caller,
    open: &OpenCall,
    id: WorkId,
    until: Instant,
) -> Result<Work, Problem> {
    let awaited = app.feed.ended(id);
    loop {
        // Registered before the look, so that an end after it wakes this call.
        let woken = awaited.notify.notified();
        let work = caller.work(id).await?;
        if work.state.is_terminal() {
            return Ok(work);
        }
        tokio::select! {
            () = woken => {}
            () = tokio::time::sleep_until(until) => return Ok(work),
            denied = open.ended() => return Err(denied.into()),
            () = app.stopping.cancelled() => return Ok(work),
        }
    }
}

/// Lists the events of a work item, in order.
#[utoipa::path(get, path = "/v1/work/{id}/events", tag = "work",
    params(("id" = String, Path), w::WorkEventQuery), security(("token" = ["view"])),
    responses((status = 200, description = "A page of events.", body = w::Page<w::Event>), Problems))]
pub(crate) async fn events(
    who: Who,
    Segments([id]): Segments<1>,
    Params(query): Params<w::WorkEventQuery>,
) -> JsonResult<w::Page<w::Event>> {
    let caller = who.caller();
    let work = caller.work(find(&caller, &id).await?).await?;
    let limit = page_size(query.limit, EVENT_PAGE)?;
    let events = caller.events(work.id, query.after.unwrap_or(0), limit).await?;
    let payloads = who.session.may(w::Scope::Payload);
    let next = events.next().map(|last| last.seq.to_string());
    let items = events.iter().map(|event| wire::event(event, &work.spec.tenant, payloads)).collect();
    Ok(Json(w::Page { items, unreadable: wire::unreadable(&events.unreadable), next }))
}

/// Explains a work item's state and the next step.
#[utoipa::path(get, path = "/v1/work/{id}/explain", tag = "work", params(("id" = String, Path)),
    security(("token" = ["view"])),
    responses((status = 200, description = "The reason in one sentence, advice, and the commands for it.", body = w::Explanation), Problems))]
pub(crate) async fn explain(
    State(app): State<Arc<App>>,
    who: Who,
    Segments([id]): Segments<1>,
) -> JsonResult<w::Explanation> {
    let caller = who.caller();
    let id = find(&caller, &id).await?;
    let found = caller.work(id).await?;
    let risk = app.ledger.at_risk(&found).await?;
    let state: WorkState = found.state;
    let explained = caller.explain(id).await?;
    Ok(Json(w::Explanation {
        id: id.to_string().into(),
        state: state.to_wire().into(),
        sentence: explained.sentence,
        advice: explained.advice,
        next: explained.next.iter().map(ToString::to_string).collect(),
        if_silent: risk.map(|risk| wire::forecast(&risk.forecast)),
    }))
}
