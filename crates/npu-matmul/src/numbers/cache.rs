// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache of the most recently used values.

use std::hash::Hash;
use std::sync::Mutex;

use lru::LruCache;

use crate::numbers::sync::lock;

/// Limits of what is kept for reuse.
#[derive(Debug)]
pub(crate) struct KeptLimits {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// A map that drops the least recently used values.
#[derive(Debug)]
pub(crate) struct LruMap<K: Hash + Eq, V> {
    /// The values, and their bytes.
    kept: Mutex<(LruCache<K, V>, usize)>,
    most: KeptLimits,
    bytes_of: fn(&V) -> usize,
}

impl<K: Hash + Eq, V: Clone> LruMap<K, V> {
    /// Creates a map that keeps up to `count` values.
    pub(crate) fn new(count: usize) -> Self {
        let bytes = usize::MAX;
        Self::with_limits(KeptLimits { count, bytes }, |_| 0)
    }

    /// Creates a map that also limits the bytes of its values.
    pub(crate) fn with_limits(most: KeptLimits, bytes_of: fn(&V) -> usize) -> Self {
        Self {
            kept: Mutex::new((LruCache::unbounded(), 0)),
            most,
            bytes_of,
        }
    }

    /// Returns the value of `key`; `make` makes it if it is missing, from the key alone. Errors are
    /// not cached. `evicted` gets the values that are dropped.
    pub(crate) fn get_or_make<E>(
        &self,
        key: K,
        make: impl FnOnce(&K) -> Result<V, E>,
        evicted: impl FnMut(V),
    ) -> Result<V, E> {
        if let Some(found) = lock(&self.kept).0.get(&key) {
            return Ok(found.clone());
        }
        // Made and dropped without holding the lock. If two threads make the same value, the later
        // one is kept.
        let made = make(&key)?;
        self.insert(key, made.clone()).into_iter().for_each(evicted);
        Ok(made)
    }

    /// Adds a value; returns the evicted ones.
    fn insert(&self, key: K, value: V) -> Vec<V> {
        let mut kept = lock(&self.kept);
        let (values, bytes) = &mut *kept;
        *bytes += (self.bytes_of)(&value);
        let mut next = values.push(key, value);
        let mut evicted = Vec::new();
        loop {
            if let Some((_, value)) = next {
                *bytes -= (self.bytes_of)(&value);
                evicted.push(value);
            }
            let is_over = *bytes > self.most.bytes || values.len() > self.most.count;
            if !is_over {
                return evicted;
            }
            next = values.pop_lru();
            if next.is_none() {
                return evicted;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_used_are_kept() {
        let cache = LruMap::new(3);
        let made = |key: u32| {
            let mut made = false;
            let make = |key: &u32| {
                made = true;
                Ok::<_, ()>(key + 1)
            };
            let value = cache.get_or_make(key, make, drop);
            assert_eq!(value, Ok(key + 1));
            made
        };
        assert!([1, 2, 3].into_iter().all(made));
        assert!(!made(1));
        assert!(made(4));
        assert!(!made(1) && made(2));
        // An error is not cached.
        for _ in 0..2 {
            assert_eq!(cache.get_or_make(9, |_| Err("no"), drop), Err("no"));
        }
    }

    #[test]
    fn bytes_are_limited() {
        let most = KeptLimits {
            count: 9,
            bytes: 10,
        };
        let cache = LruMap::with_limits(most, |&bytes| bytes);
        let evicted = |key: u32, bytes: usize| {
            let mut evicted = Vec::new();
            let value = cache.get_or_make(key, |_| Ok::<_, ()>(bytes), |of| evicted.push(of));
            value.map(|_| evicted).unwrap()
        };
        assert!(evicted(0, 4).is_empty() && evicted(1, 6).is_empty());
        // The first is used again.
        assert!(evicted(0, 4).is_empty());
        assert_eq!(evicted(2, 5), [6]);
        // A value beyond the limit is not kept.
        assert_eq!(evicted(3, 20), [4, 5, 20]);
        assert!(evicted(4, 10).is_empty());
    }
}
