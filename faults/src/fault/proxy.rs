//! A proxy for PostgreSQL's protocol that recognizes a COMMIT, and cuts the connection there on request.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

const PATIENCE: Duration = Duration::from_secs(30);
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The server never sees the COMMIT.
    Before,
    /// The server commits, but its response is lost.
    After,
}

pub struct Proxy {
    pub port: u16,
    switch: Arc<Switch>,
    cuts: watch::Receiver<Option<Instant>>,
    listener: JoinHandle<()>,
}

/// State shared by all connections.
struct Switch {
    armed: Mutex<Option<When>>,
    cut: watch::Sender<Option<Instant>>,
}

impl Switch {
    fn take(&self) -> Option<When> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Proxy {
    pub async fn start(server: u16) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let (cut, cuts) = watch::channel(None);
        let switch = Arc::new(Switch { armed: Mutex::default(), cut });
        let shared = switch.clone();
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let switch = shared.clone();
                tokio::spawn(async move {
                    // Either side may disconnect at any time: that is its purpose.
                    let _ended = serve(client, server, &switch).await;
                });
            }
        });
        Ok(Self { port, switch, cuts, listener })
    }

    /// Cuts the connection that commits next, and returns once it is cut.
    pub async fn cut(&mut self, when: When) -> Result<Instant, String> {
        self.cuts.mark_unchanged();
        *self.switch.armed.lock().unwrap_or_else(PoisonError::into_inner) = Some(when);
        let cut = tokio::time::timeout(PATIENCE, self.cuts.changed()).await;
        cut.map_err(|_| format!("no commit came within {PATIENCE:?}"))?.map_err(|error| error.to_string())?;
        Ok(self.cuts.borrow().unwrap_or_else(Instant::now))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// State shared by the two directions of a connection.
#[derive(Default)]
struct Shared {
    /// The client's COMMIT was seen: it receives nothing any more.
    silent: AtomicBool,
    /// Expected responses of one byte.
    bare: AtomicUsize,
}

async fn serve(client: TcpStream, server: u16, switch: &Switch) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", server)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let shared = Shared::default();
    tokio::select! {
        ended = forward(from_client, to_server, &shared, switch) => ended?,
        ended = backward(from_server, to_client, &shared, switch) => ended?,
    }
    Ok(())
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    switch: &Switch,
) -> io::Result<()> {
    let mut commits = HashSet::new();
    loop {
        // The first message has no type; after a request for encryption another first message follows.
        let length = from.read_u32().await?;
        let first = rest(&mut from, length).await?;
        let code = first.get(..4).map_or(0, |code| u32::from_be_bytes([code[0], code[1], code[2], code[3]]));
        let encryption = matches!(code, SSL_REQUEST | GSS_REQUEST);
        if encryption {
            shared.bare.fetch_add(1, Ordering::SeqCst);
        }
        to.write_all(&[&length.to_be_bytes()[..], &first].concat()).await?;
        if !encryption {
            break;
        }
    }
    loop {
        let (kind, length, body) = message(&mut from).await?;
        if is_commit(kind, &body, &mut commits) {
            match switch.take() {
                Some(When::Before) => {
                    switch.cut.send_replace(Some(Instant::now()));
                    return Ok(());
                }
                Some(When::After) => shared.silent.store(true, Ordering::SeqCst),
                None => {}
            }
        }
        to.write_all(&[&[kind][..], &length.to_be_bytes(), &body].concat()).await?;
    }
}

async fn backward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    switch: &Switch,
) -> io::Result<()> {
    loop {
        if shared.bare.load(Ordering::SeqCst) > 0 {
            to.write_u8(from.read_u8().await?).await?;
            shared.bare.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let kind = from.read_u8().await?;
        // A request for encryption may have arrived meanwhile.
        if shared.bare.load(Ordering::SeqCst) > 0 {
            to.write_u8(kind).await?;
            shared.bare.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let length = from.read_u32().await?;
        let body = rest(&mut from, length).await?;
        if shared.silent.load(Ordering::SeqCst) {
            if kind == b'C' && matches!(text(&body), "COMMIT" | "ROLLBACK") {
                switch.cut.send_replace(Some(Instant::now()));
                return Ok(());
            }
            continue;
        }
        to.write_all(&[&[kind][..], &length.to_be_bytes(), &body].concat()).await?;
    }
}

async fn message(from: &mut OwnedReadHalf) -> io::Result<(u8, u32, Vec<u8>)> {
    let kind = from.read_u8().await?;
    let length = from.read_u32().await?;
    Ok((kind, length, rest(from, length).await?))
}

/// A message's length includes itself.
async fn rest(from: &mut OwnedReadHalf, length: u32) -> io::Result<Vec<u8>> {
    let mut body = vec![0; (length as usize).saturating_sub(4)];
    from.read_exact(&mut body).await?;
    Ok(body)
}

/// A simple query, or the execution of a statement that was prepared as COMMIT.
fn is_commit(kind: u8, body: &[u8], commits: &mut HashSet<String>) -> bool {
    let second = || text(&body[(text(body).len() + 1).min(body.len())..]);
    match kind {
        b'Q' => text(body).eq_ignore_ascii_case("commit"),
        b'P' => {
            let name = text(body).to_owned();
            if second().eq_ignore_ascii_case("commit") {
                commits.insert(name);
            } else {
                commits.remove(&name);
            }
            false
        }
        b'B' => commits.contains(second()),
        _ => false,
    }
}

/// The text up to the first zero byte.
fn text(body: &[u8]) -> &str {
    let text = body.split(|byte| *byte == 0).next().unwrap_or_default();
    std::str::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_known_in_both_protocols() {
        let mut commits = HashSet::new();
        assert!(is_commit(b'Q', b"COMMIT\0", &mut commits));
        assert!(!is_commit(b'Q', b"BEGIN\0", &mut commits));
        assert!(!is_commit(b'P', b"s1\0COMMIT\0\0\0", &mut commits));
        assert!(!is_commit(b'P', b"s2\0BEGIN\0\0\0", &mut commits));
        assert!(is_commit(b'B', b"\0s1\0\0\0", &mut commits));
        assert!(!is_commit(b'B', b"\0s2\0\0\0", &mut commits));
        is_commit(b'P', b"s1\0SELECT 1\0\0\0", &mut commits);
        assert!(!is_commit(b'B', b"\0s1\0\0\0", &mut commits));
    }
}
