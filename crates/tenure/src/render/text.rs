//! Escapes untrusted text, and shortens time spans.

use tenure_api::wire::Timestamp;

/// Characters that move the cursor, ring the bell, or change the reading direction.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text on one line, without anything that a terminal would interpret.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push(' '),
            c if is_unsafe(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// JSON without anything that a terminal would interpret: the same document, escaped further.
pub fn safe_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_unsafe(c) {
            out.push_str(&format!("\\u{:04x}", c as u32));
        } else {
            out.push(c);
        }
    }
    out
}

/// A duration in its largest unit, rounded as in the ledger's own sentences: one that lacks less than a tenth
/// of a unit is rounded up, so that a fresh deadline reads as it was set.
pub fn span(ms: i64) -> String {
    let whole = |unit: i64| (ms.max(0) + unit / 10) / unit;
    match (whole(1_000), whole(60_000), whole(3_600_000)) {
        (seconds @ 0..60, ..) => format!("{seconds}s"),
        (_, minutes @ 0..60, _) => format!("{minutes}m"),
        (_, _, hours @ 0..48) => format!("{hours}h"),
        _ => format!("{}d", whole(86_400_000)),
    }
}

pub fn age(at: Timestamp, now: Timestamp) -> String {
    span(now.0 - at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        assert_eq!(safe("a\x1b[31mb\u{202e}c\nd\u{9b}"), "a\\u{1b}[31mb\\u{202e}c\\nd\\u{9b}");
        let json = safe_json("{\"a\":\"x\u{7f}\u{202e}y\"}");
        assert_eq!(json, "{\"a\":\"x\\u007f\\u202ey\"}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["a"], "x\u{7f}\u{202e}y");
    }

    #[test]
    fn spans_are_said_in_their_largest_unit() {
        for (ms, said) in [
            (-5, "0s"),
            (59_400, "59s"),
            (59_999, "1m"),
            (5_460_000, "1h"),
            (86_399_000, "24h"),
            (172_800_000, "2d"),
        ] {
            assert_eq!(span(ms), said);
        }
    }
}
