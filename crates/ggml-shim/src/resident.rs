// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packed weights that stay on the NPU.
//!
//! Each host buffer has one such table, which is dropped with the buffer. An entry is found by the
//! address of the matrix *and* its type, dimensions and stride. It is dropped when the host writes
//! into the bytes that it was made from: ggml reuses addresses freely. Only buffers that the host
//! declared to hold weights get entries.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::shared::lock;

/// Identifies a matrix inside a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MatrixKey {
    /// Address of the first byte.
    pub(crate) address: usize,
    /// Number of bytes from the first to the last.
    pub(crate) len: usize,
    /// ggml's number of the format.
    pub(crate) type_id: u32,
    /// Rows of the weights: output channels.
    pub(crate) n: usize,
    /// Elements of a row.
    pub(crate) k: usize,
    /// Bytes from row to row.
    pub(crate) stride: usize,
}

impl MatrixKey {
    fn overlaps(&self, range: &Range<usize>) -> bool {
        self.address < range.end && range.start < self.address.saturating_add(self.len)
    }
}

/// One matrix: empty until the first use, and again if packing failed.
type Slot<W> = Arc<Mutex<Option<Arc<W>>>>;

/// The resident matrices of one buffer.
#[derive(Debug)]
pub(crate) struct ResidentMatrices<W>(Mutex<HashMap<MatrixKey, Slot<W>>>);

impl<W> Default for ResidentMatrices<W> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<W> ResidentMatrices<W> {
    /// Returns the matrix of `key`, made by `load` if it is missing. Two threads that need the same
    /// matrix load it once. Threads that need different ones do not wait for each other.
    pub(crate) fn get_or_load<E>(
        &self,
        key: MatrixKey,
        load: impl FnOnce() -> Result<W, E>,
    ) -> Result<Arc<W>, E> {
        let slot = Arc::clone(lock(&self.0).entry(key).or_default());
        let mut slot = lock(&slot);
        if let Some(weights) = &*slot {
            return Ok(Arc::clone(weights));
        }
        let weights = Arc::new(load()?);
        *slot = Some(Arc::clone(&weights));
        Ok(weights)
    }

    /// Inserts a matrix that was made elsewhere.
    pub(crate) fn insert(&self, key: MatrixKey, weights: W) {
        let slot = Arc::new(Mutex::new(Some(Arc::new(weights))));
        lock(&self.0).insert(key, slot);
    }

    /// Whether a matrix of `key` exists or is being made.
    pub(crate) fn contains(&self, key: &MatrixKey) -> bool {
        lock(&self.0).contains_key(key)
    }

    /// Forgets matrices that were made from any byte in `range` of addresses.
    pub(crate) fn forget(&self, range: Range<usize>) {
        lock(&self.0).retain(|key, _| !key.overlaps(&range));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn key(address: usize) -> MatrixKey {
        MatrixKey {
            address,
            len: 64,
            type_id: 1,
            n: 4,
            k: 8,
            stride: 16,
        }
    }

    fn load(residents: &ResidentMatrices<u32>, key: MatrixKey, value: u32) -> u32 {
        let loaded = residents.get_or_load(key, || Ok::<_, Infallible>(value));
        let Ok(weights) = loaded;
        *weights
    }

    #[test]
    fn a_matrix_is_loaded_once_and_another_shape_is_another_matrix() {
        let residents = ResidentMatrices::default();
        // A failed load is tried again.
        let failed = residents.get_or_load(key(4096), || Err("no memory"));
        assert_eq!(failed, Err("no memory"));
        assert_eq!(load(&residents, key(4096), 1), 1);
        assert_eq!(load(&residents, key(4096), 2), 1);
        let other = MatrixKey { n: 2, ..key(4096) };
        assert_eq!(load(&residents, other, 2), 2);
    }

    #[test]
    fn written_bytes_are_forgotten_and_neighbours_kept() {
        let residents = ResidentMatrices::default();
        for (address, value) in [(4096, 1), (4160, 2), (4224, 3)] {
            load(&residents, key(address), value);
        }
        residents.forget(4160..4161);
        assert_eq!(load(&residents, key(4096), 9), 1);
        assert_eq!(load(&residents, key(4160), 9), 9);
        assert_eq!(load(&residents, key(4224), 9), 3);
        residents.forget(4160..4160);
        assert_eq!(load(&residents, key(4160), 7), 9);
    }

    #[test]
    fn what_is_inserted_replaces_what_was_there() {
        let residents = ResidentMatrices::default();
        assert!(!residents.contains(&key(0)));
        load(&residents, key(0), 1);
        residents.insert(key(0), 2);
        assert!(residents.contains(&key(0)) && !residents.contains(&key(64)));
        assert_eq!(load(&residents, key(0), 3), 2);
    }

    #[test]
    fn threads_that_ask_together_load_once() {
        let residents = ResidentMatrices::default();
        let loads = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let loaded = residents.get_or_load(key(0), || {
                        *loads.lock().unwrap() += 1;
                        Ok::<_, Infallible>(1)
                    });
                    assert!(loaded.is_ok());
                });
            }
        });
        assert_eq!(*loads.lock().unwrap(), 1);
    }
}
