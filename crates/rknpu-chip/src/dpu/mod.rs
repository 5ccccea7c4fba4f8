// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPU: what happens to each element between CORE (or MRDMA) and memory, in
//! the order BS, BN, EW, output conversion.
//!
//! The weight zero point correction (CPEND), which the manual puts behind BS,
//! is part of the accumulation in this model (see [`super::conv`]): it is a
//! sum over the window, and what it adds is what a larger weight would.

pub(crate) mod ew;
pub(crate) mod gather;
pub(crate) mod lut;
pub(crate) mod out_cvt;
pub(crate) mod requant;
pub(crate) mod stage;
pub(crate) mod steps;
pub(crate) mod tile;

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::task::{ChannelRead, Reads};

use super::dma::Dma;
use super::precision::{ATOM, Precision};
use super::rdma::{self, ChannelOperands};
use super::trap::Stop;
use super::vectors::Vectors;
use super::{Contested, Master};
use ew::Ew;
use lut::Lut;
use out_cvt::{Noticed, OutCvt};
use requant::Requant;
use stage::{AluOp, ChannelOperand, Multiplier, Relu, Stage};
use steps::{Finish, Steps};
use tile::{Tile, Values};

/// The stages of one task, with their per-channel operands.
#[derive(Clone, Debug)]
pub(crate) struct Dpu {
    /// PROC_PRECISION is a float type.
    pub(crate) float: bool,
    /// Operand of the weight zero point correction; `None`: OD_BYPASS.
    pub(crate) cpend: Option<ChannelOperand>,
    bs: Stage,
    bn: Stage,
    pub(crate) ew: Ew,
    pub(crate) out: OutCvt,
    /// What `out` does to integers that become int8.
    requant: Requant,
}

impl Dpu {
    /// Decodes the registers and lets BRDMA and NRDMA fetch their operands.
    pub(crate) fn load(
        regs: &RegisterFile,
        reads: Option<&Reads>,
        flying: bool,
        dma: &Dma<'_>,
        contested: &Contested,
    ) -> Result<Self, Stop> {
        let format = regs.get::<dpu::DataFormat>();
        let float = Precision::from_code(format.proc_precision()).is_float();
        let narrow = flying
            && reads.is_some_and(|reads| {
                !reads.widens && matches!(reads.precision, Precision::Fp16 | Precision::Bf16)
            });
        let ow = regs.get::<dpu::BsOwCfg>();
        let half = matches!(
            Precision::from_code(format.proc_precision()),
            Precision::Fp16 | Precision::Bf16
        );
        let engine = |master, read: fn(&Reads) -> Option<ChannelRead>| Operands {
            dma,
            engine: reads.and_then(|reads| {
                Some(ChannelOperands {
                    master,
                    read: read(reads)?,
                    channels: reads.cube[2],
                    narrow: half,
                })
            }),
        };
        let b = engine(Master::Brdma, |reads| reads.bs);
        let n = engine(Master::Nrdma, |reads| reads.bn);
        let cpend = if ow.od_bypass() == 1 {
            None
        } else {
            let register = regs.get::<dpu::BsOwOp>().ow_op() as u32;
            Some(b.operand(rdma::USE_CPEND, ow.ow_src(), register)?)
        };
        let out = OutCvt::decode(regs, narrow, contested);
        let vectors = if dma.literal() {
            Vectors::Literal
        } else {
            Vectors::detect()
        };
        Ok(Self {
            float,
            cpend,
            bs: bs_stage(regs, &b, contested)?,
            bn: bn_stage(regs, &n, contested)?,
            ew: Ew::decode(regs, reads, flying, float, contested),
            out,
            requant: Requant::new(&out, vectors),
        })
    }

    /// Takes a tile through all stages and appends its bytes to `out`, in the
    /// order (pixel, channel).
    pub(crate) fn process(
        &self,
        dma: &Dma<'_>,
        lut: &Lut,
        tile: Tile,
        out: &mut Vec<u8>,
    ) -> Result<Noticed, Stop> {
        let mut tile = tile.into_pipeline(self.float);
        self.bs.apply(&mut tile);
        self.bn.apply(&mut tile);
        self.ew.apply(dma, lut, &mut tile)?;
        if let (Values::Int(values), Precision::Int8) = (&tile.values, self.out.precision) {
            let start = out.len();
            out.resize(start + values.len(), 0);
            self.requant.bytes(values, &mut out[start..]);
            return Ok(Noticed::default());
        }
        Ok(self.out.encode(&tile.values, out))
    }

    /// Whether integers become int8 without anything but stages for each
    /// channel: then [`Self::requantise`] does what [`Self::process`] does.
    pub(crate) fn only_requantises(&self) -> bool {
        !self.float && self.out.precision == Precision::Int8 && self.ew.is_idle()
    }

    /// The output converter in float32, where that is proven to do the same.
    pub(crate) fn steps(&self) -> Option<Steps> {
        Steps::new(&self.out)
    }

    /// What [`Self::requantise`] does to the channels from `first` on, whose
    /// values are at most `reach`, where it is as simple as that.
    pub(crate) fn finish(&self, steps: Steps, first: usize, reach: &[i64; ATOM]) -> Option<Finish> {
        let stage = match (self.bs.is_idle(), self.bn.is_idle()) {
            (_, true) => &self.bs,
            (true, _) => &self.bn,
            _ => return None,
        };
        let addends = stage.addends(first)?;
        let overflows = addends
            .iter()
            .zip(reach)
            .any(|(addend, reach)| i64::from(addend.unsigned_abs()) + reach > i32::MAX.into());
        if overflows {
            return None;
        }
        // No byte goes down where its value goes up: a bound of the value is
        // one of the byte.
        let (least, most) = stage.relu.bounds();
        Some(Finish {
            addends,
            steps,
            least: least.map_or(i8::MIN, |x| steps.byte(x)),
            most: most.map_or(i8::MAX, |x| steps.byte(x)),
        })
    }

    /// Takes pixels of the channels `first..first + channels` through all
    /// stages.
    pub(crate) fn requantise(
        &self,
        first: usize,
        channels: usize,
        values: &mut [i32],
        out: &mut [u8],
    ) {
        self.bs.apply_int(first, channels, values);
        self.bn.apply_int(first, channels, values);
        self.requant.bytes(values, out);
    }
}

/// The operand words that one of BRDMA and NRDMA delivers.
struct Operands<'a> {
    dma: &'a Dma<'a>,
    /// `None` without DPU_RDMA.
    engine: Option<ChannelOperands>,
}

impl Operands<'_> {
    /// The operand of `consumer`: from the engine where `source` says so,
    /// else the register's.
    fn operand(&self, consumer: u32, source: u32, register: u32) -> Result<ChannelOperand, Stop> {
        if source == 0 {
            return Ok(ChannelOperand::Scalar(register));
        }
        let words = match &self.engine {
            Some(engine) => engine.words(self.dma, consumer)?,
            None => None,
        };
        Ok(words.map_or(ChannelOperand::Scalar(0), ChannelOperand::Array))
    }
}

fn bs_stage(
    regs: &RegisterFile,
    engine: &Operands<'_>,
    contested: &Contested,
) -> Result<Stage, Stop> {
    let cfg = regs.get::<dpu::BsCfg>();
    let mul = regs.get::<dpu::BsMulCfg>();
    let active = cfg.bs_bypass() == 0;
    let alu = if active && cfg.bs_alu_bypass() == 0 {
        let register = regs.get::<dpu::BsAluCfg>().bs_alu_operand();
        let operand = engine.operand(rdma::USE_ALU, cfg.bs_alu_src(), register)?;
        Some((AluOp::from_code(cfg.bs_alu_algo(), contested), operand))
    } else {
        None
    };
    let multiplier = if active && cfg.bs_mul_bypass() == 0 {
        Some(Multiplier {
            operand: engine.operand(rdma::USE_MUL, mul.bs_mul_src(), mul.bs_mul_operand())?,
            shift: engine.operand(
                rdma::USE_SHIFT,
                mul.bs_truncate_src(),
                mul.bs_mul_shift_value(),
            )?,
            negative_shift: regs.get::<dpu::DataFormat>().bs_mul_shift_value_neg(),
            prelu: cfg.bs_mul_prelu() == 1,
        })
    } else {
        None
    };
    let bound = regs.get::<dpu::BsReluxCmpValue>().bs_relux_cmp_dat();
    let bypass = if active { cfg.bs_relu_bypass() } else { 1 };
    Ok(Stage {
        alu,
        multiplier,
        relu: Relu::new(bypass, cfg.bs_relux_en(), bound),
        multiply_first: false,
    })
}

fn bn_stage(
    regs: &RegisterFile,
    engine: &Operands<'_>,
    contested: &Contested,
) -> Result<Stage, Stop> {
    let cfg = regs.get::<dpu::BnCfg>();
    let mul = regs.get::<dpu::BnMulCfg>();
    let active = cfg.bn_bypass() == 0;
    let alu = if active && cfg.bn_alu_bypass() == 0 {
        let register = regs.get::<dpu::BnAluCfg>().bn_alu_operand();
        let operand = engine.operand(rdma::USE_ALU, cfg.bn_alu_src(), register)?;
        Some((AluOp::from_code(cfg.bn_alu_algo(), contested), operand))
    } else {
        None
    };
    let multiplier = if active && cfg.bn_mul_bypass() == 0 {
        Some(Multiplier {
            operand: engine.operand(rdma::USE_MUL, mul.bn_mul_src(), mul.bn_mul_operand())?,
            shift: engine.operand(
                rdma::USE_SHIFT,
                mul.bn_truncate_src(),
                mul.bn_mul_shift_value(),
            )?,
            negative_shift: regs.get::<dpu::DataFormat>().bn_mul_shift_value_neg(),
            prelu: cfg.bn_mul_prelu() == 1,
        })
    } else {
        None
    };
    let bound = regs.get::<dpu::BnReluxCmpValue>().bn_relux_cmp_dat();
    let bypass = if active { cfg.bn_relu_bypass() } else { 1 };
    Ok(Stage {
        alu,
        multiplier,
        relu: Relu::new(bypass, cfg.bn_relux_en(), bound),
        multiply_first: true,
    })
}
