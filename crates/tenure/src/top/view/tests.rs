//! Drawn screens, and the effect of keys on them.

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier},
};
use serde_json::{Value, json};
use tenure_api::wire::{Event, Explanation, WorkId};

use super::*;
use crate::{
    top::{
        act::{About, Dialog, Kind},
        screen::Then,
        snapshot::{Queue, Tiles},
    },
    verbs::Full,
};

const NOW: i64 = 1_769_847_300_000;

fn at(seconds_ago: i64) -> Value {
    json!(Timestamp(NOW - seconds_ago * 1_000))
}

/// A work item with a lease that was renewed this long ago and lasts 45 s from then; without a lease if None.
fn work(n: u32, state: &str, renewed: Option<i64>, more: Value) -> Work {
    let lease = renewed.map(|ago| {
        let missed = ago / 15;
        let liveness = if state == "stalled" { "silent" } else { "alive" };
        json!({ "worker": "worker-3", "incarnation": "0198aabbccddeeff", "fence": 1, "expires_at": at(ago - 45),
            "renewed_at": at(ago), "missed": missed, "liveness": liveness })
    });
    let mut work = json!({
        "id": format!("w_{n:032x}"), "source": { "system": "manual", "id": format!("job-{n}") }, "kind": "review",
        "tenant": "default", "correlation_id": "c", "generation": 1, "state": state, "phase": "active", "seq": 4,
        "attempt": 2, "failures": 0, "priority": 3, "disposition": "rerunnable", "input_hash": "",
        "state_since": at(70),
        "timestamps": { "acknowledged": at(100), "updated": at(70) },
    });
    if let Some(lease) = lease {
        work["lease"] = lease;
    }
    for (key, value) in more.as_object().unwrap() {
        work[key] = value.clone();
    }
    serde_json::from_value(work).unwrap()
}

fn snapshot(rows: Vec<Work>) -> Snapshot {
    let at = Timestamp(NOW - 1_000);
    Snapshot {
        at,
        rows,
        more: false,
        queue: Queue::default(),
        uncertain: (2, false),
        last_finish: None,
        needs_you: 2,
        full: None,
    }
}

fn busy() -> Screen {
    let rows = vec![
        work(1, "stalled", Some(90), json!({ "reason": { "code": "lease_lapsed" } })),
        work(2, "running", Some(20), json!({ "step": "draft" })),
        work(3, "running", Some(3), json!({ "step": "send\x1b[31m" })),
        work(4, "waiting_approval", None, json!({ "reason": { "code": "waiting_for_answer" } })),
    ];
    let queue = Queue {
        count: 3,
        more: false,
        oldest: Some(Timestamp(NOW - 300_000)),
        sources: vec!["control".to_owned()],
    };
    Screen::new("http://127.0.0.1:7171".to_owned(), Snapshot { queue, ..snapshot(rows) })
}

fn style() -> Style {
    Style { colour: true, ascii: false, now: Timestamp(NOW), width: None }
}

fn drawn(screen: &Screen, style: &Style, width: u16, height: u16) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen, style)).unwrap();
    terminal.backend().clone()
}

fn lines(screen: &Screen, style: &Style, width: u16) -> Vec<String> {
    let backend = drawn(screen, style, width, 24);
    let rows = backend.buffer().content().chunks(width as usize);
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
}

fn press(screen: &mut Screen, key: KeyCode) -> Then {
    screen.press(KeyEvent::new(key, KeyModifiers::NONE))
}

#[test]
fn eighty_columns_hold_everything_that_is_asked_at_night() {
    let lines = lines(&busy(), &style(), 80);
    assert_eq!(
        lines[..8],
        [
            "tenure top · http://127.0.0.1:7171 · live · 1s",
            "● alive 1   ▲ at risk 1   ▲ silent 1   ◆ needs you 2   ▲ uncertain 2",
            "○ oldest queued 5m (3)",
            "STATE              WORK             STEP     TRY OWNER     BEAT    LEFT     AGE",
            "▲ stalled          w_00000000000000 -        2   worker-3  1m·6    ░░░░ 0s  1m",
            "▲ running          w_00000000000000 draft    2   worker-3  20s·1   ███░ 25s 1m",
            "● running          w_00000000000000 send\\u{1 2   worker-3  3s      ████ 42s 1m",
            "◆ waiting_approval w_00000000000000 -        2   -         -       -        1m",
        ]
    );
    assert_eq!(lines[23], "q quit  j k move  Enter show  a x e c decide  / filter  ? help");
}

#[test]
fn missed_renewals_are_never_cut_to_fewer() {
    let mut screen = busy();
    for (missed, shown) in [(11, "26s·11"), (99, "26s·99"), (123_456, "26s·99+")] {
        let lease = screen.snapshot.rows[1].lease.as_mut().unwrap();
        (lease.renewed_at, lease.missed) = (Timestamp(NOW - 26_000), missed);
        for width in [80, 140] {
            let line = &lines(&screen, &style(), width)[5];
            assert!(line.contains(&format!("{shown} ")), "{line}");
        }
    }
}

#[test]
fn q_quits_wherever_one_is() {
    for keys in [&['?'][..], &['\n'], &['\n', '?']] {
        let mut screen = busy();
        for key in keys {
            press(&mut screen, if *key == '\n' { KeyCode::Enter } else { KeyCode::Char(*key) });
        }
        assert_eq!(press(&mut screen, KeyCode::Char('q')), Then::Quit, "{keys:?}");
    }
}

#[test]
fn a_wide_terminal_also_shows_kind_incarnation_and_reason() {
    let lines = lines(&busy(), &style(), 140);
    assert!(lines[3].contains("KIND") && lines[3].ends_with("REASON"), "{}", lines[3]);
    assert!(lines[4].contains("worker-3·ddeeff") && lines[4].ends_with("lease_lapsed"), "{}", lines[4]);
}

#[test]
fn lights_have_colours_only_where_they_are_wanted() {
    let coloured = drawn(&busy(), &style(), 80, 24);
    assert_eq!(coloured.buffer()[(0, 6)].fg, Color::Indexed(4));
    assert_eq!(coloured.buffer()[(0, 7)].fg, Color::Indexed(5));
    let plain = drawn(&busy(), &Style { colour: false, ascii: true, ..style() }, 80, 24);
    assert!(plain.buffer().content().iter().all(|cell| cell.fg == Color::Reset && cell.symbol().is_ascii()));
}

#[test]
fn old_snapshots_are_marked_as_stale() {
    let mut screen = busy();
    screen.trouble = Some("http://127.0.0.1:7171 cannot be reached".to_owned());
    let late = Style { now: Timestamp(NOW + 13_000), ..style() };
    let shown = lines(&screen, &late, 80);
    assert!(shown[0].ends_with("STALE 14s"), "{}", shown[0]);
    assert_eq!(shown[23], "http://127.0.0.1:7171 cannot be reached");
    assert!(drawn(&screen, &late, 80, 24).buffer()[(2, 5)].modifier.contains(Modifier::DIM));
}

#[test]
fn an_empty_list_says_what_that_means() {
    let mut empty = snapshot(Vec::new());
    empty.last_finish = Some(Timestamp(NOW - 22 * 60_000));
    empty.queue = busy().snapshot.queue;
    let screen = Screen::new("here".to_owned(), empty);
    let text = lines(&screen, &style(), 80)[3..6].join(" ");
    assert!(
        text.starts_with(
            "Nothing is running: 0 leases held. Last finish 07:53 (22m ago). 3 queued: no worker claims `control`."
        ),
        "{text}"
    );
}

#[test]
fn tiles_count_each_row_once() {
    let tiles = Tiles { alive: 1, at_risk: 1, silent: 1, needs_you: 2 };
    assert_eq!(busy().snapshot.tiles(), tiles);
}

#[test]
fn the_choice_follows_its_row_and_the_filter_admits_by_any_name() {
    let mut screen = busy();
    press(&mut screen, KeyCode::Char('j'));
    press(&mut screen, KeyCode::Down);
    let chosen = screen.selected.clone().unwrap();
    screen.snapshot.rows.swap(0, 2);
    assert_eq!(screen.at(), Some(0));
    for _ in 0..9 {
        press(&mut screen, KeyCode::Char('k'));
    }
    assert_eq!(screen.selected, Some(chosen), "it stops at the top");
    for key in ['/', 'A', 'P', 'P', 'q'] {
        press(&mut screen, KeyCode::Char(key));
    }
    assert!(
        screen.rows().is_empty() && lines(&screen, &style(), 80)[3].starts_with("Nothing matches `APPq`")
    );
    press(&mut screen, KeyCode::Backspace);
    press(&mut screen, KeyCode::Enter);
    assert_eq!(screen.rows().len(), 1);
    press(&mut screen, KeyCode::Esc);
    assert_eq!(screen.rows().len(), 4);
}

#[test]
fn enter_shows_the_work_and_escape_goes_back() {
    let mut screen = busy();
    assert_eq!(press(&mut screen, KeyCode::Enter), Then::Look);
    let id = screen.open.clone().unwrap();
    assert_eq!(lines(&screen, &style(), 80)[3], "Loading…");
    let why = Explanation {
        id: id.clone(),
        state: tenure_api::wire::State::Stalled.into(),
        sentence: "Stalled 1 m: worker-3 held it.".to_owned(),
        advice: "abandon it".to_owned(),
        next: vec!["tenure abandon w_1".to_owned()],
        if_silent: None,
    };
    screen.snapshot.full = Some(Full {
        work: screen.snapshot.rows[0].clone(),
        why,
        commands: Vec::new(),
        last: vec![event(&id)],
    });
    let shown = lines(&screen, &style(), 80);
    assert_eq!(shown[3], "State:       ▲ stalled");
    assert_eq!(shown[4], "Since:       2026-01-31T08:13:50.000Z (1m ago)");
    assert_eq!(shown[5], "Why:         Stalled 1 m: worker-3 held it.");
    press(&mut screen, KeyCode::Char('j'));
    assert_eq!(lines(&screen, &style(), 80)[3], shown[4], "it scrolls");
    press(&mut screen, KeyCode::Esc);
    assert!(screen.open.is_none());
    press(&mut screen, KeyCode::Char('?'));
    assert!(
        lines(&screen, &style(), 80)
            .iter()
            .any(|line| line == "  a  approve      x  reject      e  answer      c  cancel")
    );
    press(&mut screen, KeyCode::Char('x'));
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Then::Quit);
}

fn event(id: &WorkId) -> Event {
    let event = json!({
        "position": "1", "work": id, "seq": 1, "at": at(100), "type": "work_created", "to": "queued",
        "actor": { "type": "machine", "id": "bridge" }, "attempt": 0, "prev_hash": "", "hash": "",
    });
    serde_json::from_value(event).unwrap()
}

#[test]
fn no_single_key_decides() {
    let mut screen = busy();
    let row = screen.snapshot.rows[0].clone();
    assert_eq!(press(&mut screen, KeyCode::Char('c')), Then::Propose(Kind::Cancel, row.id.clone()));
    let dialog = || Dialog {
        kind: Kind::Cancel,
        work: row.clone(),
        about: About::Work,
        typed: String::new(),
        confirming: false,
    };
    screen.dialog = Some(dialog());
    let shown = lines(&screen, &style(), 80).join("\n");
    assert!(shown.contains("Its cancellation will be requested.") && shown.contains("Reason: _"), "{shown}");
    // Neither an empty reason, nor a placeholder, nor a y without a reason goes on.
    for typed in ["", "…", "..."] {
        screen.dialog = Some(Dialog { typed: typed.to_owned(), ..dialog() });
        assert_eq!(press(&mut screen, KeyCode::Enter), Then::Stay);
        assert!(!screen.dialog.as_ref().unwrap().confirming, "{typed:?}");
    }
    screen.dialog = Some(dialog());
    for key in "why y".chars() {
        assert_eq!(press(&mut screen, KeyCode::Char(key)), Then::Stay);
    }
    press(&mut screen, KeyCode::Enter);
    assert!(lines(&screen, &style(), 80).join("\n").contains("Continue? y: yes"));
    press(&mut screen, KeyCode::Enter);
    assert!(screen.dialog.is_none());
    assert_eq!(screen.said.as_deref(), Some("nothing was done"));
    screen.dialog = Some(Dialog { typed: "why".to_owned(), confirming: true, ..dialog() });
    assert_eq!(press(&mut screen, KeyCode::Char('y')), Then::Act);
}
