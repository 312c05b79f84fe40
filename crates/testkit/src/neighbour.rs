//! A tenant that tries to exhaust a daemon in every way at once: reads, responses and streams that it does
//! not read, bodies that never end, connections without a call, wrong tokens, writes, claims and batches. It
//! sends plain HTTP from its own threads to an address of this machine until it is stopped.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long it holds an idle connection before it reopens it.
const HELD: Duration = Duration::from_secs(3);
/// The pause before it repeats a refused call.
const REFUSED: Duration = Duration::from_millis(5);
/// The interval at which it checks whether to stop.
const LOOK: Duration = Duration::from_millis(200);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The attack, until it is stopped.
pub struct Neighbour {
    attack: Arc<Attack>,
    threads: Vec<JoinHandle<()>>,
}

/// One kind of attack, and its number of threads.
type Way = (usize, fn(&Attack));

struct Attack {
    at: SocketAddr,
    token: String,
    /// Distinguishes the work items of one attack from those of another.
    run: u32,
    over: AtomicBool,
    number: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
}

impl Neighbour {
    /// Attacks the daemon at an address of this machine with a credential that may view, submit and work.
    pub fn attack(address: &str, token: &str, run: u32) -> Self {
        let at: SocketAddr = address.parse().expect("an address and a port");
        assert!(at.ip().is_loopback(), "{at} is not this machine");
        let (over, number) = (AtomicBool::default(), AtomicU64::default());
        let (answered, refused) = (AtomicU64::default(), AtomicU64::default());
        let attack = Arc::new(Attack { at, token: token.to_owned(), run, over, number, answered, refused });
        let ways: [Way; 11] = [
            (4, |it| it.ask(|_| it.get("/v1/work?limit=1000"))),
            (4, |it| it.ask(|_| it.get("/v1/work?limit=1000&correlation_id=wait="))),
            (4, |it| it.ask(|_| it.get("/v1/events?limit=1000"))),
            (2, |it| it.ask(|n| head(it.at, "GET", "/v1/work", &format!("tn_{n:064x}"), 0))),
            (4, |it| it.ask(|n| it.post("/v1/work", &it.work(n, 4_096)))),
            (4, |it| it.ask(|n| it.post("/v1/work/claim", &it.claim(n)))),
            (2, |it| it.ask(|n| it.post("/v1/batch", &it.batch(n)))),
            (1, |it| it.hold(80, &it.get("/v1/events?limit=1000"), false)),
            (1, |it| it.hold(100, &it.get("/v1/events/stream"), false)),
            (1, |it| it.hold(64, PREFACE, false)),
            (1, |it| it.hold(16, &head(it.at, "POST", "/v1/batch", &it.token, 8 << 20), true)),
        ];
        let mut threads = Vec::new();
        for (count, way) in ways {
            threads.extend((0..count).map(|_| {
                let attack = attack.clone();
                thread::spawn(move || way(&attack))
            }));
        }
        Self { attack, threads }
    }

    /// Stops it; returns how many of its calls were answered, and how many were refused.
    pub fn stop(self) -> (u64, u64) {
        self.attack.over.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("an attack ends quietly");
        }
        (self.attack.answered.load(Relaxed), self.attack.refused.load(Relaxed))
    }
}

fn head(at: SocketAddr, method: &str, path: &str, token: &str, length: usize) -> Vec<u8> {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes()
}

impl Attack {
    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn get(&self, path: &str) -> Vec<u8> {
        head(self.at, "GET", path, &self.token, 0)
    }

    fn post(&self, path: &str, body: &str) -> Vec<u8> {
        [&head(self.at, "POST", path, &self.token, body.len()), body.as_bytes()].concat()
    }

    fn work(&self, n: u64, size: usize) -> String {
        let (run, input) = (self.run, "x".repeat(size));
        format!(
            r#"{{"source":{{"system":"manual","id":"attack-{run}-{n}"}},"kind":"attack","disposition":"rerunnable","input":"{input}"}}"#
        )
    }

    fn claim(&self, n: u64) -> String {
        let run = self.run;
        format!(
            r#"{{"worker":{{"id":"attacker","incarnation":"{run}"}},"request_id":"{run}-{n}","max":100,"wait_ms":50}}"#
        )
    }

    /// Alternates reads and writes: each read has to see the writes before it.
    fn batch(&self, n: u64) -> String {
        let items: Vec<String> = (0..20)
            .map(|item| {
                let work = self.work(n * 1_000_000 + item, 500);
                format!(
                    r#"{{"path":"/v1/work","body":{work}}},{{"method":"GET","path":"/v1/work?limit=100"}}"#
                )
            })
            .collect();
        format!(r#"{{"items":[{}]}}"#, items.join(","))
    }

    fn connect(&self) -> Option<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.at, LOOK).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(LOOK)).ok()?;
        stream.set_write_timeout(Some(LOOK)).ok()?;
        Some(stream)
    }

    /// One call after another, over one connection while it lasts.
    fn ask(&self, request: impl Fn(u64) -> Vec<u8>) {
        let mut open = None;
        while !self.is_over() {
            let Some(mut stream) = open.take().or_else(|| self.connect()) else {
                thread::park_timeout(REFUSED);
                continue;
            };
            let number = self.number.fetch_add(1, Relaxed);
            let sent = stream.write_all(&request(number)).is_ok();
            let Some(status) = sent.then(|| self.answer(&mut stream)).flatten() else { continue };
            self.count(&status);
            open = Some(stream);
            if !status.starts_with('2') {
                thread::park_timeout(REFUSED);
            }
        }
    }

    fn count(&self, status: &str) {
        let what = if status.starts_with('2') { &self.answered } else { &self.refused };
        what.fetch_add(1, Relaxed);
    }

    /// Some more bytes; None at the end, or when the attack is over.
    fn more(&self, stream: &mut TcpStream, into: &mut [u8]) -> Option<usize> {
        loop {
            match stream.read(into) {
                Ok(0) => return None,
                Ok(read) => return Some(read),
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => {
                    if self.is_over() {
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// Reads a response to its end; returns its status.
    fn answer(&self, stream: &mut TcpStream) -> Option<String> {
        let (mut read, mut bytes) = (Vec::new(), vec![0; 64 * 1024]);
        let end = loop {
            let more = self.more(stream, &mut bytes)?;
            read.extend_from_slice(&bytes[..more]);
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
        };
        let said = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
        let length = said.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut left = length.saturating_sub(read.len() - end - 4);
        while left > 0 {
            left = left.saturating_sub(self.more(stream, &mut bytes)?);
        }
        said.get(9..12).map(str::to_owned)
    }

    /// Starts this many calls over as many connections, and reads only their status; or sends a little more
    /// on each now and then.
    fn hold(&self, connections: usize, begun: &[u8], drips: bool) {
        while !self.is_over() {
            let mut held: Vec<TcpStream> = (0..connections).filter_map(|_| self.connect()).collect();
            held.retain_mut(|stream| stream.write_all(begun).is_ok());
            for stream in held.iter_mut().filter(|_| !drips && begun != PREFACE) {
                let mut status = [0; 12];
                if self.more(stream, &mut status).is_some() {
                    self.count(&String::from_utf8_lossy(&status[9..]));
                }
            }
            let until = Instant::now() + HELD;
            while Instant::now() < until && !self.is_over() {
                thread::park_timeout(LOOK);
                if drips {
                    held.retain_mut(|stream| stream.write_all(&[b' '; 64]).is_ok());
                }
            }
        }
    }
}
