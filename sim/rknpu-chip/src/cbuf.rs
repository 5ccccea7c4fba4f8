// SPDX-License-Identifier: MIT OR Apache-2.0
//! CBUF: 12 banks of 32 KiB between the DMA and the MAC array.
//!
//! Features take the first DATA_BANK banks, one line every DATA_ENTRIES * 64
//! bytes; weights the banks behind them (inferred; sizes: E-cbuf-size).
//! The contents outlive a task, which DATA_REUSE and WEIGHT_REUSE rely on.
//!
//! The model computes from what the DMA fetched, as silicon does where lines
//! and kernels stream through. It keeps this memory for two purposes: what a
//! later task reuses, and what happens to lines that find no room. Those are
//! written into the banks of the weights, and the weights come after them: a
//! line that does not fit reads as weights. That is why the last rows of a
//! tile with one bank too few are garbage while all others are exact
//! (E-line-rounding).

use std::ops::Range;

use rknpu_regcmd::ChipProfile;
use rknpu_regcmd::task::Buffering;

use super::cna::FeatureCube;

/// Banks of a core.
pub(crate) const BANKS: usize = ChipProfile::RK3588.cbuf_banks as usize;
/// Bytes of a bank.
pub(crate) const BANK_BYTES: usize = ChipProfile::RK3588.cbuf_bank_bytes as usize;
/// Bytes of all banks.
pub(crate) const BYTES: usize = BANKS * BANK_BYTES;

/// What a task left behind, as a later one has to find it for reuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fetched {
    /// Bank split, bytes, and whether all of it stayed.
    banks: (usize, usize),
    len: usize,
    whole: bool,
    /// Address it was fetched from.
    base: u32,
    /// Through the translations that are attached.
    attached: bool,
}

/// Why what CBUF holds is not what a task that reuses it expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// Nothing of that size and bank split is there.
    Other,
    /// It was fetched through translations that are attached no more: its
    /// address says nothing.
    Detached,
    /// It was fetched from this address.
    Address(u32),
}

impl Fetched {
    fn check(&self, base: u32) -> Result<(), Stale> {
        if !self.attached {
            Err(Stale::Detached)
        } else if self.base != base {
            Err(Stale::Address(self.base))
        } else {
            Ok(())
        }
    }
}

/// The buffer of one core.
#[derive(Debug)]
pub(crate) struct Cbuf {
    memory: Box<[u8]>,
    features: Option<Fetched>,
    weights: Option<Fetched>,
    /// The translations that are attached; see [`Bus::attachment`](super::Bus).
    attachment: u64,
    /// Memory of the host that the features of the last task took.
    spare: Vec<u8>,
}

/// Bytes that are worth keeping from task to task: three times what CBUF holds.
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
    /// Copies `data` to `at`, as a ring within `room` bytes from `start` on.
    fn store(&mut self, start: usize, room: usize, mut at: usize, mut data: &[u8]) {
        if room == 0 {
            return;
        }
        // Of what goes round more than once only the last turn stays.
        if data.len() > room {
            at += data.len() - room;
            data = &data[data.len() - room..];
        }
        while !data.is_empty() {
            let place = at % room;
            let now = data.len().min(room - place);
            let target = (start + place) % BYTES;
            let now = now.min(BYTES - target);
            self.memory[target..target + now].copy_from_slice(&data[..now]);
            data = &data[now..];
            at += now;
        }
    }

    /// Reads what [`Self::store`] would have put there.
    fn load(&self, start: usize, room: usize, mut at: usize, mut out: &mut [u8]) {
        if room == 0 {
            out.fill(0);
            return;
        }
        while !out.is_empty() {
            let place = at % room;
            let now = out.len().min(room - place);
            let source = (start + place) % BYTES;
            let now = now.min(BYTES - source);
            let (head, rest) = out.split_at_mut(now);
            head.copy_from_slice(&self.memory[source..source + now]);
            out = rest;
            at += now;
        }
    }

    /// Memory for the features of a task, of any length and contents.
    pub(crate) fn take_spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// Takes memory back.
    pub(crate) fn give_spare(&mut self, memory: Vec<u8>) {
        if memory.capacity() <= SPARE_BYTES {
            self.spare = memory;
        }
    }

    /// Lines that the data banks still hold something of when all of `height`
    /// lines of `bytes` went through them. Where lines leave no gap, those
    /// that later ones go over are left out.
    pub(crate) fn kept_lines(config: &Buffering, height: usize, bytes: usize) -> Range<usize> {
        let room = config.data_banks * BANK_BYTES;
        let step = config.line_bytes();
        let kept = match room.saturating_sub(bytes).checked_div(step) {
            Some(before) if bytes >= step => before + 2,
            _ => height,
        };
        height.saturating_sub(kept)..height
    }

    /// Keeps lines of a task, streaming through the data banks.
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

    /// Notes that all lines of a task that are to be kept are here.
    pub(crate) fn keep_features(&mut self, config: &Buffering, cube: &FeatureCube, base: u32) {
        self.features = Some(Fetched {
            banks: config.split(),
            len: cube.shape.height * cube.line_bytes(),
            whole: cube.shape.height <= config.lines_that_fit(cube.line_bytes()),
            base,
            attached: true,
        });
    }

    /// Bytes at the end of a stream of weights that the weight banks still
    /// hold when all of it went through them.
    pub(crate) fn kept_weights(config: &Buffering, len: usize) -> usize {
        len.min(config.weight_banks * BANK_BYTES)
    }

    /// Keeps the weights of a task, streaming through the weight banks. Of the
    /// `len` bytes `tail` are the last, at least [`Self::kept_weights`].
    pub(crate) fn keep_weights(&mut self, config: &Buffering, tail: &[u8], len: usize, base: u32) {
        let room = config.weight_banks * BANK_BYTES;
        self.store(config.data_banks * BANK_BYTES, room, len - tail.len(), tail);
        self.weights = Some(Fetched {
            banks: config.split(),
            len,
            whole: len <= room,
            base,
            attached: true,
        });
    }

    /// Fills the lines from `first` on with what CBUF holds in their place,
    /// `bank` banks further on.
    pub(crate) fn load_lines(
        &self,
        config: &Buffering,
        bank: usize,
        first: usize,
        cube: &mut FeatureCube,
    ) {
        let step = config.line_bytes();
        let lines = cube.lines();
        for y in first.max(lines.start)..lines.end {
            self.load(bank * BANK_BYTES, BYTES, y * step, cube.line_mut(y));
        }
    }

    /// Fills all lines with the features that an earlier task left.
    pub(crate) fn reuse_features(&self, config: &Buffering, cube: &mut FeatureCube) {
        let room = config.data_banks * BANK_BYTES;
        let step = config.line_bytes();
        for y in cube.lines() {
            self.load(0, room, y * step, cube.line_mut(y));
        }
    }

    /// Fills `weights` with those that an earlier task left, from byte `at`
    /// on.
    pub(crate) fn reuse_weights(&self, config: &Buffering, at: usize, weights: &mut [u8]) {
        let room = config.weight_banks * BANK_BYTES;
        self.load(config.data_banks * BANK_BYTES, room, at, weights);
    }

    /// Whether the features that an earlier task left are what a task of this
    /// bank split, size and address expects, as far as CBUF can tell.
    pub(crate) fn has_features(
        &self,
        config: &Buffering,
        cube: &FeatureCube,
        base: u32,
    ) -> Result<(), Stale> {
        let len = cube.shape.height * cube.line_bytes();
        self.features
            .filter(|left| left.whole && left.banks == config.split() && left.len == len)
            .ok_or(Stale::Other)?
            .check(base)
    }

    /// Likewise for weights.
    pub(crate) fn has_weights(
        &self,
        config: &Buffering,
        len: usize,
        base: u32,
    ) -> Result<(), Stale> {
        self.weights
            .filter(|left| left.whole && left.banks == config.split() && left.len >= len)
            .ok_or(Stale::Other)?
            .check(base)
    }

    /// Tells which translations are attached to the bus from now on. What was
    /// fetched through others is no more known by its address.
    pub(crate) fn attach(&mut self, attachment: u64) {
        if attachment == std::mem::replace(&mut self.attachment, attachment) {
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
        // Lines of 512 entries fill a bank: the second one finds no room.
        let config = config(1, 512);
        let mut cube = FeatureCube::empty(1, 2, BANK_BYTES / 16).unwrap();
        cube.line_mut(0).fill(1);
        cube.line_mut(1).fill(2);
        let mut cbuf = Cbuf::default();
        cbuf.keep_lines(&config, &cube, cube.lines());
        cbuf.keep_features(&config, &cube, 64);
        cbuf.keep_weights(&config, &vec![3; BANK_BYTES], BANK_BYTES, 0);
        let fit = config.lines_that_fit(cube.line_bytes());
        cbuf.load_lines(&config, 0, fit, &mut cube);
        assert!(cube.line(0).iter().all(|&b| b == 1));
        assert!(cube.line(1).iter().all(|&b| b == 3));
        assert_eq!(cbuf.has_features(&config, &cube, 64), Err(Stale::Other));
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
            let mut cube = FeatureCube::empty(1, height, surfaces).unwrap();
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
