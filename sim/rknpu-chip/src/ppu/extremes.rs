// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maximum and minimum of windows, as 16-bit integers.
//!
//! int8 and int16 are such integers. The bits of an fp16 number, with all but the sign flipped if
//! it is negative, are a signed integer of the same order. So integers give both extremes, first
//! down the lines under a window, then along them. A NaN loses against any number: its integer
//! never wins.

use half::f16;

use super::pooling::{Extreme, Pooling};
use crate::dma::{self, Dma};
use crate::precision::{Precision, each};
use crate::trap::Stop;

/// Bits of infinity. Larger bits, without the sign, are NaNs.
const INFINITY: u16 = f16::INFINITY.to_bits();

impl Extreme {
    /// The integer that loses against all others; no fp16 number has it.
    fn loser(self) -> i16 {
        match self {
            Self::Max => i16::MIN,
            Self::Min => i16::MAX,
        }
    }

    /// The integer of an fp16 number.
    fn key(self, bits: u16) -> i16 {
        if bits & !(1 << 15) > INFINITY {
            self.loser()
        } else {
            flip(bits as i16)
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

/// Converts fp16 bits to the integer of the same order, and back.
fn flip(bits: i16) -> i16 {
    bits ^ (((bits >> 15) as u16) >> 1) as i16
}

impl Pooling {
    /// Pools by maximum or minimum, in atoms of `LANES` elements: first down the
    /// lines under a window, then along them.
    pub(super) fn run_extremes<const LANES: usize>(
        &self,
        dma: &Dma<'_>,
        extreme: Extreme,
    ) -> Result<(), Stop> {
        let pad = match self.element {
            Precision::Int8 => (self.pad_value as i8).into(),
            Precision::Int16 => self.pad_value as i16,
            _ => extreme.key(self.pad_value as u16),
        };
        let first = |outside| if outside { pad } else { extreme.loser() };
        let mut column = dma::buffer::<i16>(self.source.width * LANES)?;
        let decode = |bytes: &[u8]| {
            let mut keys = dma::buffer(self.source.width * LANES)?;
            let _held = match self.element {
                Precision::Int8 => each(bytes, &mut keys, |b| i8::from_le_bytes(b).into()),
                Precision::Int16 => each(bytes, &mut keys, i16::from_le_bytes),
                _ => each(bytes, &mut keys, |b| extreme.key(u16::from_le_bytes(b))),
            };
            Ok(keys)
        };
        self.each_line(dma, decode, |lines, oy, out| {
            let under = self.lines_under(oy).len();
            column.fill(first(under < self.kernel.1));
            for line in lines.iter().take(under) {
                for (column, &key) in column.iter_mut().zip(line) {
                    *column = extreme.choose(*column, key);
                }
            }
            let column = column.as_chunks::<LANES>().0;
            for ox in 0..self.target.width {
                let start = ox * self.stride.0;
                let within = |x: usize| x.saturating_sub(self.pad.0).min(self.source.width);
                let under = within(start)..within(start + self.kernel.0);
                let mut best = [first(under.len() < self.kernel.0); LANES];
                for keys in &column[under] {
                    for lane in 0..LANES {
                        best[lane] = extreme.choose(best[lane], keys[lane]);
                    }
                }
                match self.element {
                    Precision::Int8 => out.extend(best.map(|key| key as u8)),
                    Precision::Int16 => out.extend(best.map(i16::to_le_bytes).as_flattened()),
                    _ => out.extend(
                        best.map(|key| extreme.value(key).to_le_bytes())
                            .as_flattened(),
                    ),
                }
            }
        })
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
