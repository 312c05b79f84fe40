//! Housekeeping and access tokens.

use std::{path::Path, time::Duration};

use tenure_api::wire::{
    Anchor, Backup as BackupRequest, Erase as EraseRequest, NewToken, PageQuery, PrincipalId,
    Prune as PruneRequest, PruneReport, RevokeToken, Timestamp, Token, TokenKind, Verify as VerifyRequest,
};

use super::{Context, ask::confirm, names, say_unreadable};
use crate::{
    args::{Anchor as AnchorArgs, Backup, Erase, Prune, TokenCreate, TokenRevoke, TokenVerb, Verify},
    exit::{Exit, Failure},
    render::{self, say},
};

const PROGRESS_EVERY: Duration = Duration::from_secs(2);

pub async fn prune(cx: &Context, args: &Prune) -> Result<Exit, Failure> {
    let before =
        Timestamp(cx.now().await?.0 - i64::try_from(args.older_than.as_millis()).unwrap_or(i64::MAX));
    let then = format!("Work items that ended before {before} will be permanently deleted.");
    let reason = confirm(&args.act, &then)?;
    let mut total = PruneReport { works: 0, events: 0, more: true };
    while total.more {
        let request = PruneRequest { before, limit: None, dry_run: false, reason: reason.clone() };
        let report = cx.client.prune(&request).await?;
        total.works += report.works;
        total.events += report.events;
        total.more = report.more && !args.act.dry_run;
    }
    cx.out.one(&total, |total, _| format!("{} work items, {} events\n", total.works, total.events))?;
    Ok(Exit::Ok)
}

pub async fn erase(cx: &Context, args: &Erase) -> Result<Exit, Failure> {
    let work = match &args.id {
        Some(id) => Some(names::work(cx, id).await?.id),
        None => None,
    };
    let of = match (&work, &args.tenant, &args.session) {
        (Some(id), ..) => format!("work item {}", id.as_str()),
        (None, Some(tenant), Some(session)) => {
            format!("the ended work items of session {session} of {tenant}")
        }
        (None, tenant, _) => {
            format!("the ended work items of tenant {}", tenant.as_deref().unwrap_or_default())
        }
    };
    let then = format!("Inputs, results, answers, arguments and messages of {of} will be erased for ever.");
    let reason = confirm(&args.act, &then)?;
    let mut request = EraseRequest {
        work,
        tenant: args.tenant.clone(),
        session: args.session.clone(),
        reason,
        ..EraseRequest::default()
    };
    let mut total = cx.client.erase(&request).await?;
    while let Some(next) = total.next.take() {
        request.cursor = Some(next);
        let report = cx.client.erase(&request).await?;
        total.works += report.works;
        total.kept += report.kept;
        (total.overwritten, total.next) = (report.overwritten, report.next);
    }
    cx.out.one(&total, |total, _| {
        format!(
            "{} work items erased, {} kept, {} early answers deleted\n",
            total.works, total.kept, total.early_answers
        )
    })?;
    if total.kept > 0 {
        say(
            "Open work items, and those with open commands, keep their content until they have ended: repeat this then.",
        );
    }
    if !total.overwritten {
        say(
            "The database's files still have earlier copies: on PostgreSQL until VACUUM, otherwise until a backup or reader ends.",
        );
    }
    Ok(Exit::Ok)
}

pub async fn verify(cx: &Context, args: &Verify) -> Result<Exit, Failure> {
    let anchor = args.anchor.as_deref().map(read_anchor).transpose()?;
    let made = anchor.as_ref().map(|anchor| anchor.at);
    let report = cx.client.verify_with(&VerifyRequest { anchor }).await?;
    cx.out.one(&report, |report, _| {
        let mut text = format!("{} work items, {} events read\n", report.works, report.events);
        if report.newer > 0 {
            let newer = report.newer;
            text.push_str(&format!(
                "{newer} work items have events of a newer version, which were not checked\n"
            ));
        }
        for fault in &report.faults {
            let work = fault.work.as_ref().map_or("the ledger", |work| work.as_str());
            text.push_str(&format!("{work}: {}\n", render::safe(&fault.what)));
        }
        for what in &report.not_checked {
            text.push_str(&format!("not checked: {}\n", render::safe(what)));
        }
        text
    })?;
    if report.faults.is_empty() && (report.newer > 0 || !report.not_checked.is_empty()) {
        say("No faults in what was checked. The lines above name what was not.");
        return Ok(Exit::Ok);
    }
    if report.faults.is_empty() {
        say("No faults: every event follows from the one before it, and every row from its events.");
        if let (Some(made), Some(events)) = (made, report.anchored) {
            say(&format!("The ledger still contains the {events} events that the anchor of {made} covers."));
        }
        return Ok(Exit::Ok);
    }
    say("The stored data contradicts itself. Copy the database before doing anything else.");
    Ok(Exit::Unsuccessful)
}

/// The copy of an anchor in a file.
fn read_anchor(path: &Path) -> Result<Anchor, Failure> {
    let shown = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::new(Exit::NotFound, format!("{shown} cannot be read: {error}")))?;
    tenure_api::strict::from_slice(&bytes).map_err(|error| {
        Failure::usage(format!("{shown} is not an anchor ({error}). `tenure anchor --out FILE` writes one"))
    })
}

pub async fn anchor(cx: &Context, args: AnchorArgs) -> Result<Exit, Failure> {
    let anchor = cx.client.anchor().await?;
    let line = format!("{}\n", serde_json::to_string(&anchor).expect("wire types are plain JSON"));
    let Some(path) = args.out else {
        cx.out.one(&anchor, |_, _| line)?;
        return Ok(Exit::Ok);
    };
    tenure_server::replace_file(&path, line.as_bytes()).map_err(|error| {
        Failure::new(Exit::Error, format!("{} cannot be written: {error}", path.display()))
    })?;
    say(&format!("{}: {} events up to {}", path.display(), anchor.events, anchor.at));
    Ok(Exit::Ok)
}

pub async fn backup(cx: &Context, args: Backup) -> Result<Exit, Failure> {
    // A ledger that this process opened uses this path's folder; a daemon has its own.
    let name = match (&cx.db, args.path.file_name()) {
        (Some(_), Some(name)) => name.to_string_lossy().into_owned(),
        _ => args.path.to_string_lossy().into_owned(),
    };
    let report = showing_progress(cx, cx.client.backup(&BackupRequest { name })).await?;
    cx.out.one(&report, |report, _| format!("{} {} bytes\n", render::safe(&report.path), report.bytes))?;
    Ok(Exit::Ok)
}

/// Prints the progress of the daemon's backup every few seconds. A quick one prints nothing.
async fn showing_progress<T>(cx: &Context, making: impl Future<Output = T>) -> T {
    let mut making = std::pin::pin!(making);
    loop {
        tokio::select! {
            made = &mut making => return made,
            () = tokio::time::sleep(PROGRESS_EVERY) => {}
        }
        // An access token without the scope for the database still gets its backup.
        if let Ok(Some(backup)) = cx.client.database().await.map(|database| database.backup) {
            say(&format!("{} of {} MiB copied", backup.bytes >> 20, backup.total_bytes >> 20));
        }
    }
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

/// All of them, so that a token that should have been revoked is not missed.
async fn tokens(cx: &Context) -> Result<Vec<Token>, Failure> {
    let mut tokens = Vec::new();
    let mut page = PageQuery::default();
    loop {
        let got = cx.client.tokens(&page).await?;
        say_unreadable(&got.unreadable);
        tokens.extend(got.items);
        page.cursor = got.next;
        if page.cursor.is_none() {
            return Ok(tokens);
        }
    }
}

async fn revoke(cx: &Context, args: TokenRevoke) -> Result<Exit, Failure> {
    let Some(token) = tokens(cx).await?.into_iter().find(|token| token.id.as_str() == args.id) else {
        let why = format!("there is no access token {}. `tenure token list` shows them", args.id);
        return Err(Failure::new(Exit::NotFound, why));
    };
    let then = format!("Calls with {} ({}) will be refused from now on.", token.name, token.id);
    let reason = confirm(&args.act, &then)?;
    if args.act.dry_run {
        cx.out.one(&token, |token, _| format!("{} would be revoked\n", token.id))?;
        return Ok(Exit::Ok);
    }
    let token = cx.client.revoke_token(&token.id, &RevokeToken { reason }).await?;
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
        // An existing principal has its kind already.
        kind: args.kind.or_else(|| args.principal.is_none().then_some(TokenKind::Machine)),
        principal: args.principal.map(PrincipalId::from),
        scopes: args.scopes,
        tenants: (!args.tenants.is_empty()).then_some(args.tenants),
        kinds: (!args.kinds.is_empty()).then_some(args.kinds),
        worker: args.worker,
        expires_at,
    };
    let made = cx.client.make_token(&new).await?;
    let Token { id, principal, .. } = &made.token;
    say(&format!("{id} of {}, shown only once:", principal.id));
    cx.out.one(&made, |made, _| format!("{}\n", made.secret))?;
    Ok(Exit::Ok)
}
