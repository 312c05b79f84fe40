//! `demo`: a small fleet on a ledger of its own, for newcomers. It uses only public parts: a daemon, the
//! client and the worker loop.

mod agents;
mod dice;
mod director;
mod effects;
mod script;
mod stage;
mod story;

use std::{io::IsTerminal, path::Path};

use serde::Serialize;
use tenure_api::wire::EventQuery;

use crate::{
    args::{Demo, Global},
    exit::{Exit, Failure},
    render::{Out, Style, say},
};
use director::Director;
use stage::Stage;
use story::Teller;

/// The address of the demo, for people and scripts.
#[derive(Serialize)]
struct Place<'a> {
    url: &'a str,
    token: &'a str,
    folder: &'a Path,
}

pub async fn demo(global: &Global, out: &Out, args: Demo) -> Result<Exit, Failure> {
    if global.db.is_some() {
        return Err(Failure::usage("demo uses a ledger of its own: leave out --db."));
    }
    let stage = Stage::open(&args.listen, args.beat).await?;
    let place = Place { url: &stage.url, token: &stage.token, folder: stage.folder.path() };
    out.next(&place, |place, _| guide(place))?;
    let mut style = out.style();
    style.colour &= std::io::stderr().is_terminal();
    let played = play(&stage, &args, style).await;
    let folder = stage.close().await?;
    if args.keep {
        let db = folder.keep().join("ledger.db");
        say(&format!("The demo has ended; its ledger is kept: tenure list --db {}", db.display()));
    } else {
        folder.close()?;
        say("The demo has ended; its ledger was deleted.");
    }
    played.map(|()| Exit::Ok)
}

/// Plays until it is stopped, and lets everybody finish.
async fn play(stage: &Stage, args: &Demo, style: Style) -> Result<(), Failure> {
    let teller = Teller::new(style, args.beat);
    let narrator = stage.machine("narrator").await?;
    let begin = narrator.events(&EventQuery::default()).await?.next;
    let story = tokio::spawn(teller.follow(narrator, begin));
    let mut director = Director::new(stage, args.beat, teller).await?;
    let over = async {
        match args.lasts {
            Some(lasts) => tokio::time::sleep(lasts).await,
            None => std::future::pending().await,
        }
    };
    let played = tokio::select! {
        played = director.play(args.seed) => played,
        () = over => Ok(()),
        () = tenure_api::worker::termination() => Ok(()),
    };
    director.end().await;
    story.abort();
    Ok(played?)
}

fn guide(place: &Place<'_>) -> String {
    let mut text = format!(
        "A small fleet runs on {}. Ctrl-C ends it. In another terminal:\n\n  export TENURE_URL={} TENURE_TOKEN={}\n",
        place.url, place.url, place.token
    );
    if let Some(folder) = not_on_path() {
        text.push_str(&format!("  export PATH={folder}:$PATH\n"));
    }
    text.push_str(
        "  tenure top                # live\n\
         \x20 tenure ps                 # what runs\n\
         \x20 tenure needs              # what waits for people, you included\n\
         \x20 tenure commands list      # mail, money, tickets: did it happen?\n\
         \x20 tenure show --last        # everything about one work item\n\
         \x20 tenure ingest manual mine --kind research --disposition rerunnable   # bruno does it\n\
         \x20 curl -s -H \"Authorization: Bearer $TENURE_TOKEN\" $TENURE_URL/v1/work?phase=active\n\n",
    );
    text
}

/// The folder of this binary, if it is not on the PATH.
fn not_on_path() -> Option<String> {
    let folder = std::env::current_exe().ok()?.parent()?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|entry| entry == folder);
    (!found).then(|| folder.display().to_string())
}
