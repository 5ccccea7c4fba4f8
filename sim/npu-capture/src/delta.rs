// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of an object that changed since they were last stored.

use std::collections::BTreeMap;
use std::ops::Range;

use twox_hash::XxHash3_128;

use crate::error::RecordError;
use crate::format::{CHUNK_BYTES, PAGE};
use crate::sections::PagesEncoder;

/// Access to the bytes of a buffer object.
pub trait BoBytes {
    /// Fills `into` with the bytes from `offset` on, which lies in the object.
    fn read(&self, offset: u64, into: &mut [u8]);
}

impl BoBytes for Vec<u8> {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = self.get(start..).unwrap_or_default();
        let len = found.len().min(into.len());
        into[..len].copy_from_slice(&found[..len]);
        into[len..].fill(0);
    }
}

/// Hash of a page of zeroes, by definition.
pub(crate) const ZERO_PAGE: u128 = 0;

/// Which bytes of an object may be stored.
#[derive(Clone, Debug)]
pub(crate) enum Keep {
    All,
    /// Only these: start to end, disjoint.
    Only(BTreeMap<u64, u64>),
}

impl Keep {
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let Self::Only(ranges) = self else {
            return;
        };
        let Range { mut start, mut end } = range;
        while let Some((&other, &other_end)) = ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            ranges.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        ranges.insert(start, end);
    }

    /// Whether any byte of `range` is kept.
    fn touches(&self, range: &Range<u64>) -> bool {
        match self {
            Self::All => true,
            Self::Only(ranges) => ranges
                .range(..range.end)
                .next_back()
                .is_some_and(|(_, &end)| end > range.start),
        }
    }

    /// Zeroes the bytes that are not kept. `bytes` begin at `offset`.
    fn mask(&self, offset: u64, bytes: &mut [u8]) {
        let Self::Only(ranges) = self else {
            return;
        };
        let end = offset + bytes.len() as u64;
        let place = |at: u64| (at.clamp(offset, end) - offset) as usize;
        let mut zero_from = 0;
        for (&first, &past) in ranges.range(..end) {
            let (first, past) = (place(first), place(past));
            if past > zero_from {
                bytes[zero_from..first.max(zero_from)].fill(0);
                zero_from = past;
            }
        }
        bytes[zero_from..].fill(0);
    }
}

/// Finds changed pages and passes each full payload of a PAGE section to `emit`. `stored`
/// are the hashes of the object's pages as they are in the file. Two states of a page have
/// the same hash with a probability of 2^-128.
pub(crate) fn changes(
    object: u32,
    bytes: &dyn BoBytes,
    keep: &Keep,
    stored: &mut [u128],
    emit: &mut dyn FnMut(&[u8]) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let len = stored.len() as u64 * PAGE;
    let mut chunk = PagesEncoder::new(object);
    let mut piece = Vec::new();
    let mut offset = 0;
    while offset < len {
        let range = offset..(offset + CHUNK_BYTES).min(len);
        piece.resize((range.end - range.start) as usize, 0);
        if keep.touches(&range) {
            bytes.read(offset, &mut piece);
            keep.mask(offset, &mut piece);
        } else {
            piece.fill(0);
        }
        let (pages, _) = piece.as_chunks::<{ PAGE as usize }>();
        for (index, page) in (offset / PAGE..).zip(pages) {
            let zero = page.iter().all(|&byte| byte == 0);
            let hash = if zero {
                ZERO_PAGE
            } else {
                XxHash3_128::oneshot(page)
            };
            let known = &mut stored[index as usize];
            if *known != hash {
                *known = hash;
                // An object has fewer than 2^20 pages.
                chunk.add(index as u32, (!zero).then_some(page));
                if chunk.is_full()
                    && let Some(payload) = chunk.take()?
                {
                    emit(&payload)?;
                }
            }
        }
        offset = range.end;
    }
    match chunk.take()? {
        Some(payload) => emit(&payload),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn the_mask_keeps_what_was_added(
            ranges in prop::collection::vec((0_u64..200, 1_u64..30), 0..12),
            offset in 0_u64..150,
            len in 0_usize..120,
        ) {
            let mut keep = Keep::Only(BTreeMap::new());
            let mut kept = [false; 300];
            for &(start, count) in &ranges {
                keep.add(start..start + count);
                kept[start as usize..(start + count) as usize].fill(true);
            }
            let mut bytes = vec![7; len];
            keep.mask(offset, &mut bytes);
            let window = &kept[offset as usize..offset as usize + len];
            let expected: Vec<u8> = window.iter().map(|&kept| 7 * u8::from(kept)).collect();
            prop_assert_eq!(&bytes, &expected);
            let range = offset..offset + len as u64;
            if window.contains(&true) {
                prop_assert!(keep.touches(&range));
            }
        }
    }
}
