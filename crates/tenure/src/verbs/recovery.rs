//! What a lost holder puts at risk.

use tenure_api::wire::{Victim, VictimQuery};

use super::{Context, draw, say_unreadable};
use crate::{
    args::Victims,
    exit::{Exit, Failure},
    render,
};

pub async fn victims(cx: &Context, args: &Victims) -> Result<Exit, Failure> {
    let query = VictimQuery {
        worker: args.worker.clone(),
        tenant: args.tenant.clone(),
        kind: args.kind.clone(),
        alive: args.all.then_some(true),
        limit: Some(1_000),
        ..VictimQuery::default()
    };
    let is_filtered = args.worker.is_some() || args.tenant.is_some() || args.kind.is_some();
    draw(cx, args.redraw.watch, || async {
        let victims = all(cx, &query).await?;
        cx.out.list(&victims, |victims, style| render::victims(victims, is_filtered, style))
    })
    .await
}

/// Page by page. The first to be decided comes first; those that only news decides come last.
async fn all(cx: &Context, query: &VictimQuery) -> Result<Vec<Victim>, Failure> {
    let mut victims = Vec::new();
    let mut query = query.clone();
    loop {
        let page = cx.client.victims(&query).await?;
        say_unreadable(&page.unreadable);
        victims.extend(page.items);
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    victims.sort_by_key(|victim: &Victim| {
        let decided = victim.if_silent.decided_at;
        (decided.is_none(), decided, victim.work.clone())
    });
    Ok(victims)
}
