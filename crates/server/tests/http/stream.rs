//! The event stream: resumed, bounded, ended.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use axum::http::Method;
use futures_util::StreamExt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::ServiceExt;

use crate::bed::{ADMIN, Bed, Client, work};

/// A stream as its reader sees it.
struct Reader {
    body: axum::body::BodyDataStream,
    text: String,
}

impl Reader {
    async fn open(client: &Client, path: &str, last: Option<&str>) -> Self {
        let mut request = client.request(Method::GET, path);
        if let Some(last) = last {
            request.headers_mut().insert("last-event-id", last.parse().unwrap());
        }
        let response = client.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next message, as its kind, id and data; None at the end.
    async fn next(&mut self) -> Option<(String, String, Value)> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = message.lines().find_map(|line| line.strip_prefix(name));
                    line.unwrap_or_default().to_owned()
                };
                let data = serde_json::from_str(&field("data: ")).unwrap_or(Value::Null);
                let parsed = (field("event: "), field("id: "), data);
                let comment = message.starts_with(':');
                self.text = rest.to_owned();
                if comment {
                    continue;
                }
                return Some(parsed);
            }
            let chunk = self.body.next().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn source(&mut self) -> String {
        let (kind, id, data) = self.next().await.expect("the stream goes on");
        assert_eq!((kind.as_str(), &data["position"]), ("event", &json!(id)));
        data["data"]["spec"]["source"]["id"].as_str().unwrap_or_default().to_owned()
    }
}

#[tokio::test]
async fn a_stream_sends_events_and_resumes_after_the_last_one() {
    for bed in [Bed::memory().await, Bed::sqlite().await, Bed::postgres().await] {
        let client = bed.admin();
        client.ingest("before").await;
        let page = client.get("/v1/events").await.expect(200);
        let mut live = Reader::open(&client, "/v1/events/stream", None).await;
        client.ingest("one").await;
        client.ingest("two").await;
        let mut told = live.source().await;
        // On PostgreSQL a recent write may settle only now.
        if told == "before" {
            told = live.source().await;
        }
        assert_eq!(told, "one");
        let (_, last, _) = live.next().await.unwrap();
        drop(live);
        client.ingest("three").await;
        let mut resumed = Reader::open(&client, "/v1/events/stream", Some(&last)).await;
        assert_eq!(resumed.source().await, "three");
        client.ingest("four").await;
        assert_eq!(resumed.source().await, "four", "caught up, it is live");
        let mut whole = Reader::open(&client, "/v1/events/stream?after=0-0-0", None).await;
        for expected in ["before", "one", "two", "three", "four"] {
            assert_eq!(whole.source().await, expected);
        }
        assert!(page["next"].is_string());
        bed.server.close().await.unwrap();
        assert!(resumed.next().await.is_none(), "streams end when the daemon stops");
    }
}

/// In a rolling upgrade, a newer daemon writes events of types that this one does not know.
#[tokio::test]
async fn an_event_of_a_newer_version_is_shown_everywhere_as_it_is() {
    let bed = Bed::sqlite().await;
    let client = bed.admin();
    let id = client.ingest("first").await;
    let cancel = format!("/v1/work/{id}/cancel");
    client.post(&cancel, json!({ "reason": "not wanted" })).await.expect(200);
    let file = bed.folder.as_ref().unwrap().path().join("ledger.db");
    let sql = "DROP TRIGGER event_stays; UPDATE event SET type = 'work_postponed', \
         data = '{\"until_at\":0,\"why\":{\"of\":\"tomorrow\"}}' WHERE seq = 2";
    rusqlite::Connection::open(file).unwrap().execute_batch(sql).unwrap();

    let work = client.get("/v1/work").await.expect(200);
    assert_eq!((work["items"][0]["state"].as_str(), work.get("unreadable")), (Some("cancelled"), None));
    let path = cancel.replace("/cancel", "");
    for path in ["/v1/events".to_owned(), format!("{path}/events")] {
        let events = client.get(&path).await.expect(200);
        assert_eq!(events.get("unreadable"), None, "{events}");
        let event = &events["items"][1];
        assert_eq!((&event["type"], &event["to"]), (&json!("work_postponed"), &json!("cancelled")));
        let data = json!({ "until_at": "1970-01-01T00:00:00.000Z", "why": { "of": "tomorrow" } });
        assert_eq!(event["data"], data, "{event}");
    }
    client.get(&format!("{path}/explain")).await.expect(200);
    client.get("/metrics").await;
    let mut whole = Reader::open(&client, "/v1/events/stream?after=0-0-0", None).await;
    assert_eq!(whole.source().await, "first");
    let (kind, _, data) = whole.next().await.unwrap();
    assert_eq!((kind.as_str(), &data["type"]), ("event", &json!("work_postponed")));
}

#[tokio::test]
async fn a_slow_reader_gets_the_position_to_continue_from() {
    let bed = Bed::memory().await;
    let client = bed.admin();
    let mut slow = Reader::open(&client, "/v1/events/stream", None).await;
    client.ingest("first").await;
    assert_eq!(slow.source().await, "first");
    let item = |n: usize| json!({ "path": "/v1/work", "body": work(&format!("job-{n}")) });
    for batch in 0..3 {
        let items: Vec<Value> = (batch * 1_000..(batch + 1) * 1_000).map(item).collect();
        client.post("/v1/batch", json!({ "items": items })).await.expect(200);
    }
    // A reader that keeps up sees the last one; by then the slow one has fallen behind.
    let mut quick = Reader::open(&client, "/v1/events/stream?after=0-0-0", None).await;
    while quick.source().await != "job-2999" {}
    let (kind, id, gap) = loop {
        let (kind, id, data) = slow.next().await.expect("a last word");
        if kind == "gap" {
            break (kind, id, data);
        }
    };
    assert_eq!((kind.as_str(), &gap["after"]), ("gap", &json!(id)));
    assert!(slow.next().await.is_none(), "then the stream ends");
    let mut again = Reader::open(&client, "/v1/events/stream", Some(&id)).await;
    let mut seen = 0;
    while again.source().await != "job-2999" {
        seen += 1;
    }
    assert!(seen > 0, "nothing is lost");
}

#[tokio::test]
async fn a_stream_keeps_to_its_tenants() {
    let bed = Bed::memory().await;
    let ours = bed.client("machine", &["view", "submit"], Some(&["ours"])).await;
    let theirs = bed.client("machine", &["view", "submit"], Some(&["theirs"])).await;
    let mut live = Reader::open(&ours, "/v1/events/stream", None).await;
    let mut past = Reader::open(&ours, "/v1/events/stream?after=0-0-0", None).await;
    theirs.ingest("x").await;
    ours.ingest("y").await;
    for reader in [&mut live, &mut past] {
        let (_, _, event) = reader.next().await.unwrap();
        assert_eq!(event["tenant"], "ours");
        assert!(event.get("payload").is_none());
    }
}

/// The daemon on a socket: open long polls and streams do not prevent it from stopping.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_long_polls_and_streams_and_finishes_the_rest() {
    let bed = Bed::configured("drain = \"10s\"").await;
    let id = bed.admin().ingest("a").await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let Bed { server, router, .. } = bed;
    drop(router);
    let served = tokio::spawn(server.serve(listener, async move { _ = stopped.await }));
    let call = move |line: &str, body: &str| -> BufReader<TcpStream> {
        let mut socket = TcpStream::connect(address).unwrap();
        write!(
            socket,
            "{line} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ADMIN}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        BufReader::new(socket)
    };
    let outcome = tokio::task::spawn_blocking(move || {
        let mut stream = call("GET /v1/events/stream", "");
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.contains("200"), "{line}");
        let empty =
            r#"{"worker":{"id":"w","incarnation":"i"},"request_id":"r","kinds":["none"],"wait_ms":120000}"#;
        let claim = call("POST /v1/work/claim", empty);
        let poll = call(&format!("GET /v1/work/{id}?wait=terminal&timeout_ms=120000"), "");
        // They have arrived by the time that many later requests have been answered.
        for _ in 0..50 {
            let mut ready = call("GET /readyz", "");
            line.clear();
            ready.read_line(&mut line).unwrap();
            assert!(line.contains("200"), "{line}");
        }
        let began = Instant::now();
        stop.send(()).unwrap();
        for mut waiting in [claim, poll] {
            line.clear();
            waiting.read_line(&mut line).unwrap();
            assert!(line.contains("200"), "a long poll is answered: {line:?}");
        }
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut stream, &mut rest).unwrap();
        assert!(rest.contains("the daemon is stopping"), "{rest}");
        began.elapsed()
    });
    assert!(outcome.await.unwrap() < Duration::from_secs(10));
    served.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
}

/// Readers that never read do not slow down renewals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_slow_readers_delay_nobody() {
    // Both ends of every connection are in this process.
    let files = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }).unwrap();
    let bed = Bed::sqlite().await;
    let client = bed.admin();
    client.ingest("held").await;
    let grant = client.claim("c1").await;
    let lease = json!({ "id": grant["work"]["id"], "fence": grant["fence"], "token": grant["token"] });
    let renewal = json!({ "leases": [lease] });
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let Bed { server, folder, .. } = bed;
    let served = tokio::spawn(server.serve(socket, async move { _ = stopped.await }));
    let readers = tokio::task::spawn_blocking(move || -> Vec<TcpStream> {
        let open = |_| {
            let mut socket = TcpStream::connect(address).unwrap();
            let request =
                "GET /v1/events/stream?after=0-0-0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer";
            write!(socket, "{request} {ADMIN}\r\n\r\n").unwrap();
            let mut first = [0; 12];
            std::io::Read::read_exact(&mut socket, &mut first).unwrap();
            assert_eq!(&first, b"HTTP/1.1 200");
            socket
        };
        (0..1_000).map(open).collect()
    });
    let readers = readers.await.unwrap();
    let mut slowest = Duration::ZERO;
    for batch in 0..20 {
        let item = |n: usize| json!({ "path": "/v1/work", "body": work(&format!("job-{n}")) });
        let items: Vec<Value> = (batch * 200..(batch + 1) * 200).map(item).collect();
        let written = tokio::spawn({
            let client = client.clone();
            async move { client.post("/v1/batch", json!({ "items": items })).await.expect(200) }
        });
        while !written.is_finished() {
            let began = Instant::now();
            let renewed = client.post("/v1/work/renew", renewal.clone()).await.expect(200);
            assert_eq!(renewed["leases"][0]["cancel_requested"], false, "{renewed}");
            slowest = slowest.max(began.elapsed());
        }
    }
    assert!(slowest < Duration::from_secs(5), "far from a third of the lease's 45 s: {slowest:?}");
    stop.send(()).unwrap();
    drop(readers);
    served.await.unwrap().unwrap();
    drop(folder);
}
