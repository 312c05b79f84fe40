//! Aligned columns, with a glyph and a colour for cells with a light.

use unicode_width::UnicodeWidthStr;

use super::{Style, light::Light, safe};

/// The maximum width of a cell, except the last of a row.
const WIDEST: usize = 48;

pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Row>,
    /// The message for an empty table.
    empty: String,
}

struct Row {
    cells: Vec<Cell>,
    /// Lines below the row, in full length.
    under: Vec<String>,
}

pub struct Cell {
    text: String,
    light: Option<Light>,
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: safe(text.as_ref()), light: None }
    }
}

impl Cell {
    pub fn lit(light: Light, text: &str) -> Self {
        Self { text: safe(text), light: Some(light) }
    }

    fn plain(&self, style: &Style) -> String {
        match self.light {
            Some(light) => format!("{} {}", light.glyph(style.ascii), self.text),
            None => self.text.clone(),
        }
    }
}

impl Table {
    pub fn new(head: &[&'static str], empty: &str) -> Self {
        Self { head: head.to_vec(), rows: Vec::new(), empty: empty.to_owned() }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row { cells, under: Vec::new() });
    }

    /// A line below the last row, for text that is too long for a column.
    pub fn under(&mut self, text: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.under.push(safe(text));
        }
    }

    pub fn draw(&self, style: &Style) -> String {
        if self.rows.is_empty() {
            // The message is not data: for a reader of stdout an empty list is an empty text.
            super::say(&self.empty);
            return String::new();
        }
        let plain: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.cells.iter().map(|cell| cell.plain(style)).collect()).collect();
        let mut widths: Vec<usize> = self.head.iter().map(|name| name.width()).collect();
        for row in &plain {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = (*width).max(text.width().min(WIDEST));
            }
        }
        let last = self.head.len().saturating_sub(1);
        let mut out = String::new();
        let pad = |text: &str, column: usize| {
            if column == last {
                String::new()
            } else {
                " ".repeat(widths[column].saturating_sub(text.width()) + 2)
            }
        };
        for (column, name) in self.head.iter().enumerate() {
            out.push_str(name);
            out.push_str(&pad(name, column));
        }
        out.push('\n');
        for (row, plain) in self.rows.iter().zip(&plain) {
            for (column, (cell, text)) in row.cells.iter().zip(plain).enumerate() {
                let text = if column == last { text.clone() } else { shorten(text, style.ascii) };
                let padding = pad(&text, column);
                match cell.light.filter(|_| style.colour) {
                    Some(light) => out.push_str(&light.paint(&text)),
                    None => out.push_str(&text),
                }
                out.push_str(&padding);
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            row.under.iter().for_each(|line| out.push_str(&format!("    {line}\n")));
        }
        out
    }
}

fn shorten(text: &str, ascii: bool) -> String {
    if text.width() <= WIDEST {
        return text.to_owned();
    }
    let mark = if ascii { "..." } else { "…" };
    let mut short = String::new();
    for c in text.chars() {
        if short.width() + mark.width() >= WIDEST {
            break;
        }
        short.push(c);
    }
    short + mark
}

#[cfg(test)]
mod tests {
    use tenure_api::wire::Timestamp;

    use super::*;

    #[test]
    fn columns_line_up_and_lights_have_a_glyph() {
        let mut table = Table::new(&["STATE", "WORK"], "nothing");
        table.row(vec![Cell::lit(Light::Alive, "running"), "w_1\x07".into()]);
        table.row(vec![Cell::lit(Light::Done, "completed_with_warnings"), "w_2".into()]);
        let plain = Style { colour: false, ascii: true, now: Timestamp(0) };
        assert_eq!(
            table.draw(&plain),
            "STATE                      WORK\n* running                  w_1\\u{7}\n+ completed_with_warnings  w_2\n"
        );
        table.under("why\x07");
        assert!(table.draw(&plain).ends_with("w_2\n    why\\u{7}\n"), "{:?}", table.draw(&plain));
        let coloured = table.draw(&Style { colour: true, ascii: false, ..plain });
        assert!(coloured.contains("\x1b[34m● running\x1b[0m"), "{coloured:?}");
    }
}
