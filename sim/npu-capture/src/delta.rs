// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of an object that changed since they were last stored.

use std::collections::BTreeMap;
use std::ops::Range;

use twox_hash::XxHash3_128;

use crate::error::RecordError;
use crate::format::{CHUNK_BYTES, PAGE};
use crate::sections::PagesEncoder;

/// Hash of a page of zeroes, by definition.
pub(crate) const ZERO_PAGE: u128 = 0;

/// Function that fills a slice with the bytes of an object from an offset on.
pub(crate) type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]);

/// The ranges of an object that are stored, as [`add_range`] makes them; its other bytes
/// are stored as zeroes. `None` stores all.
pub(crate) type KeptRanges = Option<BTreeMap<u64, u64>>;

/// Adds a range to disjoint ones, which map their starts to their ends. Merges ranges that overlap
/// or adjoin.
pub(crate) fn add_range(ranges: &mut BTreeMap<u64, u64>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
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

/// Fills `into` with the stored bytes of an object from `offset` on.
fn read_kept(kept: &KeptRanges, read: ReadAt<'_>, offset: u64, into: &mut [u8]) {
    let Some(ranges) = kept else {
        return read(offset, into);
    };
    into.fill(0);
    let end = offset + into.len() as u64;
    let before_end = ranges.range(..end).rev();
    for (&first, &past) in before_end.take_while(|&(_, &past)| past > offset) {
        let (first, past) = (first.max(offset), past.min(end));
        let place = (first - offset) as usize..(past - offset) as usize;
        read(first, &mut into[place]);
    }
}

/// Finds changed pages and passes each full payload of a PAGE section to `emit`. `stored`
/// are the hashes of the object's pages as they are in the file. Two states of a page have
/// the same hash with a probability of 2^-128.
pub(crate) fn changes(
    object: u32,
    read: ReadAt<'_>,
    kept: &KeptRanges,
    stored: &mut [u128],
    emit: &mut dyn FnMut(&[u8]) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let len = stored.len() as u64 * PAGE;
    let mut chunk = PagesEncoder::new(object);
    let mut piece = Vec::new();
    let mut offset = 0;
    while offset < len {
        let end = (offset + CHUNK_BYTES).min(len);
        piece.resize((end - offset) as usize, 0);
        read_kept(kept, read, offset, &mut piece);
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
        offset = end;
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
            let byte = |at: u64| at as u8 | 1;
            let mut expected = vec![0; 300];
            for at in ranges.iter().flat_map(|&(start, count)| start..start + count) {
                expected[at as usize] = byte(at);
            }
            let read = |offset, into: &mut [u8]| {
                (offset..).zip(into).for_each(|(at, into)| *into = byte(at));
            };
            let mut kept = BTreeMap::new();
            for (start, count) in ranges {
                add_range(&mut kept, start..start + count);
            }
            let mut bytes = vec![1; len];
            read_kept(&Some(kept), &read, offset, &mut bytes);
            prop_assert_eq!(&bytes, &expected[offset as usize..][..len]);
        }

        #[test]
        fn ranges_are_the_bytes_that_were_added(
            added in prop::collection::vec((0..60_u64, 0..12_u64), 0..20),
        ) {
            let mut ranges = BTreeMap::new();
            let mut expected = [false; 80];
            for (start, len) in added {
                add_range(&mut ranges, start..start + len);
                expected[start as usize..(start + len) as usize].fill(true);
            }
            let mut bytes = [false; 80];
            for (&start, &end) in &ranges {
                bytes[start as usize..end as usize].fill(true);
            }
            prop_assert_eq!(bytes, expected);
            let next = ranges.keys().skip(1);
            prop_assert!(ranges.values().zip(next).all(|(end, start)| end < start));
        }
    }
}
