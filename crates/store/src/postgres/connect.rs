//! Connections to the server: checked, encrypted as the URL says, and retried with backoff.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tokio_postgres::{Client, Config, Connection, Error as PgError, Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    connection::{PgConnection, SETTINGS},
    diagnosis::durability,
    fault::describe,
    server::{Fences, Identity, Servers},
    tls,
};
use crate::{Error, Options, diagnosis::Setting};

/// The oldest server version that is supported: `pg_current_xact_id` was added in it.
const OLDEST: i32 = 130_000;

/// The time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The pauses between two attempts while the server is away: from the first, doubled up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A server that does not respond for so long is gone: its host may have died without closing the connection.
const SILENCE: Duration = Duration::from_secs(15);
const ASK_AFTER: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_secs(2);

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

pub(super) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    allow_weak: bool,
    answer_within: Duration,
    seen: Mutex<Seen>,
    servers: Servers,
}

/// The results of the attempts so far.
#[derive(Default)]
struct Seen {
    connected: Option<Instant>,
    away: Option<Away>,
}

/// The server has been away since the last attempt.
struct Away {
    failures: u32,
    /// Before this time callers get the last error at once.
    until: Instant,
    why: Error,
}

impl Connector {
    pub fn new(url: &str, options: &Options) -> Result<Self, Error> {
        let (mut config, tls) = tls::read(url)?;
        if config.get_application_name().is_none() {
            config.application_name("tenure");
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_idle(ASK_AFTER).keepalives_interval(ASK_EVERY).keepalives_retries(3);
        }
        let (allow_weak, answer_within) = (options.allow_weak_settings, options.answer_within);
        Ok(Self {
            config,
            tls,
            allow_weak,
            answer_within,
            seen: Mutex::default(),
            servers: Servers::default(),
        })
    }

    /// A connection for reads and small writes. The server that it reaches is checked.
    pub async fn session(&self) -> Result<PgConnection, Error> {
        self.tried(async {
            let (client, connection) = self.connect().await?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(error = describe(&error), "a connection ended");
                }
            });
            let mut session = PgConnection::new(client, driver.abort_handle(), self.answer_within);
            session.client.batch_execute(SETTINGS).await.map_err(|e| refused(&e))?;
            check_settings(&session.client, self.allow_weak).await?;
            (session.identity, session.server) = self.meet(&session.client).await?;
            Ok(session)
        })
        .await
    }

    /// The identity and the number of the server that a new connection reached.
    pub async fn meet(&self, client: &Client) -> Result<(Option<Identity>, u32), Error> {
        let identity = Identity::ask(client).await?;
        let number = self.servers.meet(identity.as_ref())?;
        Ok((identity, number))
    }

    /// The servers that this process met.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// A lane's connection, which has joined the ledger's writers on its server.
    pub async fn lane(&self, fences: &Fences) -> Result<PgConnection, Error> {
        let mut session = self.session().await?;
        let joined = self.servers.join(&mut session.client, session.identity.as_ref(), fences);
        let asked = tokio::time::timeout(self.answer_within, joined).await;
        session.server = asked.unwrap_or_else(|_| Err(session.cut().error()))?;
        Ok(session)
    }

    /// Whether a connection is open, and leads to the current server. After a failover the old server may still respond
    /// on existing connections; commits on it are lost.
    pub fn is_usable(&self, session: &PgConnection) -> bool {
        !session.client.is_closed() && self.servers.number() == session.server
    }

    /// A connection whose messages the caller reads. The caller also asks for the server's identity.
    pub async fn listener(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        self.tried(self.connect()).await
    }

    async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        self.config.connect(self.tls.clone()).await.map_err(|e| refused(&e))
    }

    /// Connects, unless the last attempt failed a moment ago or another one is in progress.
    async fn tried<T>(&self, connecting: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let began = Instant::now();
        if let Some(away) = &mut self.seen().away {
            if began < away.until {
                return Err(away.why.clone());
            }
            away.until = began + CONNECT_TIMEOUT;
        }
        let made = match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(made) => made,
            Err(_) => Err(Error::Unavailable("the server does not answer".to_owned())),
        };
        let mut seen = self.seen();
        match &made {
            Ok(_) => *seen = Seen { connected: Some(Instant::now()), away: None },
            // A later attempt has connected meanwhile, so this failure is outdated.
            Err(_) if seen.connected.is_some_and(|at| at > began) => {}
            Err(why) => {
                let failures = seen.away.as_ref().map_or(0, |away| away.failures) + 1;
                let until = Instant::now() + pause(failures);
                seen.away = Some(Away { failures, until, why: why.clone() });
            }
        }
        made
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longer after each failure, with a random part so that processes differ.
fn pause(failures: u32) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
    let mut random = [0; 1];
    // Without randomness all processes retry at the same time, which does no harm.
    let _ = getrandom::fill(&mut random);
    whole.mul_f64(0.5 + f64::from(random[0]) / 512.0)
}

/// The error for a caller when connecting failed.
fn refused(error: &PgError) -> Error {
    let told = describe(error);
    match error.code().map(|code| code.code()) {
        Some(code) if code.starts_with("28") => Error::Unusable(format!(
            "{told}. Check the URL's user and password, and the server's pg_hba.conf"
        )),
        Some("3D000") => Error::Unusable(format!("{told}. Create it with createdb, or correct the URL")),
        None if told.contains("TLS") => {
            Error::Unusable(format!("{told}. Check the URL's sslmode and sslrootcert, and the certificate"))
        }
        _ => Error::Unavailable(told),
    }
}

/// Refuses settings under which an acknowledged commit could be lost.
async fn check_settings(client: &Client, allow_weak: bool) -> Result<(), Error> {
    let row = client
        .query_one("SELECT current_setting('server_version_num')::int, pg_is_in_recovery()", &[])
        .await
        .map_err(|e| Error::Unavailable(describe(&e)))?;
    let (version, in_recovery): (i32, bool) = (row.get(0), row.get(1));
    if version < OLDEST {
        return Err(Error::Unusable(format!("the server has version {version}; 13 or newer is needed")));
    }
    // A standby's connections would survive its promotion without notice.
    if in_recovery {
        return Err(Error::Unavailable("the server is a standby; it has to be promoted first".to_owned()));
    }
    let Some(weak) = Setting::weakness(&durability(client).await?) else { return Ok(()) };
    if !allow_weak {
        return Err(Error::WeakSettings(format!("{weak}. Turn it on, or allow weak settings")));
    }
    tracing::warn!(weak, "commits that were answered may be lost: for throw-away data only");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_second() {
        for failures in 1..40 {
            let pause = pause(failures);
            assert!(pause >= FIRST_PAUSE / 2 && pause <= LONGEST_PAUSE, "{failures}: {pause:?}");
        }
        assert!(pause(40) >= LONGEST_PAUSE / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_server_is_away_everybody_is_told_at_once() {
        // A port on which no server listens.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let url = format!("postgres://x@127.0.0.1:{free}/y");
        let connector = Connector::new(&url, &Options::default()).unwrap();
        let first = connector.session().await.err().map(|error| error.to_string());
        assert!(first.as_ref().is_some_and(|told| told.contains("not available")), "{first:?}");
        let until = connector.seen().away.as_ref().map(|away| away.until);
        let second = connector.session().await.err().map(|error| error.to_string());
        assert_eq!(first, second);
        assert_eq!(connector.seen().away.as_ref().map(|away| away.until), until, "it was not tried again");
    }
}
