//! Cron expressions: five fields, and their due times in a time zone.
//!
//! The time zone is passed in: its offsets and transitions are a table that the caller provides.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::calendar;
use crate::{
    Millis,
    refusal::{Code, Refusal},
};

/// A time zone's clock.
pub trait Zone {
    /// The local time at a moment, as minutes since the local 1 January 1970.
    fn shows(&self, at: Millis) -> i64;

    /// The moments of a local minute.
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

/// The most by which clocks are set back.
const SET_BACK_MINUTES: i64 = 180;
/// The 29th of February comes at least once in this many days.
const HORIZON_DAYS: i64 = 8 * 366;
const DAY_MINUTES: i64 = 24 * 60;

const SHAPE: &str = "minute, hour, day of month, month, day of week";

/// One field of an expression: its allowed values.
struct Field {
    name: &'static str,
    first: u32,
    last: u32,
    /// Names of `first` and the values after it.
    words: &'static [&'static str],
    /// An example of a valid field.
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

/// A parsed cron expression. Two are equal if their texts are equal.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cron {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// If both day fields are restricted, either may match a day; otherwise both must.
    either_day: bool,
    /// Its hour field covers all hours, so that it runs at intervals of real time instead of local times.
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
                "`cron` needs five fields ({SHAPE}), and this has {}. For example: `0 7 * * mon-fri`.",
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
                "`cron` never runs: no month of `{month}` has a day `{day}`. Change its day of month or its \
                 month."
            ))),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its first due time after a moment.
    ///
    /// An expression whose hour field begins with `*` runs at intervals of real time: local times that the
    /// clocks skip do not occur, and those that the clocks repeat occur twice. Any other expression follows
    /// local time: a skipped time is due when the clocks are set forward, and a repeated time is due the
    /// first time only.
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

    /// Its first matching minute from this one on.
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
    /// The values that a field matches, as bits.
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
            // `5/10` goes on to the last value.
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
            _ => {
                Err(self.wrong(whole, &format!("the step `{text}` is not a number from 1 to {}", self.last)))
            }
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
                let why = format!("`{text}` is not one of {} to {}{words}", self.first, self.last);
                Err(self.wrong(whole, &why))
            }
        }
    }

    fn wrong(&self, whole: &str, why: &str) -> Refusal {
        wrong(format!(
            "The {} field of `cron`, `{whole}`, is invalid: {why}. For example: {}.",
            self.name, self.example
        ))
    }
}

#[cfg(test)]
mod tests;
