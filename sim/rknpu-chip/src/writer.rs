// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer (WDMA): writes whole atoms to addresses of [`DpuOutput`].

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::task::{Cube, DpuOutput};

use super::dma::{self, Dma};
use super::precision::{ATOM, Precision};
use super::trap::Stop;

/// The writer as the registers describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputWriter {
    pub(crate) output: DpuOutput,
    cube: Cube,
    /// Channels to write.
    pub(crate) channels: usize,
    /// Whether the writer transposes, in the one form that is known.
    pub(crate) transposed: bool,
}

/// Some pixels of one group, which one call stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupPlacement {
    pub(crate) group: usize,
    pub(crate) pixel: usize,
    pub(crate) pixels: usize,
    /// Atoms both in the group's data and in the channels to write.
    pub(crate) atoms: usize,
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

    /// Writes the first atoms of each pixel. `data` holds the pixels one after
    /// the other, `pitch` bytes each.
    ///
    /// If atoms overlap, the later pixel of the later atom stays.
    pub(crate) fn store(
        &self,
        dma: &Dma<'_>,
        place: GroupPlacement,
        data: &[u8],
        pitch: usize,
    ) -> Result<(), Stop> {
        let atoms = place.atoms.min(self.output.group_atoms);
        if atoms == 0 {
            return Ok(());
        }
        if dma.literal() {
            return self.store_literally(dma, place, data, pitch);
        }
        // Row-major results: the atoms of a pixel follow each other.
        let apart = self.cube.width + self.output.notch >= atoms;
        if self.cube.width == 1 && self.output.surface == 1 && apart {
            for (index, pixel) in data.chunks_exact(pitch).take(place.pixels).enumerate() {
                let at = self.address(place.group, 0, place.pixel + index);
                dma.write(DmaEngine::DpuWrite, at, &pixel[..atoms * ATOM])?;
            }
            return Ok(());
        }
        let mut run = dma::buffer::<u8>(place.pixels * ATOM)?;
        for atom in 0..atoms {
            for (target, pixel) in run.chunks_exact_mut(ATOM).zip(data.chunks_exact(pitch)) {
                target.copy_from_slice(&pixel[atom * ATOM..(atom + 1) * ATOM]);
            }
            let mut rest = run.as_slice();
            for pixels in self.cube.runs(place.pixel..place.pixel + run.len() / ATOM) {
                let (now, later) = rest.split_at(pixels.len() * ATOM);
                let at = self.address(place.group, atom, pixels.start);
                dma.write(DmaEngine::DpuWrite, at, now)?;
                rest = later;
            }
        }
        Ok(())
    }

    /// Writes atom by atom: the reference for [`Self::store`].
    fn store_literally(
        &self,
        dma: &Dma<'_>,
        place: GroupPlacement,
        data: &[u8],
        pitch: usize,
    ) -> Result<(), Stop> {
        for atom in 0..place.atoms.min(self.output.group_atoms) {
            for (index, pixel) in data.chunks_exact(pitch).take(place.pixels).enumerate() {
                let at = self.address(place.group, atom, place.pixel + index);
                dma.write(DmaEngine::DpuWrite, at, &pixel[atom * ATOM..][..ATOM])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::dma::tests::port;
    use super::*;
    use proptest::prelude::*;

    const MEMORY: usize = 1 << 16;

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn whole_runs_equal_the_formula(
            width in 1usize..6,
            notch in prop_oneof![Just(0usize), 0usize..12],
            surface in prop_oneof![Just(1i64), 0i64..40],
            surface_add in 0i64..60,
            size in 1usize..=8,
            group in 0usize..4,
            pixel in 0usize..9,
            pixels in 1usize..12,
            atoms in 0usize..=8,
        ) {
            let cube = [width, 5, 64];
            let output = DpuOutput {
                base: 256, cube, written: cube, notch, surface, surface_add,
                group_atoms: size, group: 32, input: Precision::Int8, precision: Precision::Int8,
            };
            let regs = RegisterFile::new();
            let writer = OutputWriter::new(output, &regs);
            let pitch = 8 * ATOM;
            let data: Vec<u8> = (0..pixels * pitch).map(|i| (i / ATOM) as u8).collect();
            let place = GroupPlacement { group, pixel, pixels, atoms };
            let [fast, literal] = [false, true].map(|literal| {
                let bus = RefCell::new(vec![0xaa; MEMORY]);
                let dma = port(&bus, 0).literally(literal);
                writer.store(&dma, place, &data, pitch).unwrap();
                bus.into_inner()
            });
            prop_assert_eq!(fast, literal);
        }
    }
}
