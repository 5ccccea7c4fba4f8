// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffer objects at recorded addresses.
//!
//! The driver has no way to ask for an address: it takes the smallest hole
//! that fits, and there the lowest address (`drm_mm`, best fit). In a fresh
//! file there is one hole, so that objects come one behind the other: in the
//! order of their addresses, with fillers in the gaps, each comes to lie where
//! it was. The fillers are closed afterwards, and what was not mapped when the
//! job was recorded is not mapped now. On a board a filler takes memory while it
//! is there, so a file needs as many bytes as its highest address says.

use std::collections::BTreeMap;

use rocket_uapi::{Bo, ByteLen, Device};

use super::error::ReplayError;
use crate::capture::{Capture, CapturedJob};

/// An open file with objects where they were recorded.
#[derive(Debug)]
pub(super) struct PlacedFile {
    device: Device,
    bos: BTreeMap<usize, Bo>,
    bytes: u64,
}

impl PlacedFile {
    /// A new file of `device` with the objects that job `from` and as many of
    /// those after it of the same file use, as can lie side by side in
    /// `bytes_max` bytes. The objects of job `from` do.
    pub(super) fn new(
        capture: &Capture,
        device: &Device,
        from: usize,
        bytes_max: u64,
    ) -> Result<Self, ReplayError> {
        let device = device.reopen()?;
        let mut bos = BTreeMap::new();
        let mut fillers = Vec::new();
        let mut cursor = 0;
        for (start, object) in choose(capture, from, bytes_max)? {
            while cursor < start {
                let gap = (start - cursor).min(ByteLen::MAX.get() as u64);
                fillers.push(alloc(&device, object, gap)?);
                cursor += gap;
            }
            let recorded = &capture.objects()[object];
            let bo = alloc(&device, object, recorded.bytes)?;
            let wanted = recorded.iova.unwrap_or_default();
            if bo.iova() != wanted {
                return Err(ReplayError::Placement {
                    object,
                    wanted,
                    got: bo.iova(),
                });
            }
            bos.insert(object, bo);
            cursor = start + recorded.bytes;
        }
        drop(fillers);
        Ok(Self {
            device,
            bos,
            bytes: cursor,
        })
    }

    /// Bytes that its objects and fillers took.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn has(&self, object: usize) -> bool {
        self.bos.contains_key(&object)
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn bo(&self, object: usize) -> Option<&Bo> {
        self.bos.get(&object)
    }

    pub(super) fn bo_mut(&mut self, object: usize) -> Option<&mut Bo> {
        self.bos.get_mut(&object)
    }
}

fn alloc(device: &Device, object: usize, bytes: u64) -> Result<Bo, ReplayError> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let len = ByteLen::new(len).map_err(|error| ReplayError::Length { object, error })?;
    Ok(device.alloc(len)?)
}

/// Bytes that the objects of `job` need, with the gaps between them.
pub(super) fn bytes_needed(capture: &Capture, job: &CapturedJob) -> u64 {
    let ranges = job.objects().into_iter();
    let ranges = ranges.filter_map(|object| capture.objects()[object].range());
    ranges.map(|range| range.end).max().unwrap_or(0)
}

/// The objects to open together, by their first address.
fn choose(
    capture: &Capture,
    from: usize,
    bytes_max: u64,
) -> Result<BTreeMap<u64, usize>, ReplayError> {
    let jobs = &capture.jobs()[from..];
    let file = jobs.first().map(|job| job.file);
    let mut chosen: BTreeMap<u64, usize> = BTreeMap::new();
    for (index, job) in jobs.iter().enumerate() {
        if Some(job.file) != file {
            continue;
        }
        for object in job.objects() {
            let Some(range) = capture.objects()[object].range() else {
                continue;
            };
            let before = chosen.range(..range.end).next_back();
            let other = before.map(|(_, &other)| other);
            let overlaps = other.filter(|&other| {
                let end = capture.objects()[other]
                    .range()
                    .map_or(0, |range| range.end);
                end > range.start
            });
            match overlaps {
                Some(other) if other == object => continue,
                Some(other) if index == 0 => {
                    return Err(ReplayError::Overlap {
                        first: other,
                        second: object,
                    });
                }
                // A later job, which gets a file of its own when it comes.
                Some(_) => return Ok(chosen),
                None => {}
            }
            if index > 0 && range.end > bytes_max {
                return Ok(chosen);
            }
            chosen.insert(range.start, object);
        }
    }
    Ok(chosen)
}
