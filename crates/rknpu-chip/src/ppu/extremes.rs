// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maximum and minimum of fp16 windows, without leaving 16 bits.
//!
//! The bits of an fp16 number, with all but the sign flipped where it is
//! negative, are a signed integer of the same order. So both extremes are
//! those of integers, first down the lines under a window, then along them.
//! A NaN loses against any number: it becomes the integer that never wins.

use std::collections::VecDeque;

use half::f16;

use super::{Element, Method, Pooling};
use crate::Master;
use crate::dma::{self, Dma};
use crate::precision::ATOM;
use crate::trap::Stop;

/// fp16 elements of an atom.
const LANES: usize = ATOM / size_of::<f16>();

/// Bits of infinity: what is above, sign aside, is no number.
const INFINITY: u16 = f16::INFINITY.to_bits();

/// Order of fp16 as integers, for one of the two extremes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extreme {
    Max,
    Min,
}

impl Extreme {
    /// The integer that loses against all others; no number has it.
    fn loser(self) -> i16 {
        match self {
            Self::Max => i16::MIN,
            Self::Min => i16::MAX,
        }
    }

    fn key(self, bits: u16) -> i16 {
        let key = flip(bits as i16);
        if bits & !(1 << 15) > INFINITY {
            self.loser()
        } else {
            key
        }
    }

    fn value(self, key: i16) -> u16 {
        if key == self.loser() {
            f16::NAN.to_bits()
        } else {
            flip(key) as u16
        }
    }

    #[inline(always)]
    fn choose(self, a: i16, b: i16) -> i16 {
        match self {
            Self::Max => a.max(b),
            Self::Min => a.min(b),
        }
    }
}

/// From bits to order and back.
fn flip(bits: i16) -> i16 {
    bits ^ (((bits >> 15) as u16) >> 1) as i16
}

impl Pooling {
    /// Whether [`Self::run_extremes`] computes what this pooling asks for.
    pub(super) fn is_extreme(&self) -> bool {
        matches!(self.method, Method::Max | Method::Min) && self.element == Element::Fp16
    }

    /// Pools by maximum or minimum: the same accesses and the same bytes as
    /// window by window.
    pub(super) fn run_extremes(&self, dma: &Dma<'_>) -> Result<(), Stop> {
        let extreme = match self.method {
            Method::Min => Extreme::Min,
            _ => Extreme::Max,
        };
        let pad = extreme.key(self.pad_value as u16);
        let elements = self.source.width * LANES;
        let mut bytes = dma::buffer::<u8>(self.source.width * ATOM)?;
        let mut out = dma::buffer::<u8>(self.target.width * ATOM)?;
        let mut column = dma::buffer::<i16>(elements)?;
        // Lines under the windows of one line of the output, as integers.
        let mut lines: VecDeque<Vec<i16>> = VecDeque::new();
        for c1 in 0..self.source.surfaces.count {
            lines.clear();
            let mut next = 0;
            for oy in 0..self.target.lines.count {
                let under = self.lines_under(oy);
                let held = next - lines.len();
                lines.drain(..(under.start.max(held) - held).min(lines.len()));
                next = next.max(under.start);
                while next < under.end {
                    dma.read(
                        Master::PpuRead,
                        self.source.address(0, next, c1),
                        &mut bytes,
                    )?;
                    let mut keys = dma::buffer::<i16>(elements)?;
                    for (key, pair) in keys.iter_mut().zip(bytes.as_chunks::<2>().0) {
                        *key = extreme.key(u16::from_le_bytes(*pair));
                    }
                    lines.push_back(keys);
                    next += 1;
                }
                let outside = under.len() < self.kernel.1;
                column.fill(if outside { pad } else { extreme.loser() });
                for line in lines.iter().take(under.len()) {
                    for (column, &key) in column.iter_mut().zip(line) {
                        *column = extreme.choose(*column, key);
                    }
                }
                self.along(extreme, pad, &column, &mut out);
                dma.write(Master::PpuWrite, self.target.address(0, oy, c1), &out)?;
            }
        }
        Ok(())
    }

    /// The extremes of `column` along the windows of a line.
    fn along(&self, extreme: Extreme, pad: i16, column: &[i16], out: &mut [u8]) {
        let column = column.as_chunks::<LANES>().0;
        for (ox, atom) in out.as_chunks_mut::<ATOM>().0.iter_mut().enumerate() {
            let start = ox * self.stride.0;
            let within = |x: usize| x.saturating_sub(self.pad.0).min(self.source.width);
            let under = within(start)..within(start + self.kernel.0);
            let outside = under.len() < self.kernel.0;
            let mut best = [if outside { pad } else { extreme.loser() }; LANES];
            for keys in &column[under] {
                for lane in 0..LANES {
                    best[lane] = extreme.choose(best[lane], keys[lane]);
                }
            }
            for (bytes, key) in atom.as_chunks_mut::<2>().0.iter_mut().zip(best) {
                *bytes = extreme.value(key).to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_the_order_of_numbers() {
        for extreme in [Extreme::Max, Extreme::Min] {
            let mut known: Vec<u16> = (0..=u16::MAX).collect();
            known.retain(|&bits| !f16::from_bits(bits).is_nan());
            known.sort_by(|&a, &b| f16::from_bits(a).total_cmp(&f16::from_bits(b)));
            for pair in known.windows(2) {
                assert!(extreme.key(pair[0]) < extreme.key(pair[1]), "{pair:x?}");
            }
            for &bits in &known {
                assert_eq!(extreme.value(extreme.key(bits)), bits);
                assert_ne!(extreme.key(bits), extreme.loser());
            }
            for nan in [0x7c01, 0x7fff, 0xfc01, 0xffff] {
                assert_eq!(extreme.key(nan), extreme.loser());
            }
        }
    }
}
