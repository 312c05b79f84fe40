//! Work items that a program requests in its own transaction.

use serde_json::json;
use tenure_embed::{IntakeInsert, prelude::*, wire::Claimant};

use crate::bed::{LONG, Place, on_both_databases};

const TABLE: &str = "CREATE TABLE app_order (id TEXT PRIMARY KEY)";

fn order(id: &str) -> Ingest {
    Ingest::typed(Source::manual(id), "ship", Disposition::Rerunnable, &json!({ "order": id })).unwrap()
}

/// Inserts an order of the application and the row for its work item, in one transaction.
async fn in_one_transaction(place: &Place, id: &str, insert: &IntakeInsert, commit: bool) {
    if !place.db.starts_with("postgres") {
        let mut conn = rusqlite::Connection::open(&place.db).unwrap();
        conn.busy_timeout(LONG).unwrap();
        let transaction = conn.transaction().unwrap();
        transaction.execute("INSERT INTO app_order VALUES (?1)", [id]).unwrap();
        transaction.execute(IntakeInsert::SQLITE, rusqlite::params_from_iter(insert.values())).unwrap();
        return if commit { transaction.commit() } else { transaction.rollback() }.unwrap();
    }
    let (mut client, connection) = tokio_postgres::connect(&place.db, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO app_order VALUES ($1)", &[&id]).await.unwrap();
    let values = insert.values().each_ref().map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync));
    transaction.execute(IntakeInsert::POSTGRES, &values).await.unwrap();
    if commit { transaction.commit().await } else { transaction.rollback().await }.unwrap();
}

async fn a_committed_row_becomes_a_work_item(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    if place.db.starts_with("postgres") {
        let (client, connection) = tokio_postgres::connect(&place.db, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(TABLE).await.unwrap();
    } else {
        rusqlite::Connection::open(&place.db).unwrap().execute_batch(TABLE).unwrap();
    }
    let insert = |id: &str| tenure.intake_insert(order(id)).unwrap();
    in_one_transaction(&place, "rolled back", &insert("rolled back"), false).await;
    in_one_transaction(&place, "paid", &insert("paid"), true).await;

    let options = ClaimOptions { wait: LONG, ..ClaimOptions::default() };
    let mut leased = tenure.holder("shipper").claim(options).await.unwrap().expect("the row was taken");
    let work = tenure.work(leased.id()).await.unwrap();
    assert_eq!((work.source.id.as_str(), work.kind.as_str()), ("paid", "ship"));
    assert_eq!(leased.input::<serde_json::Value>().unwrap(), json!({ "order": "paid" }));
    leased.succeed(&"shipped").await.unwrap();
    let all = tenure.works(&Default::default()).await.unwrap().items;
    assert_eq!(all.len(), 1, "the row that was rolled back is no work item");
    assert_eq!(tenure.verify().await.unwrap().faults, []);
    tenure.close().await.unwrap();
}

async fn a_row_cannot_claim(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let worker = tenure.holder("w").worker().clone();
    let claim = Claimant { worker, request_id: "r".to_owned(), defer_start: false };
    let refused = tenure.intake_insert(Ingest { claim: Some(claim), ..order("a") }).unwrap_err();
    assert!(refused.to_string().contains("cannot claim"), "{refused}");
    assert!(std::error::Error::source(&refused).is_some());
    tenure.close().await.unwrap();
}

on_both_databases!(a_committed_row_becomes_a_work_item, a_row_cannot_claim);
