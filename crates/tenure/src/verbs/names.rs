//! Finds what a person names: by an id, by its beginning or ending, by the id in its source, or as the last
//! one. A name that fits several is refused with the candidates, and nothing is guessed.

use std::{collections::BTreeMap, fs, path::PathBuf};

use tenure_api::wire::{Code, Command, CommandId, CommandQuery, Phase, Work, WorkId, WorkQuery};

use super::Context;
use crate::{
    args::Of,
    exit::{Exit, Failure},
    home,
};

/// How many of the newest records an ending is searched in, besides the open work items.
const BACK: u32 = 1_000;
/// A shorter text is no ending: it would fit too many.
const SHORTEST: usize = 4;
const DIGITS: usize = 32;
/// How many candidates a refusal lists.
const LISTED: usize = 10;

/// A work item or a command.
pub enum Named {
    Work(Box<Work>),
    Command(Box<Command>),
}

/// The hex digits of an id, of its beginning or of its ending.
fn digits<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let digits = text.strip_prefix(prefix).unwrap_or(text);
    let shortest = if digits.len() < text.len() { 1 } else { SHORTEST };
    let fits = (shortest..=DIGITS).contains(&digits.len());
    (fits && digits.bytes().all(|b| b.is_ascii_hexdigit())).then_some(digits)
}

/// The work item that a person names.
pub async fn work(cx: &Context, text: &str) -> Result<Work, Failure> {
    if text.starts_with(CommandId::PREFIX) && digits(text, CommandId::PREFIX).is_some() {
        let why = format!(
            "`{text}` is a command's id, but a work item's is needed: `tenure show {text}` shows it."
        );
        return Err(Failure::new(Exit::NotFound, why));
    }
    match one(text, works(cx, text).await?, Vec::new())? {
        Named::Work(work) => Ok(*work),
        Named::Command(_) => unreachable!("only work items were searched"),
    }
}

/// The command that a person names.
pub async fn command(cx: &Context, text: &str) -> Result<Command, Failure> {
    match one(text, Vec::new(), commands(cx, text).await?)? {
        Named::Command(command) => Ok(*command),
        Named::Work(_) => unreachable!("only commands were searched"),
    }
}

/// The work item or the command that a person names.
pub async fn either(cx: &Context, text: &str) -> Result<Named, Failure> {
    let commands = commands(cx, text).await?;
    let works = if text.starts_with(CommandId::PREFIX) && !commands.is_empty() {
        Vec::new()
    } else {
        works(cx, text).await?
    };
    one(text, works, commands)
}

fn one(text: &str, works: Vec<Work>, commands: Vec<Command>) -> Result<Named, Failure> {
    let works = works.into_iter().map(|work| Named::Work(Box::new(work)));
    let commands = commands.into_iter().map(|command| Named::Command(Box::new(command)));
    let mut found: Vec<Named> = works.chain(commands).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let why = format!(
                "`{text}` is neither an id, nor its beginning or ending, nor a source's id. Ids are w_ and 32 hex \
                 digits for work items (`tenure list`), c_ and 32 for commands (`tenure commands list`); endings \
                 are searched among what is open and the newest {BACK}."
            );
            Err(Failure::new(Exit::NotFound, why))
        }
        many => Err(several(text, &found, many)),
    }
}

fn several(text: &str, found: &[Named], many: usize) -> Failure {
    let line = |named: &Named| match named {
        Named::Work(work) => {
            let source = crate::render::source(work);
            format!("\n  {}  {source}  tenant {}  {}  {}", work.id, work.tenant, work.state, work.title)
        }
        Named::Command(command) => {
            format!("\n  {}  {} to {}  {}", command.id, command.tool, command.target, command.state)
        }
    };
    let listed: String = found.iter().take(LISTED).map(line).collect();
    let more = if many > LISTED { format!("\n  and {} more", many - LISTED) } else { String::new() };
    let message = format!("ambiguous: `{text}` fits {many}. Give one of these ids:{listed}{more}");
    Failure { code: Some(Code::Ambiguous), ..Failure::usage(message) }
}

/// The work items that a text fits: an id, its beginning, a source's id, or else its ending.
async fn works(cx: &Context, text: &str) -> Result<Vec<Work>, Failure> {
    let mut found = Vec::new();
    let hex = digits(text, WorkId::PREFIX);
    if let Some(hex) = hex {
        let begun = cx.client.work(&WorkId::from(format!("{}{hex}", WorkId::PREFIX))).await;
        match begun {
            Ok(work) => found.push(work),
            Err(error) if error.code() == Some(Code::NotFound) && (hex.len() < DIGITS || hex == text) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if !text.starts_with(WorkId::PREFIX) || found.is_empty() {
        found.extend(of_source(cx, text).await?);
    }
    if let (Some(hex), true) = (hex.filter(|hex| hex.len() >= SHORTEST), found.is_empty()) {
        found = ending(cx, &hex.to_ascii_lowercase()).await?;
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|work| seen.insert(work.id.to_string()));
    Ok(found)
}

/// Work items by the id in their source, written as in lists: `id`, `system/id` or `system/id/run`. Of the
/// generations of one, the latest.
async fn of_source(cx: &Context, text: &str) -> Result<Vec<Work>, Failure> {
    let mut forms = vec![(None, text, None)];
    if let Some((system, rest)) = text.split_once('/') {
        forms.push((Some(system), rest, None));
        if let Some((id, run)) = rest.rsplit_once('/') {
            forms.push((Some(system), id, Some(run)));
        }
    }
    let mut latest: BTreeMap<[String; 4], Work> = BTreeMap::new();
    for (system, id, run) in forms {
        let query = WorkQuery {
            system: system.map(str::to_owned),
            source_id: Some(id.to_owned()),
            limit: Some(LISTED as u32 * 10),
            ..WorkQuery::default()
        };
        let page = match cx.client.works(&query).await {
            Ok(page) => page,
            // Text that no source can have.
            Err(error) if error.code() == Some(Code::Invalid) => continue,
            Err(error) => return Err(error.into()),
        };
        for work in page.items {
            if run.is_some_and(|run| run != work.source.run_id) {
                continue;
            }
            let source = &work.source;
            let key = [&work.tenant, &source.system, &source.id, &source.run_id].map(Clone::clone);
            let newer = latest.get(&key).is_none_or(|other| other.generation < work.generation);
            if newer {
                latest.insert(key, work);
            }
        }
    }
    Ok(latest.into_values().collect())
}

/// Work items whose id ends so, among the open ones and the newest.
async fn ending(cx: &Context, hex: &str) -> Result<Vec<Work>, Failure> {
    let newest = WorkQuery { limit: Some(BACK), ..WorkQuery::default() };
    let open = [Phase::Active, Phase::Waiting, Phase::Stuck];
    let open = open.map(|phase| WorkQuery { phase: Some(phase), ..newest.clone() });
    let mut found = Vec::new();
    for query in [newest].into_iter().chain(open) {
        let page = cx.client.works(&query).await?;
        found.extend(page.items.into_iter().filter(|work| work.id.as_str().ends_with(hex)));
        if page.next.is_none() && query.phase.is_none() {
            // These were all there are.
            break;
        }
    }
    Ok(found)
}

/// The commands that a text fits: an id, its beginning, or else its ending among the newest and those that
/// need a person.
async fn commands(cx: &Context, text: &str) -> Result<Vec<Command>, Failure> {
    let Some(hex) = digits(text, CommandId::PREFIX) else { return Ok(Vec::new()) };
    match cx.client.command(&CommandId::from(format!("{}{hex}", CommandId::PREFIX))).await {
        Ok(command) => return Ok(vec![command]),
        // A work item may have it, if the text does not say of which kind it is.
        Err(error) if error.code() == Some(Code::NotFound) && (hex.len() < DIGITS || hex == text) => {}
        Err(error) => return Err(error.into()),
    }
    if hex.len() < SHORTEST {
        return Ok(Vec::new());
    }
    let hex = hex.to_ascii_lowercase();
    let newest = CommandQuery { limit: Some(BACK), ..CommandQuery::default() };
    let approval = CommandQuery { needs_approval: true, ..newest.clone() };
    let person = CommandQuery { needs_person: true, ..newest.clone() };
    let mut found: Vec<Command> = Vec::new();
    for query in [newest, approval, person] {
        for command in cx.client.commands(&query).await?.items {
            if command.id.as_str().ends_with(&hex) && found.iter().all(|other| other.id != command.id) {
                found.push(command);
            }
        }
    }
    Ok(found)
}

/// The text that names it, or the last work item.
pub async fn of(cx: &Context, of: &Of) -> Result<String, Failure> {
    match &of.id {
        Some(id) => Ok(id.clone()),
        None => last(cx).await,
    }
}

/// `--last`: the work item that this person named or recorded last in this ledger; if there is none, the
/// newest.
pub async fn last(cx: &Context) -> Result<String, Failure> {
    if let Some(id) = place(cx).and_then(|place| remembered().remove(&place)) {
        return Ok(id);
    }
    let newest = WorkQuery { limit: Some(1), ..WorkQuery::default() };
    match cx.client.works(&newest).await?.items.pop() {
        Some(work) => Ok(work.id.to_string()),
        None => Err(Failure::new(Exit::NotFound, "this ledger has no work item yet")),
    }
}

/// Remembers a work item for `--last`. A missing home is no error, nor is a folder that cannot be written.
pub fn remember(cx: &Context, id: &WorkId) {
    let (Some(file), Some(place)) = (file(), place(cx)) else { return };
    let mut last = remembered();
    if !cx.dry_run && last.insert(place, id.to_string()).as_deref() != Some(id.as_str()) {
        let text = serde_json::to_string_pretty(&last).expect("a map of texts");
        let _ = home::write(&file, &text);
    }
}

/// The ledger's name: a URL, or the path of its file. None for a database, whose URL may have a password.
fn place(cx: &Context) -> Option<String> {
    match cx.db.as_deref() {
        Some(db) if db.contains("://") => None,
        Some(file) => Some(std::path::absolute(file).ok()?.to_string_lossy().into_owned()),
        None => Some(cx.place.clone()),
    }
}

fn file() -> Option<PathBuf> {
    Some(home::state()?.join("last.json"))
}

/// The last work item of each ledger, by the ledger's name.
fn remembered() -> BTreeMap<String, String> {
    let text = file().and_then(|file| fs::read_to_string(file).ok());
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_has_four_digits_unless_its_kind_is_written() {
        assert_eq!(digits("w_0", "w_"), Some("0"));
        assert_eq!(digits("3f9a", "w_"), Some("3f9a"));
        for text in ["3f9", "w_", "w_xyz", "deposit-1", "w_000000000000000000000000000000000"] {
            assert_eq!(digits(text, "w_"), None, "{text}");
        }
    }
}
