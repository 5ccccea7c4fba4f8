// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of an object that changed since they were last stored.

use std::collections::BTreeSet;

use twox_hash::XxHash3_128;

use crate::error::RecordError;
use crate::format::{CHUNK_BYTES, PAGE};
use crate::sections::PagesEncoder;

/// Hash of a page of zeroes, by definition.
pub(crate) const ZERO_PAGE: u128 = 0;

/// Function that fills a slice with the bytes of an object from an offset on.
pub(crate) type ReadAt<'a> = &'a dyn Fn(u64, &mut [u8]);

/// The ranges of an object that are stored, start to end; its other bytes are stored as
/// zeroes. `None` stores all.
pub(crate) type KeptRanges = Option<BTreeSet<(u64, u64)>>;

/// Fills `into` with the stored bytes of an object from `offset` on.
fn read_kept(kept: &KeptRanges, read: ReadAt<'_>, offset: u64, into: &mut [u8]) {
    let Some(ranges) = kept else {
        return read(offset, into);
    };
    into.fill(0);
    let end = offset + into.len() as u64;
    for &(first, past) in ranges.range(..(end, 0)) {
        let (first, past) = (first.max(offset), past.min(end));
        if first < past {
            let place = (first - offset) as usize..(past - offset) as usize;
            read(first, &mut into[place]);
        }
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
            let ranges = ranges.iter().map(|&(start, count)| (start, start + count));
            let mut bytes = vec![1; len];
            read_kept(&Some(ranges.collect()), &read, offset, &mut bytes);
            prop_assert_eq!(&bytes, &expected[offset as usize..][..len]);
        }
    }
}
