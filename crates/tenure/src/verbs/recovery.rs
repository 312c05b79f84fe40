//! What a lost holder puts at risk, and what does not progress.

use tenure_api::wire::{StuckQuery, Victim, VictimQuery};

use super::{Context, draw, say_unreadable};
use crate::{
    args::{Stuck, Victims},
    exit::{Exit, Failure},
    render::{self, say},
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
    draw(cx, args.redraw.watch, || async {
        let victims = all(cx, &query).await?;
        cx.out.list(&victims, render::victims)
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

pub async fn stuck(cx: &Context, args: &Stuck) -> Result<Exit, Failure> {
    let limit = Some(u32::try_from(args.limit).unwrap_or(u32::MAX));
    let query = StuckQuery { tenant: args.tenant.clone(), limit };
    draw(cx, args.redraw.watch, || async {
        let found = cx.client.stuck(&query).await?;
        cx.out.one(&found, |found, style| {
            if found.groups.is_empty() {
                say(&render::nothing_stuck(found, style));
                return String::new();
            }
            render::stuck(found, style)
        })
    })
    .await
}
