//! The lanes of claims by filter: one selection for each filter, served in the order of arrival.
//!
//! The table `ready` is only a hint. A selection locks nothing. Then those selected work items that are free are
//! locked, and the core decides on the locked rows. So these lanes never wait for a work item.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tenure_core::{
    Records, Reply, Submission, WorkId,
    action::{Action, ClaimFilter, Tenants},
    decide,
    model::RequestKey,
};
use tokio::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Shared,
    connection::{PgConnection, Pipeline, params},
    fault::Fault,
    group::{self, complete, is_nothing, outcome},
    lane::LaneConnection,
    load::{self, Lessons, session_slot},
    queue::nothing,
    row::get,
};
use crate::{
    Error, LedgerReply,
    batch::Batch,
    job::{Job, QUEUES_MAX},
};

/// While one lane waits for its commit, the other selects and decides.
pub(super) const LANES: usize = 2;
/// The maximum number of claims in a group, and of work items for the claims of one filter: the first caller should not
/// have to wait for all the others.
const GROUP: usize = 256;
const WORKS: usize = 400;
/// How often parked claims search by themselves: a lost hint costs no more than this.
const POLL: Duration = Duration::from_secs(1);
/// How often claims whose selected work items were all taken select again.
const TRIES: usize = 5;

/// The owner to whom a work item is bound, as [`owner`] writes it. The queue contains only the incarnation, so the few
/// bound work items are looked up.
macro_rules! owner_of {
    ($ready:literal) => {
        concat!(
            "(SELECT ",
            $ready,
            ".bound || chr(1) || (w.body::json #>> '{first_started,worker}') FROM work w WHERE w.id = ",
            $ready,
            ".work)"
        )
    };
}

/// The first row of a part of the queue.
macro_rules! first {
    ($part:literal, $order:literal) => {
        concat!(
            "(SELECT r.tenant, r.kind, r.system, r.priority, r.created_at, r.work FROM ready r WHERE ",
            $part,
            " ORDER BY ",
            $order,
            "r.system, r.priority, r.created_at, r.work LIMIT 1)"
        )
    };
}

/// The first work items of each matching queue: the claimable work items of one tenant, kind and source system. Other
/// queues cost nothing. Queues are found by their first rows, each by a search past the previous one, and are read from
/// there, so dead rows that no vacuum has removed are passed once.
///
/// Within one priority the tenants take turns, as in the core's `in_turns`. If there are many queues, few work items of
/// each are read: `uncertain` is the last one that was read of a queue that may have more, because later ones may have
/// to come after those as well.
const SELECT: &str = concat!(
    "WITH queue AS MATERIALIZED (SELECT l.* FROM ( \
     WITH RECURSIVE walk AS (",
    first!("$3::text[] IS NULL", "r.tenant, r.kind, "),
    " UNION ALL SELECT n.* FROM walk k CROSS JOIN LATERAL ",
    first!("r.tenant > k.tenant", "r.tenant, r.kind, "),
    " n) SELECT * FROM walk UNION ALL \
     SELECT k.name, n.kind, n.system, n.priority, n.created_at, n.work \
     FROM (SELECT DISTINCT unnest($3::text[]) AS name) k LEFT JOIN LATERAL ",
    first!("$2::text[] IS NULL AND r.tenant = k.name", "r.kind, "),
    " n ON true) t CROSS JOIN LATERAL ( \
     (WITH RECURSIVE walk AS (SELECT t.* WHERE $2::text[] IS NULL AND t.work IS NOT NULL \
     UNION ALL SELECT n.* FROM walk k CROSS JOIN LATERAL ",
    first!("r.tenant = t.tenant AND (r.kind, r.system) > (k.kind, k.system)", "r.kind, "),
    " n) SELECT k.* FROM (SELECT * FROM walk LIMIT $8::bigint) k \
     WHERE $1::text[] IS NULL OR k.system = ANY($1)) \
     UNION ALL SELECT l.* FROM (SELECT DISTINCT unnest($2::text[]) AS name) o CROSS JOIN LATERAL ( \
     WITH RECURSIVE walk AS (",
    first!("r.tenant = t.tenant AND r.kind = o.name", ""),
    " UNION ALL SELECT n.* FROM walk k CROSS JOIN LATERAL ",
    first!("r.tenant = t.tenant AND r.kind = o.name AND r.system > k.system", ""),
    " n) SELECT k.* FROM (SELECT * FROM walk LIMIT $8::bigint) k \
     WHERE $1::text[] IS NULL OR k.system = ANY($1)) l) l), \
     few AS (SELECT least($5::bigint, greatest(16, 2 * $5::bigint / greatest(1, count(*)))) AS few FROM queue), \
     head AS (SELECT q.*, row_number() OVER \
     (PARTITION BY q.tenant, q.priority ORDER BY q.created_at, q.work) AS rank \
     FROM few CROSS JOIN queue l CROSS JOIN LATERAL (SELECT q.priority, q.created_at, q.work, q.bound, q.tenant, \
     q.session, row_number() OVER (ORDER BY q.priority, q.created_at, q.work) = few.few AS uncertain \
     FROM ready q WHERE q.tenant = l.tenant AND q.kind = l.kind AND q.system = l.system \
     AND (q.priority, q.created_at, q.work) >= (l.priority, l.created_at, l.work) AND q.work <> ALL($9::uuid[]) \
     AND (q.bound IS NULL OR (q.bound = ANY($6::text[]) AND ",
    owner_of!("q"),
    " = ANY($4::text[]))) ORDER BY q.priority, q.created_at, q.work LIMIT few.few) q) \
     SELECT r.work, CASE WHEN r.bound IS NOT NULL THEN ",
    owner_of!("r"),
    " END, CASE WHEN r.session IS NOT NULL THEN r.tenant END, r.session, r.uncertain FROM head r \
     ORDER BY r.priority, r.rank, sha256($7::bytea || convert_to(r.tenant, 'UTF8')) LIMIT $5::bigint"
);

/// Runs until the claims are closed.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut lane = LaneConnection::new(shared.clone());
    let mut looked = Instant::now();
    loop {
        let next = shared.parked.expire();
        let arrived = shared.claims.take_claims(GROUP, WORKS);
        let nudged = shared.take_nudge();
        if arrived.is_empty() && !nudged {
            if shared.claims.is_closed() {
                break;
            }
            let poll = next.map(|next| next.min(looked + POLL));
            let timed_out = match poll {
                Some(at) => tokio::time::timeout_at(at, shared.claims.news()).await.is_err(),
                None => {
                    shared.claims.news().await;
                    false
                }
            };
            if timed_out && looked + POLL <= Instant::now() {
                shared.nudge();
            }
            continue;
        }
        let mut jobs = VecDeque::new();
        if nudged {
            looked = Instant::now();
            jobs.extend(shared.parked.take(usize::MAX, |_| true));
        }
        jobs.extend(arrived);
        serve(&mut lane, jobs).await;
    }
    shared.parked.close();
    // The other lane must see that the claims are closed.
    shared.claims.nudge();
}

/// Serves claims in groups, oldest first.
async fn serve(lane: &mut LaneConnection, mut jobs: VecDeque<Job>) {
    while !jobs.is_empty() {
        let mut some = Vec::new();
        while let Some(job) = jobs.pop_front() {
            if job.abandoned() {
                continue;
            }
            some.push(job);
            if some.len() >= GROUP {
                break;
            }
        }
        group(lane, some).await;
    }
}

async fn group(lane: &mut LaneConnection, mut jobs: Vec<Job>) {
    let mut fruitless = 0;
    while !jobs.is_empty() {
        let given = match attempt(lane, &jobs).await {
            Ok(given) => given,
            Err(fault) => {
                lane.clean(&fault).await;
                fruitless += 1;
                if matches!(fault, Fault::Again(_)) && fruitless < TRIES {
                    continue;
                }
                if matches!(fault, Fault::Data(_)) && jobs.len() > 1 {
                    for job in jobs {
                        Box::pin(group(lane, vec![job])).await;
                    }
                    return;
                }
                return jobs.into_iter().for_each(|job| job.answer(Err(fault.error())));
            }
        };
        let mut unlucky = Vec::new();
        let before = jobs.len();
        for (job, given) in jobs.into_iter().zip(given) {
            match given {
                Given::LedgerReply(outcome) => job.answer(outcome),
                Given::Later if fruitless + 1 < TRIES => unlucky.push(job),
                Given::Later | Given::Nothing => rest(&lane.shared, job),
            }
        }
        fruitless += usize::from(unlucky.len() == before);
        jobs = unlucky;
    }
}

/// Parks a claim that may wait, and replies to one that may not.
fn rest(shared: &Shared, job: Job) {
    match job.park_until {
        Some(until) if until > Instant::now() && !shared.claims.is_closed() => shared.parked.put(job),
        _ => job.answer(Ok(nothing())),
    }
}

/// The reply to a claim for which nothing was selected. An invalid claim is refused.
fn without(submission: &Submission, more: bool) -> Given {
    match decide(&Records::default(), submission, 0) {
        Err(refusal) => Given::LedgerReply(Err(Error::Refused(refusal))),
        Ok(_) if more => Given::Later,
        Ok(_) => Given::Nothing,
    }
}

enum Given {
    LedgerReply(Result<LedgerReply, Error>),
    /// There is no work item for this claim.
    Nothing,
    /// Other claims took the work items first; there may be more.
    Later,
}

fn key(job: &Job) -> RequestKey {
    match &job.submission.action {
        Action::Claim(claim) => claim.claimant.key(&job.submission),
        _ => RequestKey(0),
    }
}

fn incarnation(job: &Job) -> &str {
    match &job.submission.action {
        Action::Claim(claim) => &claim.claimant.worker.incarnation,
        _ => "",
    }
}

/// An incarnation is unique to its worker only: other workers may use the same name.
fn owner(job: &Job) -> String {
    match &job.submission.action {
        Action::Claim(claim) => {
            let worker = &claim.claimant.worker;
            format!("{}\u{1}{}", worker.incarnation, worker.id)
        }
        _ => String::new(),
    }
}

async fn attempt(lane: &mut LaneConnection, jobs: &[Job]) -> Result<Vec<Given>, Fault> {
    let shared = lane.shared.clone();
    let session = lane.session().await?;
    shared.time.settle(session).await?;
    let began = Instant::now();
    let turn = shared.in_hand.turn().await;
    let mut avoided = turn.others();
    avoided.extend(shared.unreadable.known(|name| shared.damaged.remove(name)));
    let selected = select(session, jobs, avoided).await;
    if let Err(Fault::Data(error @ (Error::Corrupt(_) | Error::Newer(_)))) = &selected {
        shared.cannot_select(error);
    }
    let Selected { dealt, more, repeats, sessions } = selected?;
    let held = turn.hold(dealt.iter().flatten().copied().collect());
    let active = |at: &usize| !dealt[*at].is_empty() || repeats.contains(&key(&jobs[*at]));
    let active: Vec<usize> = (0..jobs.len()).filter(active).collect();
    let mut given: Vec<Given> =
        jobs.iter().zip(more).map(|(job, more)| without(&job.submission, more)).collect();
    if active.is_empty() {
        return Ok(given);
    }

    let mut batch = Batch::default();
    let requests: Vec<RequestKey> = active.iter().map(|at| key(&jobs[*at])).collect();
    let loaded =
        load::candidates(session, &shared, &requests, &sessions, held.works(), &mut batch.records).await;
    let mark = match loaded {
        Err(Fault::Data(error)) => return Err(pass_over(session, &shared, held.works(), error).await?),
        loaded => loaded?,
    };
    batch.records.fence_floor = mark.fence_floor;
    // A claim is decided on the work items that were locked for it. The ones that a repeat had received before are only
    // read.
    let locked: HashSet<WorkId> = batch.records.works.keys().copied().collect();
    let chosen: Vec<(usize, Submission)> = active
        .into_iter()
        .map(|at| {
            let ids = dealt[at].iter().filter(|id| locked.contains(*id)).copied().collect();
            let submission =
                if dealt[at].is_empty() { jobs[at].submission.clone() } else { jobs[at].chosen(ids) };
            (at, submission)
        })
        .collect();
    load::given_before(session, &mut batch.records).await?;
    complete(session, &shared.key, || chosen.iter().map(|(_, submission)| submission), &mut batch.records)
        .await?;
    let replies: Vec<(usize, Result<Reply, Error>)> =
        chosen.iter().map(|(at, submission)| (*at, batch.decide(submission, mark.now))).collect();
    let granted: Vec<&Reply> = replies.iter().filter_map(|(_, reply)| reply.as_ref().ok()).collect();
    let payloads =
        group::commit(session, &shared.key, &batch, mark, &granted, &mut Lessons::default()).await?;
    shared.counters.committed(chosen.len(), began.elapsed());
    shared.writing.committed();
    if !batch.writes.sessions.is_empty() {
        shared.ready_grew();
    }
    shared.committed(batch, mark);
    for (at, reply) in replies {
        given[at] = match reply {
            Ok(reply) if is_nothing(&reply) && !repeats.contains(&key(&jobs[at])) => Given::Later,
            reply => Given::LedgerReply(reply.map(|reply| outcome(reply, &payloads))),
        };
    }
    Ok(given)
}

/// Finds the candidates that cannot be read, so that the next selection skips them.
async fn pass_over(
    session: &PgConnection,
    shared: &Shared,
    candidates: &[WorkId],
    error: Error,
) -> Result<Fault, Fault> {
    session.query("ROLLBACK", params![]).await?;
    let mut found = 0;
    for id in candidates {
        let row = session.query(load::PEERS, params![load::uuids([id])]).await;
        if let Err(Fault::Data(error)) = row {
            shared.pass_over(*id, &error);
            found += 1;
        }
    }
    if found == 0 {
        return Ok(Fault::Data(error));
    }
    Ok(Fault::Again(format!("{found} queued works cannot be read")))
}

/// The part of a claim by filter that a selection depends on.
#[derive(PartialEq, Eq, Hash)]
struct Asked<'a> {
    sources: Option<&'a [String]>,
    kinds: Option<&'a [String]>,
    tenants: Option<Vec<&'a str>>,
}

fn listed(list: &[String]) -> Option<&[String]> {
    (!list.is_empty()).then_some(list)
}

impl<'a> Asked<'a> {
    fn new(filter: &'a ClaimFilter, tenants: &'a Tenants) -> Self {
        let asked = listed(&filter.tenants).map(|list| list.iter().map(String::as_str));
        let tenants = match (asked, tenants) {
            (asked, Tenants::All) => asked.map(Iterator::collect),
            (None, Tenants::Only(own)) => Some(own.iter().map(String::as_str).collect()),
            (Some(asked), own) => Some(asked.filter(|tenant| own.allow(tenant)).collect()),
        };
        Self { sources: listed(&filter.sources), kinds: listed(&filter.kinds), tenants }
    }
}

/// The jobs with the same filter, and the number of work items that they want together.
#[derive(Default)]
struct Askers {
    jobs: Vec<usize>,
    wanted: usize,
}

struct Selected {
    /// The candidates for each job.
    dealt: Vec<Vec<WorkId>>,
    /// Whether there may be more work items for a job than were selected.
    more: Vec<bool>,
    /// The requests that received work items before.
    repeats: HashSet<RequestKey>,
    /// The lock slots of the candidates' sessions.
    sessions: BTreeSet<i32>,
}

/// Excludes the work items in hand of other lanes and the unreadable ones.
async fn select(session: &PgConnection, jobs: &[Job], avoided: HashSet<WorkId>) -> Result<Selected, Fault> {
    let mut asked: HashMap<Asked<'_>, Askers> = HashMap::new();
    for (at, job) in jobs.iter().enumerate() {
        let Some(filter) = job.claim_filter().filter(|filter| filter.check().is_ok()) else { continue };
        let askers = asked.entry(Asked::new(filter, &job.submission.tenants)).or_default();
        askers.jobs.push(at);
        askers.wanted += filter.max;
    }
    let mut pipeline = Pipeline::default();
    let keys: Vec<i64> = jobs.iter().map(|job| key(job).0).collect();
    let requests = pipeline.add(load::REQUESTS, params![keys]);
    let mut selections = Vec::with_capacity(asked.len());
    for (asked, askers) in &asked {
        let incarnations: Vec<&str> = askers.jobs.iter().map(|at| incarnation(&jobs[*at])).collect();
        let owners: Vec<String> = askers.jobs.iter().map(|at| owner(&jobs[*at])).collect();
        let first =
            askers.jobs.first().and_then(|at| jobs[*at].claim_filter()).map_or(0, |filter| filter.max);
        let limit = askers.wanted.min(WORKS.max(first));
        let seed = askers.jobs.first().map_or(&[][..], |at| &jobs[*at].submission.seed);
        let tenants = asked.tenants.clone();
        let params = params![
            asked.sources,
            asked.kinds,
            tenants,
            owners,
            limit as i64,
            incarnations,
            seed,
            QUEUES_MAX as i64,
            load::uuids(&avoided)
        ];
        selections.push((pipeline.add(SELECT, params), askers, limit));
    }
    let mut results = pipeline.run(session).await?;
    let mut selected = Selected {
        dealt: jobs.iter().map(|_| Vec::new()).collect(),
        more: vec![false; jobs.len()],
        repeats: HashSet::new(),
        sessions: BTreeSet::new(),
    };
    for row in results.take(requests) {
        selected.repeats.insert(RequestKey(get(&row, 0)?));
    }
    let mut taken = HashSet::new();
    for (at, askers, limit) in selections {
        let mut rows = results.take(at);
        let mut more = rows.len() == limit;
        for (at, row) in rows.iter().enumerate() {
            if get::<bool>(row, 4)? {
                rows.truncate(at + 1);
                more = true;
                break;
            }
        }
        askers.jobs.iter().for_each(|at| selected.more[*at] = more);
        selected.deal(&rows, askers, jobs, &mut taken)?;
    }
    Ok(selected)
}

/// A selected work item.
struct Offer<'a> {
    work: WorkId,
    /// The only owner that may have it, if it is bound.
    owner: Option<&'a str>,
    /// The lock slot of its session.
    session: Option<i32>,
}

impl<'a> Offer<'a> {
    fn new(row: &'a Row) -> Result<Self, Error> {
        let session = get::<Option<&str>>(row, 2)?.zip(get::<Option<&str>>(row, 3)?);
        Ok(Self {
            work: WorkId(get::<Uuid>(row, 0)?),
            owner: get(row, 1)?,
            session: session.map(|(tenant, session)| session_slot(tenant, session)),
        })
    }
}

impl Selected {
    /// Gives the candidates of one filter to its jobs in the order of arrival.
    fn deal(
        &mut self,
        rows: &[Row],
        askers: &Askers,
        jobs: &[Job],
        taken: &mut HashSet<WorkId>,
    ) -> Result<(), Error> {
        let offers = rows.iter().map(Offer::new).collect::<Result<Vec<_>, _>>()?;
        for at in &askers.jobs {
            let max = jobs[*at].claim_filter().map_or(0, |filter| filter.max);
            let asks = owner(&jobs[*at]);
            for offer in &offers {
                if self.dealt[*at].len() >= max {
                    break;
                }
                if offer.owner.is_none_or(|owner| owner == asks) && taken.insert(offer.work) {
                    self.dealt[*at].push(offer.work);
                    self.sessions.extend(offer.session);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio_postgres::SimpleQueryMessage;

    use super::*;
    use crate::{Ledger, Options, postgres::connection::SETTINGS};

    const FLOOD: &str = "INSERT INTO ready (tenant, kind, system, priority, created_at, work) \
         SELECT 'flood', 'job', 'manual', 3, n, gen_random_uuid() FROM generate_series(1, 50000) AS n \
         UNION ALL SELECT 'flood', 'made-up-' || n, 'manual', 3, n, gen_random_uuid() FROM generate_series(1, 50000) AS n \
         UNION ALL SELECT 'quiet', 'job', 'manual', 3, 1000000, gen_random_uuid()";

    #[tokio::test]
    async fn a_claim_reads_little_however_much_is_queued() {
        let url = tenure_testkit::shared().create_database();
        let options = Options { sweep: false, ..Options::default() };
        Ledger::open_postgres(&url, options).await.unwrap().close().await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(FLOOD).await.unwrap();
        client.batch_execute(SETTINGS).await.unwrap();
        client.batch_execute(&format!("PREPARE asked AS {SELECT}")).await.unwrap();
        let (jobs, quiet) = ("ARRAY['job']", "ARRAY['quiet']");
        for (kinds, tenants, pages) in [
            ("NULL", quiet, 100),
            (jobs, quiet, 100),
            (jobs, "ARRAY['flood', 'quiet']", 200),
            (jobs, "NULL", 200),
            // A thousand queues are read, each by a few searches, and not all fifty thousand.
            ("NULL", "NULL", 30_000),
        ] {
            let run =
                format!("EXECUTE asked(NULL, {kinds}, {tenants}, '{{}}', 4, '{{}}', '\\x07', 1000, '{{}}')");
            let lines = |answer: Vec<SimpleQueryMessage>| -> Vec<String> {
                let row = |message| match message {
                    SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
                    _ => None,
                };
                answer.into_iter().filter_map(row).collect()
            };
            let chosen = client.simple_query(&run).await.unwrap();
            assert_eq!(lines(chosen).len(), if tenants == quiet { 1 } else { 4 }, "{run}");
            let explain = format!("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {run}");
            let plan = lines(client.simple_query(&explain).await.unwrap());
            let buffers = plan.iter().find(|line| line.contains("Buffers:")).unwrap();
            let read = |kind: &str| {
                let count = buffers.split_once(kind).map_or("0", |(_, rest)| rest);
                count.split(' ').next().unwrap().parse::<u64>().unwrap()
            };
            assert!(read("hit=") + read("read=") < pages, "{run}\n{}", plan.join("\n"));
        }
    }
}
