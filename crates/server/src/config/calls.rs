//! How the configuration describes a tool's or lookup's call: over HTTP, or by a program.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use axum::http::{HeaderName, HeaderValue, Method, Uri};
use ipnet::IpNet;
use serde::Deserialize;

use super::{
    ConfigError,
    config_source::{ConfigSource, Secret},
    file::Host,
    period::Period,
};
use crate::executor::{HttpTarget, IdPlace, Program};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpSection {
    url: Option<Url>,
    #[serde(default)]
    method: Verb,
    #[serde(default)]
    headers: BTreeMap<Name, String>,
    #[serde(default)]
    headers_env: BTreeMap<Name, String>,
    #[serde(default)]
    headers_file: BTreeMap<Name, PathBuf>,
    secret_env: Option<String>,
    secret_file: Option<PathBuf>,
    timeout: Option<Timeout>,
    #[serde(default)]
    hosts: Vec<Host>,
    #[serde(default)]
    networks: Vec<Network>,
    external_id: Option<ExternalId>,
    #[serde(default)]
    unsent_statuses: Vec<Status>,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Url(Uri);

impl TryFrom<String> for Url {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || {
            format!(
                "`{text}` is not a URL that can be called: write one like \"https://hooks.example.com/notify\""
            )
        };
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if !matches!(uri.scheme_str(), Some("http" | "https")) || !plain {
            return Err(bad());
        }
        Ok(Url(uri))
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum Verb {
    #[default]
    #[serde(rename = "POST")]
    Post,
    #[serde(rename = "PUT")]
    Put,
    #[serde(rename = "PATCH")]
    Patch,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const OURS: [&str; 7] = [
            "host",
            "content-length",
            "content-type",
            "transfer-encoding",
            "connection",
            "idempotency-key",
            "user-agent",
        ];
        let name = text.to_ascii_lowercase();
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(format!("`{text}` is not a header name: write one like \"authorization\""));
        }
        if OURS.contains(&name.as_str()) || name.starts_with("webhook-") {
            return Err(format!("`{text}` is set by the relay itself: leave it out"));
        }
        Ok(Name(name))
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Network(IpNet);

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = |_| format!("`{text}` is not a network: write one like \"10.0.0.0/8\"");
        text.parse().map(Network).map_err(bad)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "u16")]
struct Status(u16);

impl TryFrom<u16> for Status {
    type Error = String;

    fn try_from(status: u16) -> Result<Self, String> {
        if (400..=599).contains(&status) {
            return Ok(Status(status));
        }
        Err(format!("{status} is not a failure status: give one from 400 to 599"))
    }
}

/// `"header:x-message-id"`, or a JSON pointer into the response.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct ExternalId(IdPlace);

impl TryFrom<String> for ExternalId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let place = match text.strip_prefix("header:") {
            Some(name) => name.parse().ok().map(IdPlace::Header),
            None => text.parse().ok().map(IdPlace::Body),
        };
        place.map(ExternalId).ok_or_else(|| {
            format!("`{text}` is not a location in a response: write \"header:x-message-id\", or a JSON pointer like \"/data/id\"")
        })
    }
}

/// The timeout of a call, within bounds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Period")]
struct Timeout(Period);

impl TryFrom<Period> for Timeout {
    type Error = &'static str;

    fn try_from(period: Period) -> Result<Self, Self::Error> {
        if (100..=3_600_000).contains(&period.ms()) {
            return Ok(Timeout(period));
        }
        Err("a timeout is between 100ms and 1h: give one in between")
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExecSection {
    command: Words,
    timeout: Option<Timeout>,
    #[serde(default)]
    env: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
struct Words(Vec<String>);

impl TryFrom<Vec<String>> for Words {
    type Error = &'static str;

    fn try_from(words: Vec<String>) -> Result<Self, Self::Error> {
        if words.first().is_none_or(String::is_empty) {
            return Err(
                "the program is missing: write it first, like [\"/usr/local/bin/notify\", \"--json\"]",
            );
        }
        Ok(Words(words))
    }
}

impl ExecSection {
    pub fn settle(self, default_ms: u64) -> Program {
        let default = std::time::Duration::from_millis(default_ms);
        Program {
            command: self.command.0,
            env: self.env,
            timeout: self.timeout.map_or(default, |timeout| timeout.0.0),
        }
    }
}

/// Whether a call to this URL crosses the network unencrypted.
fn is_readable_on_the_way(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let here = host.eq_ignore_ascii_case("localhost") || ip.is_ok_and(|ip| ip.is_loopback());
    url.scheme_str() == Some("http") && !here
}

impl HttpSection {
    pub fn settle(self, at: &ConfigSource<'_>, line: Option<usize>) -> Result<HttpTarget, ConfigError> {
        let default = HttpTarget::default();
        let from = match (&self.secret_env, &self.secret_file) {
            (None, None) => None,
            (Some(name), None) => Some(Secret::Env(name)),
            (None, Some(path)) => Some(Secret::File(path)),
            (Some(_), Some(_)) => {
                return Err(at.error(line, "keep one of `secret_env` and `secret_file`"));
            }
        };
        let secret = from.map(|from| {
            let secret = at.secret(&from, "", line)?;
            secret.parse().map_err(|why| at.error(line, format!("{from}: {why}")))
        });
        let written = self.headers.iter().map(|(name, value)| (name, Secret::Written, value.as_str()));
        let in_env = self.headers_env.iter().map(|(name, env)| (name, Secret::Env(env), ""));
        let in_files = self.headers_file.iter().map(|(name, path)| (name, Secret::File(path), ""));
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (Name(name), from, value) in written.chain(in_env).chain(in_files) {
            let mut value = HeaderValue::from_str(&at.secret(&from, value, line)?)
                .map_err(|_| at.error(line, format!("the value of header `{name}` is not printable text")))?;
            value.set_sensitive(true);
            let known = HeaderName::from_bytes(name.as_bytes()).expect("checked when it was read");
            if headers.iter().any(|(other, _)| *other == known) {
                return Err(at.error(line, format!("header `{name}` is given twice: keep one")));
            }
            headers.push((known, value));
        }
        let secret = secret.transpose()?;
        if let Some(Url(url)) = self.url.as_ref().filter(|Url(url)| is_readable_on_the_way(url))
            && (!headers.is_empty() || secret.is_some())
            && !at.allow_plain_http
        {
            let why = format!(
                "`{url}` is not encrypted, and `headers` and signatures would cross the network with the call: use \
                 https, or set allow_plain_http"
            );
            return Err(at.error(line, why));
        }
        Ok(HttpTarget {
            url: self.url.map(|url| url.0),
            method: match self.method {
                Verb::Post => Method::POST,
                Verb::Put => Method::PUT,
                Verb::Patch => Method::PATCH,
            },
            headers,
            secret,
            timeout: self.timeout.map_or(default.timeout, |timeout| timeout.0.0),
            hosts: self.hosts.into_iter().map(|host| host.0).collect(),
            networks: self.networks.into_iter().map(|network| network.0).collect(),
            external_id: self.external_id.map(|place| place.0),
            unsent_statuses: self.unsent_statuses.into_iter().map(|status| status.0).collect(),
        })
    }
}
