// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allocations that may fail.

/// The host has no memory left. Rust would end the process, which is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutOfMemory {
    #[error("out of memory: cannot allocate {0} bytes")]
    Bytes(usize),
    /// For rows that the NPU reads, or for their outputs.
    #[error("out of memory: cannot allocate the rows of a matmul")]
    Rows,
    #[error("out of memory: cannot allocate the data of the software model")]
    Model,
}

/// Returns a vector of `len` elements, all of them zero or the type's default.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut data = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    let reserved = data.try_reserve_exact(len);
    reserved.map_err(|_| OutOfMemory::Bytes(bytes))?;
    data.resize(len, T::default());
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let most = usize::MAX / 8;
        assert_eq!(zeroed::<f32>(most), Err(OutOfMemory::Bytes(most * 4)));
        let error = OutOfMemory::Bytes(usize::MAX);
        assert_eq!(zeroed::<f32>(usize::MAX), Err(error));
        assert_eq!(zeroed::<u8>(3), Ok(vec![0; 3]));
    }
}
