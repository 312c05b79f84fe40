//! Contexts: named daemons with their access tokens, stored in the configuration folder of the person who logged
//! in. A token is sent only to the URL that it belongs to.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    args::Global,
    exit::{Exit, Failure},
    home,
};

/// The URL of a daemon that was started without settings.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7171";

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The name of the one that is used unless another is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    pub url: String,
    pub token: String,
}

impl Contexts {
    /// The stored contexts; none if nobody has logged in.
    pub fn load() -> Result<Self, Failure> {
        let Some(file) = file() else { return Ok(Self::default()) };
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                let why = format!("{} cannot be read: {error}. Correct or delete it", file.display());
                Failure::new(Exit::Error, why)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Failure::new(Exit::Error, format!("{}: {error}", file.display()))),
        }
    }

    pub fn save(&self) -> Result<PathBuf, Failure> {
        let file = file().ok_or_else(|| {
            Failure::new(Exit::Error, "there is no home: set HOME or XDG_CONFIG_HOME to store a context")
        })?;
        home::write(&file, &serde_json::to_string_pretty(self).expect("a map of texts"))?;
        Ok(file)
    }

    pub fn named(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Failure::new(Exit::NotFound, format!("there is no context {name}. Known: {known}"))
        })
    }
}

fn file() -> Option<PathBuf> {
    Some(home::config()?.join("contexts.json"))
}

/// Where a call goes, and which token may go there.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    pub url: String,
    pub token: Option<String>,
    /// A token file of this machine may be read for it.
    pub token_file: bool,
    /// Where the token came from, for the case that it is refused.
    pub origin: String,
}

/// Settings of the environment, which belong together.
#[derive(Default)]
pub struct Environment {
    pub url: Option<String>,
    pub token: Option<String>,
    /// A token file is named.
    pub token_file: bool,
}

impl Environment {
    pub fn read() -> Self {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let token_file = set("TENURE_TOKEN_FILE").is_some();
        Self { url: set("TENURE_URL"), token: set("TENURE_TOKEN"), token_file }
    }

    fn says_nothing(&self) -> bool {
        self.url.is_none() && self.token.is_none() && !self.token_file
    }
}

/// Chooses the daemon and its token. Named options come first, then the environment, then the current context.
pub fn target(global: &Global, environment: &Environment, stored: &Contexts) -> Result<Target, Failure> {
    const GIVEN: &str = "The token came from --token or TENURE_TOKEN. Correct or unset it.";
    // An option that repeats the environment is the environment's.
    let option = |given: &Option<String>, set: &Option<String>| given.clone().filter(|_| given != set);
    let token = option(&global.token, &environment.token);
    if let Some(name) = &global.context {
        if global.url.is_some() && option(&global.url, &environment.url).is_some() {
            return Err(Failure::usage("--context names the URL: leave out --url."));
        }
        let context = stored.named(name)?;
        let origin = of_context(name);
        let token = token.or_else(|| Some(context.token.clone()));
        return Ok(Target { url: context.url.clone(), token, token_file: false, origin });
    }
    if let Some(url) = option(&global.url, &environment.url) {
        let known = stored.contexts.iter().find(|(_, context)| same(&context.url, &url));
        if let Some(token) = token {
            return Ok(Target { url, token: Some(token), token_file: false, origin: GIVEN.to_owned() });
        }
        if let Some((name, context)) = known {
            let (token, origin) = (Some(context.token.clone()), of_context(name));
            return Ok(Target { url, token, token_file: false, origin });
        }
        let belongs = environment.url.as_deref().unwrap_or(DEFAULT_URL);
        if environment.token.is_some() && !same(belongs, &url) {
            return Err(Failure::usage(format!(
                "TENURE_TOKEN belongs to {belongs}, and is not sent to {url}. Give the token of {url} with \
                 --token, or log in there: `tenure login {url}`."
            )));
        }
        let token_file = is_local(&url);
        return Ok(Target { url, token: environment.token.clone(), token_file, origin: GIVEN.to_owned() });
    }
    let current = stored.current.as_ref().and_then(|name| Some((name, stored.contexts.get(name)?)));
    match current {
        Some((name, context)) if environment.says_nothing() => Ok(Target {
            url: context.url.clone(),
            token: token.or_else(|| Some(context.token.clone())),
            token_file: false,
            origin: of_context(name),
        }),
        _ => {
            let url = environment.url.clone().unwrap_or_else(|| DEFAULT_URL.to_owned());
            // A named file belongs to the named URL; one that lies here belongs to this machine.
            let token_file = environment.token_file || is_local(&url);
            let token = token.or_else(|| environment.token.clone());
            Ok(Target { url, token, token_file, origin: GIVEN.to_owned() })
        }
    }
}

fn of_context(name: &str) -> String {
    format!("The token came from the context {name}. Log in again: `tenure login --help`.")
}

fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Whether a daemon of this machine is meant: a token file of this folder is sent to no other.
fn is_local(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return false;
    }
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn global(args: &[&str]) -> Global {
        let typed = [&["tenure"], args, &["list"]].concat();
        let matches = crate::args::command().try_get_matches_from(typed).unwrap();
        crate::args::Cli::from_arg_matches(&matches).unwrap().global
    }

    fn stored() -> Contexts {
        let context = |url: &str, token: &str| Context { url: url.to_owned(), token: token.to_owned() };
        Contexts {
            current: Some("prod".to_owned()),
            contexts: BTreeMap::from([
                ("prod".to_owned(), context("https://prod.example", "of-prod")),
                ("lab".to_owned(), context("https://lab.example", "of-lab")),
            ]),
        }
    }

    fn sent(
        args: &[&str],
        url: Option<&str>,
        token: Option<&str>,
    ) -> Result<(String, Option<String>, bool), Exit> {
        let environment =
            Environment { url: url.map(str::to_owned), token: token.map(str::to_owned), token_file: false };
        let target = target(&global(args), &environment, &stored()).map_err(|failure| failure.exit)?;
        Ok((target.url, target.token, target.token_file))
    }

    fn to(url: &str, token: Option<&str>, file: bool) -> Result<(String, Option<String>, bool), Exit> {
        Ok((url.to_owned(), token.map(str::to_owned), file))
    }

    #[test]
    fn a_token_is_sent_only_to_the_url_that_it_belongs_to() {
        assert_eq!(sent(&[], None, None), to("https://prod.example", Some("of-prod"), false));
        assert_eq!(
            sent(&["--context", "lab"], None, Some("env")),
            to("https://lab.example", Some("of-lab"), false)
        );
        let lab = ["--url", "https://lab.example/"];
        assert_eq!(sent(&lab, None, Some("env")), to("https://lab.example/", Some("of-lab"), false));
        // The environment is one setting: its token goes to its URL, or to the default one.
        assert_eq!(sent(&[], None, Some("env")), to(DEFAULT_URL, Some("env"), true));
        assert_eq!(sent(&[], Some("https://e.example"), None), to("https://e.example", None, false));
        let other = ["--url", "https://other.example"];
        assert_eq!(sent(&other, None, Some("env")), Err(Exit::Usage));
        assert_eq!(sent(&other, Some("https://e.example"), Some("env")), Err(Exit::Usage));
        let explicit = ["--url", "https://other.example", "--token", "t"];
        assert_eq!(sent(&explicit, None, Some("env")), to("https://other.example", Some("t"), false));
        assert_eq!(sent(&["--url", DEFAULT_URL], None, Some("env")), to(DEFAULT_URL, Some("env"), true));
        assert_eq!(sent(&["--context", "nowhere"], None, None), Err(Exit::NotFound));
    }

    #[test]
    fn a_token_file_of_this_machine_is_sent_to_this_machine_only() {
        for url in ["http://127.0.0.1:9", "http://localhost:7171/", "https://[::1]:7171"] {
            assert_eq!(sent(&["--url", url], None, None), to(url, None, true));
        }
        for url in ["https://other.example", "http://127.0.0.1@evil.example", "http://localhost.evil.example"]
        {
            assert_eq!(sent(&["--url", url], None, None), to(url, None, false));
        }
    }
}
