// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host memory between a caller's operands and device buffers, kept from call to call.
//!
//! The rows of a prompt take megabytes. The allocator would return such memory to the kernel, and
//! each new page costs a fault.

use std::collections::{TryReserveError, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::numbers::sync::lock;

/// Largest number of vectors kept.
const KEPT: usize = 64;

/// Largest number of bytes that a pool keeps without an engine's limit.
const BYTES_KEPT: usize = 64 << 20;

/// Bytes that some pools may keep together.
#[derive(Debug)]
pub(crate) struct ScratchLimit {
    free: AtomicUsize,
}

/// A pool of vectors. Any number of threads may take and put back vectors.
#[derive(Debug)]
pub struct Scratch<T> {
    /// Oldest first.
    idle: Mutex<VecDeque<Vec<T>>>,
    limit: Arc<ScratchLimit>,
}

impl ScratchLimit {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        let free = AtomicUsize::new(bytes);
        Arc::new(Self { free })
    }

    /// Whether `bytes` more may be kept, which are then counted.
    fn reserve(&self, bytes: usize) -> bool {
        // Only the number matters.
        let less = |free: usize| free.checked_sub(bytes);
        let updated = (self.free).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        updated.is_ok()
    }

    fn release(&self, bytes: usize) {
        self.free.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl<T: Clone + Default> Default for Scratch<T> {
    /// A pool with its own limit of 64 MiB.
    fn default() -> Self {
        Self::within(&ScratchLimit::new(BYTES_KEPT))
    }
}

impl<T: Clone + Default> Scratch<T> {
    /// An empty pool that keeps vectors within `limit`.
    pub(crate) fn within(limit: &Arc<ScratchLimit>) -> Self {
        Self {
            idle: Mutex::default(),
            limit: Arc::clone(limit),
        }
    }

    fn bytes(vector: &Vec<T>) -> usize {
        vector.capacity().saturating_mul(size_of::<T>())
    }

    /// Returns a vector of `len` elements with arbitrary values.
    ///
    /// # Errors
    /// Out of memory.
    pub fn take(&self, len: usize) -> Result<Vec<T>, TryReserveError> {
        let found = {
            let mut idle = lock(&self.idle);
            let fitting = idle.iter().enumerate().filter(|(_, v)| v.capacity() >= len);
            let smallest = fitting.min_by_key(|(_, vector)| vector.capacity());
            let index = smallest.map(|(index, _)| index);
            index.and_then(|index| idle.remove(index))
        };
        let mut vector = found.unwrap_or_default();
        self.limit.release(Self::bytes(&vector));
        resize(&mut vector, len)?;
        Ok(vector)
    }

    /// Keeps `vector` for reuse instead of older ones of this pool, if the limit allows.
    pub fn put(&self, vector: Vec<T>) {
        let bytes = Self::bytes(&vector);
        let mut evicted = Vec::new();
        let mut idle = lock(&self.idle);
        let is_kept = loop {
            if idle.len() < KEPT && self.limit.reserve(bytes) {
                break true;
            }
            let Some(oldest) = idle.pop_front() else {
                break false;
            };
            self.limit.release(Self::bytes(&oldest));
            evicted.push(oldest);
        };
        if is_kept {
            idle.push_back(vector);
        }
        // Freed without holding the lock.
        drop(idle);
    }
}

impl<T> Drop for Scratch<T> {
    fn drop(&mut self) {
        let idle = self.idle.get_mut();
        let idle = idle.unwrap_or_else(std::sync::PoisonError::into_inner);
        let capacities = idle.iter().map(Vec::capacity);
        let bytes = capacities.map(|elements| elements.saturating_mul(size_of::<T>()));
        self.limit.release(bytes.sum());
    }
}

/// Makes `vector` `len` elements long. Elements that it had keep their values.
pub(crate) fn resize<T: Clone + Default>(
    vector: &mut Vec<T>,
    len: usize,
) -> Result<(), TryReserveError> {
    // Exact, so that the pool's limit counts what was asked for.
    vector.try_reserve_exact(len.saturating_sub(vector.len()))?;
    vector.resize(len, T::default());
    Ok(())
}

/// A vector of `len` zeros.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, TryReserveError> {
    let mut vector = Vec::new();
    resize(&mut vector, len)?;
    Ok(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_of_the_same_length_is_the_same_memory() {
        let scratch = Scratch::<f32>::default();
        let [small, large] = [10, 1000].map(|len| scratch.take(len).unwrap());
        let (small_at, large_at) = (small.as_ptr(), large.as_ptr());
        scratch.put(large);
        scratch.put(small);
        let again = scratch.take(10).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (small_at, 10));
        // A longer vector is used, too.
        let longer = scratch.take(900).unwrap();
        assert_eq!((longer.as_ptr(), longer.len()), (large_at, 900));
    }

    #[test]
    fn idle_memory_is_bounded_and_missing_memory_is_an_error() {
        let scratch = Scratch::<u8>::default();
        let taken: Vec<_> = (0..KEPT + 1).map(|_| scratch.take(1).unwrap()).collect();
        taken.into_iter().for_each(|vector| scratch.put(vector));
        assert_eq!(lock(&scratch.idle).len(), KEPT);
        assert!(scratch.take(usize::MAX).is_err());
    }

    #[test]
    fn pools_share_their_limit_and_the_newest_vectors_are_kept() {
        let limit = ScratchLimit::new(100);
        let (bytes, words) = (
            Scratch::<u8>::within(&limit),
            Scratch::<u32>::within(&limit),
        );
        bytes.put(Vec::with_capacity(40));
        words.put(Vec::with_capacity(10));
        let kept = || [lock(&bytes.idle).len(), lock(&words.idle).len()];
        assert_eq!((kept(), limit.free.load(Ordering::Relaxed)), ([1, 1], 20));
        // Instead of the older one of the same pool.
        bytes.put(Vec::with_capacity(60));
        assert_eq!((kept(), limit.free.load(Ordering::Relaxed)), ([1, 1], 0));
        bytes.put(Vec::with_capacity(61));
        assert_eq!((kept(), limit.free.load(Ordering::Relaxed)), ([0, 1], 60));
        drop(words);
        assert_eq!(limit.free.load(Ordering::Relaxed), 100);
    }
}
