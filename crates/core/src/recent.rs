//! A cache of two generations: when the younger is full, the older is forgotten. Bounded, and nothing is done per entry
//! when it forgets.

use std::hash::Hash;

use rustc_hash::FxHashMap;

/// What was used recently, by key.
#[derive(Debug)]
pub struct Recent<K, T> {
    young: FxHashMap<K, T>,
    old: FxHashMap<K, T>,
    /// Entries of one generation.
    size: usize,
}

impl<K: Copy + Eq + Hash, T> Recent<K, T> {
    /// `size`: the entries of one generation. At most twice as many are there.
    pub fn new(size: usize) -> Self {
        Self { young: FxHashMap::default(), old: FxHashMap::default(), size }
    }

    pub fn contains(&self, key: K) -> bool {
        self.young.contains_key(&key) || self.old.contains_key(&key)
    }

    pub fn get(&mut self, key: K) -> Option<&mut T> {
        if let Some(entry) = self.old.remove(&key) {
            self.put(key, entry);
        }
        self.young.get_mut(&key)
    }

    pub fn take(&mut self, key: K) -> Option<T> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    pub fn put(&mut self, key: K, entry: T) {
        if self.young.len() >= self.size {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, entry);
    }

    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_outlives_what_is_not() {
        let mut recent = Recent::new(2);
        (0..2).for_each(|n| recent.put(n, n));
        recent.put(2, 2);
        assert_eq!(recent.get(0), Some(&mut 0), "used again, it is young again");
        recent.put(3, 3);
        assert!(recent.contains(0) && !recent.contains(1));
        assert_eq!(recent.take(3), Some(3));
        assert!(!recent.contains(3));
    }
}
