//! PostgreSQL unavailable at the start, and later: the daemon reports it, and recovers by itself.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tenure_server::{
    Config, Overlay,
    auth::{AdminToken, Secret},
};
use tenure_testkit::Cluster;
use tokio::sync::oneshot;

use crate::bed::{ADMIN, work};

/// One request over a connection of its own: its status and body.
fn call(address: SocketAddr, line: &str, body: &Value) -> (u16, Value) {
    let mut socket = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    write!(
        socket,
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {ADMIN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn until(address: SocketAddr, line: &str, status: u16) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (answered, body) = call(address, line, &json!({}));
        if answered == status {
            return body;
        }
        assert!(Instant::now() < deadline, "{line} answers {answered}, not {status}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_waits_for_its_database_and_heals() {
    let cluster = tokio::task::spawn_blocking(Cluster::start).await.unwrap();
    let url = cluster.create_database();
    cluster.stop();
    let config = Config::parse("tenure.toml", "", Overlay { db: Some(url), ..Overlay::default() }).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let admin = AdminToken::Given(Secret::given(ADMIN.into()));
    let served =
        tokio::spawn(tenure_server::run(config, admin, socket, async move { _ = stopped.await }, |_| {}));
    tokio::task::spawn_blocking(move || {
        assert_eq!(call(address, "GET /healthz", &json!({})).0, 200);
        for _ in 0..2 {
            let unready = until(address, "GET /readyz", 503);
            assert_eq!(unready["ready"], false);
            assert!(unready["checks"][0]["detail"].as_str().unwrap().len() > 20, "{unready}");
            let began = Instant::now();
            let (status, problem) = call(address, "POST /v1/work", &work("a"));
            assert_eq!(
                (status, &problem["code"], &problem["retryable"]),
                (503, &json!("unavailable"), &json!(true)),
                "{problem}"
            );
            assert!(began.elapsed() < Duration::from_secs(5), "no request hangs");
            cluster.restart();
            until(address, "GET /readyz", 200);
            let (status, _) = call(address, "POST /v1/work", &work("a"));
            assert!([200, 201].contains(&status), "{status}");
            cluster.stop();
        }
        stop.send(()).unwrap();
    })
    .await
    .unwrap();
    served.await.unwrap().unwrap();
}
