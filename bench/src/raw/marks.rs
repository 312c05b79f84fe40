//! The position of each work item in its log, and its next one: the only part of a raw transition that is not
//! copied from the ledger's values.

use std::ops::Range;

use uuid::Uuid;

use crate::Result;

/// The values that differ from one event of a work item to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    Seq,
    At,
    /// The commit's position in the feed.
    Txn,
    PrevHash,
    Head,
    /// The position of the event, and of the one before it.
    Event,
    Previous,
    Command,
    CommandKey,
}

/// A changed value, in its column's type.
pub enum Fresh<'a> {
    Number(i64),
    Id(Uuid),
    /// The first bytes of the value; the others stay.
    Bytes(&'a [u8]),
}

#[derive(Clone, Debug, Default)]
pub struct Mark {
    pub seq: i64,
    pub at: i64,
    pub txn: i64,
    pub prev_hash: Vec<u8>,
    pub head: Vec<u8>,
    pub event: i64,
    pub previous: i64,
    pub command: Uuid,
}

impl Mark {
    pub fn of(&self, moving: Moving) -> Fresh<'_> {
        match moving {
            Moving::Seq => Fresh::Number(self.seq),
            Moving::At => Fresh::Number(self.at),
            Moving::Txn => Fresh::Number(self.txn),
            Moving::PrevHash => Fresh::Bytes(&self.prev_hash),
            Moving::Head => Fresh::Bytes(&self.head),
            Moving::Event => Fresh::Number(self.event),
            Moving::Previous => Fresh::Number(self.previous),
            Moving::Command => Fresh::Id(self.command),
            // Any key works that no other command of the item has.
            Moving::CommandKey => Fresh::Bytes(self.command.as_bytes()),
        }
    }
}

/// The work items that raw cycles through.
#[derive(Debug, Default)]
pub struct Marks {
    pub all: Vec<Mark>,
    /// The last position in the feed, the last event and the last command. The ledger's ids ascend in the
    /// same way.
    pub txn: i64,
    event: i64,
    pub command: Uuid,
    /// The next work item.
    next: usize,
    moved: u64,
}

impl Marks {
    /// Starts from the ledger's state. Raw creates one event for each of the ledger's.
    pub fn learn(&mut self, all: Vec<Mark>) -> Result<()> {
        let one_each = |(before, after): (&Mark, &Mark)| after.seq == before.seq + 1;
        if !self.all.is_empty() && !self.all.iter().zip(&all).all(one_each) {
            return Err("a transition took the ledger more than one event, or none".into());
        }
        self.event = all.iter().map(|mark| mark.event).max().unwrap_or_default();
        self.all = all;
        Ok(())
    }

    /// The next work items, each with a new command. They are neighbours: if too few are left, it starts
    /// over.
    /// are left, it starts over.
    pub fn turn(&mut self, size: usize) -> Range<usize> {
        let first = if self.next + size > self.all.len() { 0 } else { self.next };
        self.next = first + size;
        for mark in &mut self.all[first..self.next] {
            self.command = Uuid::from_u128(self.command.as_u128() + 1);
            mark.command = self.command;
        }
        first..self.next
    }

    /// Moves work items to their next events, in one commit. The hashes are new, but nothing is hashed.
    pub fn step(&mut self, works: Range<usize>) {
        self.txn += 1;
        for mark in &mut self.all[works] {
            mark.seq += 1;
            mark.at += 1;
            mark.txn = self.txn;
            self.event += 1;
            mark.previous = std::mem::replace(&mut mark.event, self.event);
            mark.prev_hash.clone_from(&mark.head);
            mark.head[..8].copy_from_slice(&self.moved.to_be_bytes());
            self.moved += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(seqs: [i64; 3]) -> Vec<Mark> {
        seqs.map(|seq| Mark { seq, head: vec![7; 32], ..Mark::default() }).to_vec()
    }

    #[test]
    fn works_take_turns_with_commands_of_their_own() {
        let mut all = Marks { all: marks([3; 3]), ..Marks::default() };
        assert_eq!(
            [all.turn(2), all.turn(1), all.turn(1), all.turn(2), all.turn(2)],
            [0..2, 2..3, 0..1, 1..3, 0..2]
        );
        assert_eq!(all.all.iter().map(|mark| mark.command.as_u128()).collect::<Vec<_>>(), [7, 8, 6]);
    }

    #[test]
    fn events_follow_each_other_with_hashes_of_their_own() {
        let mut all = Marks { all: marks([3; 3]), ..Marks::default() };
        all.step(0..2);
        let heads = all.all.iter().map(|mark| mark.head.clone()).collect::<Vec<_>>();
        assert!(heads[0] != heads[1] && all.all[0].prev_hash == [7; 32] && heads[2] == [7; 32]);
        all.step(0..1);
        assert_eq!(all.all[0].prev_hash, heads[0]);
        let places = all.all.iter().map(|mark| (mark.previous, mark.event));
        assert_eq!(places.collect::<Vec<_>>(), [(1, 3), (0, 2), (0, 0)]);
        assert_eq!(
            all.all.iter().map(|mark| (mark.seq, mark.txn)).collect::<Vec<_>>(),
            [(5, 2), (4, 1), (3, 0)]
        );
    }

    #[test]
    fn a_transition_is_one_event() {
        let mut all = Marks::default();
        all.learn(marks([3; 3])).unwrap();
        all.learn(marks([4; 3])).unwrap();
        assert!(all.learn(marks([5, 6, 5])).is_err());
    }
}
