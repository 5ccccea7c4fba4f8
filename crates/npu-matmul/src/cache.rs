// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cache of the most recently used values.

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Mutex;

use lru::LruCache;

use crate::sync::lock;

/// A map that drops the least recently used values.
#[derive(Debug)]
pub(crate) struct LruMap<K: Hash + Eq, V>(Mutex<LruCache<K, V>>);

impl<K: Hash + Eq, V: Clone> LruMap<K, V> {
    /// Creates a map that keeps up to `kept` values.
    pub(crate) fn new(kept: NonZeroUsize) -> Self {
        Self(Mutex::new(LruCache::new(kept)))
    }

    /// Returns the value of `key`; `make` makes it if it is missing. Errors are not cached.
    pub(crate) fn get_or_make<E>(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        if let Some(found) = lock(&self.0).get(&key) {
            return Ok(found.clone());
        }
        // Made without holding the lock. If two threads make the same value, the later one is kept.
        let made = make()?;
        let evicted = lock(&self.0).push(key, made.clone());
        // Freed without holding the lock.
        drop(evicted);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_used_last_are_kept() {
        let cache = LruMap::new(NonZeroUsize::new(3).unwrap());
        let made = |key: u32| {
            let mut made = false;
            let value = cache.get_or_make(key, || {
                made = true;
                Ok::<_, ()>(key + 1)
            });
            assert_eq!(value, Ok(key + 1));
            made
        };
        assert!([1, 2, 3].into_iter().all(made));
        assert!(!made(1));
        assert!(made(4));
        assert!(!made(1) && made(2));
        // An error is not cached.
        for _ in 0..2 {
            assert_eq!(cache.get_or_make(9, || Err("no")), Err("no"));
        }
    }
}
