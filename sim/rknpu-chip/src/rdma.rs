// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPU_RDMA: the four read engines of the DPU. [`Reads`] has their addresses.

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::task::{ChannelRead, Cube, PER_CHANNEL, Reads};

use super::dma::{self, Dma};
use super::precision::{ATOM, u16_at, u32_at};
use super::trap::Stop;

/// Layout of ERDMA's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EwLayout {
    /// One value for each channel, contiguous.
    Channels(u32),
    /// A cube, read by ERDMA alone.
    Cube(Surfaces),
    /// A cube: MRDMA reads its even surfaces, ERDMA the odd ones.
    Dual(Surfaces, Surfaces),
}

impl EwLayout {
    /// The layout that `reads` describe, if ERDMA is on.
    pub(crate) fn new(reads: &Reads, flying: bool) -> Option<Self> {
        let element = reads.element?;
        let odd = Surfaces::new(DmaEngine::Erdma, reads.element_read(flying)?.near);
        let even = reads.main_read(flying).filter(|_| reads.shares(flying));
        Some(match even {
            // Each engine reads its share of the surfaces, with its own element
            // size if they differ.
            Some(even) => Self::Dual(Surfaces::new(DmaEngine::Mrdma, even.near), odd),
            None if element.mode == PER_CHANNEL => Self::Channels(element.base),
            None => Self::Cube(odd),
        })
    }

    /// Reads atoms of surface `c1` into `out`, from pixel `first` on.
    pub(crate) fn read(
        &self,
        dma: &Dma<'_>,
        c1: usize,
        first: usize,
        out: &mut [u8],
    ) -> Result<(), Stop> {
        match self {
            Self::Cube(surfaces) => surfaces.read(dma, c1, first, out),
            Self::Dual(even, odd) => {
                let engine = if c1.is_multiple_of(2) { even } else { odd };
                engine.read(dma, c1 / 2, first, out)
            }
            Self::Channels(base) => {
                let (head, rest) = out.split_at_mut(ATOM);
                let at = i64::from(*base) + (c1 * ATOM) as i64;
                dma.read(DmaEngine::Erdma, at, head)?;
                for atom in rest.chunks_exact_mut(ATOM) {
                    atom.copy_from_slice(head);
                }
                Ok(())
            }
        }
    }
}

/// A cube that one engine reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surfaces {
    master: DmaEngine,
    cube: Cube,
}

impl Surfaces {
    pub(crate) fn new(master: DmaEngine, cube: Cube) -> Self {
        Self { master, cube }
    }

    /// Reads the atoms of surface `c1` from pixel `first` on. Surfaces that the
    /// engine does not read are zeros.
    pub(crate) fn read(
        &self,
        dma: &Dma<'_>,
        c1: usize,
        first: usize,
        out: &mut [u8],
    ) -> Result<(), Stop> {
        if c1 >= self.cube.surfaces.count {
            out.fill(0);
            return Ok(());
        }
        let mut rest = out;
        for run in self.cube.runs(first..first + rest.len() / ATOM) {
            let (now, later) = rest.split_at_mut(run.len() * ATOM);
            dma.read(self.master, self.cube.pixel_address(run.start, c1), now)?;
            rest = later;
        }
        Ok(())
    }
}

/// Channels of a group of interleaved operands.
const GROUP_CHANNELS: usize = 8;
/// Bytes of such a group, and the offsets of its 16-bit operands. The ALU's
/// 32-bit operands come first.
const GROUP_BYTES: usize = 64;
const GROUP_CPEND: usize = 32;
const GROUP_MUL: usize = 48;

/// Operands that an engine reads for each channel.
pub(crate) struct ChannelOperands<'a, 'b> {
    pub(crate) dma: &'a Dma<'b>,
    pub(crate) master: DmaEngine,
    /// `None` if the engine is off.
    pub(crate) read: Option<ChannelRead>,
    pub(crate) channels: usize,
    /// Whether a lone multiplier has 16 bits: in a pipeline of 16-bit floats.
    /// All other lone operands have 32 (E-lone-operand).
    pub(crate) narrow: bool,
}

impl ChannelOperands<'_, '_> {
    /// The operand words of one consumer, for each channel.
    ///
    /// The operands of one consumer are an array. Those of several are
    /// interleaved in groups of 8 channels and 64 bytes: int32 for the ALU,
    /// then int16 for CPEND, then int16 for the multiplier (E-bs-operands:
    /// DATA_USE 7; other sets are inferred, and a shift's own place is
    /// unknown).
    pub(crate) fn words(&self, consumer: u32) -> Result<Option<Vec<u32>>, Stop> {
        let read = self.read.filter(|read| read.uses & consumer != 0);
        let Some(ChannelRead { base, uses }) = read else {
            return Ok(None);
        };
        let several = !uses.is_power_of_two();
        let half = self.narrow && consumer == ChannelRead::MUL;
        let len = match (several, half) {
            (true, _) => self.channels.div_ceil(GROUP_CHANNELS) * GROUP_BYTES,
            (false, true) => self.channels * size_of::<u16>(),
            (false, false) => self.channels * size_of::<u32>(),
        };
        let mut bytes = dma::buffer::<u8>(len)?;
        self.dma.read(self.master, base.into(), &mut bytes)?;
        let word = |c: usize| {
            let group = &bytes[c / GROUP_CHANNELS * GROUP_BYTES..];
            let lane = c % GROUP_CHANNELS;
            match consumer {
                ChannelRead::ALU => u32_at(group, lane),
                ChannelRead::CPEND => u16_at(&group[GROUP_CPEND..], lane).into(),
                ChannelRead::MUL => u16_at(&group[GROUP_MUL..], lane).into(),
                _ => 0,
            }
        };
        Ok(Some(
            (0..self.channels)
                .map(|c| match (several, half) {
                    (true, _) => word(c),
                    (false, true) => u16_at(&bytes, c).into(),
                    (false, false) => u32_at(&bytes, c),
                })
                .collect(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::dma::tests::port;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn every_atom_comes_from_its_address(
            width in 1usize..6,
            notch in prop_oneof![Just(0i64), 0i64..5],
            pitch in 0i64..60,
            c1 in 0usize..3,
            first in 0usize..9,
            pixels in 1usize..20,
        ) {
            // Every atom holds its number.
            let bytes = (0..512u128).flat_map(u128::to_le_bytes);
            let mut memory: Vec<u8> = bytes.collect();
            let cube = Cube::plain(16, [width, 30, 2], width as i64 + notch, pitch);
            let mut out = vec![0; pixels * ATOM];
            let surfaces = Surfaces::new(DmaEngine::Mrdma, cube);
            surfaces.read(&port(&mut memory, 0), c1, first, &mut out).unwrap();
            for (pixel, atom) in (first..).zip(out.chunks_exact(ATOM)) {
                // There are two surfaces.
                let number = if c1 < 2 { cube.pixel_address(pixel, c1) / 16 } else { 0 };
                prop_assert_eq!(atom, (number as u128).to_le_bytes());
            }
        }
    }

    #[test]
    fn operands_of_several_consumers_lie_in_groups() {
        let mut memory: Vec<u8> = (0..=u8::MAX).collect();
        let dma = port(&mut memory, 0);
        const ALU: u32 = ChannelRead::ALU;
        const CPEND: u32 = ChannelRead::CPEND;
        const MUL: u32 = ChannelRead::MUL;
        for (uses, consumer, narrow, channel, word) in [
            (ALU, ALU, false, 0, Some(0x1312_1110)),
            (ALU, ALU, false, 1, Some(0x1716_1514)),
            (MUL, MUL, true, 9, Some(0x2322)),
            (MUL, MUL, false, 9, Some(0x3736_3534)),
            (ALU | CPEND | MUL, ALU, false, 9, Some(0x5756_5554)),
            (ALU | CPEND | MUL, CPEND, false, 1, Some(0x3332)),
            (ALU | CPEND | MUL, MUL, false, 9, Some(0x8382)),
            (ALU, CPEND, false, 0, None),
        ] {
            let operands = ChannelOperands {
                dma: &dma,
                master: DmaEngine::Brdma,
                read: Some(ChannelRead { base: 16, uses }),
                channels: 10,
                narrow,
            };
            let words = operands.words(consumer).unwrap();
            assert_eq!(words.map(|words| words[channel]), word);
        }
    }
}
