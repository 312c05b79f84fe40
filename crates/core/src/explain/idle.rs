//! The part of an explanation about the workers that wait for work beside a queued work item.

use super::View;

/// The idle workers that a daemon knows and the reader may see. Other daemons on the same database have their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// How many claim such work items.
    pub takes: u64,
    /// How many claim something else, by what they claim.
    pub others: Vec<(String, u64)>,
}

/// Named in a sentence; the others are counted.
const NAMED: usize = 3;

impl Idle {
    /// `two idle workers claim `reply` and one claims `digest``.
    fn others(&self) -> Option<String> {
        if self.others.is_empty() {
            return None;
        }
        let mut parts: Vec<String> =
            self.others.iter().take(NAMED).map(|(what, count)| format!("{} {what}", claim(*count))).collect();
        let rest: u64 = self.others.iter().skip(NAMED).map(|(_, count)| count).sum();
        if rest > 0 {
            parts.push(format!("{} other work", claim(rest)));
        }
        Some(parts.join(", "))
    }
}

fn claim(workers: u64) -> String {
    match workers {
        1 => "1 idle worker claims".to_owned(),
        many => format!("{many} idle workers claim"),
    }
}

impl View<'_> {
    /// Whether somebody waits for it, as a clause, and the next step.
    pub(super) fn capacity(&self) -> (String, String) {
        let spec = &self.work.spec;
        let (kind, system) = (&spec.kind, &spec.source.system);
        let Some(idle) = self.idle else {
            let next = format!(
                "nothing: the next worker that claims `{kind}` from `{system}` gets it; `tenure workers` shows \
                 whether there is one"
            );
            return (String::new(), next);
        };
        if idle.takes > 0 {
            let there = format!("; {} `{kind}` at this daemon", claim(idle.takes));
            return (there, "nothing: an idle worker is given it within a second".to_owned());
        }
        let there = match idle.others() {
            Some(others) => format!("; {others}, none claims `{kind}` at this daemon"),
            None => "; no worker waits for work at this daemon".to_owned(),
        };
        let next = format!(
            "nothing, if workers that claim `{kind}` from `{system}` are busy: `tenure workers` shows them; \
             otherwise start one, or add `{kind}` to the kinds that a worker claims"
        );
        (there, next)
    }
}
