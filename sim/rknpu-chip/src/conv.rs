// SPDX-License-Identifier: MIT OR Apache-2.0
//! A convolution task: CNA -> CORE -> DPU -> memory.
//!
//! A tile is some pixels and one group of channels. Its windows and kernels are
//! gathered into rows of numbers, multiplied, post-processed and written. The
//! weight zero point correction (CPEND) adds BS_OW_OP to every weight, padded
//! taps included; a captured run confirms it to the bit.

pub(crate) mod features;
mod operands;

use std::ops::Range;

use features::Spilled;
use operands::WeightSource;
use rknpu_regcmd::rules::program::CORE_IDLE;
use rknpu_regcmd::rules::{GROUP_ATOMS_MAX, INT16_WITHOUT_SUM, PARTIAL_GROUP};
use rknpu_regcmd::{EnableMask, RegisterFile, task};

use super::check::{self, Broken};
use super::cna::FeatureCube;
use super::contested::OtherSide;
use super::conv_config::ConvConfig;
use super::core_parts::CoreParts;
use super::dpu::Dpu;
use super::dpu::tile::DpuTile;
use super::mac::{self, Compute, MacInput};
use super::precision::{ATOM, Precision};
use super::rows::{MacOperand, OperandRows};
use super::trap::Stop;
use super::writer::OutputWriter;

/// Most elements of a tile's windows: they stay in a host's second-level cache.
const WINDOW_ELEMENTS: usize = 1 << 18;
/// The blocks of a convolution task.
const BLOCKS: EnableMask = task::CONVOLUTION.union(EnableMask::DPU_RDMA);
/// Pixels of a tile: enough to make the time for decoding kernels negligible.
const TILE_PIXELS: std::ops::RangeInclusive<usize> = 16..=256;

/// Runs the task that `regs` describe.
pub(crate) fn run(
    parts: &mut CoreParts<'_>,
    regs: &RegisterFile,
    enable: EnableMask,
    task: &task::ConvTask,
) -> Result<(), Stop> {
    let conv = ConvConfig::new(task, regs, parts.contested);
    let writer = OutputWriter::new(task.output, regs);
    let reads = task.reads.as_ref();
    let all = task::Task::Conv(*task);
    let broken = check::registers(parts.report, &all, regs, parts.contested)?;
    if reads.is_none() && parts.contested.has(OtherSide::CoreIdleMainlineHangs) {
        let shown = [("enable", enable.bits())];
        let values = "DPU_RDMA is not started";
        parts.report.record(&CORE_IDLE, &shown, values)?;
    }
    parts.clock.spend(regs, enable & BLOCKS)?;

    let mut dpu = Dpu::load(regs, reads, false, &parts.dma, parts.contested)?;
    if writer.transposed {
        dpu.out.precision = Precision::Int32;
    }
    let mut cube = operands::features(parts, regs, &conv)?;
    let weights = operands::weights(parts, regs, &conv)?;
    let spilled = operands::spill(parts, regs, &conv, &cube)?;
    features::finish(parts, &conv, spilled, &mut cube);
    let task = Convolution {
        parts,
        regs,
        conv: &conv,
        dpu: &dpu,
        writer: &writer,
        weights: &weights,
        spilled,
        broken: &broken,
    };
    let operands = (conv.window.precision, conv.weights.precision);
    let cube = if conv.task.precision.is_float() && operands == (Precision::Fp16, Precision::Fp16) {
        task.run::<f32>(cube, mac::floats)?
    } else if conv.task.precision.is_float() {
        task.run::<f64>(cube, mac::floats)?
    } else {
        task.run(cube, mac::integers)?
    };
    parts.cbuf.give_spare(cube.into_memory());
    broken.finish(parts.report, regs)
}

/// What the tiles of a task share, and operands of one, whose memory they reuse.
struct Scratch<T> {
    /// Value of a padded tap, for each input channel.
    padding: Vec<T>,
    compute: Compute<T>,
    windows: OperandRows<T>,
    kernels: OperandRows<T>,
    /// Part of the weight stream.
    stream: Vec<u8>,
}

/// The arithmetic of a task.
struct Convolution<'a, 'b> {
    parts: &'a CoreParts<'b>,
    regs: &'a RegisterFile,
    conv: &'a ConvConfig,
    dpu: &'a Dpu,
    writer: &'a OutputWriter,
    weights: &'a WeightSource,
    spilled: Option<Spilled>,
    broken: &'a Broken,
}

impl Convolution<'_, '_> {
    /// Computes and writes all pixels. Fetches the lines that `cube` does not
    /// hold. Returns the cube so that its memory can be reused.
    fn run<T: MacOperand>(
        &self,
        mut cube: FeatureCube,
        compute: Compute<T>,
    ) -> Result<FeatureCube, Stop> {
        let mut padding = self.conv.window.padding::<T>();
        // Channels beyond the input of a depthwise task are written too, from zeros.
        let written = self.groups().map(|(_, channels)| channels.end).max();
        padding.resize(padding.len().max(written.unwrap_or(0)), T::default());
        let pixels = self.writer.output.pixels().min(self.conv.task.pixels);
        let row = if self.conv.task.depthwise {
            self.conv.window.taps() * self.writer.output.group
        } else {
            self.conv.weights.row_len()
        };
        let mut scratch = Scratch {
            padding,
            compute,
            windows: OperandRows::default(),
            kernels: OperandRows::default(),
            stream: Vec::new(),
        };
        let tile = (WINDOW_ELEMENTS / row.max(1)).clamp(*TILE_PIXELS.start(), *TILE_PIXELS.end());
        let mut first = 0;
        while first < pixels {
            let (lines, count) = self.lines_of(&cube, first, tile.min(pixels - first))?;
            if !cube.holds(&lines) {
                cube = features::fetch(self.parts, self.conv, lines, cube.into_memory())?;
                features::finish(self.parts, self.conv, self.spilled, &mut cube);
            }
            self.tile(&cube, first..first + count, &mut scratch)?;
            first += count;
        }
        Ok(cube)
    }

    /// Lines to hold for a tile from pixel `first` on, and the number of its
    /// pixels, at most `count`. The lines that it needs fit a band; the band
    /// may also hold lines of the next tiles.
    fn lines_of(
        &self,
        cube: &FeatureCube,
        first: usize,
        mut count: usize,
    ) -> Result<(Range<usize>, usize), Stop> {
        let held = features::lines_held(self.conv)?;
        loop {
            let needed = self.conv.window.lines_under(first, count);
            let needed = needed.start.min(cube.shape.height)..needed.end.min(cube.shape.height);
            if cube.holds(&needed) {
                return Ok((needed, count));
            }
            if needed.len() <= held {
                let end = cube.shape.height.min(needed.start.saturating_add(held));
                return Ok((needed.start..end, count));
            }
            if count == 1 {
                return Err(Stop::HostMemory);
            }
            count = count.div_ceil(2);
        }
    }

    /// The groups of the writer, with the channels of their tiles: those of the
    /// group, or of an output atom if that has more.
    fn groups(&self) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let group = self.writer.output.group;
        let width = group.next_multiple_of(self.dpu.out.precision.per_atom());
        let groups = self.writer.channels.div_ceil(group);
        (0..groups).map(move |index| (index, index * group..index * group + width))
    }

    /// Computes and writes a tile, group by group. `cube` holds all lines that its
    /// pixels need.
    fn tile<T: MacOperand>(
        &self,
        cube: &FeatureCube,
        pixels: Range<usize>,
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        let (window, weights) = (&self.conv.window, &self.conv.weights);
        let depthwise = self.conv.task.depthwise;
        let padded = weights.is_padded(self.conv.stream_len()?);
        for (group, channels) in self.groups() {
            // The windows of a direct convolution serve all groups.
            if depthwise || group == 0 {
                let pixels = pixels.clone();
                let channels = if depthwise {
                    channels.clone()
                } else {
                    0..window.channels
                };
                let rows = &mut scratch.windows;
                window.rows(cube, &scratch.padding, pixels, channels, rows)?;
            }
            let Range { start, end } = if depthwise {
                weights.channels_of(&channels, padded)
            } else {
                weights.groups_of(&channels)
            };
            let bytes = weights.bytes(start)..weights.bytes(end);
            let buffer = &mut scratch.stream;
            let stream = self.weights.part(self.parts, self.conv, bytes, buffer)?;
            let kernels = &mut scratch.kernels;
            if depthwise {
                weights.depthwise_rows(stream, start, channels.clone(), padded, kernels)?;
            } else {
                weights.rows(stream, start, channels.clone(), kernels)?;
            }
            self.finish(group, pixels.clone(), scratch, channels)?;
        }
        Ok(())
    }

    /// Computes some channels of a tile, from the operands in `scratch`, and writes
    /// them.
    fn finish<T>(
        &self,
        group: usize,
        pixels: Range<usize>,
        scratch: &Scratch<T>,
        channels: Range<usize>,
    ) -> Result<(), Stop> {
        let dma = &self.parts.dma;
        // CPEND needs the sum of features.
        let cpend = self.dpu.cpend.as_ref();
        let values = (scratch.compute)(&MacInput {
            conv: self.conv,
            windows: &scratch.windows,
            kernels: &scratch.kernels,
            pixels: pixels.len(),
            channels: channels.clone(),
            weight_offset: cpend.filter(|_| self.conv.task.sums_features),
        })?;
        if self.is_missing(group) {
            return Ok(());
        }
        let mut tile = DpuTile {
            pixel: pixels.start,
            pixels: pixels.len(),
            channel: channels.start,
            channels: channels.len(),
            values,
        };
        let mut bytes = self.dpu.process(self.parts, self.regs, &mut tile)?;
        if self.depthwise_too_wide() {
            interleave(&mut bytes, self.dpu.out.precision, tile.channels);
        }
        if self.writer.transposed {
            return self.writer.store_transposed(dma, &tile, &bytes);
        }
        self.writer.store(dma, group, &tile, &bytes)
    }

    /// Whether a group is not written.
    fn is_missing(&self, group: usize) -> bool {
        self.broken.has(&INT16_WITHOUT_SUM) && group > 0
            || self.broken.has(&PARTIAL_GROUP)
                && self.writer.channels < (group + 1) * self.writer.output.group
    }

    /// Whether a depthwise group takes more atoms than the writer can count.
    fn depthwise_too_wide(&self) -> bool {
        let per_atom = self.dpu.out.precision.per_atom();
        let atoms = self.writer.output.group.div_ceil(per_atom);
        self.conv.task.depthwise && atoms > GROUP_ATOMS_MAX
    }
}

/// Spreads the channels of a group that is too wide: channel k lands at 2k, and
/// the upper half is lost (E-depthwise-wide). The values between them are
/// unknown, here zeros.
fn interleave(bytes: &mut [u8], precision: Precision, channels: usize) {
    let size = ATOM / precision.per_atom();
    for pixel in bytes.chunks_exact_mut(channels * size) {
        for k in (0..channels / 2).rev() {
            pixel.copy_within(k * size..(k + 1) * size, 2 * k * size);
            pixel[(2 * k + 1) * size..(2 * k + 2) * size].fill(0);
        }
    }
}
