//! Limits open connections: in total, and of one address. Connections beyond the limit are closed as soon as
//! they are accepted, so that others still get in.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::auth::network;

/// Connections reserved for this machine once all others are taken: the operator can always connect.
const OF_THIS_MACHINE: usize = 64;

/// Connections refused by this process.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Limits of open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub in_all: usize,
    /// Of one address, other than this machine's.
    pub of_an_address: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { in_all: 8_192, of_an_address: 2_048 }
    }
}

pub(crate) struct Connections {
    bounds: Bounds,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    in_all: usize,
    of: HashMap<IpAddr, usize>,
}

/// One open connection, until it is dropped.
pub(crate) struct ConnectionSlot {
    connections: Arc<Connections>,
    of: IpAddr,
}

impl Connections {
    pub fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, open: Mutex::default() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for one more connection of this peer; None at the limit.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let of = network(peer);
        let (in_all, of_an_address) = match peer.to_canonical().is_loopback() {
            true => (self.bounds.in_all + OF_THIS_MACHINE, usize::MAX),
            false => (self.bounds.in_all, self.bounds.of_an_address),
        };
        let mut open = self.open();
        let own = open.of.get(&of).copied().unwrap_or(0);
        if open.in_all >= in_all || own >= of_an_address {
            REFUSED.fetch_add(1, Relaxed);
            return None;
        }
        open.in_all += 1;
        open.of.insert(of, own + 1);
        Some(ConnectionSlot { connections: self.clone(), of })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.in_all -= 1;
        if let Some(own) = open.of.get_mut(&self.of) {
            *own -= 1;
            if *own == 0 {
                open.of.remove(&self.of);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_every_connection_and_this_machine_keeps_some() {
        let connections = Connections::new(Bounds { in_all: 3, of_an_address: 2 });
        let admit = |peer: &str| connections.admit(peer.parse().unwrap());
        let hostile = [admit("192.0.2.1"), admit("::ffff:192.0.2.1")];
        assert!(hostile.iter().all(Option::is_some));
        assert!(admit("192.0.2.1").is_none(), "one address, in any notation");
        let quiet = admit("192.0.2.2");
        assert!(quiet.is_some() && admit("192.0.2.3").is_none());
        let own: Vec<_> = (0..OF_THIS_MACHINE).map(|_| admit("127.0.0.1")).collect();
        assert!(own.iter().all(Option::is_some) && admit("127.0.0.1").is_none());
        drop(own);
        drop(hostile);
        assert!(admit("192.0.2.1").is_some(), "a closed connection frees its slot");
    }
}
