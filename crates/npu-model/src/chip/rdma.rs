// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPU_RDMA: the four read engines of the DPU.
//!
//! Addresses (inferred from the flying programs of allbilly and happyme531
//! and the accumulating ones of librocketnpu, all proven on silicon):
//!
//! ```text
//! MRDMA  SRC_BASE + 16 * (c1*(W*H + SURF_NOTCH) + y*(W + LINE_NOTCH) + x)
//! ERDMA  EW_BASE  + 16 * (c1*EW_SURF_STRIDE     + y*(W + EW_LINE_NOTCH) + x)
//! both on one operand (COMB_USE 5, fed by CORE): surface s comes from
//!   MRDMA when even, ERDMA when odd; each engine steps by W*H + its notch
//! ```

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu_rdma;

use super::Master;
use super::dma::{self, Dma};
use super::precision::{ATOM, Precision, u16_at, u32_at};
use super::trap::Stop;

/// COMB_USE: both engines read the same operand, and it goes to ERDMA's
/// consumer.
pub(crate) const COMB_USE_DUAL: u32 = 5;
/// Bits of BRDMA's and NRDMA's DATA_USE.
pub(crate) const USE_ALU: u32 = 1;
pub(crate) const USE_CPEND: u32 = 2;
pub(crate) const USE_MUL: u32 = 4;
pub(crate) const USE_SHIFT: u32 = 8;
/// ERDMA DATA_MODE: one value for each channel.
pub(crate) const DATA_MODE_CHANNEL: u32 = 0;

/// The block's registers, decoded. Strides and notches are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RdmaConfig {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) channels: usize,
    pub(crate) src_base: u32,
    pub(crate) line_notch: u32,
    pub(crate) surf_notch: u32,
    pub(crate) brdma_use: u32,
    pub(crate) bs_base: u32,
    pub(crate) nrdma_use: u32,
    pub(crate) bn_base: u32,
    pub(crate) erdma_enabled: bool,
    /// 4, 8, 16 or 32 bit.
    pub(crate) ew_size: u32,
    pub(crate) ew_mode: u32,
    pub(crate) ew_base: u32,
    pub(crate) ew_surf_stride: u32,
    pub(crate) ew_line_notch: u32,
    pub(crate) ew_surf_notch: u32,
    pub(crate) flying: bool,
    pub(crate) mrdma_enabled: bool,
    pub(crate) widen: bool,
    pub(crate) proc_precision: Precision,
    pub(crate) in_precision: Precision,
    pub(crate) comb_use: u32,
}

impl RdmaConfig {
    pub(crate) fn decode(regs: &RegisterFile) -> Self {
        let height = regs.get::<dpu_rdma::DataCubeHeight>();
        let erdma = regs.get::<dpu_rdma::ErdmaCfg>();
        let mode = regs.get::<dpu_rdma::FeatureModeCfg>();
        Self {
            width: regs.get::<dpu_rdma::DataCubeWidth>().width() as usize + 1,
            height: height.height() as usize + 1,
            channels: regs.get::<dpu_rdma::DataCubeChannel>().channel() as usize + 1,
            src_base: regs.get::<dpu_rdma::SrcBaseAddr>().src_base_addr(),
            line_notch: regs.get::<dpu_rdma::SrcDmaCfg>().line_notch_addr(),
            surf_notch: regs.get::<dpu_rdma::SurfNotch>().surf_notch_addr(),
            brdma_use: regs.get::<dpu_rdma::BrdmaCfg>().brdma_data_use(),
            bs_base: regs.get::<dpu_rdma::BsBaseAddr>().bs_base_addr(),
            nrdma_use: regs.get::<dpu_rdma::NrdmaCfg>().nrdma_data_use(),
            bn_base: regs.get::<dpu_rdma::BnBaseAddr>().bn_base_addr(),
            erdma_enabled: erdma.erdma_disable() == 0,
            ew_size: erdma.erdma_data_size(),
            ew_mode: erdma.erdma_data_mode(),
            ew_base: regs.get::<dpu_rdma::EwBaseAddr>().ew_base_addr(),
            ew_surf_stride: regs.get::<dpu_rdma::EwSurfStride>().ew_surf_stride(),
            ew_line_notch: height.ew_line_notch_addr(),
            ew_surf_notch: regs.get::<dpu_rdma::EwSurfNotch>().ew_surf_notch(),
            flying: mode.flying_mode() == 1,
            mrdma_enabled: mode.mrdma_disable() == 0,
            widen: mode.mrdma_fp16tofp32_en() == 1,
            proc_precision: Precision::from_code(mode.proc_precision()),
            in_precision: Precision::from_code(mode.in_precision()),
            comb_use: mode.comb_use(),
        }
    }

    /// Pixels of the cube that the engines read.
    pub(crate) fn pixels(&self) -> usize {
        self.width * self.height
    }

    /// Whether the operand's odd surfaces follow the even ones without a gap,
    /// so that its pitch is a surface.
    pub(crate) fn ew_base_is_dense(&self) -> bool {
        let surface = self.pixels() as u64 * ATOM as u64;
        u64::from(self.ew_base) == u64::from(self.src_base) + surface
    }

    /// MRDMA's cube.
    pub(crate) fn main(&self) -> Surfaces {
        Surfaces {
            master: Master::Mrdma,
            base: self.src_base,
            surface_pitch: self.pixels() as i64 + i64::from(self.surf_notch),
            line_pitch: self.width as i64 + i64::from(self.line_notch),
            width: self.width,
            count: self.channels.div_ceil(self.in_precision.per_atom()),
        }
    }

    /// Surfaces that the EW operand has by ERDMA's element size.
    fn ew_surfaces(&self) -> usize {
        const MOST_CHANNELS: usize = 32;
        self.channels.div_ceil(MOST_CHANNELS >> self.ew_size)
    }

    /// Where the EW operand lies.
    pub(crate) fn ew_layout(&self, flying: bool) -> EwLayout {
        if !flying && self.comb_use == COMB_USE_DUAL {
            let odd = Surfaces {
                master: Master::Erdma,
                base: self.ew_base,
                surface_pitch: self.pixels() as i64 + i64::from(self.ew_surf_notch),
                line_pitch: self.width as i64 + i64::from(self.ew_line_notch),
                width: self.width,
                count: self.ew_surfaces().div_ceil(2),
            };
            // Each engine takes its share of the surfaces, by its own
            // element size where they differ.
            let mut even = self.main();
            even.count = even.count.div_ceil(2);
            return EwLayout::Dual(even, odd);
        }
        if self.ew_mode == DATA_MODE_CHANNEL {
            return EwLayout::Channels(self.ew_base);
        }
        EwLayout::Cube(Surfaces {
            master: Master::Erdma,
            base: self.ew_base,
            surface_pitch: self.ew_surf_stride.into(),
            line_pitch: self.width as i64 + i64::from(self.ew_line_notch),
            width: self.width,
            count: self.ew_surfaces(),
        })
    }

    /// Type of an element of the EW operand. A 16-bit operand is read as
    /// bytes where PROC_PRECISION says int8 (measured).
    pub(crate) fn ew_precision(&self, float: bool) -> Precision {
        match (self.ew_size, self.proc_precision) {
            (0, _) => Precision::Int4,
            (1, _) | (2, Precision::Int8) => Precision::Int8,
            (2, Precision::Bf16) => Precision::Bf16,
            (2, _) if float => Precision::Fp16,
            (2, _) => Precision::Int16,
            _ if float => Precision::Fp32,
            _ => Precision::Int32,
        }
    }
}

/// Where ERDMA's operand lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EwLayout {
    /// One value for each channel, one behind the other.
    Channels(u32),
    /// A cube, read by ERDMA alone.
    Cube(Surfaces),
    /// A cube whose even surfaces MRDMA reads, the odd ones ERDMA.
    Dual(Surfaces, Surfaces),
}

impl EwLayout {
    /// Reads `pixels` atoms of surface `c1`, from pixel `first` on.
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
                dma.read(Master::Erdma, at, head)?;
                for atom in rest.chunks_exact_mut(ATOM) {
                    atom.copy_from_slice(head);
                }
                Ok(())
            }
        }
    }
}

/// A cube as one engine walks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surfaces {
    pub(crate) master: Master,
    pub(crate) base: u32,
    pub(crate) surface_pitch: i64,
    pub(crate) line_pitch: i64,
    pub(crate) width: usize,
    /// Surfaces that the engine reads; there is nothing behind them.
    pub(crate) count: usize,
}

impl Surfaces {
    /// Address of the atom of surface `c1` at `pixel` of the stream.
    pub(crate) fn address(&self, c1: usize, pixel: usize) -> i64 {
        let (y, x) = ((pixel / self.width) as i64, (pixel % self.width) as i64);
        i64::from(self.base)
            + ATOM as i64 * (c1 as i64 * self.surface_pitch + y * self.line_pitch + x)
    }

    /// Reads the atoms of surface `c1` from pixel `first` on; zeros where the
    /// engine reads no such surface.
    pub(crate) fn read(
        &self,
        dma: &Dma<'_>,
        c1: usize,
        first: usize,
        out: &mut [u8],
    ) -> Result<(), Stop> {
        if c1 >= self.count {
            out.fill(0);
            return Ok(());
        }
        if dma.literal() {
            for (index, atom) in out.chunks_exact_mut(ATOM).enumerate() {
                dma.read(self.master, self.address(c1, first + index), atom)?;
            }
            return Ok(());
        }
        if self.line_pitch == self.width as i64 {
            return dma.read(self.master, self.address(c1, first), out);
        }
        let mut pixel = first;
        let mut rest = out;
        while !rest.is_empty() {
            let line = (self.width - pixel % self.width) * ATOM;
            let (now, later) = rest.split_at_mut(line.min(rest.len()));
            dma.read(self.master, self.address(c1, pixel), now)?;
            pixel += now.len() / ATOM;
            rest = later;
        }
        Ok(())
    }
}

/// Channels of a group of interleaved operands.
const GROUP_CHANNELS: usize = 8;
/// Bytes of such a group, and where the operands of 16 bits begin in it: the
/// 32-bit ones of the ALU come first.
const GROUP_BYTES: usize = 64;
const GROUP_CPEND: usize = 32;
const GROUP_MUL: usize = 48;

/// What an engine reads for each channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelOperands {
    pub(crate) master: Master,
    pub(crate) data_use: u32,
    pub(crate) base: u32,
    pub(crate) channels: usize,
    /// A lone multiplier has 16 bits: in a pipeline of 16-bit floats
    /// (allbilly). Else every lone operand has 32 (happyme531).
    pub(crate) narrow: bool,
}

impl ChannelOperands {
    /// The operand words of one consumer, for each channel.
    ///
    /// One consumer's operands are an array. Those of several are interleaved
    /// in groups of 8 channels and 64 bytes: int32 for the ALU, then int16
    /// for CPEND, then int16 for the multiplier (rockchip-npu-notes measured
    /// DATA_USE 7 so; other sets are inferred, and a shift's own operand is
    /// not known).
    pub(crate) fn words(&self, dma: &Dma<'_>, consumer: u32) -> Result<Option<Vec<u32>>, Stop> {
        if self.data_use & consumer == 0 {
            return Ok(None);
        }
        let several = !self.data_use.is_power_of_two();
        let half = self.narrow && consumer == USE_MUL;
        let len = match (several, half) {
            (true, _) => self.channels.div_ceil(GROUP_CHANNELS) * GROUP_BYTES,
            (false, true) => self.channels * size_of::<u16>(),
            (false, false) => self.channels * size_of::<u32>(),
        };
        let mut bytes = dma::buffer::<u8>(len)?;
        dma.read(self.master, self.base.into(), &mut bytes)?;
        let word = |c: usize| {
            let group = &bytes[c / GROUP_CHANNELS * GROUP_BYTES..];
            let lane = c % GROUP_CHANNELS;
            match consumer {
                USE_ALU => u32_at(group, lane),
                USE_CPEND => u16_at(&group[GROUP_CPEND..], lane).into(),
                USE_MUL => u16_at(&group[GROUP_MUL..], lane).into(),
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
    use super::super::dma::tests::Flat;
    use super::*;

    #[test]
    fn a_notched_line_is_read_line_by_line() {
        let bus = Flat::new((0..4096u32).map(|i| (i / 16) as u8).collect());
        let dma = Dma::new(&bus, 0);
        let surfaces = Surfaces {
            master: Master::Mrdma,
            base: 16,
            surface_pitch: 40,
            line_pitch: 5,
            width: 3,
            count: 2,
        };
        let mut out = vec![0; 7 * ATOM];
        surfaces.read(&dma, 1, 2, &mut out).unwrap();
        let atoms: Vec<u8> = out.chunks_exact(ATOM).map(|a| a[0]).collect();
        let expected: Vec<u8> = (2..9)
            .map(|p| (surfaces.address(1, p) / 16) as u8)
            .collect();
        assert_eq!(atoms, expected);
        assert_eq!(atoms, [43, 46, 47, 48, 51, 52, 53]);
    }

    #[test]
    fn operands_of_several_consumers_lie_in_groups() {
        let bus = Flat::new((0..256u32).map(|i| i as u8).collect());
        let dma = Dma::new(&bus, 0);
        let words = |data_use, consumer, narrow| {
            let operands = ChannelOperands {
                master: Master::Brdma,
                data_use,
                base: 16,
                channels: 10,
                narrow,
            };
            operands.words(&dma, consumer).unwrap()
        };
        let alone = words(USE_ALU, USE_ALU, false).unwrap();
        assert_eq!(alone[..2], [0x1312_1110, 0x1716_1514]);
        assert_eq!(words(USE_MUL, USE_MUL, true).unwrap()[9], 0x2322);
        assert_eq!(words(USE_MUL, USE_MUL, false).unwrap()[9], 0x3736_3534);
        let all = USE_ALU | USE_CPEND | USE_MUL;
        assert_eq!(words(all, USE_ALU, false).unwrap()[9], 0x5756_5554);
        assert_eq!(words(all, USE_CPEND, false).unwrap()[1], 0x3332);
        assert_eq!(words(all, USE_MUL, false).unwrap()[9], 0x8382);
        assert_eq!(words(USE_ALU, USE_CPEND, false), None);
    }
}
