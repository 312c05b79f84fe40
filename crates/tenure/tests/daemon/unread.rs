//! One tenant sends large reads and reads no responses: the daemon's memory stays bounded, and others are
//! served.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
};

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
use serde_json::{Value, json};

use crate::bed::{Daemon, Home, work};

/// Together, their responses would have 750 MiB.
const CONNECTIONS: usize = 80;
/// The target for a daemon at full load.
const RESIDENT_KIB: u64 = 256 * 1024;

#[test]
fn on_sqlite() {
    take_no_memory(&Home::sqlite().serve());
}

#[test]
fn on_postgres() {
    take_no_memory(&Home::postgres().serve());
}

fn take_no_memory(daemon: &Daemon) {
    let hostile = token(daemon, "hostile");
    let quiet = token(daemon, "quiet");
    for n in 0..10 {
        let mut large = work(&n.to_string());
        large["input"] = json!("x".repeat(900_000));
        daemon.as_token(&hostile, "POST", "/v1/work", Some(&large)).expect(201);
    }
    let own = daemon.as_token(&quiet, "POST", "/v1/work", Some(&work("own"))).expect(201);
    let asking: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let (address, token) = (daemon.url.strip_prefix("http://").unwrap().to_owned(), hostile.clone());
            thread::spawn(move || unread(&address, &token))
        })
        .collect();
    let unread: Vec<(TcpStream, String)> = asking.into_iter().map(|one| one.join().unwrap()).collect();
    let status = |wanted: &str| unread.iter().filter(|(_, status)| status == wanted).count();
    let (answered, refused) = (status("200"), status("429"));
    assert!(answered > 0 && answered + refused == CONNECTIONS, "{answered} answered, {refused} refused");
    assert!(daemon.resident() < RESIDENT_KIB, "{} KiB", daemon.resident());
    let list = daemon.as_token(&quiet, "GET", "/v1/work", None).expect(200);
    assert_eq!(list["items"][0]["id"], own["work"]["id"]);
    let feed = daemon.as_token(&quiet, "GET", "/v1/events?limit=1000", None).expect(200);
    assert_eq!(feed["items"].as_array().unwrap().len(), 1);
}

fn token(daemon: &Daemon, tenant: &str) -> String {
    let scopes = ["view", "payload", "submit"];
    let made = json!({ "name": tenant, "kind": "machine", "scopes": scopes, "tenants": [tenant] });
    let made: Value = daemon.post("/v1/tokens", made).expect(201);
    made["secret"].as_str().unwrap().to_owned()
}

/// A connection that reads only the status of its response, with a window that accepts hardly anything.
fn unread(address: &str, token: &str) -> (TcpStream, String) {
    let made = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&made, 4_096).unwrap();
    connect(&made, &address.parse::<std::net::SocketAddr>().unwrap()).unwrap();
    let mut socket = TcpStream::from(made);
    let head = format!(
        "GET /v1/events?limit=1000 HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    let mut begun = [0; 12];
    socket.read_exact(&mut begun).unwrap();
    (socket, String::from_utf8_lossy(&begun[9..]).into_owned())
}
