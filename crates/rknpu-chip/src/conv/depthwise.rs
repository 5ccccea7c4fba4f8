// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiles of a depthwise convolution.

use super::super::cna::FeatureCube;
use super::super::depthwise::{Atom, Depthwise, Lines};
use super::super::dma;
use super::super::dpu::steps::{Finish, Steps};
use super::super::dpu::tile::{Tile, Values};
use super::super::mac::Mac;
use super::super::mac_array::IntRange;
use super::super::precision::ATOM;
use super::super::rows::Rows;
use super::super::trap::Stop;
use super::super::vectors::Vectors;
use super::{Convolution, Scratch};

/// Pixels whose bytes go to memory at once: they are still in a first-level
/// cache then.
const PIECE_PIXELS: usize = 1024;

/// Operands and results of [`Convolution::depthwise_bytes`], kept for their
/// memory.
#[derive(Default)]
pub(super) struct BytesScratch {
    stream: Vec<u8>,
    kernels: Rows<i16>,
    atom: Atom,
    lines: Lines,
    sums: Vec<[i32; ATOM]>,
    surface: Vec<u8>,
    /// What the output converter is tried as, once for a task.
    steps: Option<Option<Steps>>,
}

impl Convolution<'_> {
    /// The way of int8 depthwise tasks, where it is exact.
    pub(super) fn bytes_path(&self, cube: &FeatureCube) -> Result<Option<Depthwise<'_>>, Stop> {
        let window = &self.conv.window;
        let whole = |(_, channel, channels): (usize, usize, usize)| {
            channel.is_multiple_of(ATOM)
                && channels.is_multiple_of(ATOM)
                && (channel..channel + channels).all(|c| self.offset_fits(c))
        };
        let fits = self.conv.depthwise
            && self.vectors != Vectors::Literal
            && !self.conv.precision.is_float()
            && self.conv.int_range() == IntRange::Byte
            && self.groups().all(whole);
        if !fits {
            return Ok(None);
        }
        Depthwise::new(window, cube.width, self.vectors)
    }

    /// Whether any int8 weight with the offset of its channel is an i16.
    fn offset_fits(&self, channel: usize) -> bool {
        let offset = self.offset(channel);
        offset.checked_add(i8::MAX.into()).is_some() && offset.checked_add(i8::MIN.into()).is_some()
    }

    /// What CPEND adds to the weights of a channel.
    fn offset(&self, channel: usize) -> i16 {
        self.weight_offset().map_or(0, |o| o.at(channel) as i16)
    }

    /// Pixels of a tile of [`Self::depthwise_bytes`], if not `pixels`: all of
    /// them, so that each atom is begun once.
    ///
    /// Tiles show where atoms overlap in memory: the later tile stays. They
    /// would show, too, in weights that the task overwrites.
    pub(super) fn line_tile(&self, pixels: usize) -> usize {
        let apart = self.writer.surfaces_are_apart() && self.weights.is_steady();
        if self.goes_straight() && apart {
            usize::MAX
        } else {
            pixels
        }
    }

    /// Whether the sums of an atom become its bytes in memory, whatever the
    /// other atoms are.
    fn goes_straight(&self) -> bool {
        self.dpu.only_requantises()
            && self.sums.is_none()
            && !self.spoiled.dirty
            && !self.writer.transposed
            && !self.depthwise_too_wide()
    }

    /// A tile of some pixels, straight from the features.
    pub(super) fn depthwise_bytes(
        &self,
        depthwise: &Depthwise<'_>,
        cube: &FeatureCube,
        (first, count): (usize, usize),
        scratch: &mut BytesScratch,
    ) -> Result<(), Stop> {
        let sums_of = (depthwise, cube);
        let straight = self.goes_straight();
        if straight && scratch.steps.is_none() {
            scratch.steps = Some(self.dpu.steps());
        }
        for (group, channel, channels) in self.groups() {
            self.depthwise_weights(
                (channel, channels),
                &mut scratch.stream,
                &mut scratch.kernels,
            )?;
            if straight {
                self.line_atoms(sums_of, (group, channel, channels), (first, count), scratch)?;
                continue;
            }
            let mut sums = dma::buffer::<i32>(count * channels)?;
            for at in (0..channels).step_by(ATOM) {
                self.begin(depthwise, (channel, at), scratch);
                self.each_line(sums_of, (first, count), scratch, |line, pixel| {
                    let targets = sums.chunks_exact_mut(channels).skip(pixel - first);
                    for (target, sums) in targets.zip(line) {
                        target[at..at + ATOM].copy_from_slice(sums);
                    }
                });
            }
            let tile = Tile {
                pixel: first,
                pixels: count,
                channel,
                channels,
                values: Values::Int(sums),
            };
            self.finish(group, tile)?;
        }
        Ok(())
    }

    /// The atoms of a group, each from its sums straight to memory.
    fn line_atoms(
        &self,
        sums_of: (&Depthwise<'_>, &FeatureCube),
        (group, channel, channels): (usize, usize, usize),
        (first, count): (usize, usize),
        scratch: &mut BytesScratch,
    ) -> Result<(), Stop> {
        if self.is_missing(group) {
            return Ok(());
        }
        let held = (self.writer.channels - channel).min(channels);
        for index in 0..held.div_ceil(ATOM).min(self.writer.output.group_atoms) {
            let at = index * ATOM;
            self.begin(sums_of.0, (channel, at), scratch);
            let finish = self.finish_of(scratch);
            let mut surface = std::mem::take(&mut scratch.surface);
            let (mut pixel, end) = (first, first + count);
            while pixel < end {
                let count = self.piece().min(end - pixel);
                surface.resize(count * ATOM, 0);
                if let Some(finish) = &finish {
                    self.finished_lines(sums_of, finish, pixel, scratch, &mut surface);
                } else {
                    self.each_line(sums_of, (pixel, count), scratch, |line, at_pixel| {
                        let values = line.as_flattened_mut();
                        let bytes = &mut surface[(at_pixel - pixel) * ATOM..][..values.len()];
                        self.dpu.requantise(channel + at, ATOM, values, bytes);
                    });
                }
                self.writer
                    .store_surface(&self.dma, group, index, pixel, &surface)?;
                pixel += count;
            }
            scratch.surface = surface;
        }
        Ok(())
    }

    /// Pixels whose bytes go to memory at once: whole pairs of lines.
    fn piece(&self) -> usize {
        let lines = 2 * self.conv.window.out_width;
        lines * (PIECE_PIXELS / lines).max(1)
    }

    /// What becomes of the sums of the atom that the scratch is ready for,
    /// where that is simple.
    fn finish_of(&self, scratch: &BytesScratch) -> Option<Finish> {
        let steps = scratch
            .steps
            .flatten()
            .filter(|_| self.conv.truncate.shift == 0)?;
        let atom = &scratch.atom;
        self.dpu.finish(steps, atom.channel, &atom.reach())
    }

    /// Makes `surface` the bytes of pixels from `first` on, of the atom that
    /// the scratch is ready for.
    fn finished_lines(
        &self,
        (depthwise, cube): (&Depthwise<'_>, &FeatureCube),
        finish: &Finish,
        first: usize,
        scratch: &mut BytesScratch,
        surface: &mut [u8],
    ) {
        let lines = (cube, &mut scratch.lines);
        let atom = (&scratch.atom, finish);
        let out = surface.as_chunks_mut::<ATOM>().0;
        depthwise.bytes(lines, atom, &mut scratch.sums, first, out);
    }

    /// Gets the scratch ready for the atom of the group at `channel` whose
    /// kernels are those from `at` on.
    fn begin(
        &self,
        depthwise: &Depthwise<'_>,
        (channel, at): (usize, usize),
        scratch: &mut BytesScratch,
    ) {
        let BytesScratch {
            kernels,
            atom,
            lines,
            ..
        } = scratch;
        let channel = channel + at;
        let offsets: [i16; ATOM] = std::array::from_fn(|c| self.offset(channel + c));
        let padding = self.conv.window.padding::<i16>();
        atom.channel = channel;
        atom.padding =
            std::array::from_fn(|c| padding.get(channel + c).copied().unwrap_or_default() as u8);
        atom.weights.clear();
        for tap in 0..self.conv.window.taps() {
            let weights = &kernels.row(tap)[at..][..ATOM];
            // `offset_fits` has looked at every channel that is written.
            let weight = |c: usize| weights[c].wrapping_add(offsets[c]);
            atom.weights.push(std::array::from_fn(weight));
        }
        depthwise.begin(lines, atom);
    }

    /// Calls `take` with the sums of each line of a tile, as CORE hands them
    /// over, and the line's first pixel.
    fn each_line(
        &self,
        (depthwise, cube): (&Depthwise<'_>, &FeatureCube),
        (first, count): (usize, usize),
        scratch: &mut BytesScratch,
        mut take: impl FnMut(&mut [[i32; ATOM]], usize),
    ) {
        let BytesScratch {
            atom, lines, sums, ..
        } = scratch;
        let width = self.conv.window.out_width;
        let mut pixel = first;
        while pixel < first + count {
            let end = (pixel - pixel % width + width).min(first + count);
            sums.resize(end - pixel, [0; ATOM]);
            depthwise.sums(cube, lines, atom, pixel, sums);
            if self.conv.truncate.shift != 0 {
                for sum in sums.as_flattened_mut() {
                    *sum = self.conv.truncate.apply((*sum).into());
                }
            }
            take(sums, pixel);
            pixel = end;
        }
    }

    /// Makes `kernels` the weights of some channels, a row a tap.
    fn depthwise_weights<T: Mac>(
        &self,
        (channel, channels): (usize, usize),
        stream: &mut Vec<u8>,
        kernels: &mut Rows<T>,
    ) -> Result<(), Stop> {
        let padded = self.conv.weights.is_padded(self.weights.len);
        let (shape, first, bytes) = self.conv.weights.channels_of(channel, channels, padded);
        let stream = self.weights.part(bytes, stream)?;
        shape.depthwise_rows(stream, first, channels, padded, kernels)
    }

    /// A tile of some pixels, from gathered windows.
    pub(super) fn depthwise<T: Mac>(
        &self,
        cube: &FeatureCube,
        padding: &[T],
        (first, count): (usize, usize),
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        let window = &self.conv.window;
        for (group, channel, channels) in self.groups() {
            // Channels beyond the input are written too, from zeros.
            let mut padding = padding.to_vec();
            padding.resize((channel + channels).max(padding.len()), T::default());
            let range = channel..channel + channels;
            window.rows(cube, &padding, (first, count), range, &mut scratch.windows)?;
            self.depthwise_weights(
                (channel, channels),
                &mut scratch.stream,
                &mut scratch.kernels,
            )?;
            let input = self.input(scratch, count, channel, channels);
            self.finish(group, input.tile(first, T::depthwise(&input)?))?;
        }
        Ok(())
    }
}
