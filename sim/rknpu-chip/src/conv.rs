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
use super::mac::{self, Compute, MacInput};
use super::patches::ConvWindow;
use super::precision::{ATOM, Precision};
use super::rows::{MacOperand, OperandRows};
use super::transpose;
use super::trap::Stop;
use super::vectors::Vectors;
use super::weight_stream::WeightStream;
use super::writer::{GroupPlacement, OutputWriter};

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
    let mut conv = ConvConfig::new(task, regs);
    conv.window.low_pad &= parts.contested.depthwise_pad == DepthwisePad::LowByte;
    let writer = OutputWriter::new(task.output, regs);
    let group = task.output.group;
    let reads = task.reads.as_ref();
    let all = task::Task::Conv(*task);
    let broken = check::registers(parts.report, &all, regs, parts.contested)?;
    if reads.is_none() && parts.contested.core_idle_mainline == CoreIdleMainline::Hangs {
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
    let source = operands::weights(parts, regs, &conv)?;
    let spilled = operands::spill(parts, regs, &conv, &cube)?;
    let nearest = parts.contested.tf32_operand == Tf32Operand::Nearest;
    let features = FeatureLines {
        conv: &conv,
        dma: parts.dma,
        cbuf: parts.cbuf,
        spilled,
        nearest,
    };
    features.finish(&mut cube);
    let weights = WeightStream {
        source,
        len: conv.stream_len()?,
        dma: parts.dma,
        cbuf: parts.cbuf,
        config: conv.task.cbuf,
        rounded: nearest && conv.weights.precision == Precision::Tf32,
    };
    let task = Convolution {
        conv: &conv,
        group,
        dpu: &dpu,
        writer: &writer,
        features: &features,
        weights: &weights,
        dma: parts.dma,
        lut: parts.lut,
        vectors: parts.dma.vectors(),
        broken: &broken,
        tiles: TileReport::new(parts.report, regs),
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

/// Operands of a tile. Tiles reuse their memory.
#[derive(Default)]
struct Scratch<T> {
    windows: OperandRows<T>,
    kernels: OperandRows<T>,
    /// Part of the weight stream.
    stream: Vec<u8>,
}

/// Pixels that are computed together.
struct Tile<'a, T> {
    /// The features; all lines that the pixels need are there.
    cube: &'a FeatureCube,
    /// Value of a padded tap, for each input channel.
    padding: &'a [T],
    pixels: Range<usize>,
    compute: Compute<T>,
}

impl<T: MacOperand> Tile<'_, T> {
    /// Gathers the windows of the pixels into `scratch`.
    fn gather(
        &self,
        window: &ConvWindow,
        padding: &[T],
        channels: Range<usize>,
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        let windows = &mut scratch.windows;
        window.rows(self.cube, padding, self.pixels.clone(), channels, windows)
    }
}

/// The arithmetic of a task.
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
    /// Computes and writes all pixels. Fetches the lines that `cube` does not
    /// hold. Returns the cube so that its memory can be reused.
    fn run<T: MacOperand>(
        &self,
        mut cube: FeatureCube,
        compute: Compute<T>,
    ) -> Result<FeatureCube, Stop> {
        let padding = self.conv.window.padding::<T>();
        let pixels = self.writer.output.pixels().min(self.conv.task.pixels);
        let depthwise = self.conv.task.depthwise;
        let row = if depthwise {
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
            let tile = Tile {
                cube: &cube,
                padding: &padding,
                pixels: first..first + count,
                compute,
            };
            if depthwise {
                self.depthwise(&tile, &mut scratch)?;
            } else {
                self.direct(&tile, &mut scratch)?;
            }
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
        let group = self.group;
        let width = group.next_multiple_of(self.dpu.out.precision.per_atom());
        let groups = self.writer.channels.div_ceil(group);
        (0..groups).map(move |index| (index, index * group..index * group + width))
    }

    fn direct<T: MacOperand>(
        &self,
        tile: &Tile<'_, T>,
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        tile.gather(
            &self.conv.window,
            tile.padding,
            0..self.conv.window.channels,
            scratch,
        )?;
        for (group, channels) in self.groups() {
            let (shape, first, bytes) = self.conv.weights.groups_of(channels.clone());
            let stream = self.weights.part(bytes, &mut scratch.stream)?;
            let (count, kernels) = (channels.len(), &mut scratch.kernels);
            if self.dma.literal() {
                shape.rows_literally(stream, first, count, kernels)?;
            } else {
                shape.rows(stream, first, count, kernels)?;
            }
            self.finish(group, tile, scratch, channels)?;
        }
        Ok(())
    }

    fn depthwise<T: MacOperand>(
        &self,
        tile: &Tile<'_, T>,
        scratch: &mut Scratch<T>,
    ) -> Result<(), Stop> {
        let weights = &self.conv.weights;
        let padded = weights.is_padded(self.weights.len);
        for (group, channels) in self.groups() {
            // Channels beyond the input are written too, from zeros.
            let mut padding = tile.padding.to_vec();
            padding.resize(channels.end.max(padding.len()), T::default());
            tile.gather(&self.conv.window, &padding, channels.clone(), scratch)?;
            let (shape, first, bytes) = weights.channels_of(channels.clone(), padded);
            let stream = self.weights.part(bytes, &mut scratch.stream)?;
            let (count, kernels) = (channels.len(), &mut scratch.kernels);
            shape.depthwise_rows(stream, first, count, padded, kernels)?;
            self.finish(group, tile, scratch, channels)?;
        }
        Ok(())
    }

    /// CPEND's operand, if the task computes the sum of features that it needs.
    fn weight_offset(&self) -> Option<&ChannelOperand> {
        self.dpu
            .cpend
            .as_ref()
            .filter(|_| self.conv.task.sums_features)
    }

    /// Computes some channels of a tile, from the operands in `scratch`, and writes
    /// them.
    fn finish<T>(
        &self,
        group: usize,
        tile: &Tile<'_, T>,
        scratch: &Scratch<T>,
        channels: Range<usize>,
    ) -> Result<(), Stop> {
        let pixels = tile.pixels.len();
        let values = (tile.compute)(&MacInput {
            conv: self.conv,
            windows: &scratch.windows,
            kernels: &scratch.kernels,
            pixels,
            channels: channels.clone(),
            weight_offset: self.weight_offset(),
            vectors: self.vectors,
        })?;
        if self.is_missing(group) {
            return Ok(());
        }
        let (pixel, channel, channels) = (tile.pixels.start, channels.start, channels.len());
        let tile = DpuTile {
            pixel,
            pixels,
            channel,
            channels,
            values,
        };
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
