//! One group in one transaction: load, decide one action after another, save, commit.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use tenure_core::{
    Identity, LoadSet, Payload, Records, Reply, Submission, Work, WorkId,
    action::{Action, Ingest},
    command::{CommandAction, ReserveIn},
    in_turns,
    records::Touch,
};
use uuid::Uuid;

use super::{
    Shared,
    connection::{PgConnection, Pipeline, params},
    fault::Fault,
    load::{self, Lessons, Mark},
    row::{self, get},
    save,
};
use crate::{
    Error, LedgerReply,
    batch::Batch,
    job::{Job, Payloads, left, wanted},
    token::Key,
};

/// The maximum number of loading rounds, since rows lead to further rows. The core needs three.
const ROUNDS: usize = 8;

/// The result of a group.
pub(super) struct Decided {
    /// In the order of the jobs.
    pub answers: Vec<Result<LedgerReply, Error>>,
    /// In the order of the parked claims. None: there is nothing for this one.
    pub served: Vec<Option<LedgerReply>>,
    /// Whether there is more to claim than before.
    pub news: bool,
}

/// Runs a group. `parked` are claims that may receive work items of this group, in the same commit.
pub(super) async fn run(
    shared: &Shared,
    session: &PgConnection,
    jobs: &[Job],
    parked: &[Job],
    lessons: &mut Lessons,
) -> Result<Decided, Fault> {
    let submissions = || jobs.iter().chain(parked).map(|job| &job.submission);
    let mut load_set = LoadSet::default();
    submissions().for_each(|submission| load_set.first(submission));
    let mut batch = Batch::under(&shared.ledger_settings);
    let mark = load::first(session, shared, &load_set, lessons, &mut batch.records).await?;
    batch.records.fence_floor = mark.fence_floor;
    complete(session, &shared.key, submissions, &mut batch.records).await?;

    let replies: Vec<Result<Reply, Error>> =
        jobs.iter().map(|job| batch.decide(&job.submission, mark.now)).collect();
    doubt(jobs, &replies, lessons)?;
    let served = serve(&mut batch, parked, mark)?;
    let given: Vec<&Reply> = replies.iter().flatten().chain(served.iter().flatten()).collect();
    let payloads = commit(session, &shared.key, &batch, mark, &given, lessons).await?;
    let news = !batch.writes.sessions.is_empty() || !batch.newly_ready().is_empty();
    shared.committed(batch, mark);
    Ok(Decided {
        answers: replies.into_iter().map(|reply| Ok(outcome(reply?, &payloads))).collect(),
        served: served.into_iter().map(|reply| Some(outcome(reply?, &payloads))).collect(),
        news,
    })
}

/// Loads further records that the loaded rows lead to, until nothing is missing.
pub(super) async fn complete<'a, I: Iterator<Item = &'a Submission>>(
    session: &PgConnection,
    key: &Key,
    submissions: impl Fn() -> I,
    records: &mut Records,
) -> Result<(), Fault> {
    for _ in 0..ROUNDS {
        let mut load_set = LoadSet::default();
        submissions().for_each(|submission| load_set.then(submission, records));
        if load_set.is_empty() {
            return Ok(());
        }
        // Budgets are locked, so they are loaded together and last: two groups then lock them in the same order.
        let budgets = std::mem::take(&mut load_set.budgets);
        if load_set.is_empty() {
            load_set.budgets = budgets;
        }
        load::then(session, key, &load_set, records).await?;
    }
    Err(Fault::Data(Error::Corrupt("a group's records lead to ever more records".to_owned())))
}

pub(super) fn ingest(submission: &Submission) -> Option<&Ingest> {
    match &submission.action {
        Action::Ingest(ingest) => Some(ingest),
        Action::Command(action) => match &**action {
            CommandAction::Reserve { place: ReserveIn::OwnWork(work), .. } => Some(work),
            _ => None,
        },
        _ => None,
    }
}

/// The identities that a group looks up before it decides. Others are assumed to be new until the insert fails; a dry
/// run inserts nothing.
pub(super) fn looked_up(jobs: &[Job]) -> BTreeSet<Identity> {
    let tried = jobs.iter().map(|job| &job.submission).filter(|submission| submission.dry_run);
    tried.filter_map(ingest).map(identity).collect()
}

fn identity(ingest: &Ingest) -> Identity {
    Identity { tenant: ingest.tenant.clone(), source: ingest.source.clone() }
}

/// An ingest that was refused as new may be the repeat of an existing one, which is accepted.
fn doubt(jobs: &[Job], replies: &[Result<Reply, Error>], lessons: &mut Lessons) -> Result<(), Fault> {
    let refused = jobs.iter().zip(replies).filter(|(_, reply)| reply.is_err());
    let assumed = refused
        .filter_map(|(job, _)| ingest(&job.submission))
        .map(identity)
        .filter(|identity| !lessons.identities.contains(identity))
        .collect::<Vec<_>>();
    if assumed.is_empty() {
        return Ok(());
    }
    lessons.identities.extend(assumed);
    Err(Fault::Again("an ingest was refused as new".to_owned()))
}

/// Offers the work items that became claimable in this group to the parked claims, in the order of arrival.
fn serve(batch: &mut Batch, parked: &[Job], mark: Mark) -> Result<Vec<Option<Reply>>, Fault> {
    if parked.is_empty() {
        return Ok(Vec::new());
    }
    let mut offers = batch.newly_ready();
    let mut served = Vec::with_capacity(parked.len());
    for job in parked {
        let ids = job.claim_filter().map_or_else(Vec::new, |filter| {
            let fits = |work: &&Work| job.asks_for(&work.spec) && work.bound_to().is_none();
            let works = offers.iter().filter_map(|id| batch.records.works.get(id).map(Arc::as_ref));
            let works = in_turns(works.filter(fits).collect(), &job.submission.seed);
            works.into_iter().take(filter.max).map(|work| work.id).collect()
        });
        let reply = if ids.is_empty() || job.abandoned() {
            None
        } else {
            batch.decide(&job.chosen(ids), mark.now).ok().filter(|reply| !is_nothing(reply))
        };
        if let Some(Reply::Claimed(grants)) = &reply {
            offers.retain(|id| !grants.iter().any(|grant| grant.work.id == *id));
        }
        served.push(reply);
    }
    Ok(served)
}

pub(super) fn is_nothing(reply: &Reply) -> bool {
    matches!(reply, Reply::Claimed(grants) if grants.is_empty())
}

/// A reply with the payloads that it contains.
pub(super) fn outcome(reply: Reply, payloads: &Payloads) -> LedgerReply {
    let shown = wanted(&reply).into_iter().chain(left(&reply));
    let payloads = shown.filter_map(|key| Some((key, payloads.get(&key)?.clone()))).collect();
    LedgerReply { reply, payloads }
}

/// Saves and commits. Returns the payloads that the replies contain.
pub(super) async fn commit(
    session: &PgConnection,
    key: &Key,
    batch: &Batch,
    mark: Mark,
    replies: &[&Reply],
    lessons: &mut Lessons,
) -> Result<Payloads, Fault> {
    let rows = batch.rows();
    insert_works(session, &rows, lessons).await?;
    let mut pipeline = Pipeline::default();
    save::rest(&mut pipeline, key, batch, &rows, mark);
    if !batch.writes.wakes.is_empty() {
        let woken = find_woken(session, std::mem::take(&mut pipeline), batch, lessons).await?;
        save::wake(&mut pipeline, &woken, mark);
    }
    let (mut payloads, missing) = at_hand(batch, replies);
    let read = pipeline.add_if(!missing.is_empty(), save::PAYLOADS, || {
        let (works, seqs): (Vec<Uuid>, Vec<i64>) =
            missing.iter().map(|(work, seq)| (work.0, *seq as i64)).unzip();
        params![works, seqs]
    });
    pipeline.add("COMMIT", params![]);
    let mut results = pipeline.run(session).await.map_err(Fault::at_commit)?;
    for row in results.maybe(read) {
        let key = (row::id(&row, 0)?, get::<i64>(&row, 1)? as u64);
        payloads.insert(key, Payload::stored(get(&row, 2)?));
    }
    Ok(payloads)
}

/// Identities need no lock: the first insert wins. The others are decided again, with the existing work item loaded.
async fn insert_works(
    session: &PgConnection,
    rows: &[crate::batch::Row<'_>],
    lessons: &mut Lessons,
) -> Result<(), Fault> {
    let mut pipeline = Pipeline::default();
    let Some(at) = save::insert_works(&mut pipeline, rows) else { return Ok(()) };
    let inserted = pipeline.run(session).await?.take(at);
    let new = rows.iter().filter(|row| row.touch == Touch::Insert);
    if inserted.len() == new.clone().count() {
        return Ok(());
    }
    let inserted: BTreeSet<Uuid> = inserted.iter().map(|row| row.get(0)).collect();
    let lost = new.filter(|row| !inserted.contains(&row.work.id.0));
    lessons.identities.extend(lost.map(|row| row.work.spec.identity()));
    Err(Fault::Again("the same work was ingested elsewhere".to_owned()))
}

/// Locks the work items to be woken. If another transaction holds one of them, the group starts again and locks all of
/// them in order: it never waits for a work item while it holds others.
async fn find_woken(
    session: &PgConnection,
    mut pipeline: Pipeline<'_>,
    batch: &Batch,
    lessons: &mut Lessons,
) -> Result<Vec<WorkId>, Fault> {
    let (all, free) = save::find_woken(&mut pipeline, batch);
    let mut results = pipeline.run(session).await?;
    let ids = |rows: Vec<tokio_postgres::Row>| -> BTreeSet<WorkId> {
        rows.iter().map(|row| WorkId(row.get(0))).collect()
    };
    let (all, free) = (ids(results.take(all)), ids(results.take(free)));
    if all.is_subset(&free) {
        return Ok(all.into_iter().collect());
    }
    lessons.works.extend(all);
    Err(Fault::Again("a work to be woken is being changed elsewhere".to_owned()))
}

/// The payloads that this group wrote, and the keys of the missing ones.
fn at_hand(batch: &Batch, replies: &[&Reply]) -> (Payloads, Vec<(WorkId, u64)>) {
    let wanted: BTreeSet<(WorkId, u64)> = replies.iter().flat_map(|reply| wanted(reply)).collect();
    let left: BTreeSet<(WorkId, u64)> = replies.iter().flat_map(|reply| left(reply)).collect();
    if wanted.is_empty() && left.is_empty() {
        return Default::default();
    }
    let written: HashMap<(WorkId, u64), Option<&Payload>> =
        batch.writes.events.iter().map(|event| ((event.work, event.seq), event.payload.as_ref())).collect();
    let mut payloads = Payloads::new();
    let mut missing = Vec::new();
    for key in wanted.union(&left).copied() {
        match written.get(&key) {
            Some(payload) => payloads.extend(payload.map(|payload| (key, payload.clone()))),
            None => match batch.tried.get(&key) {
                Some(payload) => drop(payloads.insert(key, payload.clone())),
                None if wanted.contains(&key) => missing.push(key),
                None => {}
            },
        }
    }
    (payloads, missing)
}

/// The parked claims that the ingests of a group may serve.
pub(super) fn fitting<'a>(jobs: &'a [Job]) -> impl Fn(&Job) -> bool + use<'a> {
    let offered: Vec<&Ingest> = jobs
        .iter()
        .filter_map(|job| ingest(&job.submission))
        .filter(|ingest| ingest.session.is_none() && ingest.claim.is_none() && ingest.born.is_none())
        .collect();
    move |job: &Job| {
        let Some(filter) = job.claim_filter() else { return false };
        offered.iter().any(|ingest| {
            filter.wants_queue(&ingest.source.system, &ingest.kind)
                && filter.wants_tenant(&ingest.tenant)
                && job.submission.tenants.allow(&ingest.tenant)
        })
    }
}
