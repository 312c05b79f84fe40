//! Everything that waits for people: one row for each.

use serde::{Serialize, Serializer};
use serde_json::Value;
use tenure_api::wire::{CommandId, Cost, OnTimeout, Risk, Timestamp, WaitKind, Word, WorkId};

use super::{
    Cell, Endings, Style, Table,
    command::amounts,
    light::Light,
    safe,
    text::{age, span},
};

/// How many arguments of a command are shown, and how much of each; `show` has all of them.
const FIELDS: usize = 6;
const VALUE_CHARS: usize = 60;

/// Something that only a person can resolve, with the ledger's explanation.
#[derive(Serialize)]
pub struct Need {
    pub kind: Asked,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Word<Risk>>,
    pub ask: String,
    pub work: WorkId,
    pub title: String,
    pub tenant: String,
    /// The reference of the wait, if one answer resumes every work item that waits for it.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// How many work items go on once it is resolved.
    pub unblocks: usize,
    /// Of a command: its arguments, with secrets redacted; absent without the `payload` scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Value>,
    /// Of a command: what it is estimated to cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    pub since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// The action at the deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<Word<OnTimeout>>,
    /// What to do, in words.
    pub advice: String,
    /// The commands for it.
    pub next: Vec<String>,
}

/// The kind of decision that is needed.
#[derive(Clone, Copy)]
pub enum Asked {
    /// Whether to dispatch this command.
    Approval,
    /// Whether this command took effect.
    Outcome,
    /// The answer to this wait.
    Answer(WaitKind),
    /// The decision on this quarantined work item.
    Decision,
}

impl Asked {
    fn word(self) -> &'static str {
        match self {
            Asked::Approval => "approval",
            Asked::Outcome => "outcome",
            Asked::Answer(kind) => kind.as_str(),
            Asked::Decision => "decision",
        }
    }

    fn light(self) -> Light {
        match self {
            Asked::Approval | Asked::Answer(_) => Light::You,
            Asked::Outcome => Light::Risk,
            Asked::Decision => Light::Fail,
        }
    }
}

impl Serialize for Asked {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.word())
    }
}

/// `last`: the time and the person of the last answer.
pub fn needs(needs: &[Need], last: Option<&(Timestamp, String)>, style: &Style) -> Table {
    let head = ["NEEDS", "RISK", "WORK", "TITLE", "UNBLOCKS", "STEP", "WHO", "SINCE", "DEADLINE"];
    let last = last.map(|(at, who)| {
        let clock = at.to_string().get(11..16).unwrap_or_default().to_owned();
        format!(" Last answer {clock} ({} ago), {}.", age(*at, style.now), safe(who))
    });
    let mut table = Table::new(&head, &format!("Nothing waits for a person.{}", last.unwrap_or_default()))
        .least(&["STEP", "RISK", "SINCE", "WHO", "TITLE"]);
    let ids = Endings::of(needs.iter().map(|need| need.work.as_str()), style);
    for need in needs {
        table.row(vec![
            Cell::lit(need.kind.light(), need.kind.word()),
            need.risk.as_ref().map_or("-", |risk| risk.as_str()).into(),
            Cell::whole(ids.short(need.work.as_str())),
            (&need.title).into(),
            need.unblocks.to_string().into(),
            need.step.as_deref().unwrap_or("-").into(),
            need.assignee.as_deref().unwrap_or("anybody").into(),
            age(need.since, style.now).into(),
            deadline(need, style).into(),
        ]);
        // Both must be readable in full.
        table.under(&need.ask);
        if let Some(content) = content(need) {
            table.under(&content);
        }
        if need.unblocks > 1 {
            table.under(&format!("Once resolved, {} work items go on.", need.unblocks));
        }
        need.next.iter().for_each(|next| table.under_line(next));
    }
    table
}

/// The arguments of a command that matter most, amounts and recipients first, and its estimated cost.
fn content(need: &Need) -> Option<String> {
    need.command.as_ref()?;
    let arguments = match &need.arguments {
        None => "not shown: your token may not see them, or they were erased".to_owned(),
        Some(Value::Object(fields)) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| rank(name));
            let more = fields.len().saturating_sub(FIELDS);
            let shown =
                fields.into_iter().take(FIELDS).map(|(name, value)| format!("{name}: {}", brief(value)));
            let shown = shown.collect::<Vec<_>>().join(", ");
            if more > 0 { format!("{shown}, and {more} more") } else { shown }
        }
        Some(other) => brief(other),
    };
    let cost = need.estimate.as_ref().map(|cost| format!(" (estimated: {})", amounts(cost)));
    Some(format!("Arguments: {arguments}{}", cost.unwrap_or_default()))
}

/// Amounts come first, then recipients, then the rest in the order of their names.
fn rank(name: &str) -> usize {
    const FIRST: [&[&str]; 2] = [
        &["amount", "total", "price", "sum", "currency", "cost"],
        &["to", "recipient", "account", "target", "subject", "path", "url"],
    ];
    let name = name.to_ascii_lowercase();
    FIRST.iter().position(|names| names.iter().any(|part| name.contains(part))).unwrap_or(FIRST.len())
}

fn brief(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut chars = text.chars();
    let begin: String = chars.by_ref().take(VALUE_CHARS).collect();
    if chars.next().is_some() { format!("{begin}…") } else { begin }
}

fn deadline(need: &Need, style: &Style) -> String {
    let Some(at) = need.deadline_at else { return "-".to_owned() };
    let then = need.on_timeout.as_ref().map(|then| format!(", then {then}")).unwrap_or_default();
    format!("{}{then}", span(at.0 - style.now.0))
}
