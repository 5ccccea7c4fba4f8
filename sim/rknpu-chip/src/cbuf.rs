// SPDX-License-Identifier: MIT OR Apache-2.0
//! CBUF: 12 banks of 32 KiB between the DMA and the MAC array.
//!
//! Features take the first DATA_BANK banks, one line every DATA_ENTRIES * 64
//! bytes. Weights take the banks behind them (inferred; sizes: E-cbuf-size).
//! The contents outlive a task; DATA_REUSE and WEIGHT_REUSE rely on that.
//!
//! The model computes from the data that the DMA fetched, as silicon does when
//! lines and kernels stream through. It keeps this memory for two purposes:
//! data that a later task reuses, and lines that do not fit. A line that does
//! not fit is read at its place in the weight banks, so it reads as weights. So
//! the last rows of a tile with one bank too few are garbage, and all others
//! are exact (E-line-rounding).

use std::iter;
use std::mem;
use std::ops::Range;

use rknpu_regcmd::ChipProfile;
use rknpu_regcmd::task::Buffering;

use super::cna::FeatureCube;

pub(crate) const BANKS: usize = ChipProfile::RK3588.cbuf_banks as usize;
pub(crate) const BANK_BYTES: usize = ChipProfile::RK3588.cbuf_bank_bytes as usize;
/// Bytes of all banks.
pub(crate) const BYTES: usize = BANKS * BANK_BYTES;

/// Features or weights that a task left in CBUF for later tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fetched {
    /// Bank split, then length in bytes, then whether all bytes stayed.
    banks: (usize, usize),
    len: usize,
    whole: bool,
    /// Address it was fetched from.
    base: u32,
    /// Whether the translations of the fetch are still attached.
    attached: bool,
}

/// Why the contents of CBUF do not match what a reusing task expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    /// What differs, for the diagnosis.
    pub(crate) why: String,
    /// Whether only the address differs. Reuse ignores it, so a program may leave it
    /// unwritten.
    pub(crate) only_address: bool,
}

impl Fetched {
    fn new(config: &Buffering, len: usize, whole: bool, base: u32) -> Self {
        Self {
            banks: config.split(),
            len,
            whole,
            base,
            attached: true,
        }
    }

    /// Checks that this has the bank split, size and address that a task expects.
    fn check(
        found: Option<Self>,
        config: &Buffering,
        fits: impl FnOnce(usize) -> bool,
        base: u32,
    ) -> Result<(), Stale> {
        let why = match found {
            Some(found) if found.whole && found.banks == config.split() && fits(found.len) => {
                if found.attached && found.base == base {
                    return Ok(());
                }
                if found.attached {
                    let from = "the data in CBUF were fetched from another address";
                    return Err(Stale {
                        why: format!("{from} ({:#x})", found.base),
                        only_address: true,
                    });
                }
                "the data in CBUF were fetched through translations that are no longer attached"
            }
            _ => "the previous task on this core left no data of this size and bank split",
        };
        Err(Stale {
            why: why.to_owned(),
            only_address: false,
        })
    }
}

/// The contiguous places in CBUF of `len` bytes from `at` on, in a ring of `room` bytes
/// from `start` on.
fn ring(
    start: usize,
    room: usize,
    mut at: usize,
    mut len: usize,
) -> impl Iterator<Item = Range<usize>> {
    iter::from_fn(move || {
        let place = at.checked_rem(room)?;
        let first = (start + place) % BYTES;
        let now = len.min(room - place).min(BYTES - first);
        (at, len) = (at + now, len - now);
        (now > 0).then_some(first..first + now)
    })
}

/// The buffer of one core.
#[derive(Debug)]
pub(crate) struct Cbuf {
    memory: Box<[u8]>,
    features: Option<Fetched>,
    weights: Option<Fetched>,
    /// The translations that are attached; see [`Bus::attachment`](super::Bus).
    attachment: u64,
    /// Host memory of the last task's features, for the next task.
    spare: Vec<u8>,
}

/// Most bytes to keep in `spare`: three times the size of CBUF.
const SPARE_BYTES: usize = 3 * BYTES;

impl Default for Cbuf {
    fn default() -> Self {
        Self {
            memory: vec![0; BYTES].into_boxed_slice(),
            features: None,
            weights: None,
            attachment: 0,
            spare: Vec::new(),
        }
    }
}

impl Cbuf {
    /// Copies `data` to `at`, in a ring of `room` bytes from `start` on.
    fn store(&mut self, start: usize, room: usize, at: usize, data: &[u8]) {
        // Data longer than the ring overwrites itself: only its end stays.
        let lost = data.len().saturating_sub(room);
        let mut data = &data[lost..];
        for place in ring(start, room, at + lost, data.len()) {
            let (now, rest) = data.split_at(place.len());
            self.memory[place].copy_from_slice(now);
            data = rest;
        }
    }

    /// Reads back what [`Self::store`] puts at the same place.
    fn load(&self, start: usize, room: usize, at: usize, mut out: &mut [u8]) {
        if room == 0 {
            out.fill(0);
        }
        for place in ring(start, room, at, out.len()) {
            let (now, rest) = out.split_at_mut(place.len());
            now.copy_from_slice(&self.memory[place]);
            out = rest;
        }
    }

    /// Memory for the features of a task, of any length and contents.
    pub(crate) fn take_spare(&mut self) -> Vec<u8> {
        mem::take(&mut self.spare)
    }

    /// Gives memory back for the next task.
    pub(crate) fn give_spare(&mut self, memory: Vec<u8>) {
        if memory.capacity() <= SPARE_BYTES {
            self.spare = memory;
        }
    }

    /// Lines that are still partly in the data banks after `height` lines of
    /// `bytes` went through them. If lines leave no gaps, those that later ones
    /// overwrote are left out.
    pub(crate) fn kept_lines(config: &Buffering, height: usize, bytes: usize) -> Range<usize> {
        let room = config.data_banks * BANK_BYTES;
        let step = config.line_bytes();
        let kept = match room.saturating_sub(bytes).checked_div(step) {
            Some(before) if bytes >= step => before + 2,
            _ => height,
        };
        height.saturating_sub(kept)..height
    }

    /// Streams lines of a task through the data banks.
    pub(crate) fn keep_lines(
        &mut self,
        config: &Buffering,
        cube: &FeatureCube,
        lines: Range<usize>,
    ) {
        let room = config.data_banks * BANK_BYTES;
        for y in lines {
            self.store(0, room, y * config.line_bytes(), cube.line(y));
        }
    }

    /// Records which features the data banks hold, for tasks that reuse them.
    pub(crate) fn keep_features(&mut self, config: &Buffering, cube: &FeatureCube, base: u32) {
        let (height, bytes) = (cube.shape.height, cube.line_bytes());
        let whole = height <= config.lines_that_fit(bytes);
        self.features = Some(Fetched::new(config, height * bytes, whole, base));
    }

    /// Bytes at the end of a weight stream that the weight banks still hold
    /// after all `len` bytes went through them.
    pub(crate) fn kept_weights(config: &Buffering, len: usize) -> usize {
        len.min(config.weight_banks * BANK_BYTES)
    }

    /// Streams the weights of a task through the weight banks. `tail` is the
    /// end of the `len` bytes, at least [`Self::kept_weights`] long.
    pub(crate) fn keep_weights(&mut self, config: &Buffering, tail: &[u8], len: usize, base: u32) {
        let room = config.weight_banks * BANK_BYTES;
        self.store(config.data_banks * BANK_BYTES, room, len - tail.len(), tail);
        self.weights = Some(Fetched::new(config, len, len <= room, base));
    }

    /// Replaces the lines from `first` on by the contents of CBUF at their
    /// place, in a ring of `banks`.
    pub(crate) fn load_lines(
        &self,
        config: &Buffering,
        banks: Range<usize>,
        first: usize,
        cube: &mut FeatureCube,
    ) {
        let lines = cube.lines();
        for y in first.max(lines.start)..lines.end {
            let (start, room) = (banks.start * BANK_BYTES, banks.len() * BANK_BYTES);
            self.load(start, room, y * config.line_bytes(), cube.line_mut(y));
        }
    }

    /// Fills `weights` with those that an earlier task left, from byte `at`
    /// on.
    pub(crate) fn reuse_weights(&self, config: &Buffering, at: usize, weights: &mut [u8]) {
        let room = config.weight_banks * BANK_BYTES;
        self.load(config.data_banks * BANK_BYTES, room, at, weights);
    }

    /// Checks the features in CBUF for a task that reuses them.
    pub(crate) fn has_features(
        &self,
        config: &Buffering,
        cube: &FeatureCube,
        base: u32,
    ) -> Result<(), Stale> {
        let len = cube.shape.height * cube.line_bytes();
        Fetched::check(self.features, config, |held| held == len, base)
    }

    /// Likewise for weights. CBUF may hold more than `len`.
    pub(crate) fn has_weights(
        &self,
        config: &Buffering,
        len: usize,
        base: u32,
    ) -> Result<(), Stale> {
        Fetched::check(self.weights, config, |held| held >= len, base)
    }

    /// Sets which translations are attached to the bus. An address no longer
    /// identifies data that was fetched through others.
    pub(crate) fn attach(&mut self, attachment: u64) {
        if attachment == mem::replace(&mut self.attachment, attachment) {
            return;
        }
        for left in [&mut self.features, &mut self.weights]
            .into_iter()
            .flatten()
        {
            left.attached = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cna::CubeShape;
    use super::*;
    use proptest::prelude::*;

    fn config(data_banks: usize, entries: usize) -> Buffering {
        Buffering {
            data_banks,
            weight_banks: BANKS - data_banks,
            fc_data_bank: 0,
            data_reuse: false,
            weight_reuse: false,
            entries,
            grains: 4,
        }
    }

    /// A cube of zeros, one pixel wide.
    fn cube(height: usize, surfaces: usize) -> FeatureCube {
        let width = 1;
        let shape = CubeShape {
            width,
            height,
            surfaces,
        };
        FeatureCube::in_memory(Vec::new(), shape, 0..height).unwrap()
    }

    #[test]
    fn a_ring_keeps_the_last_turn() {
        let mut cbuf = Cbuf::default();
        let data: Vec<u8> = (0..BANK_BYTES * 2 + 3).map(|i| (i / 7) as u8).collect();
        cbuf.store(0, BANK_BYTES, 0, &data);
        let mut out = vec![0; BANK_BYTES];
        cbuf.load(0, BANK_BYTES, 3, &mut out);
        assert_eq!(out, data[BANK_BYTES + 3..]);
    }

    #[test]
    fn lines_without_room_read_as_weights() {
        // A line of 512 entries fills a bank, so the second one does not fit.
        let config = config(1, 512);
        let mut cube = cube(2, BANK_BYTES / 16);
        cube.line_mut(0).fill(1);
        cube.line_mut(1).fill(2);
        let mut cbuf = Cbuf::default();
        cbuf.keep_lines(&config, &cube, cube.lines());
        cbuf.keep_features(&config, &cube, 64);
        cbuf.keep_weights(&config, &vec![3; BANK_BYTES], BANK_BYTES, 0);
        let fit = config.lines_that_fit(cube.line_bytes());
        cbuf.load_lines(&config, 0..BANKS, fit, &mut cube);
        assert!(cube.line(0).iter().all(|&b| b == 1));
        assert!(cube.line(1).iter().all(|&b| b == 3));
        let stale = cbuf.has_features(&config, &cube, 64).unwrap_err();
        assert!(!stale.only_address, "{}", stale.why);
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn features_stay_as_if_every_line_had_gone_through(
            banks in 1usize..3,
            entries in 0usize..600,
            height in 0usize..12,
            surfaces in 1usize..3000,
        ) {
            let config = config(banks, entries);
            let mut cube = cube(height, surfaces);
            let (mut fast, mut slow) = (Cbuf::default(), Cbuf::default());
            for y in 0..height {
                cube.line_mut(y).fill(y as u8 + 1);
                slow.store(0, banks * BANK_BYTES, y * config.line_bytes(), cube.line(y));
            }
            let kept = Cbuf::kept_lines(&config, height, cube.line_bytes());
            fast.keep_lines(&config, &cube, kept);
            prop_assert!(fast.memory == slow.memory);
        }
    }

    #[test]
    fn the_end_of_a_stream_is_all_that_stays() {
        let config = config(9, 4);
        let weights: Vec<u8> = (0..5 * BANK_BYTES + 77).map(|i| (i / 9) as u8).collect();
        let kept = Cbuf::kept_weights(&config, weights.len());
        assert_eq!(kept, 3 * BANK_BYTES);
        let (mut all, mut end) = (Cbuf::default(), Cbuf::default());
        all.keep_weights(&config, &weights, weights.len(), 0);
        end.keep_weights(&config, &weights[weights.len() - kept..], weights.len(), 0);
        assert_eq!(all.memory, end.memory);
    }
}
