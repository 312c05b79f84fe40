//! One work item in full: state, explanation, next step, and then the details.

use tenure_api::{
    story::Narrator,
    wire::{AsOf, Command, Event, Explanation, Timestamp, Usage, Wait, Work},
};

use super::{Style, command, light::Light, safe, text::age};

pub fn describe(
    work: &Work,
    why: &Explanation,
    commands: &[Command],
    last: &[Event],
    style: &Style,
) -> String {
    let mut page = Page::new(style);
    page.lit("State", Light::of(work), work.state.as_str());
    let since = work.state_since.map(|since| page.at(since));
    page.option("Since", since.as_deref());
    page.line("Why", &why.sentence);
    page.option("If silent", why.if_silent.as_ref().map(|forecast| forecast.sentence.as_str()));
    page.next(&why.advice, &why.next);
    page.details(work, commands, last);
    page.out
}

/// A work item as of a past moment, with the last events before it. Ages are those of that moment.
pub fn describe_past(work: &Work, as_of: &AsOf, last: &[Event], style: &Style) -> String {
    let mut page = Page::new(&Style { now: as_of.at, ..*style });
    page.line("As of", &format!("{}, from the log", as_of.at));
    page.lit("State", Light::of(work), work.state.as_str());
    let since = work.state_since.map(|since| page.at(since));
    page.option("Since", since.as_deref());
    page.line("Unrecorded", &as_of.not_recorded.join(", "));
    page.line("Today", &format!("tenure show {}", work.id));
    page.details(work, &[], last);
    page.out
}

/// An explanation, and what to do next.
pub fn explained(sentence: &str, if_silent: Option<&str>, advice: &str, next: &[String]) -> String {
    let mut text = format!("{}\n", safe(sentence));
    if_silent.iter().for_each(|sentence| text.push_str(&format!("{}\n", safe(sentence))));
    text.push_str(&format!("Advice: {}\n", safe(advice)));
    // Each command is a line of its own, to be pasted as it is.
    next.iter().for_each(|next| text.push_str(&format!("  {}\n", safe(next))));
    text
}

/// An event on a line of a page: its number, its time, and what happened.
pub(super) fn told(event: &Event, narrator: &mut Narrator) -> String {
    format!("  {:>4}  {}  {}\n", event.seq, event.at, safe(&narrator.tell(event)))
}

/// The question of a wait.
pub fn question(wait: &Wait, style: &Style) -> String {
    let mut page = Page::new(style);
    page.line("Work", wait.work.as_str());
    page.waits(std::slice::from_ref(wait));
    page.out
}

fn source(work: &Work) -> String {
    let run =
        if work.source.run_id.is_empty() { String::new() } else { format!(" run {}", work.source.run_id) };
    format!("{} {}{run}", work.source.system, work.source.id)
}

/// `model of source: 12 in (3 cached), 4 out, 2 calls, 0.001500 EUR`, without zeros.
fn used(usage: &Usage) -> String {
    let who = match (usage.model.as_deref(), usage.source.as_deref()) {
        (Some(model), Some(source)) => format!("{model} of {source}: "),
        (Some(one), None) | (None, Some(one)) => format!("{one}: "),
        (None, None) => String::new(),
    };
    let counts = [
        (usage.input_tokens, "tokens in"),
        (usage.cached_tokens, "of them cached"),
        (usage.output_tokens, "tokens out"),
        (usage.calls, "calls"),
    ];
    let counted = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    let cost = usage.currency.as_ref().map(|currency| {
        format!("{}.{:06} {currency}", usage.cost_micros / 1_000_000, usage.cost_micros % 1_000_000)
    });
    who + &counted.chain(cost).collect::<Vec<_>>().join(", ")
}

pub(super) struct Page {
    pub out: String,
    style: Style,
}

impl Page {
    pub fn new(style: &Style) -> Self {
        Self { out: String::new(), style: *style }
    }

    pub fn now(&self) -> Timestamp {
        self.style.now
    }

    /// A line with its light.
    pub fn lit(&mut self, name: &str, light: Light, text: &str) {
        let text = format!("{} {}", light.glyph(self.style.ascii), safe(text));
        self.raw(name, &if self.style.colour { light.paint(&text) } else { text });
    }

    fn raw(&mut self, name: &str, text: &str) {
        self.out.push_str(&format!("{:<13}{text}\n", format!("{name}:")));
    }

    pub fn line(&mut self, name: &str, text: &str) {
        self.raw(name, &safe(text));
    }

    /// The advice, and each command for it on a line of its own, to be pasted as it is.
    pub fn next(&mut self, advice: &str, next: &[String]) {
        self.line("Advice", advice);
        for (i, next) in next.iter().enumerate() {
            let name = if i == 0 { "Next:" } else { "" };
            self.out.push_str(&format!("{name:<13}{}\n", safe(next)));
        }
    }

    pub fn option(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.line(name, text);
        }
    }

    pub fn json(&mut self, name: &str, value: Option<&serde_json::Value>) {
        self.option(name, value.map(ToString::to_string).as_deref());
    }

    pub fn at(&self, at: Timestamp) -> String {
        format!("{at} ({} ago)", age(at, self.style.now))
    }

    /// Everything but the state and its explanation.
    fn details(&mut self, work: &Work, commands: &[Command], last: &[Event]) {
        let style = self.style;
        self.out.push('\n');
        self.line("Work", work.id.as_str());
        self.line("Title", &work.title);
        self.line("Source", &source(work));
        self.line("Kind", &work.kind);
        self.line("Tenant", &work.tenant);
        self.line("Disposition", work.disposition.as_str());
        self.option("Session", work.session.as_deref());
        self.option(
            "Workflow",
            work.workflow.as_ref().map(|flow| format!("{} {}", flow.id, flow.version)).as_deref(),
        );
        self.option("Parent", work.parent.as_ref().map(|id| id.as_str()));
        self.option("Rerun of", work.rerun_of.as_ref().map(|id| id.as_str()));
        self.line("Attempt", &format!("{} ({} failed)", work.attempt, work.failures));
        self.option("Step", work.step.as_deref());
        self.times(work);
        self.lease(work);
        self.waits(&work.waits);
        for command in commands {
            self.line("Command", &command::brief(command, &style));
        }
        self.end(work);
        self.json("Progress", work.progress.as_ref());
        self.json("Input", work.input.as_ref());
        self.json("Result", work.result.as_ref());
        self.out.push_str("\nLast events\n");
        let mut narrator = Narrator::default();
        commands.iter().for_each(|command| narrator.knows(command));
        work.waits.iter().for_each(|wait| narrator.asks(wait));
        for event in last {
            self.out.push_str(&told(event, &mut narrator));
        }
    }

    fn times(&mut self, work: &Work) {
        let times = &work.timestamps;
        let marks =
            [("Recorded", Some(times.acknowledged)), ("Started", times.started), ("Ended", times.completed)];
        for (name, at) in marks {
            let said = at.map(|at| self.at(at));
            self.option(name, said.as_deref());
        }
        let erased = work.erased_at.map(|at| self.at(at));
        self.option("Erased", erased.as_deref());
        self.option("Retry at", work.next_retry_at.map(|at| at.to_string()).as_deref());
    }

    fn lease(&mut self, work: &Work) {
        if let (Some(lease), true) = (&work.lease, work.as_of.is_some()) {
            self.line("Lease", &format!("{} ({}), fence {}", lease.worker, lease.incarnation, lease.fence));
        } else if let Some(lease) = &work.lease {
            let renewed = age(lease.renewed_at, self.style.now);
            self.line(
                "Lease",
                &format!(
                    "{} ({}), fence {}, {}, renewed {renewed} ago, {} missed, expires {}",
                    lease.worker,
                    lease.incarnation,
                    lease.fence,
                    lease.liveness,
                    lease.missed,
                    lease.expires_at
                ),
            );
        }
        let active = work.last_activity_at.map(|at| match work.spinning_since {
            Some(_) => format!("{}: spinning", self.at(at)),
            None => self.at(at),
        });
        self.option("Activity", active.as_deref());
        if let Some(cancel) = &work.cancel {
            let why = cancel.reason.as_deref().unwrap_or("no reason recorded");
            self.line(
                "Cancel",
                &format!(
                    "requested by {}: {why}; deadline {}",
                    cancel.requested_by.label(),
                    cancel.deadline_at
                ),
            );
        }
        if let Some(abandon) = &work.abandon_request {
            let why = abandon.reason.as_deref().unwrap_or("no reason recorded");
            self.line("Abandon", &format!("requested by {}: {why}", abandon.requested_by.label()));
        }
    }

    fn waits(&mut self, waits: &[Wait]) {
        for wait in waits {
            let deadline = wait.deadline_at.map_or("no deadline".to_owned(), |at| format!("until {at}"));
            let ask = wait.prompt.as_deref().map(|prompt| format!(": {prompt}")).unwrap_or_default();
            self.line(
                "Waits for",
                &format!(
                    "{} `{}` ({}, {}, then {}){ask}",
                    wait.kind, wait.reference, wait.id, deadline, wait.on_timeout
                ),
            );
            self.option("Seal", wait.seal.as_deref());
        }
    }

    fn end(&mut self, work: &Work) {
        if let Some(error) = &work.error {
            self.line(
                "Error",
                &format!("{}: {}", error.class, error.message.as_deref().unwrap_or("no message")),
            );
        }
        for warning in &work.warnings {
            self.line("Warning", warning);
        }
        self.option("Result at", work.result_ref.as_deref());
        if work.no_output {
            self.line("Result", "none, as declared");
        }
        for usage in &work.usage {
            self.line("Used", &used(usage));
        }
        for evidence in &work.evidence {
            self.line("Evidence", &format!("{} {}", evidence.kind, evidence.reference));
        }
    }
}
