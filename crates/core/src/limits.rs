//! Limits on everything that a caller can make grow, and the checks that use them.

use crate::refusal::{Code, Refusal};

pub const PAYLOAD_BYTES: usize = 1024 * 1024;
pub const JSON_DEPTH: usize = 64;
/// The largest integer that RFC 8785 represents exactly.
pub const SAFE_INTEGER: u64 = 1 << 53;
/// Names: systems, kinds, tenants, workers, steps, sessions, correlation ids.
pub const NAME_CHARS: usize = 200;
/// One line for people.
pub const TITLE_CHARS: usize = 200;
/// Source ids and wait references may be longer: they come from other systems.
pub const REFERENCE_CHARS: usize = 500;
/// Free text: reasons, prompts, error messages, warnings.
pub const TEXT_CHARS: usize = 4_000;
pub const CLAIM_MAX: usize = 1_000;
/// The size at which a page of a list, or the result of a claim, is cut.
pub const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// The total size of the payloads that one work item stores for its holder: step results, answers, and the
/// schemas and defaults of its waits. All waits of one work item fit on a page, however long their prompts
/// are.
pub const WORK_BYTES: usize = 4 * 1024 * 1024;
/// Inputs up to this size are not counted.
pub const LIGHT_BYTES: usize = 4 * 1024;
pub const RENEW_MAX: usize = 1_000;
pub const WAITS_PER_WORK: usize = 100;
pub const STEPS_PER_WORK: usize = 1_000;
/// Commands of one work item, ended ones included.
pub const COMMANDS_PER_WORK: usize = 10_000;
/// Commands in one close-out.
pub const OUTBOX: usize = 100;
/// How many earlier dispatches of a command are remembered by their fence.
pub const EARLIER_DISPATCHES: usize = 16;
/// How many progress requests of one attempt are remembered.
pub const PROGRESS_REQUESTS: usize = 32;
/// Budgets that one dispatch is checked against.
pub const LIMITS: usize = 20;
/// How often the relay retries a command that policy or a budget stops.
pub const ASK_AGAIN_MS: i64 = 60_000;
/// When the relay retries a command whose work item is asked to cancel and has not ended.
pub const CANCEL_ASK_AGAIN_MS: i64 = 5_000;
pub const WARNINGS: usize = 50;
pub const EVIDENCE: usize = 50;
/// Usage entries in one call, and in the sum of one work item.
pub const USAGE: usize = 50;
pub const USAGE_OF_WORK: usize = 200;
/// Early answers that are stored for one tenant, and for how long.
pub const KEPT_PER_TENANT: usize = 10_000;
pub const KEPT_MS: i64 = 24 * 3_600_000;
/// Ten years: the longest duration that a caller may give.
pub const DURATION_MS: u64 = 10 * 365 * 24 * 3_600_000;

/// A required, printable name of limited length.
pub fn name(field: &str, value: &str) -> Result<(), Refusal> {
    bounded(field, value, NAME_CHARS)
}

/// One line for people, who can see something of it.
pub fn title(value: &str) -> Result<(), Refusal> {
    bounded("title", value, TITLE_CHARS)?;
    if value.chars().all(is_invisible) {
        let detail = "`title` has only spaces and invisible characters: leave it out, or give people something to read.";
        return Err(Refusal::new(Code::Invalid, detail));
    }
    Ok(())
}

/// Spaces, and characters that only change how others are shown.
fn is_invisible(char: char) -> bool {
    char.is_whitespace()
        || matches!(
            char,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        )
        || matches!(char, '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(char, '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}')
        || matches!(char, '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
}

pub fn reference(field: &str, value: &str) -> Result<(), Refusal> {
    bounded(field, value, REFERENCE_CHARS)
}

fn bounded(field: &str, value: &str, max: usize) -> Result<(), Refusal> {
    if value.is_empty() {
        return Err(Refusal::new(Code::Invalid, format!("`{field}` is empty: give it a value.")));
    }
    if value.chars().any(char::is_control) {
        return Err(Refusal::new(
            Code::Invalid,
            format!("`{field}` has a control character: send printable text."),
        ));
    }
    length(field, value, max)
}

/// Free text may be empty and may have line breaks, but no NUL: PostgreSQL cannot store it.
pub fn text(field: &str, value: &str) -> Result<(), Refusal> {
    if value.contains('\0') {
        return Err(Refusal::new(Code::Invalid, format!("`{field}` has a NUL character: remove it.")));
    }
    length(field, value, TEXT_CHARS)
}

fn length(field: &str, value: &str, max: usize) -> Result<(), Refusal> {
    let chars = value.chars().count();
    if chars > max {
        return Err(Refusal::new(
            Code::Invalid,
            format!("`{field}` has {chars} characters; at most {max} are allowed. Shorten it."),
        ));
    }
    Ok(())
}

/// Whether a text is only the mark that stands for one's own text in examples.
pub fn is_placeholder(value: &str) -> bool {
    matches!(value.trim(), "…" | "...")
}

/// Refuses the mark of an example as a value: it was pasted without being filled in.
pub fn filled_in(field: &str, value: &str) -> Result<(), Refusal> {
    if is_placeholder(value) {
        let detail = format!("`{field}` is only a placeholder (`{}`): write your own text.", value.trim());
        return Err(Refusal::new(Code::Invalid, detail));
    }
    Ok(())
}

pub fn reason(value: &str) -> Result<(), Refusal> {
    if is_placeholder(value) {
        let detail =
            format!("`{}` is only a placeholder: give your own reason, which is recorded.", value.trim());
        return Err(Refusal::new(Code::ReasonMissing, detail));
    }
    if value.trim().is_empty() {
        return Err(Refusal::new(
            Code::ReasonMissing,
            "Give a reason: this verb requires one, and it is \
         recorded.",
        ));
    }
    text("reason", value)
}

pub fn count(field: &str, len: usize, max: usize) -> Result<(), Refusal> {
    if len > max {
        return Err(Refusal::new(
            Code::Invalid,
            format!("`{field}` has {len} entries; at most {max} are allowed in one call. Split the call."),
        ));
    }
    Ok(())
}

pub fn duration(field: &str, ms: u64) -> Result<(), Refusal> {
    if ms > DURATION_MS {
        return Err(Refusal::new(
            Code::ImpossibleTimings,
            format!("`{field}` is longer than ten years. Give a shorter duration, or leave it out for none."),
        ));
    }
    Ok(())
}
