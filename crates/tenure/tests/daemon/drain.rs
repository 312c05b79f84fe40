//! SIGTERM: long polls are answered, streams end, and no client can delay the shutdown.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::bed::{ADMIN, Daemon, Home, claim, work};

const SETTINGS: &str = "drain = \"3s\"\n";
const DRAIN: Duration = Duration::from_secs(3);

/// A connection that is known to be served, with one more request on it.
fn send(daemon: &Daemon, line: &str, body: &str) -> BufReader<TcpStream> {
    let address = daemon.url.strip_prefix("http://").unwrap();
    let mut socket = BufReader::new(TcpStream::connect(address).unwrap());
    let head = |line: &str, len: usize| {
        format!(
            "{line} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ADMIN}\r\n\
             Content-Type: application/json\r\nContent-Length: {len}\r\n\r\n"
        )
    };
    socket.get_mut().write_all(head("GET /healthz", 0).as_bytes()).unwrap();
    let (status, _) = answer(&mut socket);
    assert_eq!(status, 200);
    socket.get_mut().write_all((head(line, body.len()) + body).as_bytes()).unwrap();
    socket
}

fn head(socket: &mut BufReader<TcpStream>) -> (u16, usize) {
    let (mut status, mut len) = (0, 0);
    loop {
        let mut line = String::new();
        socket.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        } else if let Some(rest) = line.strip_prefix("content-length: ") {
            len = rest.parse().unwrap();
        } else if line.is_empty() {
            return (status, len);
        }
    }
}

fn answer(socket: &mut BufReader<TcpStream>) -> (u16, Value) {
    let (status, len) = head(socket);
    let mut body = vec![0; len];
    socket.read_exact(&mut body).unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

#[test]
fn on_sqlite() {
    drains(&Home::sqlite().configured(SETTINGS));
}

#[test]
fn on_postgres() {
    drains(&Home::postgres().configured(SETTINGS));
}

fn drains(home: &Home) {
    let daemon = home.serve();
    let id = daemon.post("/v1/work", work("1")).expect(201)["work"]["id"].as_str().unwrap().to_owned();
    let mut streams: Vec<_> = (0..3).map(|_| send(&daemon, "GET /v1/events/stream", "")).collect();
    let heads: Vec<_> = streams.iter_mut().map(|stream| head(stream).0).collect();
    assert_eq!(heads, [200; 3]);
    let mut parked = claim("w1", "r1");
    parked["kinds"] = json!(["none of these"]);
    parked["wait_ms"] = json!(120_000);
    let mut polls: Vec<_> =
        (0..3).map(|_| send(&daemon, "POST /v1/work/claim", &parked.to_string())).collect();
    let line = format!("GET /v1/work/{id}?wait=terminal&timeout_ms=120000");
    let mut watcher = send(&daemon, &line, "");
    // Neither an idle connection nor an unfinished request delays the shutdown indefinitely.
    let _idle = TcpStream::connect(daemon.url.strip_prefix("http://").unwrap()).unwrap();
    let mut half = TcpStream::connect(daemon.url.strip_prefix("http://").unwrap()).unwrap();
    half.write_all(b"POST /v1/work HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le").unwrap();
    assert_eq!(daemon.post("/v1/work", work("2")).expect(201)["created"], true);

    streams.iter_mut().for_each(|stream| read_until(stream, "event: event"));

    let begun = Instant::now();
    daemon.signal("TERM");
    for poll in &mut polls {
        assert_eq!(
            answer(poll),
            (200, json!({ "leases": [] })),
            "a long-polling claim gets an empty response"
        );
    }
    let (status, seen) = answer(&mut watcher);
    assert_eq!((status, &seen["state"]), (200, &json!("queued")));
    for stream in &mut streams {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        assert!(rest.contains("connect again"), "{rest}");
        assert!(rest.ends_with("0\r\n\r\n"), "the stream ends as its protocol wants it: {rest}");
    }
    let (code, said) = daemon.ended();
    assert_eq!(code, Some(0), "{said}");
    assert!(begun.elapsed() < DRAIN + Duration::from_secs(3), "{:?}", begun.elapsed());
    home.serve().get(&format!("/v1/work/{id}")).expect(200);
}

fn read_until(stream: &mut BufReader<TcpStream>, wanted: &str) {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the stream ended before `{wanted}`");
    }
}
