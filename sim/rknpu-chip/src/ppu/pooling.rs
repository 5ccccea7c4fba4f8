// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a pooling, and the values of its windows.

use std::collections::VecDeque;
use std::ops::Range;

use half::f16;
use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::ppu;
use rknpu_regcmd::task::{Cube, POOL_AVERAGE, POOL_MAX, PoolTask};

use crate::Contested;
use crate::contested::OtherSide;
use crate::dma::{self, Dma};
use crate::mac_array::{Ties, shift_right_rounded};
use crate::precision::{ATOM, Precision, decode_float, fp16_to_fp32};
use crate::trap::Stop;
use rknpu_regcmd::DmaEngine;

/// Most elements of a pooled atom: bytes. fp16 has half of them.
const LANES: usize = 16;
/// Scale of a reciprocal: it is 65536 / size.
const RECIPROCAL_SCALE: f64 = 1.0 / 65_536.0;
/// Fractional bits of two integer reciprocals together.
const RECIPROCAL_BITS: u32 = 32;

/// One of the two extremes of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extreme {
    Max,
    Min,
}

/// Operation on a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Average,
    Extreme(Extreme),
    /// Code 3 has no known meaning; it gives the first element.
    Unknown,
}

/// The pooling as the registers describe it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pooling {
    pub(super) source: Cube,
    pub(super) target: Cube,
    pub(super) method: Method,
    pub(super) kernel: (usize, usize),
    pub(super) stride: (usize, usize),
    pub(super) pad: (usize, usize),
    /// PADDING_VALUE_1.
    pub(super) pad_value: u32,
    /// fp16, int8 or int16.
    pub(super) element: Precision,
    /// RECIP_KERNEL_WIDTH and HEIGHT.
    pub(super) reciprocal: (u32, u32),
    /// Whether to round after each step instead of once.
    pub(super) rounds_each: bool,
}

impl Pooling {
    pub(super) fn new(task: &PoolTask, regs: &RegisterFile, contested: Contested) -> Self {
        let kernel = regs.get::<ppu::PoolingKernelCfg>();
        let pad = regs.get::<ppu::PoolingPaddingCfg>();
        Self {
            source: task.source(),
            target: task.target(),
            method: match task.method {
                POOL_AVERAGE => Method::Average,
                POOL_MAX => Method::Extreme(Extreme::Max),
                2 => Method::Extreme(Extreme::Min),
                _ => Method::Unknown,
            },
            kernel: (task.kernel[0], task.kernel[1]),
            stride: (
                kernel.kernel_stride_width() as usize + 1,
                kernel.kernel_stride_height() as usize + 1,
            ),
            pad: (pad.pad_left() as usize, pad.pad_top() as usize),
            pad_value: regs.get::<ppu::PaddingValue1>().pad_value_0(),
            // E-pooling-int8, E-pool-width.
            element: if contested.has(OtherSide::BytePoolingAsFp16) {
                Precision::Fp16
            } else {
                task.element()
            },
            reciprocal: (
                regs.get::<ppu::RecipKernelWidth>().recip_kernel_width(),
                regs.get::<ppu::RecipKernelHeight>().recip_kernel_height(),
            ),
            rounds_each: contested.has(OtherSide::AverageRoundingEach),
        }
    }

    /// Decodes a line of a surface to numbers, in the order (x, lane).
    pub(super) fn line(&self, bytes: &[u8]) -> Result<Vec<f32>, Stop> {
        let mut values = dma::buffer::<f32>(self.source.width * LANES)?;
        for (values, atom) in values.chunks_exact_mut(LANES).zip(bytes.chunks_exact(ATOM)) {
            decode_float(self.element, atom, &mut values[..self.element.per_atom()]);
        }
        Ok(values)
    }

    /// The average of a window, from its sum.
    fn average(&self, sum: f64) -> f32 {
        let (width, height) = self.reciprocal;
        if self.element != Precision::Fp16 {
            // Sums of integers are exact in float64.
            let product = sum as i64 * i64::from(width) * i64::from(height);
            return shift_right_rounded(product, RECIPROCAL_BITS, Ties::Even) as f32;
        }
        let factor = |bits: u32| f64::from(fp16_to_fp32(bits as u16)) * RECIPROCAL_SCALE;
        let (width, height) = (factor(width), factor(height));
        let round = |x: f64| f64::from(f16::from_f64(x).to_f32());
        if self.rounds_each {
            round(round(round(sum) * width) * height) as f32
        } else {
            round(sum * width * height) as f32
        }
    }

    /// Appends an atom to `out` as it lies in memory.
    pub(super) fn store(&self, values: [f32; LANES], out: &mut Vec<u8>) {
        for &value in &values[..self.element.per_atom()] {
            // Integer values are whole; `as` saturates. All hosts write one NaN.
            match self.element {
                Precision::Int8 => out.push(value as i8 as u8),
                Precision::Int16 => out.extend_from_slice(&(value as i16).to_le_bytes()),
                _ if value.is_nan() => out.extend_from_slice(&f16::NAN.to_le_bytes()),
                _ => out.extend_from_slice(&f16::from_f32(value).to_le_bytes()),
            }
        }
    }

    /// Input lines under the windows of output line `oy`.
    pub(super) fn lines_under(&self, oy: usize) -> Range<usize> {
        let start = oy * self.stride.1;
        let within = |y: usize| y.saturating_sub(self.pad.1).min(self.source.lines.count);
        within(start)..within(start + self.kernel.1)
    }

    /// The atom of the window at (oy, ox), for an average or an unknown method.
    /// `lines` are those under `oy`.
    pub(super) fn window(&self, lines: &VecDeque<Vec<f32>>, oy: usize, ox: usize) -> [f32; LANES] {
        let under = self.lines_under(oy);
        let taps = (0..self.kernel.1).flat_map(|ky| (0..self.kernel.0).map(move |kx| (ky, kx)));
        let mut inside = taps.map(|(ky, kx)| {
            let y = (oy * self.stride.1 + ky).checked_sub(self.pad.1)?;
            let x = (ox * self.stride.0 + kx).checked_sub(self.pad.0)?;
            let line = lines.get(y.checked_sub(under.start)?)?;
            line[x.min(self.source.width) * LANES..].first_chunk::<LANES>()
        });
        if self.method == Method::Unknown {
            let mut pad = [0.0];
            decode_float(self.element, &self.pad_value.to_le_bytes(), &mut pad);
            let first = inside.next();
            return first.map_or([0.0; LANES], |first| *first.unwrap_or(&[pad[0]; LANES]));
        }
        let mut sums = [0f64; LANES];
        for values in inside.flatten() {
            for (sum, &value) in sums.iter_mut().zip(values) {
                *sum += f64::from(value);
            }
        }
        sums.map(|sum| self.average(sum))
    }

    /// Writes each line of the output. `decode` converts a line of the input;
    /// `pool` appends a line of the output, from the lines under it.
    pub(super) fn each_line<T>(
        &self,
        dma: &Dma<'_>,
        decode: impl Fn(&[u8]) -> Result<Vec<T>, Stop>,
        mut pool: impl FnMut(&VecDeque<Vec<T>>, usize, &mut Vec<u8>),
    ) -> Result<(), Stop> {
        let mut bytes = dma::buffer::<u8>(self.source.width * ATOM)?;
        let mut out = Vec::with_capacity(self.target.width * ATOM);
        for c1 in 0..self.source.surfaces.count {
            let mut lines = VecDeque::new();
            let mut next = 0;
            for oy in 0..self.target.lines.count {
                let under = self.lines_under(oy);
                let held = next - lines.len();
                lines.drain(..(under.start.max(held) - held).min(lines.len()));
                next = next.max(under.start);
                while next < under.end {
                    let at = self.source.address(0, next, c1);
                    dma.read(DmaEngine::PpuRead, at, &mut bytes)?;
                    lines.push_back(decode(&bytes)?);
                    next += 1;
                }
                out.clear();
                pool(&lines, oy, &mut out);
                dma.write(DmaEngine::PpuWrite, self.target.address(0, oy, c1), &out)?;
            }
        }
        Ok(())
    }
}
