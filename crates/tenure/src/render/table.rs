//! Aligned columns, with a glyph and a colour for cells with a light. On a terminal a table fits its width: the
//! least important cells are shortened first, then columns are left out, and no row is wrapped. In a pipe
//! everything is kept.

use std::collections::BTreeSet;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Style, light::Light, safe};

/// A shortened cell keeps at least this width.
const NARROW: usize = 8;
/// Between columns.
const GAP: usize = 2;
/// Lines below a row are indented.
const INDENT: &str = "    ";
/// Fewer digits of an id would soon fit another one too.
const ENDING: usize = 6;

pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Row>,
    /// The message for an empty table.
    empty: String,
    /// The columns that are given up first, least important first. The others follow from the last to the first.
    least: Vec<&'static str>,
    /// Columns that keep more width than others, if their text is that long.
    keep: Vec<(&'static str, usize)>,
}

struct Row {
    cells: Vec<Cell>,
    /// Lines below the row, in full length.
    under: Vec<Under>,
}

enum Under {
    Text(String),
    /// A command line: never broken, so that it can be pasted.
    Line(String),
}

pub struct Cell {
    text: String,
    light: Option<Light>,
    /// Half of it would be wrong: it is shown whole, or its column is left out.
    whole: bool,
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: safe(text.as_ref()), light: None, whole: false }
    }
}

impl Cell {
    pub fn lit(light: Light, text: &str) -> Self {
        Self { text: safe(text), light: Some(light), whole: false }
    }

    /// An id or a command line, which is useless if shortened.
    pub fn whole(text: &str) -> Self {
        Self { text: safe(text), light: None, whole: true }
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
        Self {
            head: head.to_vec(),
            rows: Vec::new(),
            empty: empty.to_owned(),
            least: Vec::new(),
            keep: Vec::new(),
        }
    }

    /// The columns to give up first on a narrow terminal, least important first.
    pub fn least(mut self, columns: &[&'static str]) -> Self {
        self.least = columns.to_vec();
        self
    }

    /// The width that a column keeps while others can be left out.
    pub fn keep(mut self, column: &'static str, width: usize) -> Self {
        self.keep.push((column, width));
        self
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row { cells, under: Vec::new() });
    }

    /// A line below the last row, for text that is too long for a column.
    pub fn under(&mut self, text: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.under.push(Under::Text(safe(text)));
        }
    }

    /// A command line below the last row.
    pub fn under_line(&mut self, line: &str) {
        if let Some(row) = self.rows.last_mut() {
            row.under.push(Under::Line(safe(line)));
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
        let widths = self.widths(&plain, style.width);
        let last = widths.iter().rposition(Option::is_some).unwrap_or(0);
        let mut out = String::new();
        let columns = |out: &mut String, cell: &dyn Fn(usize, usize) -> (String, Option<Light>)| {
            for (column, width) in widths.iter().enumerate() {
                let Some(width) = *width else { continue };
                let (text, light) = cell(column, width);
                let pad = if column == last { 0 } else { width.saturating_sub(text.width()) + GAP };
                match light.filter(|_| style.colour) {
                    Some(light) => out.push_str(&light.paint(&text)),
                    None => out.push_str(&text),
                }
                out.push_str(&" ".repeat(pad));
            }
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
        };
        columns(&mut out, &|column, width| (shorten(self.head[column], width, style.ascii), None));
        for (row, plain) in self.rows.iter().zip(&plain) {
            columns(&mut out, &|column, width| {
                let text = plain.get(column).map_or("", String::as_str);
                let light = row.cells.get(column).and_then(|cell| cell.light);
                (shorten(text, width, style.ascii), light)
            });
            for under in &row.under {
                match under {
                    Under::Line(line) => out.push_str(&format!("{INDENT}{line}\n")),
                    Under::Text(text) => {
                        let room = style.width.unwrap_or(usize::MAX).saturating_sub(INDENT.len());
                        wrapped(text, room).for_each(|line| out.push_str(&format!("{INDENT}{line}\n")));
                    }
                }
            }
        }
        out
    }

    /// The width of each column; None for one that is left out.
    fn widths(&self, plain: &[Vec<String>], room: Option<usize>) -> Vec<Option<usize>> {
        let mut widths: Vec<usize> = self.head.iter().map(|name| name.width()).collect();
        for row in plain {
            for (width, text) in widths.iter_mut().zip(row) {
                *width = (*width).max(text.width());
            }
        }
        let Some(room) = room else { return widths.into_iter().map(Some).collect() };
        let is_whole =
            |column: usize| self.rows.iter().any(|row| row.cells.get(column).is_some_and(|cell| cell.whole));
        let floors: Vec<usize> = widths
            .iter()
            .enumerate()
            .map(|(column, width)| {
                let kept = self.keep.iter().find(|(name, _)| *name == self.head[column]);
                let floor = kept.map_or(NARROW, |(_, width)| *width).max(self.head[column].width());
                if is_whole(column) { *width } else { floor.min(*width) }
            })
            .collect();
        let order = self.order();
        // First the columns that have room at all, then the room of each.
        let mut shown: Vec<Option<usize>> = floors.iter().copied().map(Some).collect();
        for &column in &order[..order.len().saturating_sub(2)] {
            if excess(&shown, room) == 0 {
                break;
            }
            shown[column] = None;
        }
        for (shown, width) in shown.iter_mut().zip(&widths) {
            *shown = shown.map(|_| *width);
        }
        // Only a terminal that is too narrow for two columns cuts below the floor.
        for floor in [&floors, &vec![1; floors.len()]] {
            for &column in &order {
                if let Some(width) = shown[column] {
                    let cut = width.saturating_sub(excess(&shown, room));
                    shown[column] = Some(cut.max(floor[column].min(width)));
                }
            }
        }
        shown
    }

    /// The columns, least important first.
    fn order(&self) -> Vec<usize> {
        let named = self.least.iter().filter_map(|name| self.head.iter().position(|other| other == name));
        let others = (0..self.head.len()).rev().filter(|column| !self.least.contains(&self.head[*column]));
        named.chain(others).collect()
    }
}

/// Ids as a table shows them: on a terminal by the shortest ending that no other id of the table has, because
/// ids of one minute share their beginnings; in full elsewhere.
pub struct Endings(Option<usize>);

impl Endings {
    pub fn of<'a>(ids: impl Iterator<Item = &'a str> + Clone, style: &Style) -> Self {
        if style.width.is_none() {
            return Self(None);
        }
        let all: BTreeSet<&str> = ids.clone().collect();
        let unique = |length: &usize| {
            let ended: BTreeSet<&str> = all.iter().map(|id| end(id, *length)).collect();
            ended.len() == all.len()
        };
        Self((ENDING..32).find(unique))
    }

    pub fn short<'a>(&self, id: &'a str) -> &'a str {
        self.0.map_or(id, |length| end(id, length))
    }
}

/// By how much these columns are too wide.
fn excess(shown: &[Option<usize>], room: usize) -> usize {
    let kept: Vec<usize> = shown.iter().flatten().copied().collect();
    (kept.iter().sum::<usize>() + GAP * kept.len().saturating_sub(1)).saturating_sub(room)
}

fn end(id: &str, length: usize) -> &str {
    id.len().checked_sub(length).and_then(|from| id.get(from..)).unwrap_or(id)
}

fn shorten(text: &str, width: usize, ascii: bool) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mark = if ascii { "..." } else { "…" };
    let mark = if mark.width() < width { mark } else { "" };
    let mut short = String::new();
    let mut taken = mark.width();
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        if taken > width {
            break;
        }
        short.push(c);
    }
    short + mark
}

/// Lines of at most this width, broken between words where that is possible.
fn wrapped(text: &str, room: usize) -> impl Iterator<Item = String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("it begins with a line");
        if !line.is_empty() && line.width() + 1 + word.width() > room {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.into_iter()
}

#[cfg(test)]
mod tests {
    use tenure_api::wire::Timestamp;

    use super::*;

    const PLAIN: Style = Style { colour: false, ascii: true, now: Timestamp(0), width: None };

    #[test]
    fn columns_line_up_and_lights_have_a_glyph() {
        let mut table = Table::new(&["STATE", "WORK"], "nothing");
        table.row(vec![Cell::lit(Light::Alive, "running"), "w_1\x07".into()]);
        table.row(vec![Cell::lit(Light::Done, "completed_with_warnings"), "w_2".into()]);
        assert_eq!(
            table.draw(&PLAIN),
            "STATE                      WORK\n* running                  w_1\\u{7}\n+ completed_with_warnings  w_2\n"
        );
        table.under("why\x07");
        assert!(table.draw(&PLAIN).ends_with("w_2\n    why\\u{7}\n"), "{:?}", table.draw(&PLAIN));
        let coloured = table.draw(&Style { colour: true, ascii: false, ..PLAIN });
        assert!(coloured.contains("\x1b[34m● running\x1b[0m"), "{coloured:?}");
    }

    /// A wide list as `tenure list` has it.
    fn wide() -> Table {
        let head = ["STATE", "WORK", "TITLE", "KIND", "REASON", "NEXT"];
        let mut table = Table::new(&head, "nothing").least(&["NEXT", "KIND", "REASON"]);
        for state in ["running", "completed_with_warnings"] {
            table.row(vec![
                Cell::lit(Light::Alive, state),
                Cell::whole("3f9a12"),
                "Répondre à la question 漢字漢字漢字漢字 de la cliente".into(),
                "a-kind-with-a-long-name".into(),
                "waiting_for_answer: somebody must say which colour the fence has".into(),
                Cell::whole("tenure approve 3f9a12"),
            ]);
            table.under("An approver must answer `deploy`: shall build 4711 of the shop be deployed to the customers now?");
            table.under_line(
                "tenure approve w_019801980198019801980198019801980198 --reason 'a long line that stays one'",
            );
        }
        table
    }

    #[test]
    fn a_table_fits_every_terminal() {
        for ascii in [false, true] {
            for width in 60..=200 {
                let drawn = wide().draw(&Style { width: Some(width), ascii, ..PLAIN });
                for line in drawn.lines().filter(|line| !line.contains("a long line that stays one")) {
                    assert!(line.width() <= width, "{width}: {} {line:?}", line.width());
                }
                let rows: Vec<&str> = drawn.lines().filter(|line| line.contains("3f9a12")).collect();
                assert_eq!(rows.len(), 2, "{width}: an id is never cut:\n{drawn}");
                let next = drawn.lines().next().unwrap().contains("NEXT");
                assert_eq!(next, rows.iter().all(|row| row.ends_with("tenure approve 3f9a12")), "{drawn}");
            }
        }
    }

    #[test]
    fn the_least_important_column_goes_first_and_a_pipe_keeps_all() {
        let head = |width| {
            let drawn = wide().draw(&Style { width, ..PLAIN });
            drawn.lines().next().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(head(None), ["STATE", "WORK", "TITLE", "KIND", "REASON", "NEXT"]);
        assert_eq!(head(Some(130)), ["STATE", "WORK", "TITLE", "KIND", "REASON", "NEXT"]);
        assert_eq!(head(Some(60)), ["STATE", "WORK", "TITLE", "KIND", "REASON"]);
        assert_eq!(head(Some(40)), ["STATE", "WORK", "TITLE", "REASON"]);
        let all = wide().draw(&PLAIN);
        assert!(all.contains("de la cliente") && all.contains("which colour the fence has"), "{all}");
    }

    #[test]
    fn ids_are_shown_by_their_shortest_unique_ending() {
        let ids = ["w_0198000000000000000000000012ab34", "w_0198000000000000000000000112ab34"];
        let terminal = Style { width: Some(80), ..PLAIN };
        let shown = Endings::of(ids.into_iter(), &terminal);
        assert_eq!(ids.map(|id| shown.short(id)), ["012ab34", "112ab34"]);
        assert_eq!(Endings::of([ids[0]].into_iter(), &terminal).short(ids[0]), "12ab34");
        assert_eq!(Endings::of(ids.into_iter(), &PLAIN).short(ids[0]), ids[0]);
    }
}
