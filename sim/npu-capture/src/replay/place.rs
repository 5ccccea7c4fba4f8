// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places buffer objects at their recorded addresses.
//!
//! The driver accepts no request for an address. It takes the smallest hole that
//! fits, and in it the lowest address (`drm_mm`, best fit). A fresh file has one
//! hole, so objects lie one behind the other. Made in the order of their addresses,
//! with fillers in the gaps, each gets its recorded address. The fillers are closed
//! afterwards, so unmapped addresses of the recording are unmapped again. On a
//! board a filler takes memory while it exists, so a job needs as many bytes as
//! its highest address.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use rocket_uapi::{Bo, ByteLen, Device};

use super::error::ReplayError;
use crate::capture::{Capture, CapturedJob};

/// How long to wait for a job. The driver kills it after half a second; this leaves room
/// for a slow host that computes it in software.
pub(super) const WAIT: Duration = Duration::from_secs(60);

/// An open file with the objects of a job at their recorded addresses.
#[derive(Debug)]
pub(super) struct PlacedFile {
    pub(super) device: Device,
    pub(super) bos: BTreeMap<usize, Bo>,
}

impl PlacedFile {
    /// Opens a new file of `device` with the objects of `job`, which contain zeroes.
    pub(super) fn new(
        capture: &Capture,
        device: &Device,
        job: &CapturedJob,
    ) -> Result<Self, ReplayError> {
        let device = device.reopen()?;
        let mut ranges: Vec<_> = ranges(capture, job).collect();
        ranges.sort_unstable_by_key(|(_, range)| range.start);
        let mut bos = BTreeMap::new();
        let mut fillers = Vec::new();
        let mut before = None;
        let mut cursor = 0;
        for (object, range) in ranges {
            if let Some(first) = before.replace(object).filter(|_| range.start < cursor) {
                let second = object;
                return Err(ReplayError::Overlap { first, second });
            }
            while cursor < range.start {
                let gap = (range.start - cursor).min(ByteLen::MAX.get() as u64);
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
            cursor = range.end;
        }
        drop(fillers);
        Ok(Self { device, bos })
    }
}

fn alloc(device: &Device, object: usize, bytes: u64) -> Result<Bo, ReplayError> {
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let len = ByteLen::new(len).map_err(|error| ReplayError::Length { object, error })?;
    Ok(device.alloc(len)?)
}

/// The objects of `job` that have an address, and their addresses.
pub(super) fn ranges(
    capture: &Capture,
    job: &CapturedJob,
) -> impl Iterator<Item = (usize, Range<u64>)> {
    let objects = job.objects().into_iter();
    objects.filter_map(|object| Some((object, capture.objects()[object].range()?)))
}
