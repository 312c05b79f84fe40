//! Encrypted connections: as the URL asks, with a server that proves who it is, or does not.
#![cfg(feature = "postgres")]

use tenure_core::{Actor, model::Disposition};
use tenure_store::{Error, Ledger, NewWork, Options};
use tenure_testkit::Cluster;

const KEY: &str = include_str!("tls/server.key");
const CERTIFICATE: &str = include_str!("tls/server.pem");

fn file(name: &str) -> String {
    format!("{}/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A server with the certificate of 127.0.0.1. Its own process writes the files, so that they are its own.
fn encrypting() -> Cluster {
    let cluster = Cluster::start();
    for (name, text) in [("server.key", KEY), ("server.crt", CERTIFICATE)] {
        let lines: Vec<String> = text.lines().map(|line| format!("('{line}')")).collect();
        let write = format!("COPY (VALUES {}) TO PROGRAM 'umask 077; cat > {name}'", lines.join(", "));
        cluster.psql("postgres", &write);
    }
    cluster.psql("postgres", "ALTER SYSTEM SET ssl = on");
    cluster.restart();
    cluster
}

async fn refusal(url: &str) -> String {
    match Ledger::open_postgres(url, Options { sweep: false, ..Options::default() }).await {
        Err(Error::Unusable(told)) => told,
        Err(other) => panic!("refused for another reason: {other}"),
        Ok(_) => panic!("{url} was opened"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_proves_who_it_is() {
    let cluster = encrypting();
    let url = cluster.create_database();
    let database = url.rsplit('/').next().unwrap();
    let encrypted = format!(
        "SELECT bool_and(s.ssl), count(*) > 0 FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
         WHERE a.datname = '{database}'"
    );
    for (asked, seen) in [
        (format!("sslmode=verify-full&sslrootcert={}", file("ca.pem")), "t|t"),
        ("sslmode=require".to_owned(), "t|t"),
        ("sslmode=prefer".to_owned(), "t|t"),
        ("sslmode=disable".to_owned(), "f|t"),
        ("application_name=plain".to_owned(), "f|t"),
    ] {
        let options = Options { sweep: false, ..Options::default() };
        let ledger = Ledger::open_postgres(&format!("{url}?{asked}"), options).await.unwrap();
        let new = NewWork::new("manual", "one", "job", Disposition::Rerunnable, serde_json::json!(1));
        ledger.caller(Actor::machine("m")).ingest(new).await.unwrap();
        assert_eq!(cluster.psql("postgres", &encrypted), seen, "{asked}");
        ledger.close().await.unwrap();
        drop(ledger);
        let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
        while cluster.psql("postgres", &gone) != "0" {}
    }

    let stranger = refusal(&format!("{url}?sslmode=verify-full&sslrootcert={}", file("other.pem"))).await;
    assert!(stranger.contains("certificate") && stranger.contains("sslrootcert"), "{stranger}");
    let elsewhere = url.replace("127.0.0.1", "localhost");
    let named = refusal(&format!("{elsewhere}?sslmode=verify-full&sslrootcert={}", file("ca.pem"))).await;
    assert!(named.contains("certificate"), "{named}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_encrypt_is_refused_where_it_must() {
    let made = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    let told = refusal(&format!("{made}?sslmode=require")).await;
    assert!(told.contains("does not support TLS") && told.contains("sslmode"), "{told}");
    let options = Options { sweep: false, ..Options::default() };
    let ledger = Ledger::open_postgres(&format!("{made}?sslmode=prefer"), options).await.unwrap();
    ledger.close().await.unwrap();
}
