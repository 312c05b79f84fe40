//! Slows down wrong tokens by source address. Genuine tokens are never delayed: only a refusal waits.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Wrong tokens of one address that are refused at once; one more becomes free each second.
const AT_ONCE: u32 = 20;
const EACH: Duration = Duration::from_secs(1);
/// How long a refusal is delayed after that, and how many of one address are delayed at a time.
const DELAY: Duration = Duration::from_secs(1);
const DELAYED_MAX: u32 = 16;
/// The number of addresses in memory.
const PEERS_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Strangers(Mutex<HashMap<IpAddr, Peer>>);

struct Peer {
    /// When all its wrong tokens are forgotten.
    until: Instant,
    delayed: u32,
}

/// Too many refusals of this address are delayed already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Strangers {
    /// Records a wrong token, and delays its refusal if there were many.
    pub async fn slow(self: &Arc<Self>, peer: IpAddr) -> Result<(), TooMany> {
        let peer = network(peer);
        if !self.note(peer)? {
            return Ok(());
        }
        // Dropped when the client disconnects meanwhile, which makes room for others.
        let _delayed = Delayed { strangers: self.clone(), peer };
        tokio::time::sleep(DELAY).await;
        Ok(())
    }

    /// Whether the refusal has to be delayed.
    fn note(&self, peer: IpAddr) -> Result<bool, TooMany> {
        let now = Instant::now();
        let mut peers = self.peers();
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, one| one.delayed > 0 || one.until > now);
            if peers.len() >= PEERS_MAX {
                peers.retain(|_, one| one.delayed > 0);
            }
        }
        let one = peers.entry(peer).or_insert(Peer { until: now, delayed: 0 });
        let until = one.until.max(now) + EACH;
        if until <= now + AT_ONCE * EACH {
            one.until = until;
            return Ok(false);
        }
        if one.delayed >= DELAYED_MAX {
            return Err(TooMany);
        }
        one.delayed += 1;
        Ok(true)
    }

    fn peers(&self) -> MutexGuard<'_, HashMap<IpAddr, Peer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Delayed {
    strangers: Arc<Strangers>,
    peer: IpAddr,
}

impl Drop for Delayed {
    fn drop(&mut self) {
        if let Some(one) = self.strangers.peers().get_mut(&self.peer) {
            one.delayed -= 1;
        }
    }
}

/// The /64 network of an IPv6 address: a single client usually has all 2^64 addresses in it.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn many_wrong_tokens_of_one_address_are_slowed_and_nobody_elses() {
        let strangers = Arc::new(Strangers::default());
        let begun = Instant::now();
        for _ in 0..AT_ONCE {
            strangers.slow(peer("192.0.2.7")).await.unwrap();
        }
        assert_eq!(begun.elapsed(), Duration::ZERO, "a few mistakes are forgiven");
        strangers.slow(peer("192.0.2.7")).await.unwrap();
        assert_eq!(begun.elapsed(), DELAY);
        let other = Instant::now();
        strangers.slow(peer("192.0.2.8")).await.unwrap();
        assert_eq!(other.elapsed(), Duration::ZERO, "another address is another");
        tokio::time::advance(AT_ONCE * EACH).await;
        let later = Instant::now();
        strangers.slow(peer("192.0.2.7")).await.unwrap();
        assert_eq!(later.elapsed(), Duration::ZERO, "time forgives");
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_refusals_wait() {
        let strangers = Arc::new(Strangers::default());
        for host in 0..AT_ONCE {
            // All in one network.
            strangers.slow(peer(&format!("2001:db8::{host:x}"))).await.unwrap();
        }
        let one = || {
            tokio::spawn({
                let strangers = strangers.clone();
                async move { strangers.slow(peer("2001:db8::1")).await }
            })
        };
        let waiting: Vec<_> = (0..DELAYED_MAX).map(|_| one()).collect();
        tokio::task::yield_now().await;
        assert_eq!(strangers.slow(peer("2001:db8::ffff")).await, Err(TooMany));
        for refusal in waiting {
            refusal.await.unwrap().unwrap();
        }
        strangers.slow(peer("2001:db8::1")).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let strangers = Arc::new(Strangers::default());
        for n in 0..3 * PEERS_MAX as u32 {
            strangers.slow(IpAddr::from(n.to_be_bytes())).await.unwrap();
        }
        assert!(strangers.peers().len() <= PEERS_MAX);
    }
}
