//! The intake table: rows that an application commits with its own changes become work items, once and in order.
#![cfg(all(feature = "sqlite", feature = "postgres"))]

use serde_json::json;
use tenure_store::{
    IntakeInsert, IntakeWorker, Ledger, NewWork, Options, WorkFilter,
    core::{
        Actor, Work,
        model::Disposition,
        policy::{Settings, WorkPolicy},
        quota::Quota,
    },
};
use tenure_testkit::shared;

/// Two ledgers over one database, and an application beside them.
struct Bed {
    here: Ledger,
    there: Ledger,
    folder: tempfile::TempDir,
    /// None on SQLite.
    url: Option<String>,
}

impl Bed {
    async fn sqlite() -> Self {
        Self::open(None).await
    }

    async fn postgres() -> Self {
        Self::open(Some(tokio::task::spawn_blocking(|| shared().create_database()).await.unwrap())).await
    }

    async fn open(url: Option<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let settings = Settings::default().with_source("app", WorkPolicy::default()).unwrap();
            let options = Options { settings, sweep: false, ..Options::default() };
            match &url {
                Some(url) => Ledger::open_postgres(url, options).await.unwrap(),
                None => Ledger::open_sqlite(&folder.path().join("ledger.db"), options).await.unwrap(),
            }
        };
        let (here, there) = (open().await, open().await);
        Self { here, there, folder, url }
    }

    /// Any SQL, with a connection of the application's own.
    async fn app(&self, sql: &str) {
        let sql = sql.to_owned();
        match self.url.clone() {
            None => {
                let conn = rusqlite::Connection::open(self.folder.path().join("ledger.db")).unwrap();
                conn.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
                conn.execute_batch(&sql).unwrap();
            }
            Some(url) => {
                let psql = move || shared().psql(url.rsplit('/').next().unwrap(), &sql);
                tokio::task::spawn_blocking(psql).await.unwrap();
            }
        }
    }

    async fn insert(&self, id: &str, more: &str, values: &str) {
        self.app(&format!(
            "INSERT INTO tenure_intake (source_system, source_id, kind, disposition{more}) \
             VALUES ('app', '{id}', 'job', 'rerunnable'{values})"
        ))
        .await;
    }

    /// All work items, oldest first.
    async fn works(&self) -> Vec<Work> {
        let mut works = self.here.list(&WorkFilter::default(), None, 1_000).await.unwrap().rows;
        works.reverse();
        works
    }

    async fn ids(&self) -> Vec<String> {
        self.works().await.iter().map(|work| work.spec.source.id.clone()).collect()
    }

    async fn sound(&self) {
        assert_eq!(self.there.verify().await.unwrap().faults, []);
    }

    async fn close(self) {
        self.here.close().await.unwrap();
        self.there.close().await.unwrap();
    }
}

async fn rows_become_work_items_with_the_transaction_that_inserted_them(bed: Bed) {
    bed.app("CREATE TABLE app_orders (id TEXT PRIMARY KEY)").await;
    let both = |id: &str, end: &str| {
        format!(
            "BEGIN; INSERT INTO app_orders VALUES ('{id}'); INSERT INTO tenure_intake \
             (source_system, source_id, kind, disposition, input, priority, session, options) VALUES \
             ('app', '{id}', 'ship', 'rerunnable', '{{\"order\":\"{id}\"}}', 1, 's', \
             '{{\"workflow\":{{\"id\":\"f\",\"version\":\"1\"}}}}'); {end}"
        )
    };
    bed.app(&both("lost", "ROLLBACK")).await;
    assert_eq!(IntakeWorker.run_once(&bed.here).await.unwrap(), Default::default());
    bed.app(&both("kept", "COMMIT")).await;
    let look = IntakeWorker.run_once(&bed.there).await.unwrap();
    assert_eq!((look.ingested, look.rejected, look.held_back), (1, 0, 0));
    let work = bed.works().await.pop().unwrap();
    assert_eq!((work.spec.source.id.as_str(), work.spec.tenant.as_str()), ("kept", "default"));
    assert_eq!((work.spec.priority, work.spec.session.as_deref()), (1, Some("s")));
    assert_eq!(work.spec.workflow.as_ref().map(|flow| flow.id.as_str()), Some("f"));
    let input = bed.here.events(work.id, 0, 1).await.unwrap()[0].event.payload.clone().unwrap();
    assert_eq!(input.value(), json!({ "order": "kept" }));
    assert_eq!(bed.here.intake_table().await.unwrap(), Default::default());
    bed.sound().await;
    bed.close().await;
}

async fn two_workers_make_each_row_one_work_item_in_order(bed: Bed) {
    for n in 0..60 {
        bed.insert(&format!("{n:03}"), "", "").await;
    }
    // As a worker leaves it that stopped between the ingest and the deletion.
    let first = NewWork::new("app", "000", "job", Disposition::Rerunnable, json!(null));
    let first = bed.there.caller(Actor::system("intake")).ingest(first).await.unwrap().work.id;
    let (here, there) = tokio::join!(IntakeWorker.run_once(&bed.here), IntakeWorker.run_once(&bed.there));
    let (here, there) = (here.unwrap(), there.unwrap());
    assert!(here.ingested + there.ingested >= 60, "{here:?} {there:?}");
    assert_eq!((here.rejected, there.rejected), (0, 0));
    let ids = bed.ids().await;
    let expected: Vec<String> = (0..60).map(|n| format!("{n:03}")).collect();
    assert_eq!(ids, expected, "one for each row, in the order of the commits");
    assert_eq!(bed.works().await[0].id, first);
    assert_eq!(bed.here.intake_table().await.unwrap().waiting, 0);
    bed.sound().await;
    bed.close().await;
}

async fn a_bad_row_is_set_aside_and_the_later_ones_go_on(bed: Bed) {
    bed.insert("one", ", input", ", '{\"n\":1}'").await;
    bed.insert("bad json", ", input", ", '{'").await;
    bed.insert("poison", ", input", ", '1e17'").await;
    let large = if bed.url.is_some() { "repeat('x', 1100000)" } else { "hex(zeroblob(550000))" };
    bed.insert("large", ", input", &format!(", '\"' || {large} || '\"'")).await;
    bed.insert("twice", ", input", ", '{\"a\":1,\"a\":2}'").await;
    bed.insert("list", ", options", ", '[]'").await;
    bed.insert("empty", ", options", ", ''").await;
    bed.insert("spelling", ", options", ", '{\"polcy\":{}}'").await;
    bed.insert("one", ", input", ", '{\"n\":2}'").await;
    bed.insert("one", ", input", ", '{ \"n\": 1 }'").await;
    bed.app(
        "INSERT INTO tenure_intake (source_system, source_id, kind, disposition) VALUES \
         ('app', 'disposition', 'job', 'whatever'), ('nobody', 'source', 'job', 'rerunnable')",
    )
    .await;
    bed.insert("two", "", "").await;
    let look = IntakeWorker.run_once(&bed.here).await.unwrap();
    assert_eq!((look.ingested, look.rejected, look.held_back), (3, 10, 0));
    assert_eq!(bed.ids().await, ["one", "two"]);
    let table = bed.there.intake_table().await.unwrap();
    assert_eq!((table.waiting, table.rejected), (0, 10));
    assert!(table.newest_reason.is_some(), "{table:?}");
    assert_eq!(
        IntakeWorker.run_once(&bed.there).await.unwrap(),
        Default::default(),
        "they are not tried again"
    );

    // An operator corrects and retries one, and deletes the others.
    bed.app(
        "UPDATE tenure_intake SET input = '{\"n\":3}', rejected_at = NULL, reason = NULL \
         WHERE source_id = 'bad json' AND reason LIKE 'input: %'; \
         DELETE FROM tenure_intake WHERE reason LIKE 'idempotency_mismatch: %'; \
         DELETE FROM tenure_intake WHERE reason LIKE 'payload_refused: %'; \
         DELETE FROM tenure_intake WHERE reason LIKE 'input: duplicate key `a`%'; \
         DELETE FROM tenure_intake WHERE reason LIKE 'options: %' OR reason LIKE 'disposition: %'; \
         DELETE FROM tenure_intake WHERE reason LIKE 'unknown_source: %'",
    )
    .await;
    assert_eq!(IntakeWorker.run_once(&bed.here).await.unwrap().ingested, 1);
    assert_eq!(bed.ids().await, ["one", "two", "bad json"]);
    assert_eq!(
        bed.there.intake_table().await.unwrap(),
        Default::default(),
        "each reason begins as documented"
    );
    bed.sound().await;
    bed.close().await;
}

async fn rows_wait_while_the_intake_is_paused(bed: Bed) {
    let person = bed.here.caller(Actor::person("ana"));
    person.pause_intake(Some("default"), "the database moves").await.unwrap();
    bed.insert("one", "", "").await;
    bed.insert("other", ", tenant", ", 'other'").await;
    // The other process learns of the pause from the ledger's refusal, or a second later.
    for ledger in [&bed.here, &bed.there] {
        IntakeWorker.run_once(ledger).await.unwrap();
    }
    let table = bed.there.intake_table().await.unwrap();
    if bed.ids().await == ["other"] {
        assert_eq!((table.waiting, table.rejected), (1, 0));
        assert!(table.oldest_at.is_some());
    }
    person.resume_intake(Some("default"), "moved").await.unwrap();
    IntakeWorker.run_once(&bed.here).await.unwrap();
    let mut ids = bed.ids().await;
    ids.sort();
    assert_eq!(ids, ["one", "other"]);
    assert_eq!(bed.here.intake_table().await.unwrap(), Default::default());
    bed.close().await;
}

async fn an_urgent_row_is_set_aside_where_http_refuses_it(bed: Bed) {
    let quota = Quota { priority: 2, ..Quota::default() };
    let settings = Settings::default().with_source("app", WorkPolicy::default()).unwrap();
    bed.here.set_settings(settings.with_quota(quota));
    bed.there.caller(Actor::person("operator")).ingest(urgent("known")).await.unwrap();
    for id in ["urgent", "known"] {
        bed.insert(id, ", priority", ", 0").await;
    }
    bed.insert("patient", ", priority", ", 2").await;
    let look = IntakeWorker.run_once(&bed.here).await.unwrap();
    assert_eq!((look.ingested, look.rejected), (2, 1), "a repeat of a known one is answered");
    let reason = bed.here.intake_table().await.unwrap().newest_reason.unwrap();
    assert!(reason.starts_with("forbidden: Priorities below 2"), "{reason}");
    assert_eq!(bed.ids().await, ["known", "patient"]);
    bed.close().await;
}

fn urgent(id: &str) -> NewWork {
    NewWork { priority: 0, ..NewWork::new("app", id, "job", Disposition::Rerunnable, json!(null)) }
}

/// A backlog of one tenant or of one source delays the others by no more than a page.
async fn sources_take_turns(bed: Bed) {
    let numbers = |count: usize| {
        format!("WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count}) ")
    };
    let many = |count: usize, tenant: &str, system: &str, id: &str| {
        format!(
            "INSERT INTO tenure_intake (tenant, source_system, source_id, kind, disposition) \
             {}SELECT {tenant}, '{system}', {id}, 'job', 'rerunnable' FROM n",
            numbers(count)
        )
    };
    bed.app(&many(300, "'noisy'", "app", "'noisy ' || (1000 + n)")).await;
    bed.app(&many(1, "'quiet'", "app", "'quiet'")).await;
    bed.app(&many(1, "'noisy'", "manual", "'by hand'")).await;
    let look = IntakeWorker.run_once(&bed.here).await.unwrap();
    assert_eq!((look.ingested, look.rejected, look.more), (302, 0, false));
    let ids = bed.ids().await;
    for id in ["quiet", "by hand"] {
        let place = ids.iter().position(|other| other == id).unwrap();
        assert!(place < 64, "{id} was number {place}");
    }
    let noisy: Vec<&String> = ids.iter().filter(|id| id.starts_with("noisy")).collect();
    assert!(noisy.is_sorted() && noisy.len() == 300, "the order of the commits: {noisy:?}");

    // More sources than fit into a page.
    bed.app(&many(150, "'t' || (1000 + n)", "app", "'first'")).await;
    bed.app(&many(150, "'t' || (1000 + n)", "app", "'second'")).await;
    let look = IntakeWorker.run_once(&bed.here).await.unwrap();
    assert_eq!((look.ingested, look.rejected, look.more), (300, 0, false));
    let ids = bed.ids().await;
    assert!(ids[302..430].iter().all(|id| id == "first"), "a page of tenants has one row each: {ids:?}");
    assert_eq!(bed.there.intake_table().await.unwrap(), Default::default());
    bed.sound().await;
    bed.close().await;
}

/// The helper for Rust programs, with the drivers that they use.
async fn the_insert_for_rust_programs_is_taken(bed: Bed) {
    for tenant in ["default", "other"] {
        let mut new = NewWork::new("app", "rust", "job", Disposition::OwnerBound, json!({ "n": 1 }));
        (new.session, new.tenant) = (Some("s".to_owned()), tenant.to_owned());
        let insert = IntakeInsert::try_from(&new).unwrap();
        match &bed.url {
            None => {
                let mut conn = rusqlite::Connection::open(bed.folder.path().join("ledger.db")).unwrap();
                let transaction = conn.transaction().unwrap();
                transaction.execute(insert.sqlite(), rusqlite::params_from_iter(insert.values())).unwrap();
                transaction.commit().unwrap();
            }
            Some(url) => {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                client.execute(insert.postgres(), &params(&insert)).await.unwrap();
            }
        }
        assert_eq!(IntakeWorker.run_once(&bed.here).await.unwrap().ingested, 1);
        let work = bed.works().await.pop().unwrap();
        assert_eq!((work.spec.tenant.as_str(), work.spec.session.as_deref()), (tenant, Some("s")));
        assert_eq!(work.spec.disposition, Disposition::OwnerBound);
    }
    bed.close().await;
}

fn params(insert: &IntakeInsert) -> Vec<&(dyn tokio_postgres::types::ToSql + Sync)> {
    insert.values().iter().map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync)).collect()
}

macro_rules! on_both {
    ($($name:ident),*) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Bed::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(super::Bed::postgres().await).await;
            })*
        }
    };
}

on_both!(
    rows_become_work_items_with_the_transaction_that_inserted_them,
    two_workers_make_each_row_one_work_item_in_order,
    a_bad_row_is_set_aside_and_the_later_ones_go_on,
    rows_wait_while_the_intake_is_paused,
    an_urgent_row_is_set_aside_where_http_refuses_it,
    sources_take_turns,
    the_insert_for_rust_programs_is_taken
);

#[tokio::test(flavor = "multi_thread")]
async fn text_that_is_not_utf_8_is_named_by_its_column() {
    let bed = Bed::sqlite().await;
    bed.insert("bytes", ", input", ", CAST(x'22ff22' AS TEXT)").await;
    bed.insert("fine", "", "").await;
    let look = IntakeWorker.run_once(&bed.here).await.unwrap();
    assert_eq!((look.ingested, look.rejected), (1, 1));
    let reason = bed.here.intake_table().await.unwrap().newest_reason;
    assert_eq!(reason.as_deref(), Some("input: it is not UTF-8"));
    bed.close().await;
}

/// An application's role needs no more than INSERT, and a late commit is taken after what committed before it.
#[tokio::test(flavor = "multi_thread")]
async fn an_application_needs_only_insert_and_is_taken_within_milliseconds() {
    let bed = Bed::postgres().await;
    let url = bed.url.clone().unwrap();
    bed.app(
        "CREATE ROLE intake_app; GRANT INSERT (source_system, source_id, source_run_id, kind, disposition, input, \
         priority, session, correlation_id, options) ON tenure_intake TO intake_app",
    )
    .await;
    let connect = async || {
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SET ROLE intake_app").await.unwrap();
        client
    };
    let (early, late) = (connect().await, connect().await);
    let insert = |id: &str| {
        format!(
            "INSERT INTO tenure_intake (source_system, source_id, kind, disposition) \
             VALUES ('app', '{id}', 'job', 'rerunnable')"
        )
    };
    late.batch_execute(&format!("BEGIN; {}", insert("late"))).await.unwrap();
    early.batch_execute(&insert("early")).await.unwrap();
    assert_eq!(IntakeWorker.run_once(&bed.here).await.unwrap().ingested, 1);
    late.batch_execute("COMMIT").await.unwrap();
    assert_eq!(IntakeWorker.run_once(&bed.there).await.unwrap().ingested, 1);
    assert_eq!(bed.ids().await, ["early", "late"]);
    assert!(early.batch_execute("SELECT * FROM tenure_intake").await.is_err(), "it reads nothing");
    assert!(early.batch_execute("DELETE FROM tenure_intake").await.is_err());
    let tenant =
        insert("x").replace("source_system,", "tenant, source_system,").replace("('app'", "('b', 'app'");
    assert!(early.batch_execute(&tenant).await.is_err(), "the grant names no tenant: {tenant}");
    let mut new = NewWork::new("app", "by rust", "job", Disposition::Rerunnable, json!(null));
    let row = IntakeInsert::try_from(&new).unwrap();
    early.execute(row.postgres(), &params(&row)).await.unwrap();
    new.tenant = "other".to_owned();
    let row = IntakeInsert::try_from(&new).unwrap();
    assert!(early.execute(row.postgres(), &params(&row)).await.is_err(), "for another tenant");
    assert_eq!(IntakeWorker.run_once(&bed.here).await.unwrap().ingested, 1);
    bed.sound().await;

    // A ledger that takes rows by itself: told by the commit, and not by the next poll.
    let settings = Settings::default().with_source("app", WorkPolicy::default()).unwrap();
    let daemon = Ledger::open_postgres(&url, Options { settings, ..Options::default() }).await.unwrap();
    let mut latencies = Vec::new();
    for n in 0..20 {
        let began = std::time::Instant::now();
        early.batch_execute(&insert(&format!("n{n}"))).await.unwrap();
        while bed.works().await.len() < 4 + n {
            tokio::task::yield_now().await;
        }
        latencies.push(began.elapsed());
    }
    latencies.sort();
    println!("from the insert to the work item: median {:?}, slowest {:?}", latencies[10], latencies[19]);
    assert!(latencies[10] < std::time::Duration::from_millis(500), "{latencies:?}");
    daemon.close().await.unwrap();
    early.batch_execute("RESET ROLE; DROP OWNED BY intake_app; DROP ROLE intake_app").await.unwrap();
    bed.close().await;
}
