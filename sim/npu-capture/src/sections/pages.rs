// SPDX-License-Identifier: MIT OR Apache-2.0
//! PAGE: pages of an object.

use crate::capture::{CapturedObject, Chunk, PageRun};
use crate::error::{CaptureError, RecordError};
use crate::fields::{Fields, RESERVED, numbers};
use crate::format::{CHUNK_BYTES, PAGE, pack};

/// Kind of a run: pages of zeroes.
const RUN_ZERO: u32 = 0;
/// Kind of a run: pages in the section's data.
const RUN_DATA: u32 = 1;
/// Maximum number of runs of a written section: 65536 times 12 bytes and [`CHUNK_BYTES`] of
/// data stay far below [`PAYLOAD_MAX`](crate::format::PAYLOAD_MAX).
const RUNS_MAX: usize = 1 << 16;

/// Builds a PAGE section.
pub(crate) struct PagesEncoder {
    object: u32,
    /// First page, number of pages and kind of each.
    runs: Vec<[u32; 3]>,
    data: Vec<u8>,
}

impl PagesEncoder {
    pub(crate) fn new(object: u32) -> Self {
        Self {
            object,
            runs: Vec::new(),
            data: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, page: u32, data: Option<&[u8; PAGE as usize]>) {
        let kind = if data.is_some() { RUN_DATA } else { RUN_ZERO };
        match self.runs.last_mut() {
            Some([first, count, last]) if *last == kind && *first + *count == page => *count += 1,
            _ => self.runs.push([page, 1, kind]),
        }
        self.data.extend_from_slice(data.map_or(&[], |data| data));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.data.len() as u64 == CHUNK_BYTES || self.runs.len() == RUNS_MAX
    }

    /// The payload for the pages that were added since the last one; `None` if there are none.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<u8>>, RecordError> {
        if self.runs.is_empty() {
            return Ok(None);
        }
        let (runs, bytes) = (self.runs.len() as u32, self.data.len() as u32);
        let mut payload = numbers(&[self.object, runs, bytes, RESERVED]);
        payload.extend(numbers(self.runs.as_flattened()));
        payload.extend(pack(&self.data)?);
        self.runs.clear();
        self.data.clear();
        Ok(Some(payload))
    }
}

/// The pages of one of `objects` in a payload. `end` is the end of the section.
pub(crate) fn decode(
    mut fields: Fields<'_>,
    objects: &[CapturedObject],
    end: u64,
) -> Result<Chunk, CaptureError> {
    let [object, runs, claimed_bytes, _reserved] = fields.numbers()?;
    let object = object as usize;
    let pages = match objects.get(object) {
        Some(object) => object.bytes / PAGE,
        None => return Err(fields.malformed("the pages belong to an unknown object")),
    };
    let rows = fields.rows(runs)?;
    let mut runs = Vec::new();
    let (mut last, mut data_pages) = (0, 0_u64);
    for [first, count, kind] in rows {
        let end = u64::from(first) + u64::from(count);
        if count == 0 || u64::from(first) < last || end > pages {
            return Err(fields.malformed("runs of pages overlap or exceed the object"));
        }
        last = end;
        let data = match kind {
            RUN_ZERO => None,
            RUN_DATA => {
                // It fits: a chunk that exceeds its limit is refused.
                let place = data_pages as u32;
                data_pages += u64::from(count);
                Some(place)
            }
            _ => return Err(fields.malformed("a run of pages has an unknown kind")),
        };
        if data_pages * PAGE > CHUNK_BYTES {
            return Err(fields.malformed("it holds more pages than a section can"));
        }
        runs.push(PageRun { first, count, data });
    }
    let raw_bytes = data_pages * PAGE;
    let packed = fields.rest();
    if u64::from(claimed_bytes) != raw_bytes || (raw_bytes == 0) != packed.is_empty() {
        return Err(fields.malformed("the length of its data does not match its pages"));
    }
    Ok(Chunk {
        object,
        runs,
        offset: end - packed.len() as u64,
        packed_bytes: packed.len(),
        raw_bytes: raw_bytes as usize,
    })
}
