//! Resolves names with the machine's resolver, on separate threads. A name whose servers do not respond
//! blocks its thread for many seconds: one tenant has few of them at a time, and the rest of the process does
//! not wait for them.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use tenure_store::{
    aside,
    fair::{self, Fair},
};

use super::egress::{Resolve, Resolving};

/// Concurrent lookups of names, in total and for one tenant.
const LOOKUPS: usize = 32;
const SHARE: usize = 8;

type LookUp = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// The machine's resolver.
pub struct SystemResolver {
    turns: Arc<Fair>,
    look_up: LookUp,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self::with(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl SystemResolver {
    /// With another lookup function, which may block.
    pub fn with(look_up: LookUp) -> Self {
        Self { turns: Fair::new(LOOKUPS, SHARE), look_up }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'r>(&'r self, host: &'r str, port: u16) -> Resolving<'r> {
        Box::pin(async move {
            if let Ok(ip) = host.parse::<IpAddr>() {
                return Ok(vec![SocketAddr::new(ip, port)]);
            }
            let turn = self.turns.turn(fair::beneficiary().unwrap_or_default()).await;
            let (host, look_up) = (host.to_owned(), self.look_up);
            // The turn lasts as long as the lookup, even if the call has given up.
            let looked_up = move || {
                let _turn = turn;
                look_up(&host, port)
            };
            aside("names", looked_up).await?
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Condvar, Mutex},
        time::Duration,
    };

    use tokio::task::JoinSet;

    use super::*;

    static ANSWERED: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// `silent…` is answered only at the end of the test.
    fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if host.starts_with("silent") {
            let answered = ANSWERED.0.lock().unwrap();
            let _answered = ANSWERED.1.wait_while(answered, |answered| !*answered).unwrap();
        }
        Ok(vec![SocketAddr::new([192, 0, 2, 1].into(), port)])
    }

    #[tokio::test]
    async fn unanswered_names_delay_neither_other_tenants_nor_blocking_calls() {
        let names = Arc::new(SystemResolver::with(look_up));
        let mut silent = JoinSet::new();
        for n in 0..600 {
            let names = names.clone();
            let asked = async move { names.resolve(&format!("silent-{n}.example"), 443).await };
            silent.spawn(fair::on_behalf_of("hostile".into(), asked));
        }
        tokio::task::yield_now().await;
        let other = fair::on_behalf_of("quiet".into(), names.resolve("answers.example", 443));
        let other =
            tokio::time::timeout(Duration::from_secs(20), other).await.expect("it has turns of its own");
        assert_eq!(other.unwrap().len(), 1);
        let blocking = tokio::task::spawn_blocking(|| "free");
        let blocking =
            tokio::time::timeout(Duration::from_secs(20), blocking).await.expect("the pool is free");
        assert_eq!(blocking.unwrap(), "free");
        *ANSWERED.0.lock().unwrap() = true;
        ANSWERED.1.notify_all();
        while let Some(answered) = silent.join_next().await {
            assert!(answered.unwrap().is_ok());
        }
    }
}
