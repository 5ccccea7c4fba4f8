// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host memory between a caller's operands and device buffers, kept from call to call.
//!
//! The rows of a prompt take megabytes. The allocator would return such memory to the kernel, and
//! each new page costs a fault.

use std::collections::TryReserveError;
use std::sync::Mutex;

use crate::sync::lock;

/// Largest number of vectors kept.
const KEPT: usize = 64;

/// Largest number of bytes kept: several times the quantised rows of a batch of 512 tokens for the
/// widest matrices of 8B models.
const BYTES_KEPT: usize = 64 << 20;

/// A pool of vectors. Any number of threads may take and put back vectors.
#[derive(Debug, Default)]
pub struct Scratch<T> {
    free: Mutex<Vec<Vec<T>>>,
}

impl<T: Clone + Default> Scratch<T> {
    /// Returns a vector of `len` elements with arbitrary values.
    ///
    /// # Errors
    /// Out of memory.
    pub fn take(&self, len: usize) -> Result<Vec<T>, TryReserveError> {
        let mut vector = {
            let mut free = lock(&self.free);
            let fitting = free.iter().enumerate().filter(|(_, v)| v.capacity() >= len);
            let smallest = fitting.min_by_key(|(_, vector)| vector.capacity());
            let found = smallest.map(|(index, _)| index);
            found.map_or_else(Vec::new, |index| free.swap_remove(index))
        };
        // Exact, so that the pool's limit counts what was asked for.
        vector.try_reserve_exact(len.saturating_sub(vector.len()))?;
        vector.resize(len, T::default());
        Ok(vector)
    }

    /// Keeps `vector` for reuse, unless the pool is full.
    pub fn put(&self, vector: Vec<T>) {
        let mut free = lock(&self.free);
        let bytes = |vector: &Vec<T>| vector.capacity().saturating_mul(size_of::<T>());
        let kept: usize = free.iter().map(bytes).sum();
        if free.len() < KEPT && kept.saturating_add(bytes(&vector)) <= BYTES_KEPT {
            free.push(vector);
        }
    }
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
    fn what_waits_is_bounded_and_what_is_not_there_is_an_error() {
        let scratch = Scratch::<u8>::default();
        let taken: Vec<_> = (0..KEPT + 1).map(|_| scratch.take(1).unwrap()).collect();
        taken.into_iter().for_each(|vector| scratch.put(vector));
        assert_eq!(lock(&scratch.free).len(), KEPT);
        let scratch = Scratch::<u8>::default();
        scratch.put(Vec::with_capacity(BYTES_KEPT + 1));
        assert!(lock(&scratch.free).is_empty());
        assert!(scratch.take(usize::MAX).is_err());
    }
}
