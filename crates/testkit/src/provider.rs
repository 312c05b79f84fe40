//! A fake provider: a small HTTP server that records every call and responds as scripted, or not at all. Its
//! record is the truth about the effects that happened.

use std::{
    collections::HashSet,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// One call, recorded once it was read completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: String,
    pub path: String,
    /// Names in lower case, in their order.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Call {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The provider's behaviour after it recorded a call.
#[derive(Clone, Debug)]
pub enum Reply {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Closes the connection: the call happened, but the client gets no response.
    Drop,
    /// Sends nothing until the provider ends.
    Hang,
    /// Waits for [`Provider::release`] first.
    Held(Box<Reply>),
    /// Responds with 200, and at once a second time, without a request.
    Twice,
    /// Announces more than it sends, and closes.
    CutShort,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Reply::json(status, "")
    }

    pub fn json(status: u16, body: &str) -> Self {
        Reply::Answer { status, headers: Vec::new(), body: body.into() }
    }

    pub fn redirect(status: u16, to: &str) -> Self {
        Reply::status(status).with("location", to)
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        if let Reply::Answer { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

type Script = dyn Fn(&Call) -> Reply + Send + Sync;

#[derive(Default)]
struct Seen {
    calls: Vec<Call>,
    connections: usize,
    /// The connected clients.
    open: HashSet<SocketAddr>,
    released: bool,
    ended: bool,
}

struct Shared {
    script: Box<Script>,
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen());
        self.changed.notify_all();
    }

    fn wait_until(&self, done: impl Fn(&Seen) -> bool) -> MutexGuard<'_, Seen> {
        let waited = self.changed.wait_while(self.seen(), |seen| !done(seen));
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A provider on a free port of this machine, until it is dropped.
pub struct Provider {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Provider {
    /// Responds to each call as scripted.
    pub fn start(script: impl Fn(&Call) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared =
            Arc::new(Shared { script: Box::new(script), seen: Mutex::default(), changed: Condvar::new() });
        let server = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if server.seen().ended {
                    return;
                }
                let Ok(peer) = stream.peer_addr() else { continue };
                server.change(|seen| {
                    seen.connections += 1;
                    seen.open.insert(peer);
                });
                let server = server.clone();
                thread::spawn(move || {
                    // Clients that disconnect early are part of the tests.
                    drop(serve(&server, &stream));
                    server.change(|seen| _ = seen.open.remove(&peer));
                });
            }
        });
        Self { address, shared }
    }

    /// Always the same response.
    pub fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone())
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path here.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Every call so far, in its order.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.seen().calls.clone()
    }

    /// The number of connections, with or without calls.
    pub fn connections(&self) -> usize {
        self.shared.seen().connections
    }

    /// Waits for this many calls.
    pub fn wait_for(&self, calls: usize) -> Vec<Call> {
        self.shared.wait_until(|seen| seen.calls.len() >= calls).calls.clone()
    }

    /// Waits until everything sent by clients that have disconnected was read. Only without an open
    /// connection.
    pub fn settle(&self) {
        let mine = TcpStream::connect(self.address).expect("a provider takes connections");
        let me = mine.local_addr().expect("a connected socket has an address");
        // Connections are accepted in order: once this one is, all earlier ones are.
        drop(self.shared.wait_until(|seen| seen.open.contains(&me)));
        drop(mine);
        drop(self.shared.wait_until(|seen| seen.open.is_empty()));
    }

    /// Releases held calls, now and from now on.
    pub fn release(&self) {
        self.shared.change(|seen| seen.released = true);
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.shared.change(|seen| (seen.ended, seen.released) = (true, true));
        // Wakes the listener, which then sees that it is over.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(shared: &Shared, stream: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(call) = read_call(&mut reader)? {
        shared.change(|seen| seen.calls.push(call.clone()));
        if !reply(shared, stream, (shared.script)(&call))? {
            return stream.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

/// Acts as scripted; false if the connection ends.
fn reply(shared: &Shared, mut stream: &TcpStream, reply: Reply) -> io::Result<bool> {
    match reply {
        Reply::Answer { status, headers, body } => {
            stream.write_all(&message(status, &headers, &body))?;
            Ok(true)
        }
        Reply::Drop => Ok(false),
        Reply::Hang => {
            // It reads no more, so nobody has to wait for it.
            if let Ok(peer) = stream.peer_addr() {
                shared.change(|seen| _ = seen.open.remove(&peer));
            }
            drop(shared.wait_until(|seen| seen.ended));
            Ok(false)
        }
        Reply::Held(then) => {
            drop(shared.wait_until(|seen| seen.released));
            self::reply(shared, stream, *then)
        }
        Reply::Twice => {
            stream.write_all(&message(200, &[], b"{}").repeat(2))?;
            Ok(true)
        }
        Reply::CutShort => {
            stream.write_all(b"HTTP/1.1 200 Said\r\ncontent-length: 1000\r\n\r\n{\"id\":")?;
            Ok(false)
        }
    }
}

fn message(status: u16, headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} Said\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    [head.as_bytes(), b"\r\n", body].concat()
}

fn read_call(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Call>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut call = Call { method, path, headers, body: Vec::new() };
    let length = call.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    call.body = vec![0; length];
    reader.read_exact(&mut call.body)?;
    Ok(Some(call))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(provider: &Provider, body: &str) -> String {
        let mut stream = TcpStream::connect(provider.address()).unwrap();
        let head = format!("POST /x HTTP/1.1\r\nX-A: b\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + body).as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn calls_are_recorded_and_answered_as_told() {
        let provider = Provider::start(|call| match call.body.as_slice() {
            b"drop" => Reply::Drop,
            b"twice" => Reply::Twice,
            _ => Reply::redirect(307, "/y"),
        });
        assert!(send(&provider, "hello").contains("location: /y"));
        assert_eq!(send(&provider, "drop"), "");
        assert_eq!(send(&provider, "twice").matches("HTTP/1.1 200").count(), 2);
        let calls = provider.wait_for(3);
        assert_eq!((calls[0].path.as_str(), calls[0].header("x-a")), ("/x", Some("b")));
        assert_eq!(calls[1].body, b"drop");
    }
}
