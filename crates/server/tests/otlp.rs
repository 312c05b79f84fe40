//! Traces reach a collector, with the ids they concern, as a part of the caller's trace.
#![cfg(feature = "otlp")]

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
};

use axum::{
    body::{Body, to_bytes},
    http::Request,
};
use serde_json::{Value, json};
use tenure_server::{
    Config, Overlay, Server, Traces,
    auth::{AdminToken, Secret},
};
use tower::ServiceExt;
use tracing_subscriber::layer::SubscriberExt;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// Receives one export and returns its bytes.
fn collect(listener: &TcpListener) -> Vec<u8> {
    let (mut socket, _) = listener.accept().unwrap();
    let mut taken = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = socket.read(&mut chunk).unwrap();
        taken.extend_from_slice(&chunk[..read]);
        let Some(head) = taken.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&taken[..head]).to_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        if taken.len() >= head + 4 + length.unwrap().trim().parse::<usize>().unwrap() {
            break;
        }
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    taken
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_a_span_with_its_work() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let collector = thread::spawn(move || collect(&listener));
    let traces = Traces::to(&endpoint).unwrap();
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(traces.layer())).unwrap();

    let overlay = Overlay { db: Some(":memory:".into()), ..Overlay::default() };
    let config = Config::parse("tenure.toml", "", overlay).unwrap();
    let admin = AdminToken::Given(Secret::given("a token for tests only".into()));
    let server = Server::open(config, admin).await.unwrap();
    let source = json!({ "system": "manual", "id": "a" });
    let body = json!({ "source": source, "kind": "job", "disposition": "rerunnable", "input": 1 });
    let request = Request::post("/v1/work")
        .header("authorization", "Bearer a token for tests only")
        .header("content-type", "application/json")
        .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"))
        .body(Body::from(body.to_string()))
        .unwrap();
    let response = server.router().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let made: Value =
        serde_json::from_slice(&to_bytes(response.into_body(), 1 << 20).await.unwrap()).unwrap();
    server.close().await.unwrap();
    tokio::task::spawn_blocking(move || traces.flush()).await.unwrap();

    let sent = collector.join().unwrap();
    let holds = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    assert!(holds(made["work"]["id"].as_str().unwrap().as_bytes()), "the work's id");
    assert!(holds(b"/v1/work"), "the route");
    let trace: Vec<u8> = (0..16).map(|n| u8::from_str_radix(&TRACE[2 * n..2 * n + 2], 16).unwrap()).collect();
    assert!(holds(&trace), "the caller's trace");
}
