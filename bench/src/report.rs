//! Figures as JSON lines for machines and as a table for people.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use crate::{args::Store, bars};

pub const MIB: f64 = 1_048_576.0;

/// One line. Fields that do not apply are null, or left out if only one case has them.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub bench: &'static str,
    pub store: Store,
    pub case: &'static str,
    pub submitters: Option<usize>,
    #[serde(serialize_with = "whole")]
    pub per_s: Option<f64>,
    #[serde(serialize_with = "thousandths")]
    pub of_raw: Option<f64>,
    #[serde(serialize_with = "thousandths")]
    pub of_bare: Option<f64>,
    /// Of a command: three transitions, relative to raw transitions of a work item, which has lighter tables.
    #[serde(serialize_with = "thousandths", skip_serializing_if = "Option::is_none")]
    pub of_work_raw: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_commit: Option<usize>,
    /// Work items of each claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<usize>,
    #[serde(serialize_with = "thousandths", skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<f64>,
    #[serde(serialize_with = "thousandths", skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<f64>,
    #[serde(serialize_with = "thousandths", skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<f64>,
    /// p99 with the long queue over p99 with the short one.
    #[serde(serialize_with = "thousandths", skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stored: Option<usize>,
    /// On disk, for a work item with its three events; or the daemon's resident memory.
    #[serde(serialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// Whether the bar is met, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
}

impl Row {
    pub fn new(store: Store, case: &'static str) -> Row {
        Row {
            bench: "ledger",
            store,
            case,
            submitters: None,
            per_s: None,
            of_raw: None,
            of_bare: None,
            of_work_raw: None,
            per_commit: None,
            claim: None,
            queued: None,
            stored: None,
            p50_ms: None,
            p99_ms: None,
            max_ms: None,
            ratio: None,
            bytes: None,
            ok: None,
        }
    }

    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a row is a plain struct")
    }

    /// The part that distinguishes this line from the others of its case.
    fn setting(&self) -> String {
        let mut parts = Vec::new();
        match (self.case, self.submitters) {
            ("bare" | "raw" | "raw_command", Some(1)) | (_, None) => {}
            ("bare" | "raw", Some(n)) => parts.push(format!("{n} connections")),
            ("drain", Some(n)) => parts.push(format!("{n} workers")),
            (_, Some(n)) if self.bench == "http" => parts.push(format!("{n} connections")),
            (_, Some(1)) => parts.push("1 submitter".to_owned()),
            (_, Some(n)) => parts.push(format!("{} submitters", grouped(n as f64))),
        }
        parts.extend(self.per_commit.map(|n| format!("{n} per commit")));
        parts.extend(self.claim.map(|n| format!("claims of {n}")));
        parts.extend(self.stored.map(|n| format!("{} works stored", grouped(n as f64))));
        parts.extend(self.queued.map(|n| format!("{} queued", grouped(n as f64))));
        parts.join(", ")
    }

    /// Figures that only some cases have.
    fn more(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.of_work_raw.map(|ratio| format!("{} of a work's raw", percent(ratio))));
        if let (Some(p50), Some(p99)) = (self.p50_ms, self.p99_ms) {
            parts.push(format!("p50 {p50:.2} ms, p99 {p99:.2} ms"));
        } else if let Some(p50) = self.p50_ms {
            parts.push(format!("{p50:.0} ms"));
        }
        parts.extend(self.max_ms.map(|max| format!("longest {max:.0} ms")));
        parts.extend(self.ratio.map(|ratio| format!("{ratio:.2} times the shorter's")));
        parts.extend(self.bytes.map(|bytes| match self.case {
            "memory" | "memory_load" | "memory_attacked" => format!("{:.0} MiB", bytes / MIB),
            _ => format!("{} bytes a work", grouped(bytes)),
        }));
        parts.join(", ")
    }
}

/// Adds whether the bars are met.
pub fn judge(rows: &mut [Row]) {
    for row in rows {
        row.ok = bars::of(row).and_then(|bar| bar.met(row));
    }
}

/// The rows as an aligned table, bars beside the figures.
pub fn table(rows: &[Row]) -> String {
    let share = |ratio: Option<f64>| ratio.map_or("–".to_owned(), percent);
    let mut lines =
        vec![["store", "case", "", "per s", "of raw", "of bare", "", "bar", ""].map(str::to_owned)];
    for row in rows {
        lines.push([
            row.store.name().to_owned(),
            row.case.to_owned(),
            row.setting(),
            row.per_s.map_or("–".to_owned(), grouped),
            share(row.of_raw),
            share(row.of_bare),
            row.more(),
            bars::of(row).map_or(String::new(), |bar| bar.to_string()),
            row.ok.map_or("", |ok| if ok { "ok" } else { "below" }).to_owned(),
        ]);
    }
    aligned(&lines)
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// Pads every column to its widest entry; figures to the right, words to the left.
fn aligned<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
            match column {
                3..=5 => write!(row, "{cell:>width$}  "),
                _ => write!(row, "{cell:<width$}  "),
            }
            .expect("a string takes everything");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// An integer with separated thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn whole<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    value.map(|value| value.round() as u64).serialize(to)
}

fn thousandths<S: Serializer>(value: &Option<f64>, to: S) -> Result<S::Ok, S::Error> {
    value.map(|value| (value * 1_000.0).round() / 1_000.0).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(of_raw: f64) -> Row {
        let mut row = Row::new(Store::Sqlite, "transition");
        row.submitters = Some(256);
        row.per_s = Some(41_234.6);
        row.of_raw = Some(of_raw);
        row
    }

    #[test]
    fn a_line_has_its_fields_in_order_and_null_where_they_do_not_apply() {
        assert_eq!(
            transition(0.71234).json(),
            r#"{"bench":"ledger","store":"sqlite","case":"transition","submitters":256,"per_s":41235,"of_raw":0.712,"of_bare":null}"#
        );
    }

    #[test]
    fn bars_are_judged_and_shown() {
        let mut rows = [transition(0.9), transition(0.1), Row::new(Store::Sqlite, "bytes")];
        judge(&mut rows);
        assert_eq!(rows.each_ref().map(|row| row.ok), [Some(true), Some(false), None]);
        let table = table(&rows);
        let ends: Vec<&str> = table.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(ends[1..3], ["ok", "below"]);
        assert!(table.contains("256 submitters  41,235"), "{table}");
    }

    #[test]
    fn a_command_shows_both_its_limits_to_machines_and_to_people() {
        let mut row = Row::new(Store::Sqlite, "command");
        (row.bench, row.submitters) = ("commands", Some(256));
        (row.of_raw, row.of_work_raw) = (Some(0.4), Some(0.25));
        judge(std::slice::from_mut(&mut row));
        assert!(
            row.json().contains(r#""of_raw":0.4,"of_bare":null,"of_work_raw":0.25,"ok":true"#),
            "{}",
            row.json()
        );
        let table = table(&[row]);
        assert!(table.contains("40 %") && table.contains("25 % of a work's raw"), "{table}");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0.0, 999.0, 1_000.0, 1_234_567.4].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
