// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places buffer objects at their recorded addresses.
//!
//! The driver accepts no request for an address. It takes the smallest hole that
//! fits, and in it the lowest address (`drm_mm`, best fit). A fresh file has one
//! hole, so objects lie one behind the other. Made in the order of their addresses,
//! with fillers in the gaps, each gets its recorded address. The fillers are closed
//! afterwards, so unmapped addresses of the recording are unmapped again. On a
//! board a filler takes memory while it exists, so a file needs as many bytes as
//! its highest address.

use std::collections::BTreeMap;

use rocket_uapi::{Bo, ByteLen, Device};

use super::error::ReplayError;
use crate::capture::{Capture, CapturedJob};

/// An open file with objects at their recorded addresses.
#[derive(Debug)]
pub(super) struct PlacedFile {
    pub(super) device: Device,
    pub(super) bos: BTreeMap<usize, Bo>,
    /// Bytes that its objects and fillers took.
    pub(super) bytes: u64,
}

impl PlacedFile {
    /// Opens a new file of `device` with the objects of job `from`, and those of
    /// later jobs of the same file as far as they fit beside these in `bytes_max`
    /// bytes. The objects of job `from` fit.
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
                // A later job, which gets a new file at its turn.
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
