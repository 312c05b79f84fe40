//! Draws a screen: a pure function of the screen, a style and a time.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style as Look},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Table, TableState, Wrap},
};
use tenure_api::wire::{Lease, Timestamp, Work};

use super::{screen::Screen, snapshot::Snapshot};
use crate::render::{self, Light, Style, age, describe, reason, safe, span};

/// Older snapshots are marked as stale.
const FRESH_MS: i64 = 3_000;
/// From this width on there is space for kinds and reasons.
const WIDE: u16 = 120;
/// The largest number of missed renewals that fits into the column.
const MISSED_MAX: u32 = 99;

const HELP: &str = "\
What runs, and is it alive? Rows are sorted by remaining lease time; below them are items that wait for a person.

  j k, arrows   choose a row          Enter   show the item
  /             filter                Esc     back, or clear the filter
  ?             this help             q       quit

  BEAT   time since the last renewal; ·2: two renewals were missed
  LEFT   remaining lease time; AGE is the time in the current state

  a  approve      x  reject      e  answer      c  cancel

Each of these shows what it would do, asks for a reason or an answer, and then for y. No single key changes anything.";

pub fn draw(frame: &mut Frame<'_>, screen: &Screen, style: &Style) {
    let area = frame.area();
    let [head, tiles, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(2),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    let stale = is_stale(&screen.snapshot, style.now);
    frame.render_widget(Paragraph::new(headline(screen, style)), head);
    let dim = if stale { Look::new().add_modifier(Modifier::DIM) } else { Look::new() };
    frame.render_widget(Paragraph::new(figures(&screen.snapshot, style)).style(dim), tiles);
    if let Some(dialog) = &screen.dialog {
        let plain = Style { colour: false, ..*style };
        let page = Paragraph::new(dialog.page(&plain)).wrap(Wrap { trim: false });
        frame.render_widget(page, body);
    } else if screen.help {
        frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), body);
    } else if screen.open.is_some() {
        frame.render_widget(full(screen, style).style(dim), body);
    } else {
        list(frame, screen, style, body, dim);
    }
    frame.render_widget(Paragraph::new(footline(screen)), foot);
}

fn is_stale(snapshot: &Snapshot, now: Timestamp) -> bool {
    now.0 - snapshot.at.0 > FRESH_MS
}

fn headline(screen: &Screen, style: &Style) -> Line<'static> {
    let since = span(style.now.0 - screen.snapshot.at.0);
    let dot = if style.ascii { "-" } else { "·" };
    let freshness = if is_stale(&screen.snapshot, style.now) {
        Span::styled(format!("STALE {since}"), lit(Light::Risk, style).add_modifier(Modifier::BOLD))
    } else {
        Span::raw(format!("live {dot} {since}"))
    };
    let place = format!("tenure top {dot} {} {dot} ", safe(&screen.place));
    Line::from(vec![Span::styled(place, Look::new().add_modifier(Modifier::BOLD)), freshness])
}

fn figures(snapshot: &Snapshot, style: &Style) -> Vec<Line<'static>> {
    let tiles = snapshot.tiles();
    let queue = &snapshot.queue;
    let mut spans = Vec::new();
    let tile = |light: Light, text: String, many: bool| {
        let look = if many { lit(light, style) } else { Look::new() };
        Span::styled(format!("{} {text}   ", light.glyph(style.ascii)), look)
    };
    let counted = [
        (Light::Alive, "alive", tiles.alive),
        (Light::Risk, "at risk", tiles.at_risk),
        (Light::Risk, "silent", tiles.silent),
        (Light::You, "needs you", tiles.needs_you),
    ];
    for (light, word, count) in counted {
        spans.push(tile(light, format!("{word} {count}"), count > 0));
    }
    let doubts = format!("uncertain {}{}", snapshot.uncertain.0, if snapshot.uncertain.1 { "+" } else { "" });
    spans.push(tile(Light::Risk, doubts, snapshot.uncertain.0 > 0));
    let plus = if queue.more { "+" } else { "" };
    let oldest = queue.oldest.map_or("-".to_owned(), |at| format!("{}{plus}", age(at, style.now)));
    let queued = tile(Light::Idle, format!("oldest queued {oldest} ({}{plus})", queue.count), false);
    vec![Line::from(spans), Line::from(queued)]
}

fn footline(screen: &Screen) -> Line<'static> {
    let keys = if screen.open.is_some() {
        "Esc back  j k scroll  a x e c decide  ? help  q quit"
    } else {
        "q quit  j k move  Enter show  a x e c decide  / filter  ? help"
    };
    let text = match &screen.trouble {
        _ if screen.typing => format!("/{}_   (Enter keeps it, Esc clears it)", safe(&screen.filter)),
        _ if screen.said.is_some() => safe(screen.said.as_deref().unwrap_or_default()),
        Some(trouble) => safe(trouble),
        None if !screen.filter.is_empty() => format!("filter: {}   {keys}", safe(&screen.filter)),
        None if screen.snapshot.more => format!("{keys}   (there are more rows: tenure list)"),
        None => keys.to_owned(),
    };
    Line::raw(text)
}

fn full(screen: &Screen, style: &Style) -> Paragraph<'static> {
    let plain = Style { colour: false, ..*style };
    let text = match &screen.snapshot.full {
        Some(full) => describe(&full.work, &full.why, &full.commands, &full.last, &plain),
        None => "Loading…".to_owned(),
    };
    Paragraph::new(text).wrap(Wrap { trim: false }).scroll((screen.scroll, 0))
}

fn list(frame: &mut Frame<'_>, screen: &Screen, style: &Style, area: Rect, dim: Look) {
    let rows = screen.rows();
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(empty(screen, style)).wrap(Wrap { trim: false }).style(dim), area);
        return;
    }
    let wide = area.width >= WIDE;
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| wide || column.narrow > 0).collect();
    let widths = columns.iter().map(|column| match (wide, column.wide) {
        (true, FILL) => Constraint::Fill(1),
        (true, width) => Constraint::Length(width),
        (false, _) => Constraint::Length(column.narrow),
    });
    let head = columns.iter().map(|column| Cell::from(column.name));
    let shown = rows.iter().map(|work| {
        Row::new(columns.iter().map(|column| {
            let look = if column.name == "STATE" { lit(Light::of(work), style) } else { Look::new() };
            Cell::from((column.text)(work, style, wide)).style(look)
        }))
    });
    let table = Table::new(shown, widths)
        .header(Row::new(head).style(Look::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Look::new().add_modifier(Modifier::REVERSED))
        .style(dim);
    let mut state = TableState::new().with_selected(screen.at());
    frame.render_stateful_widget(table, area, &mut state);
}

/// A column's text and widths; it is left out of a narrow terminal if `narrow` is 0.
struct Column {
    name: &'static str,
    narrow: u16,
    wide: u16,
    text: fn(&Work, &Style, bool) -> String,
}

/// Takes the rest of the line.
const FILL: u16 = u16::MAX;

const COLUMNS: [Column; 10] = [
    Column { name: "STATE", narrow: 18, wide: 18, text: |work, style, _| state(work, style) },
    Column {
        name: "WORK",
        narrow: 16,
        wide: 18,
        text: |work, _, wide| safe(work.id.as_str()).chars().take(if wide { 18 } else { 16 }).collect(),
    },
    Column { name: "KIND", narrow: 0, wide: 10, text: |work, _, _| safe(&work.kind) },
    Column {
        name: "STEP",
        narrow: 8,
        wide: 12,
        text: |work, _, _| safe(work.step.as_deref().unwrap_or("-")),
    },
    Column { name: "TRY", narrow: 3, wide: 3, text: |work, _, _| work.attempt.to_string() },
    Column { name: "OWNER", narrow: 9, wide: 18, text: |work, style, wide| owner(work, style, wide) },
    Column { name: "BEAT", narrow: 7, wide: 8, text: |work, style, _| beat(work, style) },
    Column {
        name: "LEFT",
        narrow: 8,
        wide: 14,
        text: |work, style, wide| left(work, style, if wide { 10 } else { 4 }),
    },
    Column { name: "AGE", narrow: 4, wide: 4, text: |work, style, _| render::in_state(work, style) },
    Column { name: "REASON", narrow: 0, wide: FILL, text: |work, _, _| safe(&reason(work)) },
];

fn state(work: &Work, style: &Style) -> String {
    format!("{} {}", Light::of(work).glyph(style.ascii), safe(work.state.as_str()))
}

/// The holder, and in a wide terminal the end of its incarnation, which tells two apart.
fn owner(work: &Work, style: &Style, wide: bool) -> String {
    let Some(lease) = &work.lease else { return "-".to_owned() };
    let worker = safe(&lease.worker);
    if !wide {
        return worker;
    }
    let letters: Vec<char> = safe(&lease.incarnation).chars().collect();
    let tail: String = letters[letters.len().saturating_sub(6)..].iter().collect();
    format!("{worker}{}{tail}", if style.ascii { "/" } else { "·" })
}

fn beat(work: &Work, style: &Style) -> String {
    let Some(lease) = &work.lease else { return "-".to_owned() };
    let since = age(lease.renewed_at, style.now);
    let mark = if style.ascii { "/" } else { "·" };
    match lease.missed {
        0 => since,
        // A truncated number would be a different number.
        missed if missed > MISSED_MAX => format!("{since}{mark}{MISSED_MAX}+"),
        missed => format!("{since}{mark}{missed}"),
    }
}

/// A bar of `cells`, and the remaining time.
fn left(work: &Work, style: &Style, cells: i64) -> String {
    let Some(Lease { expires_at, renewed_at, .. }) = &work.lease else { return "-".to_owned() };
    let left = (expires_at.0 - style.now.0).max(0);
    let ttl = (expires_at.0 - renewed_at.0).max(1);
    let filled = ((left * cells + ttl - 1) / ttl).min(cells);
    let (full, rest) = if style.ascii { ("#", "-") } else { ("█", "░") };
    let bar = format!("{}{}", full.repeat(filled as usize), rest.repeat((cells - filled) as usize));
    format!("{bar} {}", span(left))
}

fn lit(light: Light, style: &Style) -> Look {
    match light.palette().filter(|_| style.colour) {
        Some(index) => Look::new().fg(Color::Indexed(index)),
        None => Look::new(),
    }
}

/// The explanation of an empty list.
fn empty(screen: &Screen, style: &Style) -> String {
    let snapshot = &screen.snapshot;
    if !snapshot.rows.is_empty() {
        return format!("Nothing matches `{}`. Esc shows everything.", safe(&screen.filter));
    }
    let mut text = "Nothing is running: 0 leases held.".to_owned();
    if let Some(at) = snapshot.last_finish {
        let clock: String = at.to_string().chars().skip(11).take(5).collect();
        text.push_str(&format!(" Last finish {clock} ({} ago).", age(at, style.now)));
    }
    let queue = &snapshot.queue;
    if queue.count > 0 {
        let plus = if queue.more { "+" } else { "" };
        let sources: Vec<String> = queue.sources.iter().map(|source| format!("`{}`", safe(source))).collect();
        text.push_str(&format!(
            " {}{plus} queued: no worker claims {}. `tenure workers` lists the workers.",
            queue.count,
            sources.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests;
