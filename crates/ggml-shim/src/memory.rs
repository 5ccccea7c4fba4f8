// SPDX-License-Identifier: MIT OR Apache-2.0
//! Amounts of memory as users write them, and memory that may not be there.

/// The host has no memory left. Rust would end the process, which is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutOfMemory {
    /// For so many bytes.
    #[error("out of memory: this process gets no {0} bytes more")]
    Bytes(usize),
    /// For what the software model holds of a task.
    #[error("out of memory: this process gets none for what the software model computes with")]
    Model,
}

/// An empty vector with room for `len` elements.
pub(crate) fn with_room<T>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut data = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>());
    let reserved = data.try_reserve_exact(len);
    reserved.map_err(|_| OutOfMemory::Bytes(bytes))?;
    Ok(data)
}

/// A vector of `len` elements, all of them zero or what is its like.
pub(crate) fn zeroed<T: Clone + Default>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut data = with_room(len)?;
    data.resize(len, T::default());
    Ok(data)
}

/// Reads a number of bytes, with `K`, `M` or `G` behind it for the powers of
/// 1024.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (number, unit) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1_u64),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_or_none() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("3K", Some(3 << 10)),
            ("512m", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("1.5G", None),
            ("G", None),
            ("", None),
            ("-1", None),
            ("2GB", None),
            ("99999999999999G", None),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let most = usize::MAX / 8;
        assert_eq!(zeroed::<f32>(most), Err(OutOfMemory::Bytes(most * 4)));
        assert_eq!(
            zeroed::<f32>(usize::MAX),
            Err(OutOfMemory::Bytes(usize::MAX))
        );
        assert_eq!(zeroed::<u8>(3), Ok(vec![0; 3]));
    }
}
