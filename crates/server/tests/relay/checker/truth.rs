//! The provider's own ledger: every call that reached it, and the effects that really happened.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use serde_json::Value;
use tenure_core::CommandId;
use tenure_store::Ledger;
use tenure_testkit::{Call, Reply};
use tokio::{runtime::Handle, sync::Notify};

use super::dice::Dice;

/// One call, as the provider saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub key: String,
    pub command: CommandId,
    /// How many dispatches of it were committed at that time.
    pub dispatches: u32,
}

#[derive(Default)]
struct Kept {
    calls: Vec<Seen>,
    effects: HashMap<String, u32>,
    /// How often each key was used, by calls and lookups.
    turns: HashMap<String, u64>,
}

pub struct Truth {
    ledger: Ledger,
    handle: Handle,
    seed: u64,
    kept: Mutex<Kept>,
    /// Responds to every call at once, and truthfully.
    pub healthy: AtomicBool,
    /// The relay dies after this many more calls.
    pub kill_in: AtomicU64,
    pub killed: Notify,
}

/// The fate of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    Done,
    DoneAndLost,
    Lost,
    DoneAndBroken,
    Broken,
    Gone,
    Refused,
    Busy,
    DoneTwiceAnswered,
    DoneCutShort,
    DoneAndSilent,
}

impl Truth {
    pub fn new(ledger: Ledger, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            ledger,
            handle: Handle::current(),
            seed,
            kept: Mutex::default(),
            healthy: AtomicBool::new(false),
            kill_in: AtomicU64::new(u64::MAX),
            killed: Notify::new(),
        })
    }

    pub fn calls(&self) -> Vec<Seen> {
        self.kept.lock().unwrap().calls.clone()
    }

    pub fn effects(&self, key: &str) -> u32 {
        self.kept.lock().unwrap().effects.get(key).copied().unwrap_or(0)
    }

    /// The same key again is not a second effect with a native provider.
    pub fn happen(&self, key: &str, native: bool) {
        let mut kept = self.kept.lock().unwrap();
        let effects = kept.effects.entry(key.to_owned()).or_default();
        *effects = if native { 1 } else { *effects + 1 };
    }

    fn dice(&self, key: &str) -> Dice {
        let mut kept = self.kept.lock().unwrap();
        let turn = kept.turns.entry(key.to_owned()).or_default();
        *turn += 1;
        let hash = key.bytes().fold(self.seed ^ *turn, |hash, byte| hash.wrapping_mul(31) ^ u64::from(byte));
        Dice(hash)
    }

    /// A call arrives. `dispatches`: the committed ones by then.
    pub fn call(&self, key: &str, command: CommandId, dispatches: u32, native: bool) -> Fate {
        let mut dice = self.dice(key);
        let seen = Seen { key: key.to_owned(), command, dispatches };
        self.kept.lock().unwrap().calls.push(seen);
        let fate = if self.healthy.load(Ordering::SeqCst) {
            Fate::Done
        } else {
            match dice.below(100) {
                0..34 => Fate::Done,
                34..46 => Fate::DoneAndLost,
                46..54 => Fate::Lost,
                54..62 => Fate::DoneAndBroken,
                62..70 => Fate::Broken,
                70..74 => Fate::Gone,
                74..80 => Fate::Refused,
                80..88 => Fate::Busy,
                88..93 => Fate::DoneTwiceAnswered,
                93..98 => Fate::DoneCutShort,
                _ => Fate::DoneAndSilent,
            }
        };
        match fate {
            Fate::Done
            | Fate::DoneAndLost
            | Fate::DoneAndBroken
            | Fate::DoneTwiceAnswered
            | Fate::DoneCutShort
            | Fate::DoneAndSilent => self.happen(key, native),
            Fate::Lost | Fate::Broken | Fate::Gone | Fate::Refused | Fate::Busy => {}
        }
        if self.kill_in.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.killed.notify_one();
        }
        fate
    }

    /// The relay's call over HTTP.
    pub fn over_http(&self, call: &Call) -> Reply {
        let told: Value = serde_json::from_slice(&call.body).expect("the relay sends JSON");
        let command: CommandId = told["data"]["command"].as_str().unwrap().parse().unwrap();
        let key = call.header("webhook-id").unwrap();
        let row = self.handle.block_on(self.ledger.command(command)).unwrap();
        let native = call.path.contains("native");
        match self.call(key, command, row.body.dispatches, native) {
            Fate::Done => Reply::json(200, &format!(r#"{{"id":"{key}"}}"#)),
            Fate::DoneAndLost | Fate::Lost => Reply::Drop,
            Fate::DoneAndBroken | Fate::Broken => Reply::status(500),
            Fate::Gone => Reply::status(410),
            Fate::Refused => Reply::status(422),
            Fate::Busy => Reply::status(429),
            Fate::DoneTwiceAnswered => Reply::Twice,
            Fate::DoneCutShort => Reply::CutShort,
            Fate::DoneAndSilent => Reply::Hang,
        }
    }

    /// A lookup: it may not know, but it never reports anything false.
    pub fn look_up(&self, call: &Call) -> Reply {
        let key = call.header("webhook-id").unwrap();
        let unsure = !self.healthy.load(Ordering::SeqCst) && self.dice(key).one_in(3);
        if unsure {
            return [Reply::json(200, r#"{"outcome":"unknown"}"#), Reply::status(500), Reply::Drop]
                [(self.dice(key).below(3)) as usize]
                .clone();
        }
        match self.effects(key) {
            0 => Reply::json(200, r#"{"outcome":"absent"}"#),
            _ => Reply::json(200, &format!(r#"{{"outcome":"found","external_id":"{key}"}}"#)),
        }
    }
}
