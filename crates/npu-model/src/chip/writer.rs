// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DPU's writer (WDMA): where an element of the output goes.
//!
//! ```text
//! addr(group g, atom a, y, x) = DST_BASE + 16 * (y*(W + NOTCH) + x + a*DST_SURF_STRIDE + g*SURF_ADD)
//! 0 <= a <= SIZE_E;  y = pixel / W, x = pixel % W of the linear pixel stream
//! ```
//!
//! W is the DPU's own width: the stream does not know what shape CORE had in
//! mind. Inferred from, and equal to, all known programs (happyme531 combines
//! nine layouts of the operands with it). Whole atoms are written.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;

use super::Master;
use super::dma::{self, Dma};
use super::precision::{ATOM, Precision};
use super::trap::Stop;

/// The writer as the registers describe it. Distances are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    pub(crate) base: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Channels to write.
    pub(crate) channels: usize,
    pub(crate) notch: u32,
    pub(crate) surf_stride: u32,
    pub(crate) surf_add: u32,
    /// Atoms of a pixel and group: SIZE_E + 1.
    pub(crate) atoms: usize,
    /// The transposing writer, in the one form that is known.
    pub(crate) transposed: bool,
}

/// Most atoms of a pixel and group that SIZE_E can ask for (3 bits).
pub(crate) const SIZE_E_MAX: usize = 8;

/// CONV_MODE of a depthwise convolution (Mesa, librocketnpu).
const CONV_MODE_DEPTHWISE: u32 = 3;

/// Channels that the DPU takes from CORE as one group: those of a kernel
/// group, or of a depthwise channel group.
pub(crate) fn group_from_core(regs: &RegisterFile) -> usize {
    let precision = Precision::from_code(regs.get::<dpu::DataFormat>().in_precision());
    if regs.get::<dpu::FeatureModeCfg>().conv_mode() == CONV_MODE_DEPTHWISE {
        precision.depthwise_group()
    } else {
        precision.kernel_group()
    }
}

/// What one call stores: some pixels of one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) group: usize,
    pub(crate) pixel: usize,
    pub(crate) pixels: usize,
    /// Atoms that exist: of the group's data, and of the channels to write.
    pub(crate) atoms: usize,
}

impl Writer {
    /// A flying task has no more channels than DATA_CUBE_CHANNEL says:
    /// allbilly's additions leave the writer's own number as a convolution
    /// before them left it.
    pub(crate) fn decode(regs: &RegisterFile) -> Self {
        let cube = regs.get::<dpu::DataCubeChannel>().channel() as usize + 1;
        let channels = regs.get::<dpu::WdmaSize0>().channel_wdma() as usize + 1;
        let flying = regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
        Self {
            base: regs.get::<dpu::DstBaseAddr>().dst_base_addr(),
            width: regs.get::<dpu::DataCubeWidth>().width() as usize + 1,
            height: regs.get::<dpu::DataCubeHeight>().height() as usize + 1,
            channels: if flying { channels.min(cube) } else { channels },
            notch: regs.get::<dpu::DataCubeNotchAddr>().notch_addr_0(),
            surf_stride: regs.get::<dpu::DstSurfStride>().dst_surf_stride(),
            surf_add: regs.get::<dpu::SurfaceAdd>().surf_add(),
            atoms: regs.get::<dpu::BsOwCfg>().size_e_0() as usize + 1,
            transposed: regs.get::<dpu::BsOwCfg>().tp_org_en() == 1
                && regs.get::<dpu::WdmaSize0>().tp_precision() == 1
                && Precision::from_code(regs.get::<dpu::DataFormat>().in_precision())
                    == Precision::Int16,
        }
    }

    pub(crate) fn pixels(&self) -> usize {
        self.width * self.height
    }

    /// Address of an atom: the formula of this module.
    pub(crate) fn address(&self, group: usize, atom: usize, pixel: usize) -> i64 {
        let (y, x) = ((pixel / self.width) as i64, (pixel % self.width) as i64);
        let line = self.width as i64 + i64::from(self.notch);
        i64::from(self.base)
            + ATOM as i64
                * (y * line
                    + x
                    + atom as i64 * i64::from(self.surf_stride)
                    + group as i64 * i64::from(self.surf_add))
    }

    /// Writes the first atoms of each pixel. `data` holds the pixels one
    /// behind the other, `pitch` bytes each.
    ///
    /// Where the registers make atoms overlap, the later pixel of the later
    /// atom stays.
    pub(crate) fn store(
        &self,
        dma: &Dma<'_>,
        place: Placement,
        data: &[u8],
        pitch: usize,
    ) -> Result<(), Stop> {
        let atoms = place.atoms.min(self.atoms);
        if atoms == 0 {
            return Ok(());
        }
        if dma.literal() {
            return self.store_literally(dma, place, data, pitch);
        }
        // Row-major results: the atoms of a pixel follow each other.
        let apart = self.width as i64 + i64::from(self.notch) >= atoms as i64;
        if self.width == 1 && self.surf_stride == 1 && apart {
            for (index, pixel) in data.chunks_exact(pitch).take(place.pixels).enumerate() {
                let at = self.address(place.group, 0, place.pixel + index);
                dma.write(Master::DpuWrite, at, &pixel[..atoms * ATOM])?;
            }
            return Ok(());
        }
        let mut run = dma::buffer::<u8>(place.pixels * ATOM)?;
        for atom in 0..atoms {
            for (target, pixel) in run.chunks_exact_mut(ATOM).zip(data.chunks_exact(pitch)) {
                target.copy_from_slice(&pixel[atom * ATOM..(atom + 1) * ATOM]);
            }
            self.store_surface(dma, place.group, atom, place.pixel, &run)?;
        }
        Ok(())
    }

    /// Writes atom by atom: the reference for [`Self::store`].
    fn store_literally(
        &self,
        dma: &Dma<'_>,
        place: Placement,
        data: &[u8],
        pitch: usize,
    ) -> Result<(), Stop> {
        for atom in 0..place.atoms.min(self.atoms) {
            for (index, pixel) in data.chunks_exact(pitch).take(place.pixels).enumerate() {
                let at = self.address(place.group, atom, place.pixel + index);
                dma.write(Master::DpuWrite, at, &pixel[atom * ATOM..][..ATOM])?;
            }
        }
        Ok(())
    }

    /// Whether no two atoms of a task share memory, as far as that is plain:
    /// each surface ends before the next one, and each group.
    pub(crate) fn surfaces_are_apart(&self) -> bool {
        let line = self.width as u64 + u64::from(self.notch);
        let surface = (self.height as u64 - 1) * line + self.width as u64;
        let group = (self.atoms as u64 - 1) * u64::from(self.surf_stride) + surface;
        (self.atoms == 1 || u64::from(self.surf_stride) >= surface)
            && u64::from(self.surf_add) >= group
    }

    /// Writes atoms of consecutive pixels: one access, or one a line.
    pub(crate) fn store_surface(
        &self,
        dma: &Dma<'_>,
        group: usize,
        atom: usize,
        first: usize,
        run: &[u8],
    ) -> Result<(), Stop> {
        if self.notch == 0 {
            return dma.write(Master::DpuWrite, self.address(group, atom, first), run);
        }
        let mut pixel = first;
        let mut rest = run;
        while !rest.is_empty() {
            let line = (self.width - pixel % self.width) * ATOM;
            let (now, later) = rest.split_at(line.min(rest.len()));
            dma.write(Master::DpuWrite, self.address(group, atom, pixel), now)?;
            pixel += now.len() / ATOM;
            rest = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::dma::tests::Flat;
    use super::*;
    use proptest::prelude::*;

    const MEMORY: usize = 1 << 16;

    fn literally(writer: &Writer, place: Placement, data: &[u8], pitch: usize) -> Option<Vec<u8>> {
        let bus = Flat::new(vec![0xaa; MEMORY]);
        let dma = Dma::new(&bus, 0);
        for atom in 0..place.atoms.min(writer.atoms) {
            for index in 0..place.pixels {
                let at = writer.address(place.group, atom, place.pixel + index);
                let source = &data[index * pitch + atom * ATOM..][..ATOM];
                dma.write(Master::DpuWrite, at, source).ok()?;
            }
        }
        Some(bus.0.into_inner().unwrap())
    }

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn whole_runs_equal_the_formula(
            width in 1usize..6,
            notch in prop_oneof![Just(0u32), 0u32..12],
            surf_stride in prop_oneof![Just(1u32), 0u32..40],
            surf_add in 0u32..60,
            size in 1usize..=8,
            group in 0usize..4,
            pixel in 0usize..9,
            pixels in 1usize..12,
            atoms in 0usize..=8,
        ) {
            let writer = Writer {
                base: 256, width, height: 5, channels: 64, notch, surf_stride, surf_add,
                atoms: size, transposed: false,
            };
            let pitch = 8 * ATOM;
            let data: Vec<u8> = (0..pixels * pitch).map(|i| (i / ATOM) as u8).collect();
            let place = Placement { group, pixel, pixels, atoms };
            let bus = Flat::new(vec![0xaa; MEMORY]);
            writer.store(&Dma::new(&bus, 0), place, &data, pitch).unwrap();
            let fast = bus.0.into_inner().unwrap();
            prop_assert_eq!(Some(fast), literally(&writer, place, &data, pitch));
        }
    }
}
