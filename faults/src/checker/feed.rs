//! Readers that followed the feed throughout saw exactly the final log, in its order.

use std::collections::{HashMap, HashSet};

use super::{Judge, Rule};
use crate::run::{Run, Seen};

pub fn check(run: &Run, judge: &mut Judge) {
    let log: Vec<Seen> = run.log.iter().map(Seen::of).collect();
    let positions: HashSet<&str> = run.log.iter().map(|event| event.position.as_str()).collect();
    if positions.len() != run.log.len() {
        judge.broken(Rule::CursorSkipped, "two events of the log have one position".to_owned());
    }
    let places: HashMap<&Seen, usize> = log.iter().zip(0..).collect();
    for (followed, reader) in run.followed.iter().zip(1..) {
        let mut last = None;
        for seen in followed {
            let Some(&place) = places.get(seen) else {
                let what =
                    format!("reader {reader} saw event {} of {}, which is missing now", seen.seq, seen.work);
                judge.lost(Rule::LostWrite, what);
                continue;
            };
            if last.is_some_and(|last| place <= last) {
                let what = format!("reader {reader} saw event {} of {} out of order", seen.seq, seen.work);
                judge.broken(Rule::CursorSkipped, what);
            }
            last = last.max(Some(place));
        }
        let known: HashSet<&Seen> = followed.iter().collect();
        for missed in log.iter().filter(|event| !known.contains(event)) {
            let what = format!("reader {reader} never saw event {} of {}", missed.seq, missed.work);
            judge.broken(Rule::CursorSkipped, what);
        }
    }
}
