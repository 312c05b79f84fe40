//! Requests whose length or host two parsers could read differently, over a real socket.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::bed::Bed;

/// The daemon's response to these bytes, until it closes the connection or has sent `Connection: close`.
fn answer(to: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset after the response counts as a close.
    let _closed = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_two_parsers_could_read_differently_is_refused() {
    let Bed { server, folder: _folder, .. } = Bed::memory().await;
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(socket, async { _ = stopped.await }));
    let asked = tokio::task::spawn_blocking(move || {
        let end = "Connection: close\r\n\r\n";
        let refused = [
            ("no host", format!("GET /healthz HTTP/1.1\r\n{end}")),
            ("two hosts", format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n{end}")),
            (
                "another authority",
                format!("GET http://evil.example/healthz HTTP/1.1\r\nHost: localhost\r\n{end}"),
            ),
            (
                "chunked twice",
                format!(
                    "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                     Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n{end}0\r\n\r\n"
                ),
            ),
            (
                "chunked, chunked",
                format!(
                    "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked\r\n{end}0\r\n\r\n"
                ),
            ),
        ];
        for (what, request) in refused {
            let answer = answer(at, &request);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{what}: {answer}");
        }
        // The parser has dropped the length. The call is refused before its body is read, and the following
        // bytes on the connection are not parsed as a request.
        let both = [
            ("Content-Length: 3", "Transfer-Encoding: chunked"),
            ("Transfer-Encoding: chunked", "Content-Length: 3"),
        ];
        for (first, second) in both {
            let smuggled = format!(
                "POST /v1/batch HTTP/1.1\r\nHost: localhost\r\n{first}\r\n{second}\r\n\r\n0\r\n\r\n\
                 GET /healthz HTTP/1.1\r\nHost: localhost\r\n{end}"
            );
            let answers = answer(at, &smuggled);
            let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|one| &one[..3]).collect();
            assert_eq!(statuses, ["401"], "{first}, {second}: {answers}");
        }
        let fine = answer(at, &format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{end}"));
        assert!(fine.starts_with("HTTP/1.1 200 "), "{fine}");
    });
    asked.await.unwrap();
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}
