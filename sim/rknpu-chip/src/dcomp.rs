// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA, weight side: the decompressor (DCOMP).
//!
//! The stream and its code ran on silicon (E-dcomp). 16 lanes follow each other,
//! each padded to 64 bytes:
//!
//! ```text
//! lane     16-byte header, then symbols from bit 128 on, lowest bit first
//! header   byte 1: the base value; bytes 4..8: eight nibbles, the widths that
//!          the eight prefix codes stand for, low nibble first
//! symbol   prefix code, sign, and for widths above 1 the bits below the top one
//! value    base + magnitude, or base - magnitude - 1 with the sign set
//! ```
//!
//! Lane `p*8 + q` holds these bytes of each unit of 1024 weight bytes:
//! `half*512 + (group*2 + p)*32 + q*4 + j`, in the order half, group, j.
//! DCOMP_REGNUM is 0x55555555 in the only known programs; the meaning of other
//! values is not known.

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::task::DECOMPRESSOR_LANES;

use super::dma::{self, Dma};
use super::precision::ATOM;
use super::trap::Stop;

/// Most bytes of a stream, compressed or expanded: all lanes are expanded at
/// once. 4096 x 4096 int8 weights are half of this.
pub(crate) const HELD_BYTES: usize = 32 << 20;
/// Alignment of a lane's stream, in bytes.
const LANE_ALIGN: u64 = 64;
/// Bytes of a unit, which the lanes divide among them.
const UNIT: usize = 1024;
const HEADER_BITS: usize = ATOM * 8;
/// Prefix codes, lowest bit first, and their lengths.
const CODES: [(u32, u32); 8] = [
    (0, 2),
    (1, 2),
    (7, 3),
    (3, 3),
    (6, 3),
    (10, 4),
    (18, 5),
    (2, 5),
];

/// Reads lanes of these bytes from `base` on and fills `weights`.
///
/// # Errors
/// [`Stop::HostMemory`] for lanes of more than [`HELD_BYTES`].
pub(crate) fn fetch(
    lanes: &[u64; DECOMPRESSOR_LANES],
    dma: &Dma<'_>,
    base: u32,
    weights: &mut [u8],
) -> Result<(), Stop> {
    let padded = lanes.map(|lane| lane.next_multiple_of(LANE_ALIGN));
    let len: u64 = padded.iter().sum();
    if len > HELD_BYTES as u64 {
        return Err(Stop::HostMemory);
    }
    let mut blob = dma::buffer::<u8>(len as usize)?;
    dma.read(DmaEngine::Weight, base.into(), &mut blob)?;
    let mut rest = blob.as_slice();
    for (index, bytes) in padded.into_iter().enumerate() {
        let (stream, later) = rest.split_at(bytes as usize);
        expand(index, stream, weights);
        rest = later;
    }
    Ok(())
}

/// Decompresses one lane into its places in `weights`.
fn expand(lane: usize, stream: &[u8], weights: &mut [u8]) {
    let mut symbols = Symbols::new(stream);
    for unit in weights.chunks_mut(UNIT) {
        for place in places(lane) {
            let value = symbols.next();
            if let Some(weight) = unit.get_mut(place) {
                *weight = value;
            }
        }
    }
}

/// Offsets in a unit of the bytes of a lane, in the lane's order.
pub(crate) fn places(lane: usize) -> impl Iterator<Item = usize> {
    let (parity, quad) = (lane / 8, lane % 8);
    (0..UNIT / DECOMPRESSOR_LANES).map(move |i| {
        let (half, group, j) = (i / 32, i / 4 % 8, i % 4);
        half * (UNIT / 2) + (group * 2 + parity) * 32 + quad * 4 + j
    })
}

/// The symbols of a stream. Behind its end all bits are 0.
struct Symbols<'a> {
    stream: &'a [u8],
    bit: usize,
    base: u8,
    widths: [u32; CODES.len()],
}

impl<'a> Symbols<'a> {
    fn new(stream: &'a [u8]) -> Self {
        let byte = |at: usize| stream.get(at).copied().unwrap_or(0);
        Self {
            stream,
            bit: HEADER_BITS,
            base: byte(1),
            widths: std::array::from_fn(|i| u32::from(byte(4 + i / 2) >> (4 * (i % 2)) & 7)),
        }
    }

    fn bits(&mut self, count: u32) -> u32 {
        (0..count).fold(0, |value, i| {
            let byte = self.stream.get(self.bit / 8).copied().unwrap_or(0);
            let bit = u32::from(byte >> (self.bit % 8) & 1);
            self.bit += 1;
            value | bit << i
        })
    }

    /// The width that the next prefix code stands for.
    fn width(&mut self) -> u32 {
        let (mut code, mut length) = (0, 0);
        loop {
            code |= self.bits(1) << length;
            length += 1;
            // The codes are complete: one of them matches within five bits.
            if let Some(index) = CODES.iter().position(|&known| known == (code, length)) {
                return self.widths[index];
            }
            if length > 5 {
                return 0;
            }
        }
    }

    fn next(&mut self) -> u8 {
        let width = self.width();
        let negative = self.bits(1) == 1;
        let magnitude = match width {
            0 => 0,
            _ => 1 << (width - 1) | self.bits(width - 1),
        } as u8;
        if negative {
            self.base.wrapping_sub(magnitude).wrapping_sub(1)
        } else {
            self.base.wrapping_add(magnitude)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dma::tests::port;
    use super::*;
    use proptest::prelude::*;

    /// Compresses one lane; `widths` has the width of each code.
    fn compress(values: &[u8], base: u8, widths: [u32; 8]) -> Vec<u8> {
        let mut bits: Vec<bool> = Vec::new();
        let mut push = |value: u32, count: u32| {
            bits.extend((0..count).map(|i| value >> i & 1 == 1));
        };
        for &value in values {
            let residual = value.wrapping_sub(base) as i8;
            let magnitude = if residual < 0 {
                -(residual + 1)
            } else {
                residual
            } as u32;
            let width = u32::BITS - magnitude.leading_zeros();
            let index = widths.iter().position(|&w| w == width).unwrap();
            push(CODES[index].0, CODES[index].1);
            push(u32::from(residual < 0), 1);
            push(magnitude, width.saturating_sub(1));
        }
        let mut out = vec![0; 16];
        out[1] = base;
        for (i, width) in widths.into_iter().enumerate() {
            out[4 + i / 2] |= (width as u8) << (4 * (i % 2));
        }
        out.extend(bits.chunks(8).map(|byte| {
            byte.iter()
                .enumerate()
                .fold(0u8, |sum, (i, &bit)| sum | u8::from(bit) << i)
        }));
        out
    }

    #[test]
    fn the_lanes_share_out_a_unit() {
        let mut seen = [0; UNIT];
        for lane in 0..DECOMPRESSOR_LANES {
            for place in places(lane) {
                seen[place] += 1;
            }
        }
        assert_eq!(seen, [1; UNIT]);
    }

    proptest! {
        #![proptest_config(test_support::cases(16))]

        #[test]
        fn compressed_bytes_are_restored(
            weights in prop::collection::vec(any::<u8>(), UNIT..=3 * UNIT),
            base: u8,
            widths in Just([0u32, 1, 2, 3, 4, 5, 6, 7]).prop_shuffle(),
        ) {
            let weights = &weights[..weights.len() / UNIT * UNIT];
            let mut blob = Vec::new();
            let mut lanes = [0; DECOMPRESSOR_LANES];
            for (lane, bytes) in lanes.iter_mut().enumerate() {
                let values: Vec<u8> = weights
                    .chunks(UNIT)
                    .flat_map(|unit| places(lane).map(|at| unit[at]))
                    .collect();
                let mut stream = compress(&values, base, widths);
                stream.resize(stream.len().next_multiple_of(16), 0);
                *bytes = stream.len() as u64;
                stream.resize(stream.len().next_multiple_of(64), 0);
                blob.extend(stream);
            }
            let mut got = vec![0; weights.len()];
            fetch(&lanes, &port(&mut blob, 0), 0, &mut got).unwrap();
            prop_assert_eq!(got, weights);
        }

        #[test]
        fn any_bytes_decode_to_something(stream in prop::collection::vec(any::<u8>(), 0..200)) {
            expand(3, &stream, &mut [0; UNIT + 7]);
        }
    }
}
