// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contents of the buffer objects at one moment of a capture.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::capture::{Capture, CapturedJob, PageRun};
use crate::error::CaptureError;
use crate::format::PAGE;
use crate::programs::{CapturedProgram, programs};

/// A moment of a capture: before or after a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the job with this index was submitted.
    Before(usize),
    /// After the job with this index has ended.
    After(usize),
}

/// The contents of all objects at one moment.
///
/// Going forward applies only what changed; going back starts over.
#[derive(Debug)]
pub struct Contents<'a> {
    capture: &'a Capture,
    /// Number of chunks that are in `objects`.
    applied: usize,
    objects: Vec<PageMap>,
}

/// The chunk that holds each page. Pages in no chunk are zero.
#[derive(Clone, Debug, Default)]
struct PageMap(BTreeMap<u32, Span>);

/// A range of pages, which starts at its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    /// One past the last page.
    end: u32,
    /// Chunk, and the place of the first page in its data; `None` for zeroes.
    data: Option<(usize, u32)>,
}

impl Span {
    /// The part from page `at` on of this span, which begins at page `start`.
    fn from(self, start: u32, at: u32) -> Self {
        let data = self
            .data
            .map(|(chunk, first)| (chunk, first + (at - start)));
        Self { data, ..self }
    }
}

impl PageMap {
    fn apply(&mut self, chunk: usize, run: &PageRun) {
        let (start, end) = (run.first, run.first + run.count);
        // Cut a span that begins before the run and reaches into it.
        if let Some((&first, &span)) = self.0.range(..start).next_back()
            && span.end > start
        {
            self.0.insert(first, Span { end: start, ..span });
            self.0.insert(start, span.from(first, start));
        }
        while let Some((&first, &span)) = self.0.range(start..end).next() {
            self.0.remove(&first);
            if span.end > end {
                self.0.insert(end, span.from(first, end));
            }
        }
        let data = run.data.map(|first| (chunk, first));
        self.0.insert(start, Span { end, data });
    }

    /// The place of page `page`, and the number of consecutive pages from it
    /// on.
    fn find(&self, page: u32) -> (Option<(usize, u32)>, u32) {
        if let Some((&first, span)) = self.0.range(..=page).next_back()
            && span.end > page
        {
            return (span.from(first, page).data, span.end - page);
        }
        let next = self.0.range(page..).next().map_or(u32::MAX, |(&at, _)| at);
        (None, next - page)
    }
}

impl Capture {
    /// The chunks that were recorded just before a moment; `None` if there is no such job.
    pub(crate) fn chunks_at(&self, moment: Moment) -> Option<Range<usize>> {
        match moment {
            Moment::Before(job) => Some(self.jobs.get(job)?.before.clone()),
            Moment::After(job) => Some(self.jobs.get(job)?.after.clone()),
        }
    }

    /// The objects of `job` that have an address, and their addresses.
    pub(crate) fn ranges(
        &self,
        job: &CapturedJob,
    ) -> impl Iterator<Item = (usize, Range<u64>)> + use<'_> {
        let objects = job.objects().into_iter();
        objects.filter_map(|object| Some((object, self.objects.get(object)?.range()?)))
    }

    /// The programs of `job`, read from `contents`.
    pub fn programs<'a>(
        &'a self,
        job: &'a CapturedJob,
        contents: &'a Contents<'_>,
    ) -> impl Iterator<Item = CapturedProgram> + 'a {
        programs(
            &job.tasks,
            self.ranges(job),
            move |&object, offset, into| contents.read(object, offset, into).is_ok(),
        )
    }
}

impl<'a> Contents<'a> {
    /// The contents of `capture` at its beginning: zeroes.
    #[must_use]
    pub fn new(capture: &'a Capture) -> Self {
        Self {
            capture,
            applied: 0,
            objects: vec![PageMap::default(); capture.objects.len()],
        }
    }

    /// Goes to a moment, or to the end if there is no such job.
    pub fn go(&mut self, moment: Moment) {
        let chunks = self.capture.chunks_at(moment);
        let upto = chunks.map_or(self.capture.chunks.len(), |chunks| chunks.end);
        if upto < self.applied {
            *self = Self::new(self.capture);
        }
        for index in self.applied..upto {
            let chunk = &self.capture.chunks[index];
            for run in &chunk.runs {
                self.objects[chunk.object].apply(index, run);
            }
        }
        self.applied = upto;
    }

    /// Copies bytes of an object. Bytes beyond its end read as zero.
    ///
    /// # Errors
    /// When the file can no longer be read, or its data cannot be unpacked.
    pub fn read(&self, object: usize, offset: u64, into: &mut [u8]) -> Result<(), CaptureError> {
        let Some(map) = self.objects.get(object) else {
            into.fill(0);
            return Ok(());
        };
        let mut done = 0;
        while done < into.len() {
            let at = offset.saturating_add(done as u64);
            let within = (at % PAGE) as usize;
            let rest = &mut into[done..];
            let Ok(page) = u32::try_from(at / PAGE) else {
                rest.fill(0);
                break;
            };
            let (data, pages) = map.find(page);
            let span = (u64::from(pages) * PAGE - within as u64).min(rest.len() as u64) as usize;
            match data {
                None => rest[..span].fill(0),
                Some((chunk, first)) => {
                    let raw = self.capture.unpack(chunk)?;
                    let start = first as usize * PAGE as usize + within;
                    // The parser has checked that the data has all pages of the
                    // run.
                    rest[..span].copy_from_slice(&raw[start..start + span]);
                }
            }
            done += span;
        }
        Ok(())
    }

    /// Ranges of an object that may contain nonzero bytes, ascending.
    pub fn data_ranges(&self, object: usize) -> impl Iterator<Item = Range<u64>> + '_ {
        let spans = self.objects.get(object).into_iter().flat_map(|map| &map.0);
        spans
            .filter(|(_, span)| span.data.is_some())
            .map(|(&first, span)| u64::from(first) * PAGE..u64::from(span.end) * PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn the_last_run_over_a_page_counts(
            runs in prop::collection::vec((0_u32..40, 1_u32..12, any::<bool>()), 0..30),
        ) {
            let mut map = PageMap::default();
            let mut pages = [None; 60];
            for (chunk, &(first, count, data)) in runs.iter().enumerate() {
                let data = data.then_some(3);
                map.apply(chunk, &PageRun { first, count, data });
                for page in first..first + count {
                    pages[page as usize] = data.map(|place| (chunk, place + page - first));
                }
            }
            for (page, &expected) in pages.iter().enumerate() {
                let (found, row) = map.find(page as u32);
                prop_assert_eq!(found, expected);
                for (step, &later) in pages[page..].iter().enumerate().take(row as usize) {
                    let expected = found.map(|(chunk, place)| (chunk, place + step as u32));
                    prop_assert_eq!(later, expected);
                }
            }
        }
    }
}
