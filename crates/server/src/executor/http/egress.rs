//! Outbound address checks. A name is resolved once, all of its addresses are checked, and the connection is
//! made to a checked address: nothing is resolved again in between, which prevents DNS rebinding.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::http::Uri;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tenure_store::fair;
use tokio::net::TcpStream;
use tower_service::Service;

pub type Resolving<'r> = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'r>>;

/// Resolves a name to addresses.
pub trait Resolve: Send + Sync {
    fn resolve<'r>(&'r self, host: &'r str, port: u16) -> Resolving<'r>;
}

/// Why no connection was made. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum NoConnection {
    /// The address is not allowed.
    #[error("{0}")]
    Refused(String),
    /// The address cannot be reached now.
    #[error("{0}")]
    Unreachable(String),
}

/// The addresses that one tool may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EgressRules {
    /// Only these names; empty: any.
    pub hosts: Vec<String>,
    /// Networks that are allowed although they are not public.
    pub networks: Vec<IpNet>,
}

impl EgressRules {
    /// The checks that need only the URL.
    pub fn url(&self, uri: &Uri) -> Result<(), NoConnection> {
        let refused = |why: String| Err(NoConnection::Refused(why));
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return refused(format!("`{uri}` is not an http or https URL"));
        }
        let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
            return refused(format!("`{uri}` has no host"));
        };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return refused("a URL with a user name is not allowed".to_owned());
        }
        if !self.hosts.is_empty() && !self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host)) {
            return refused(format!("`{host}` is not among the tool's hosts: add it to `hosts` to allow it"));
        }
        Ok(())
    }

    fn addresses(&self, host: &str, found: &[SocketAddr]) -> Result<(), NoConnection> {
        if found.is_empty() {
            return Err(NoConnection::Unreachable(format!("`{host}` has no address")));
        }
        match found.iter().map(|address| address.ip().to_canonical()).find(|ip| !self.may_call(*ip)) {
            None => Ok(()),
            // A name with both public and private addresses is suspicious, so it is refused.
            Some(ip) => Err(NoConnection::Refused(format!(
                "`{host}` resolves to {ip}, which is not a public address: add its network to `networks` to allow it"
            ))),
        }
    }

    fn may_call(&self, ip: IpAddr) -> bool {
        is_public(ip) || self.networks.iter().any(|network| network.contains(&ip))
    }
}

/// Whether an address is public: not private, local, reserved, or a cloud's metadata service.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    // Cloud services for their own machines at addresses in public ranges: Azure's platform, IBM's services.
    let of_a_cloud =
        ip == Ipv4Addr::new(168, 63, 129, 16) || (a == 161 && b == 26) || (a == 166 && (8..12).contains(&b));
    !(of_a_cloud
        || a == 0
        || a == 10
        || a == 127
        || (a == 100 && (64..128).contains(&b))
        || (a == 169 && b == 254)
        || (a == 172 && (16..32).contains(&b))
        || (a == 192 && b == 0 && (c == 0 || c == 2))
        || (a == 192 && b == 88 && c == 99)
        || (a == 192 && b == 168)
        || (a == 198 && (b == 18 || b == 19))
        || (a == 198 && b == 51 && c == 100)
        || (a == 203 && b == 0 && c == 113)
        || a >= 224)
}

/// Global unicast only. If an IPv4 address is embedded, that one is checked.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let s = ip.segments();
    let carried = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => carried(high, low),
        [0x2002, high, low, ..] => carried(high, low),
        // Teredo, benchmarks, ORCHID, documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        _ => s[0] & 0xe000 == 0x2000,
    }
}

/// The port of a URL.
pub(super) fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 })
}

/// Connects to addresses that the egress guard allows.
#[derive(Clone)]
pub(super) struct Connector {
    pub guard: Arc<EgressRules>,
    pub resolver: Arc<dyn Resolve>,
    pub timeout: Duration,
}

impl Connector {
    async fn connect(self, uri: Uri, tenant: Arc<str>) -> Result<TokioIo<TcpStream>, NoConnection> {
        self.guard.url(&uri)?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = port(&uri);
        let unreachable = |error: io::Error| {
            NoConnection::Unreachable(format!("`{host}` cannot be reached on port {port}: {error}"))
        };
        let connected = tokio::time::timeout(self.timeout, async {
            let resolving = fair::on_behalf_of(tenant, self.resolver.resolve(host, port));
            let found = resolving.await.map_err(unreachable)?;
            self.guard.addresses(host, &found)?;
            let stream = TcpStream::connect(found.as_slice()).await.map_err(unreachable)?;
            stream.set_nodelay(true).map_err(unreachable)?;
            Ok(TokioIo::new(stream))
        });
        connected.await.unwrap_or_else(|_| Err(unreachable(io::ErrorKind::TimedOut.into())))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = NoConnection;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NoConnection>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // The client may continue the connection in a task of its own.
        Box::pin(self.clone().connect(uri, fair::beneficiary().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_called() {
        for public in [
            "8.8.8.8",
            "100.63.0.1",
            "172.15.0.1",
            "168.63.129.17",
            "166.12.0.1",
            "2606:4700::1",
            "64:ff9b::808:808",
            "2a00::1",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "0.0.0.0",
            "10.1.2.3",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.192",
            "168.63.129.16",
            "161.26.0.10",
            "166.9.24.41",
            "169.254.170.2",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::808:808",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::a83f:8110",
            "64:ff9b:1::a9fe:a9fe",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2002:a83f:8110::1",
            "fd20:ce::254",
            "::ffff:0:a9fe:a9fe",
            "2001::1",
            "2001:db8::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn embedded_ipv4_addresses_are_checked() {
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:80".parse().unwrap();
        assert!(EgressRules::default().addresses("x", &[mapped]).is_err());
        let guard = EgressRules { networks: vec!["127.0.0.0/8".parse().unwrap()], ..EgressRules::default() };
        assert!(guard.addresses("x", &[mapped]).is_ok());
        assert!(guard.addresses("x", &["10.0.0.1:80".parse().unwrap()]).is_err());
    }

    #[test]
    fn one_bad_address_among_good_ones_is_enough() {
        let found = ["8.8.8.8:80", "169.254.169.254:80"].map(|address| address.parse().unwrap());
        let error = EgressRules::default().addresses("mixed.example", &found).unwrap_err();
        assert!(matches!(&error, NoConnection::Refused(why) if why.contains("169.254.169.254")), "{error}");
    }

    #[test]
    fn a_url_is_http_and_names_an_allowed_host() {
        let guard = EgressRules { hosts: vec!["hooks.example".into()], ..EgressRules::default() };
        for (url, fine) in [
            ("https://hooks.example/x", true),
            ("http://HOOKS.example:8080/x", true),
            ("ftp://hooks.example/x", false),
            ("https://other.example/", false),
            ("https://hooks.example@other.example/", false),
            ("https://user@hooks.example/", false),
            ("/path", false),
        ] {
            assert_eq!(guard.url(&url.parse().unwrap()).is_ok(), fine, "{url}");
        }
    }
}
