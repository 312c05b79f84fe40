//! Peers that only hold a connection, over real sockets. The paused clock moves to the next timer once all
//! tasks wait, so no test takes real time.

use std::{future::pending, net::SocketAddr};

use axum::{
    body::Bytes,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, interval, timeout},
};

use super::*;
use crate::idle::{IDLE, UNREAD};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const SETTINGS_ACK: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

/// HEADERS of stream 1, which ends there: GET / of localhost.
fn get_over_h2() -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84, 0x41, 9];
    block.extend(b"localhost");
    let mut frame = vec![0, 0, block.len() as u8, 1, 0x5, 0, 0, 0, 1];
    frame.extend(block);
    frame
}

async fn listening(bounds: Bounds) -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let router = Router::new()
        .route("/", get(|| async { "here I am" }))
        .route("/large", get(|| async { vec![b'x'; 32 << 20] }))
        .route("/parked", get(pending::<()>))
        .route("/body", post(|body: Bytes| async move { body.len().to_string() }));
    let listener = Listener::new(socket, None, bounds).await.unwrap();
    tokio::spawn(listener.serve(router, pending(), Duration::ZERO));
    at
}

/// Seconds until the daemon closes the connection, ignoring everything it sends before.
async fn closed_after(socket: &mut TcpStream) -> u64 {
    let began = Instant::now();
    let mut received = [0; 1024];
    while socket.read(&mut received).await.is_ok_and(|read| read > 0) {}
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_for_nothing_is_closed_soon() {
    let at = listening(Bounds::default()).await;
    let half = b"GET / HTTP/1.1\r\nHost: loc".to_vec();
    let h2 = [PREFACE, SETTINGS].concat();
    for said in [Vec::new(), PREFACE[..10].to_vec(), half, h2] {
        let mut socket = TcpStream::connect(at).await.unwrap();
        socket.write_all(&said).await.unwrap();
        let seconds = closed_after(&mut socket).await;
        assert!(seconds <= FIRST_CALL.as_secs() + 1, "{}: {seconds} s", String::from_utf8_lossy(&said));
    }
}

#[tokio::test(start_paused = true)]
async fn pings_do_not_keep_a_connection_open() {
    let at = listening(Bounds::default()).await;
    for (calls, within) in [(Vec::new(), FIRST_CALL), (get_over_h2(), IDLE)] {
        let mut socket = TcpStream::connect(at).await.unwrap();
        socket.write_all(&[PREFACE, SETTINGS, SETTINGS_ACK, &calls].concat()).await.unwrap();
        let (mut from, mut to) = socket.into_split();
        let pinging = tokio::spawn(async move {
            let mut again = interval(Duration::from_secs(10));
            while to.write_all(PING).await.is_ok() {
                again.tick().await;
            }
        });
        let (began, mut all) = (Instant::now(), Vec::new());
        let _reset = from.read_to_end(&mut all).await;
        let seconds = began.elapsed().as_secs();
        assert!((within.as_secs() - 1..=within.as_secs() + 11).contains(&seconds), "{seconds} s");
        let answered = all.windows(9).any(|nine| nine == b"here I am");
        assert_eq!(answered, !calls.is_empty(), "a call over h2c is answered");
        pinging.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_is_not_closed_as_idle() {
    let at = listening(Bounds::default()).await;
    let mut socket = TcpStream::connect(at).await.unwrap();
    socket.write_all(b"GET /parked HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let seconds = closed_after(&mut socket).await;
    assert!((IDLE.as_secs() - 1..=IDLE.as_secs() + 1).contains(&seconds), "{seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_does_not_keep_its_connection() {
    let at = listening(Bounds::default()).await;
    let socket = TcpStream::connect(at).await.unwrap();
    let (mut from, mut to) = socket.into_split();
    let head = b"POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n";
    to.write_all(head).await.unwrap();
    let dripping = tokio::spawn(async move {
        let mut again = interval(Duration::from_secs(20));
        while to.write_all(b"x").await.is_ok() {
            again.tick().await;
        }
    });
    let began = Instant::now();
    let _reset = from.read_to_end(&mut Vec::new()).await;
    assert!(began.elapsed() <= IDLE + Duration::from_secs(1), "{:?}", began.elapsed());
    dripping.abort();
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_the_bound_are_closed_and_others_are_accepted_again() {
    let at = listening(Bounds { in_all: 1, of_an_address: 1 }).await;
    let ask = async |socket: &mut TcpStream| {
        socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let mut answer = [0; 1024];
        socket.read(&mut answer).await
    };
    let mut open = Vec::new();
    // The limit, and the number of connections that the machine may have in addition.
    for n in 0..65 {
        let mut socket = TcpStream::connect(at).await.unwrap();
        assert!(ask(&mut socket).await.is_ok_and(|read| read > 0), "{n}");
        open.push(socket);
    }
    let mut refused = TcpStream::connect(at).await.unwrap();
    assert!(!ask(&mut refused).await.is_ok_and(|read| read > 0));
    open.clear();
    let again = async {
        loop {
            let mut socket = TcpStream::connect(at).await.unwrap();
            if ask(&mut socket).await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    };
    timeout(Duration::from_secs(10), again).await.expect("closed connections make room");
}

#[tokio::test(start_paused = true)]
async fn an_unread_response_does_not_stay_in_memory() {
    let at = listening(Bounds::default()).await;
    let small_window = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1];
    let h2 = [PREFACE, &small_window, SETTINGS_ACK, &get_over_h2()].concat();
    let h1 = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    for said in [h1, h2] {
        let mut socket = TcpStream::connect(at).await.unwrap();
        let began = Instant::now();
        socket.write_all(&said).await.unwrap();
        // A failed connection is detected by writing: reading would make room for more of the response.
        while socket.write_all(if said[0] == b'G' { b"\r\n" } else { PING }).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(began.elapsed() <= UNREAD + Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
