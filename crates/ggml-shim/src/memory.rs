// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory packed weights may take, and memory that may not be there.

use std::fs;

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

/// The part of the available memory that is taken unless the user says
/// otherwise. The model itself is still to come, and the CPU's rearranged copy
/// of it: together about as much as what is packed in INT8.
const PART: u64 = 2;

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

/// Half of the memory that the kernel calls available now; no limit if it does
/// not say.
pub(crate) fn default_limit() -> u64 {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| available(&text))
        .map_or(u64::MAX, |bytes| bytes / PART)
}

/// `MemAvailable` in `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
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

    #[test]
    fn the_kernel_tells_what_is_available() {
        let text = "MemTotal:       16000 kB\nMemFree:  1 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(available(text), Some(8000 * 1024));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert!(default_limit() > 0);
    }
}
