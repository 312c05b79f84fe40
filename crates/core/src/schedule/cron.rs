//! Cron expressions: five fields, and the moments that they name by the clocks of a zone.
//!
//! The zone is given: which offsets hold where, and from when on, is a table that the caller brings.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::calendar;
use crate::{
    Millis,
    refusal::{Code, Refusal},
};

/// When a zone's clocks show what.
pub trait Zone {
    /// What its clocks show at a moment, as minutes since they showed the first of 1970.
    fn shows(&self, at: Millis) -> i64;

    /// When its clocks show that minute.
    fn moments(&self, minute: i64) -> Moments;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moments {
    Once(Millis),
    /// The clocks were set back over it.
    Twice(Millis, Millis),
    /// The clocks were set forward over it, at this moment.
    Never {
        skipped_at: Millis,
    },
}

/// Clocks are set back by no more than that.
const SET_BACK_MINUTES: i64 = 180;
/// The 29th of February comes at least once in so many days.
const HORIZON_DAYS: i64 = 8 * 366;
const DAY_MINUTES: i64 = 24 * 60;

const SHAPE: &str = "minute, hour, day of month, month, day of week";

/// One field of an expression: what may stand in it.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// Words for `first` and what follows it.
    words: &'static [&'static str],
    /// What to write, for one.
    example: &'static str,
}

const MINUTE: Field = Field { name: "minute", first: 0, last: 59, words: &[], example: "`0` or `*/15`" };
const HOUR: Field = Field { name: "hour", first: 0, last: 23, words: &[], example: "`7` or `9-17`" };
const DAY: Field = Field { name: "day of month", first: 1, last: 31, words: &[], example: "`1` or `*`" };
const MONTH: Field = Field {
    name: "month",
    first: 1,
    last: 12,
    words: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    example: "`*` or `jan-mar`",
};
/// Sunday is 0 and 7.
const WEEKDAY: Field = Field {
    name: "day of week",
    first: 0,
    last: 7,
    words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    example: "`*` or `mon-fri`",
};

/// A cron expression that was understood. Two are equal when they are written alike.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Either day field may name a day, where both are restricted; otherwise both must.
    either_day: bool,
    /// Its hours go round the clock: it counts time, where other expressions follow the clock.
    every_hour: bool,
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({})", self.text)
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> String {
        cron.text
    }
}

impl TryFrom<String> for Cron {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        Cron::parse(&text)
    }
}

impl Cron {
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(wrong(format!(
                "`cron` has five fields ({SHAPE}), and this has {}. Write, for one, `0 7 * * mon-fri`.",
                fields.len()
            )));
        };
        let weekdays = WEEKDAY.read(weekday)?;
        let cron = Self {
            text: fields.join(" "),
            minutes: MINUTE.read(minute)?,
            hours: HOUR.read(hour)?,
            days: DAY.read(day)?,
            months: MONTH.read(month)?,
            weekdays: weekdays | weekdays >> 7,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            every_hour: hour.starts_with('*'),
        };
        match cron.at_or_after(0) {
            Some(_) => Ok(cron),
            None => Err(wrong(format!(
                "`cron` never comes: no month of `{month}` has a day `{day}`. Change its day of month or its month."
            ))),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first moment after another that it names.
    ///
    /// An expression whose hour field begins with `*` counts time: what the clocks skip does not come, what they
    /// show twice comes twice. Any other follows the clock: what is skipped comes when the clocks were set
    /// forward, what is shown twice comes the first time only.
    pub fn after(&self, zone: &dyn Zone, after: Millis) -> Option<Millis> {
        let mut minute = zone.shows(after) - SET_BACK_MINUTES;
        let mut best: Option<Millis> = None;
        while let Some(found) = self.at_or_after(minute) {
            let (first, again) = match zone.moments(found) {
                Moments::Once(at) => (Some(at), None),
                Moments::Twice(first, again) => (Some(first), self.every_hour.then_some(again)),
                Moments::Never { skipped_at } => ((!self.every_hour).then_some(skipped_at), None),
            };
            // Later minutes have later first moments.
            if best.is_some() && first >= best {
                return best;
            }
            best = first.into_iter().chain(again).filter(|at| *at > after).chain(best).min();
            minute = found + 1;
        }
        best
    }

    /// The first minute from this one on that it names.
    fn at_or_after(&self, minute: i64) -> Option<i64> {
        let first = minute.div_euclid(DAY_MINUTES);
        let mut from = minute.rem_euclid(DAY_MINUTES);
        for day in first..=first + HORIZON_DAYS {
            if self.names_day(day)
                && let Some(of_day) = (from..DAY_MINUTES).find(|minute| self.names_minute(*minute))
            {
                return Some(day * DAY_MINUTES + of_day);
            }
            from = 0;
        }
        None
    }

    fn names_minute(&self, of_day: i64) -> bool {
        has(self.hours, of_day / 60) && has(self.minutes, of_day % 60)
    }

    fn names_day(&self, day: i64) -> bool {
        let date = calendar::date(day);
        let (of_month, of_week) =
            (has(self.days, date.day.into()), has(self.weekdays, calendar::weekday(day)));
        let named = if self.either_day { of_month || of_week } else { of_month && of_week };
        named && has(self.months, date.month.into())
    }
}

fn has(set: u64, value: i64) -> bool {
    set >> value & 1 == 1
}

fn wrong(detail: String) -> Refusal {
    Refusal::new(Code::Invalid, detail)
}

impl Field {
    /// The values that a field names, a bit each.
    fn read(&self, text: &str) -> Result<u64, Refusal> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part, text)?))
    }

    fn part(&self, part: &str, whole: &str) -> Result<u64, Refusal> {
        let (range, step) = match part.split_once('/') {
            None => (part, None),
            Some((range, step)) => (range, Some(self.step(step, whole)?)),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (self.first, self.last),
            Some((from, to)) => (self.value(from, whole)?, self.value(to, whole)?),
            // `5/10` goes on to the end.
            None => {
                let from = self.value(range, whole)?;
                (from, if step.is_some() { self.last } else { from })
            }
        };
        if from > to {
            return Err(self.wrong(whole, &format!("the range `{range}` runs backwards; write two ranges")));
        }
        Ok((from..=to).step_by(step.unwrap_or(1)).fold(0, |set, value| set | 1 << value))
    }

    fn step(&self, text: &str, whole: &str) -> Result<usize, Refusal> {
        match text.parse() {
            Ok(step) if step > 0 && step <= self.last as usize => Ok(step),
            _ => Err(self.wrong(whole, &format!("the step `{text}` is no number from 1 to {}", self.last))),
        }
    }

    fn value(&self, text: &str, whole: &str) -> Result<u32, Refusal> {
        let word = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        let number = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        match word.map(|at| at as u32 + self.first).or(number) {
            Some(value) if (self.first..=self.last).contains(&value) => Ok(value),
            _ => {
                let words = match self.words {
                    [first, .., last] => format!(", or {first} to {last}"),
                    _ => String::new(),
                };
                let why = format!("`{text}` is none of {} to {}{words}", self.first, self.last);
                Err(self.wrong(whole, &why))
            }
        }
    }

    fn wrong(&self, whole: &str, why: &str) -> Refusal {
        wrong(format!(
            "The {} field of `cron`, `{whole}`, cannot be used: {why}. Write, for one, {}.",
            self.name, self.example
        ))
    }
}

#[cfg(test)]
mod tests;
