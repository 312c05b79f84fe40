//! Housekeeping and access tokens.

use tenure_api::wire::{
    Backup as BackupRequest, NewToken, PageQuery, Prune as PruneRequest, PruneReport, RevokeToken, Timestamp,
    Token,
};

use super::{Context, operate::confirm};
use crate::{
    args::{Backup, Prune, TokenCreate, TokenRevoke, TokenVerb},
    exit::{Exit, Failure},
    render::{self, say},
};

pub async fn prune(cx: &Context, args: &Prune) -> Result<Exit, Failure> {
    let before =
        Timestamp(cx.now().await?.0 - i64::try_from(args.older_than.as_millis()).unwrap_or(i64::MAX));
    confirm(&args.act, &format!("Works that ended before {before} are forgotten, for good."))?;
    let mut total = PruneReport { works: 0, events: 0, more: true };
    while total.more {
        let reason = Some(args.act.reason.clone());
        let request = PruneRequest { before, limit: None, dry_run: false, reason };
        let report = cx.client.prune(&request).await?;
        total.works += report.works;
        total.events += report.events;
        total.more = report.more && !args.act.dry_run;
    }
    cx.out.one(&total, |total, _| format!("{} works, {} events\n", total.works, total.events))?;
    Ok(Exit::Ok)
}

pub async fn verify(cx: &Context) -> Result<Exit, Failure> {
    let report = cx.client.verify().await?;
    cx.out.one(&report, |report, _| {
        let mut text = format!("{} works, {} events read\n", report.works, report.events);
        for fault in &report.faults {
            let work = fault.work.as_ref().map_or("the ledger", |work| work.as_str());
            text.push_str(&format!("{work}: {}\n", render::safe(&fault.what)));
        }
        text
    })?;
    if report.faults.is_empty() {
        say("All is sound: every event follows from the one before it, and every row from its events.");
        return Ok(Exit::Ok);
    }
    say("What is stored contradicts itself. Keep a copy of the database before anything else is done.");
    Ok(Exit::Unsuccessful)
}

pub async fn backup(cx: &Context, args: Backup) -> Result<Exit, Failure> {
    // The daemon may run in another folder.
    let path = std::path::absolute(args.path)?.to_string_lossy().into_owned();
    let report = cx.client.backup(&BackupRequest { path }).await?;
    cx.out.one(&report, |report, _| format!("{} {} bytes\n", render::safe(&report.path), report.bytes))?;
    Ok(Exit::Ok)
}

pub async fn token(cx: &Context, verb: TokenVerb) -> Result<Exit, Failure> {
    match verb {
        TokenVerb::Create(args) => create(cx, args).await,
        TokenVerb::List => {
            cx.out.list(&tokens(cx).await?, render::tokens)?;
            Ok(Exit::Ok)
        }
        TokenVerb::Revoke(args) => revoke(cx, args).await,
    }
}

/// All of them: whoever looks for one that should be gone must not miss it.
async fn tokens(cx: &Context) -> Result<Vec<Token>, Failure> {
    let mut tokens = Vec::new();
    let mut page = PageQuery::default();
    loop {
        let got = cx.client.tokens(&page).await?;
        tokens.extend(got.items);
        page.cursor = got.next;
        if page.cursor.is_none() {
            return Ok(tokens);
        }
    }
}

async fn revoke(cx: &Context, args: TokenRevoke) -> Result<Exit, Failure> {
    let Some(token) = tokens(cx).await?.into_iter().find(|token| token.id.as_str() == args.id) else {
        let why = format!("there is no token {}. `tenure token list` shows them", args.id);
        return Err(Failure::new(Exit::NotFound, why));
    };
    confirm(&args.act, &format!("Whoever uses {} ({}) is refused from now on.", token.name, token.id))?;
    if args.act.dry_run {
        cx.out.one(&token, |token, _| format!("{} would be revoked\n", token.id))?;
        return Ok(Exit::Ok);
    }
    let token = cx.client.revoke_token(&token.id, &RevokeToken { reason: Some(args.act.reason) }).await?;
    cx.out.one(&token, |token, _| format!("{} revoked\n", token.id))?;
    Ok(Exit::Ok)
}

async fn create(cx: &Context, args: TokenCreate) -> Result<Exit, Failure> {
    let expires_at = match args.expires_in {
        Some(period) => {
            let ms = i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
            Some(Timestamp(cx.now().await?.0.saturating_add(ms)))
        }
        None => None,
    };
    let new = NewToken {
        name: args.name,
        kind: args.kind,
        scopes: args.scopes,
        tenants: (!args.tenants.is_empty()).then_some(args.tenants),
        expires_at,
    };
    let made = cx.client.make_token(&new).await?;
    say(&format!("{} is shown once:", made.token.id));
    cx.out.one(&made, |made, _| format!("{}\n", made.secret))?;
    Ok(Exit::Ok)
}
