//! `login` and `logout`: contexts, each a daemon's URL with a token.

use tenure_api::{Client, wire::WorkQuery};

use super::ask;
use crate::{
    args::{Global, Login, Logout},
    connect,
    contexts::{Context, Contexts, Environment},
    exit::{Exit, Failure},
    render::say,
};

pub async fn login(global: &Global, args: Login) -> Result<Exit, Failure> {
    let name = args.name.unwrap_or_else(|| host(&args.address).to_owned());
    // The environment's token belongs to another URL, unless that is the same.
    let environment = Environment::read();
    let own = environment.url.as_deref() == Some(args.address.as_str());
    let given = global.token.clone().filter(|token| own || environment.token.as_ref() != Some(token));
    let token = match given {
        Some(token) => token,
        None => ask::secret(&format!("Access token for {}: ", args.address))?,
    };
    let client = connect::client(&args.address, Some(&token))?;
    probe(&client).await?;
    let mut contexts = Contexts::load()?;
    contexts.contexts.insert(name.clone(), Context { url: args.address.clone(), token });
    contexts.current = Some(name.clone());
    let file = contexts.save()?;
    say(&format!("Logged in to {} as context {name}, stored in {}.", args.address, file.display()));
    Ok(Exit::Ok)
}

/// Whether the daemon accepts the token. A token that may not read is accepted too.
async fn probe(client: &Client) -> Result<(), Failure> {
    match client.works(&WorkQuery { limit: Some(1), ..WorkQuery::default() }).await {
        Err(error) if error.code() == Some(tenure_api::wire::Code::Forbidden) => Ok(()),
        answered => answered.map(drop).map_err(Failure::from),
    }
}

pub fn logout(args: &Logout) -> Result<Exit, Failure> {
    let mut contexts = Contexts::load()?;
    let name = match (&args.name, &contexts.current) {
        (Some(name), _) | (None, Some(name)) => name.clone(),
        (None, None) => return Err(Failure::new(Exit::NotFound, "nobody is logged in")),
    };
    contexts.named(&name)?;
    contexts.contexts.remove(&name);
    contexts.current = contexts.current.filter(|current| *current != name);
    contexts.save()?;
    say(&format!("Context {name} is deleted with its token. The token itself is valid until it is revoked."));
    Ok(Exit::Ok)
}

/// The host of a URL, which names its context.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}
