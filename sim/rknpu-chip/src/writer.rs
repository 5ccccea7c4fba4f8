// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer (WDMA): writes whole atoms to addresses of [`DpuOutput`].

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::task::{Cube, DpuOutput};

use super::dma::{self, Dma};
use super::dpu::tile::DpuTile;
use super::precision::{ATOM, Precision};
use super::trap::Stop;

/// Channels of an atom of sums, and of eight such atoms.
const TRANSPOSED_ATOM: usize = 4;
const TRANSPOSED_GROUP: usize = 32;

/// The writer as the registers describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputWriter {
    pub(crate) output: DpuOutput,
    cube: Cube,
    /// Channels to write.
    pub(crate) channels: usize,
    /// Whether the writer transposes (TP_ORG_EN), in the one form that is known.
    pub(crate) transposed: bool,
}

impl OutputWriter {
    /// Decodes the writer of `output`, and the registers that it does not cover.
    pub(crate) fn new(output: DpuOutput, regs: &RegisterFile) -> Self {
        let flying = regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
        Self {
            output,
            cube: output.atoms(output.cube),
            channels: output.channels(flying),
            transposed: regs.get::<dpu::BsOwCfg>().tp_org_en() == 1
                && regs.get::<dpu::WdmaSize0>().tp_precision() == 1
                && output.input == Precision::Int16,
        }
    }

    /// Address of an atom, by the DPU's own width, whatever CORE's shape is.
    fn address(&self, group: usize, atom: usize, pixel: usize) -> i64 {
        let c1 = group * self.output.group_atoms + atom;
        self.cube.pixel_address(pixel, c1)
    }

    /// Writes the channels of a tile that are to be written, to the atoms of a
    /// group. `data` holds the tile's channels pixel by pixel.
    ///
    /// If atoms overlap, the later pixel of the later atom stays.
    pub(crate) fn store(
        &self,
        dma: &Dma<'_>,
        group: usize,
        tile: &DpuTile,
        data: &[u8],
    ) -> Result<(), Stop> {
        let per_atom = self.output.precision.per_atom();
        let pitch = tile.channels / per_atom * ATOM;
        let channels = (self.channels - tile.channel).min(tile.channels);
        let atoms = channels.div_ceil(per_atom).min(self.output.group_atoms);
        // Row-major results: the atoms of a pixel follow each other.
        let apart = self.cube.width + self.output.notch >= atoms;
        if self.cube.width == 1 && self.output.surface == 1 && apart {
            for (pixel, data) in (tile.pixel..).zip(data.chunks_exact(pitch)) {
                let at = self.address(group, 0, pixel);
                dma.write(DmaEngine::DpuWrite, at, &data[..atoms * ATOM])?;
            }
            return Ok(());
        }
        let mut run = dma::buffer::<u8>(tile.pixels * ATOM)?;
        for atom in 0..atoms {
            for (target, pixel) in run.chunks_exact_mut(ATOM).zip(data.chunks_exact(pitch)) {
                target.copy_from_slice(&pixel[atom * ATOM..(atom + 1) * ATOM]);
            }
            let mut rest = run.as_slice();
            for pixels in self.cube.runs(tile.pixel..tile.pixel + tile.pixels) {
                let (now, later) = rest.split_at(pixels.len() * ATOM);
                let at = self.address(group, atom, pixels.start);
                dma.write(DmaEngine::DpuWrite, at, now)?;
                rest = later;
            }
        }
        Ok(())
    }

    /// Writes the low 16 bits of int32 sums transposed (E-transposed-cut), at
    ///
    /// ```text
    /// slot(m, n) = 4*m + (n/4)%4 + (n/16)*4*M + (n%4)*16*M      slots of 2 bytes from DST_BASE
    /// ```
    ///
    /// M is the number of pixels (E-transposed). Of each 32 channels SIZE_E + 1 groups
    /// of four are written (inferred: E-transposed-size).
    pub(crate) fn store_transposed(
        &self,
        dma: &Dma<'_>,
        tile: &DpuTile,
        sums: &[u8],
    ) -> Result<(), Stop> {
        let rows = self.output.pixels() as i64;
        let present = self.output.group_atoms * TRANSPOSED_ATOM;
        let sums = sums.as_chunks::<{ size_of::<i32>() }>().0;
        for (index, &[low, high, ..]) in sums.iter().enumerate() {
            let pixel = tile.pixel + index / tile.channels;
            let channel = tile.channel + index % tile.channels;
            if channel < self.channels && channel % TRANSPOSED_GROUP < present {
                let (m, n) = (pixel as i64, channel as i64);
                let slot = 4 * m + n / 4 % 4 + n / 16 * 4 * rows + n % 4 * 16 * rows;
                let at = i64::from(self.output.base) + slot * size_of::<u16>() as i64;
                dma.write(DmaEngine::DpuWrite, at, &[low, high])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::dma::tests::port;
    use super::super::dpu::tile::Values;
    use super::*;
    use proptest::prelude::*;

    const MEMORY: usize = 1 << 16;

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn every_atom_goes_to_its_address(
            width in 1usize..6,
            notch in prop_oneof![Just(0usize), 0usize..12],
            surface in prop_oneof![Just(1i64), 0i64..40],
            surface_add in 0i64..60,
            size in 1usize..=8,
            group in 0usize..4,
            pixel in 0usize..9,
            pixels in 1usize..12,
            channels in 1usize..=128,
        ) {
            let output = DpuOutput {
                base: 256, cube: [width, 5, 64], written: [width, 5, channels], notch, surface, surface_add,
                group_atoms: size, group: 32, input: Precision::Int8, precision: Precision::Int8,
            };
            let regs = RegisterFile::new();
            let writer = OutputWriter::new(output, &regs);
            let values = Values::default();
            let tile = DpuTile { pixel, pixels, channel: 0, channels: 128, values };
            let data: Vec<u8> = (0..pixels * 128).map(|i| (i / ATOM) as u8).collect();
            let mut memory = vec![0xaa; MEMORY];
            writer.store(&port(&mut memory, 0), group, &tile, &data).unwrap();
            let mut expected = vec![0xaa; MEMORY];
            for atom in 0..channels.div_ceil(ATOM).min(size) {
                for (index, pixel) in data.chunks_exact(128).enumerate() {
                    let at = writer.address(group, atom, tile.pixel + index) as usize;
                    expected[at..at + ATOM].copy_from_slice(&pixel[atom * ATOM..][..ATOM]);
                }
            }
            prop_assert_eq!(memory, expected);
        }
    }
}
