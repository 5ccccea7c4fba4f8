// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocations that may fail.

use crate::weights::node_error::NodeFailure;

/// Returns a vector of `len` elements, all of them zero or the type's default. Without memory Rust
/// would end the process, which is not ours.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, NodeFailure> {
    let mut data = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    let reserved = data.try_reserve_exact(len);
    reserved.map_err(|_| NodeFailure::OutOfMemory(bytes))?;
    data.resize(len, T::default());
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let most = usize::MAX / 8;
        for (len, bytes) in [(most, most * 4), (usize::MAX, usize::MAX)] {
            let error = zeroed::<f32>(len).unwrap_err();
            assert!(matches!(error, NodeFailure::OutOfMemory(wanted) if wanted == bytes));
        }
        assert_eq!(zeroed::<u8>(3).unwrap(), [0; 3]);
    }
}
