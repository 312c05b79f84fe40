//! Everything that waits for people: one row for each.

use serde::{Serialize, Serializer};
use tenure_api::wire::{CommandId, OnTimeout, Risk, Timestamp, WaitKind, Word, WorkId};

use super::{
    Cell, Style, Table,
    light::Light,
    safe,
    text::{age, span},
};

/// Something that only a person can resolve, with the ledger's explanation.
#[derive(Serialize)]
pub struct Need {
    pub kind: Asked,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Word<Risk>>,
    pub ask: String,
    pub work: WorkId,
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
    pub next: String,
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
    let head = ["NEEDS", "RISK", "WORK", "STEP", "WHO", "SINCE", "DEADLINE"];
    let last = last.map(|(at, who)| {
        let clock = at.to_string().get(11..16).unwrap_or_default().to_owned();
        format!(" Last answer {clock} ({} ago), {}.", age(*at, style.now), safe(who))
    });
    let mut table = Table::new(&head, &format!("Nothing waits for a person.{}", last.unwrap_or_default()));
    for need in needs {
        table.row(vec![
            Cell::lit(need.kind.light(), need.kind.word()),
            need.risk.as_ref().map_or("-", |risk| risk.as_str()).into(),
            need.work.as_str().into(),
            need.step.as_deref().unwrap_or("-").into(),
            need.assignee.as_deref().unwrap_or("anybody").into(),
            age(need.since, style.now).into(),
            deadline(need, style).into(),
        ]);
        // Both must be readable in full.
        table.under(&need.ask);
        table.under(&format!("Next: {}", need.next));
    }
    table
}

fn deadline(need: &Need, style: &Style) -> String {
    let Some(at) = need.deadline_at else { return "-".to_owned() };
    let then = need.on_timeout.as_ref().map(|then| format!(", then {then}")).unwrap_or_default();
    format!("{}{then}", span(at.0 - style.now.0))
}
