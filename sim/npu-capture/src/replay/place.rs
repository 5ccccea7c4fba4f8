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

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use rocket_uapi::{Bo, ByteLen, Device};

use super::error::ReplayError;
use crate::capture::Capture;

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
    /// Opens a new file of `device` with the objects at `ranges`.
    pub(super) fn new(
        capture: &Capture,
        device: &Device,
        ranges: &ObjectRanges,
    ) -> Result<Self, ReplayError> {
        let device = device.reopen()?;
        let mut ranges = ranges.clone();
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

/// The objects of a job that have an address, and their addresses.
pub(super) type ObjectRanges = Vec<(usize, Range<u64>)>;

/// Bytes that a file with these objects takes.
pub(super) fn bytes_kept(ranges: &ObjectRanges) -> u64 {
    ranges
        .iter()
        .map(|(_, range)| range.end - range.start)
        .sum()
}

/// Bytes that it takes for a moment, when it is made: those of the fillers too.
pub(super) fn bytes_placed(ranges: &ObjectRanges) -> u64 {
    let ends = ranges.iter().map(|(_, range)| range.end);
    ends.max().unwrap_or(0)
}

/// The open files with their objects, the longest unused first. `T` is `()` to find out in
/// advance which jobs need a new file.
///
/// There are as many files as cores, if the memory suffices: the driver chooses the core
/// that the fewest files used last, so the jobs reach all cores.
#[derive(Debug)]
pub(super) struct OpenFiles<T> {
    files: VecDeque<(ObjectRanges, T)>,
    files_max: usize,
    bytes_max: u64,
}

impl<T> OpenFiles<T> {
    pub(super) fn new(device: &Device, bytes_max: u64) -> Self {
        Self {
            files: VecDeque::new(),
            files_max: device.info().files(),
            bytes_max,
        }
    }

    /// Removes a file with these objects. `None` if a new one is due, for which this makes
    /// room.
    pub(super) fn take(&mut self, ranges: &ObjectRanges) -> Option<T> {
        while !self.has_room(bytes_placed(ranges)) {
            let same = self.files.iter().position(|(other, _)| other == ranges);
            let (_, file) = self.files.remove(same.unwrap_or(0))?;
            if same.is_some() {
                return Some(file);
            }
        }
        None
    }

    fn has_room(&self, bytes: u64) -> bool {
        let kept = self.files.iter().map(|(ranges, _)| bytes_kept(ranges));
        self.files.len() < self.files_max && kept.sum::<u64>() + bytes <= self.bytes_max
    }

    /// Adds a file that was just used.
    pub(super) fn put(&mut self, ranges: ObjectRanges, file: T) {
        self.files.push_back((ranges, file));
    }
}
