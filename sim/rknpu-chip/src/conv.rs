// SPDX-License-Identifier: MIT OR Apache-2.0
//! A convolution task: CNA -> CORE -> DPU -> memory.
//!
//! The work is cut into tiles of some pixels and one group of channels. A
//! tile's windows and kernels are gathered into rows of numbers, multiplied,
//! post-processed and written. The weight zero point correction (CPEND) adds
//! BS_OW_OP to every weight, padded taps included; a captured run confirms it
//! to the bit.

pub(crate) mod features;
mod operands;

use std::ops::Range;

use features::FeatureLines;
use rknpu_regcmd::rules::program::CORE_IDLE;
use rknpu_regcmd::rules::{GROUP_ATOMS_MAX, INT16_WITHOUT_SUM, PARTIAL_GROUP};
use rknpu_regcmd::{EnableMask, RegisterFile, task};

use super::check::{self, Broken, TileReport};
use super::cna::FeatureCube;
use super::contested::{CoreIdleMainline, DepthwisePad, Tf32Operand};
use super::conv_config::ConvConfig;
use super::core_parts::CoreParts;
use super::dma::Dma;
use super::dpu::Dpu;
use super::dpu::lut::Lut;
use super::dpu::stage::ChannelOperand;
use super::dpu::tile::DpuTile;
use super::mac::{Mac, MacInput};
use super::precision::{ATOM, Precision};
use super::rows::OperandRows;
use super::transpose;
use super::trap::Stop;
use super::vectors::Vectors;
use super::weight_stream::WeightStream;
use super::writer::{GroupPlacement, OutputWriter};

/// Elements of gathered windows that stay in a host's second-level cache.
const WINDOW_ELEMENTS: usize = 1 << 18;
/// The blocks that this is about.
const BLOCKS: EnableMask = task::CONVOLUTION.union(EnableMask::DPU_RDMA);
/// Pixels of a tile: enough that decoding the kernels does not count.
const TILE_PIXELS: std::ops::RangeInclusive<usize> = 16..=256;

/// Runs the task that `regs` describe.
pub(crate) fn run(
    machine: &mut CoreParts<'_>,
    regs: &RegisterFile,
    enable: EnableMask,
    task: &task::ConvTask,
) -> Result<(), Stop> {
    let mut conv = ConvConfig::new(task, regs);
    conv.window.low_pad &= machine.contested.depthwise_pad == DepthwisePad::LowByte;
    let writer = OutputWriter::new(task.output, regs);
    let group = task.output.group;
    let reads = task.reads.as_ref();
    let all = task::Task::Conv(*task);
    let broken = check::registers(machine.report, &all, regs, machine.contested)?;
    if reads.is_none() && machine.contested.core_idle_mainline == CoreIdleMainline::Hangs {
        let shown = [("enable", enable.bits())];
        let values = "DPU_RDMA is not started";
        machine.report.tell(&CORE_IDLE, &shown, values)?;
    }
    machine.clock.spend(regs, enable & BLOCKS)?;

    let mut dpu = Dpu::load(regs, reads, false, &machine.dma, machine.contested)?;
    if writer.transposed {
        dpu.out.precision = Precision::Int32;
    }
    let mut cube = operands::features(machine, regs, &conv)?;
    let source = operands::weights(machine, regs, &conv)?;
    let spilled = operands::spill(machine, regs, &conv, &cube)?;
    let nearest = machine.contested.tf32_operand == Tf32Operand::Nearest;
    let features = FeatureLines {
        conv: &conv,
        dma: machine.dma,
        cbuf: machine.cbuf,
        spilled,
        nearest,
    };
    features.finish(&mut cube);
    let weights = WeightStream {
        source,
        len: conv.stream_len()?,
        dma: machine.dma,
        cbuf: machine.cbuf,
        config: conv.cbuf,
        rounded: nearest && conv.weights.precision == Precision::Tf32,
    };
    let task = Convolution {
        conv: &conv,
        group,
        dpu: &dpu,
        writer: &writer,
        features: &features,
        weights: &weights,
        dma: machine.dma,
        lut: machine.lut,
        vectors: machine.dma.vectors(),
        broken: &broken,
        tiles: TileReport::new(machine.report, regs),
    };
    let operands = (conv.window.precision, conv.weights.precision);
    let cube = if conv.precision.is_float() && operands == (Precision::Fp16, Precision::Fp16) {
        task.run::<f32>(cube)?
    } else if conv.precision.is_float() {
        task.run::<f64>(cube)?
    } else {
        task.run::<i16>(cube)?
    };
    machine.cbuf.give_spare(cube.into_memory());
    broken.finish(machine.report, regs)
}

/// Operands of a tile, kept from tile to tile for their memory.
#[derive(Default)]
struct Scratch<T> {
    windows: OperandRows<T>,
    kernels: OperandRows<T>,
    /// Part of the weight stream.
    stream: Vec<u8>,
}

/// The part of a task that is arithmetic.
struct Convolution<'a, 'b> {
    conv: &'a ConvConfig,
    /// Channels of one group of the writer.
    group: usize,
    dpu: &'a Dpu,
    writer: &'a OutputWriter,
    features: &'a FeatureLines<'a, 'b>,
    weights: &'a WeightStream<'a, 'b>,
    dma: Dma<'b>,
    lut: &'a Lut,
    vectors: Vectors,
    broken: &'a Broken,
    tiles: TileReport<'a>,
}

impl Convolution<'_, '_> {
    /// Computes and writes everything, from the features in `cube` if they are
    /// all there. Returns the cube for its memory.
    fn run<T: Mac>(&self, mut cube: FeatureCube) -> Result<FeatureCube, Stop> {
        let padding = self.conv.window.padding::<T>();
        let pixels = self.writer.output.pixels().min(self.conv.pixels);
        let row = if self.conv.depthwise {
            self.conv.window.taps() * self.group
        } else {
            self.conv.weights.row_len()
        };
        let mut scratch = Scratch::default();
        let tile = (WINDOW_ELEMENTS / row.max(1)).clamp(*TILE_PIXELS.start(), *TILE_PIXELS.end());
        let mut first = 0;
        while first < pixels {
            let (lines, count) = self.lines_of(&cube, first, tile.min(pixels - first))?;
            if !cube.holds(&lines) {
                cube = self.features.band(lines, cube.into_memory())?;
            }
            if self.conv.depthwise {
                self.depthwise::<T>(&cube, &padding, (first, count), &mut scratch)?;
            } else {
                self.direct::<T>(&cube, &padding, (first, count), &mut scratch)?;
            }
            first += count;
        }
        Ok(cube)
    }

    /// Lines to hold for a tile of pixels from `first` on, and how many pixels
    /// up to `count` it may have: what it needs fits a band, and so may lines
    /// of the next tiles.
    fn lines_of(
        &self,
        cube: &FeatureCube,
        first: usize,
        mut count: usize,
    ) -> Result<(Range<usize>, usize), Stop> {
        let held = features::lines_held(self.conv)?;
        loop {
            let needed = self.conv.window.lines_under(first, count);
            let needed = needed.start.min(cube.height)..needed.end.min(cube.height);
            if cube.holds(&needed) {
                return Ok((needed, count));
            }
            if needed.len() <= held {
                let end = cube.height.min(needed.start.saturating_add(held));
                return Ok((needed.start..end, count));
            }
            if count == 1 {
                return Err(Stop::HostMemory);
            }
            count = count.div_ceil(2);
        }
    }

    /// Channels between the starts of two groups, and of a tile: a group, or
    /// an atom of the output if that is more.
    fn groups(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let group = self.group;
        let width = group.next_multiple_of(self.dpu.out.precision.per_atom());
        (0..self.writer.channels.div_ceil(group)).map(move |g| (g, g * group, width))
    }

    fn direct<T: Mac>(
        &self,
        cube: &FeatureCube,
        padding: &[T],
        (first, count): (usize, usize),
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        let window = &self.conv.window;
        let all = 0..window.channels;
        window.rows(cube, padding, (first, count), all, &mut scratch.windows)?;
        for (group, channel, channels) in self.groups() {
            let (shape, first_kernel, bytes) = self.conv.weights.groups_of(channel, channels);
            let stream = self.weights.part(bytes, &mut scratch.stream)?;
            let kernels = &mut scratch.kernels;
            if self.dma.literal() {
                shape.rows_literally(stream, first_kernel, channels, kernels)?;
            } else {
                shape.rows(stream, first_kernel, channels, kernels)?;
            }
            let input = self.input(scratch, count, channel, channels);
            self.finish(group, input.tile(first, T::direct(&input)?))?;
        }
        Ok(())
    }

    fn depthwise<T: Mac>(
        &self,
        cube: &FeatureCube,
        padding: &[T],
        (first, count): (usize, usize),
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        let weights = &self.conv.weights;
        let padded = weights.is_padded(self.weights.len);
        for (group, channel, channels) in self.groups() {
            // Channels beyond the input are written too, from zeros.
            let mut padding = padding.to_vec();
            padding.resize((channel + channels).max(padding.len()), T::default());
            let range = channel..channel + channels;
            let window = &self.conv.window;
            window.rows(cube, &padding, (first, count), range, &mut scratch.windows)?;
            let (shape, first_channel, bytes) = weights.channels_of(channel, channels, padded);
            let stream = self.weights.part(bytes, &mut scratch.stream)?;
            let kernels = &mut scratch.kernels;
            shape.depthwise_rows(stream, first_channel, channels, padded, kernels)?;
            let input = self.input(scratch, count, channel, channels);
            self.finish(group, input.tile(first, T::depthwise(&input)?))?;
        }
        Ok(())
    }

    /// What a tile of `pixels` is computed from.
    fn input<'s, T>(
        &'s self,
        scratch: &'s Scratch<T>,
        pixels: usize,
        channel: usize,
        channels: usize,
    ) -> MacInput<'s, T> {
        MacInput {
            conv: self.conv,
            windows: &scratch.windows,
            kernels: &scratch.kernels,
            pixels,
            channel,
            channels,
            weight_offset: self.weight_offset(),
            vectors: self.vectors,
        }
    }

    /// CPEND's operand, where the sum of the features that it needs is made.
    fn weight_offset(&self) -> Option<&ChannelOperand> {
        self.dpu.cpend.as_ref().filter(|_| self.conv.sums_features)
    }

    /// From the sums of a tile to memory.
    fn finish(&self, group: usize, tile: DpuTile) -> Result<(), Stop> {
        let DpuTile {
            pixel,
            pixels,
            channel,
            channels,
            ..
        } = tile;
        if self.is_missing(group) {
            return Ok(());
        }
        let per_atom = self.dpu.out.precision.per_atom();
        let mut bytes = Vec::new();
        let noticed = self.dpu.process(&self.dma, self.lut, tile, &mut bytes)?;
        self.tiles.note(noticed)?;
        if self.depthwise_too_wide() {
            interleave(&mut bytes, self.dpu.out.precision, channels);
        }
        if self.writer.transposed {
            let at = (pixel, channel);
            return transpose::store(self.writer, &self.dma, at, channels, &bytes);
        }
        let place = GroupPlacement {
            group,
            pixel,
            pixels,
            atoms: (self.writer.channels - channel)
                .min(channels)
                .div_ceil(per_atom),
        };
        let pitch = channels / per_atom * ATOM;
        self.writer.store(&self.dma, place, &bytes, pitch)
    }

    /// Whether a group is not written.
    fn is_missing(&self, group: usize) -> bool {
        self.broken.has(&INT16_WITHOUT_SUM) && group > 0
            || self.broken.has(&PARTIAL_GROUP) && self.writer.channels < (group + 1) * self.group
    }

    /// Whether a depthwise group takes more atoms than the writer can count.
    fn depthwise_too_wide(&self) -> bool {
        let atoms = self.group.div_ceil(self.dpu.out.precision.per_atom());
        self.conv.depthwise && atoms > GROUP_ATOMS_MAX
    }
}

/// Spreads the channels of a group that is too wide: channel k lands at 2k,
/// and the upper half is lost (E-depthwise-wide; what lies between is not known,
/// here zeros).
fn interleave(bytes: &mut [u8], precision: Precision, channels: usize) {
    let size = ATOM / precision.per_atom();
    for pixel in bytes.chunks_exact_mut(channels * size) {
        for k in (0..channels / 2).rev() {
            pixel.copy_within(k * size..(k + 1) * size, 2 * k * size);
            pixel[(2 * k + 1) * size..(2 * k + 2) * size].fill(0);
        }
    }
}
