// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPU: processes each element between CORE (or MRDMA) and memory, in the order
//! BS, BN, EW, output conversion.
//!
//! The manual puts the weight zero point correction (CPEND) behind BS. In this
//! model it is part of the accumulation (see [`super::conv`]): it is a sum over
//! the window, and acts like larger weights.

pub(crate) mod ew;
pub(crate) mod lut;
pub(crate) mod out_cvt;
pub(crate) mod stage;
pub(crate) mod tile;

use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::rules::{EXPONENT_WRAPS, INT16_SATURATES};
use rknpu_regcmd::task::{ChannelRead, Reads};
use rknpu_regcmd::{Register, RegisterFile};

use super::core_parts::CoreParts;
use super::dma::Dma;
use super::precision::Precision;
use super::rdma::ChannelOperands;
use super::trap::Stop;
use super::{Contested, Effect};
use ew::Ew;
use out_cvt::OutCvt;
use rknpu_regcmd::DmaEngine;
use stage::{AluOp, ChannelOperand, DpuStage, Relu, StageMultiplier};
use tile::DpuTile;

/// The stages of one task, with their per-channel operands.
#[derive(Clone, Debug)]
pub(crate) struct Dpu {
    /// Whether PROC_PRECISION is a float type.
    pub(crate) float: bool,
    /// Operand of the weight zero point correction; `None`: OD_BYPASS.
    pub(crate) cpend: Option<ChannelOperand>,
    bs: DpuStage,
    bn: DpuStage,
    pub(crate) ew: Ew,
    pub(crate) out: OutCvt,
}

impl Dpu {
    /// Decodes the registers and fetches the operands of BRDMA and NRDMA.
    pub(crate) fn load(
        regs: &RegisterFile,
        reads: Option<&Reads>,
        flying: bool,
        dma: &Dma<'_>,
        contested: Contested,
    ) -> Result<Self, Stop> {
        let precision = Precision::from_code(regs.get::<dpu::DataFormat>().proc_precision());
        let float = precision.is_float();
        let is_half = |precision| matches!(precision, Precision::Fp16 | Precision::Bf16);
        let narrow = flying && reads.is_some_and(|reads| !reads.widens && is_half(reads.precision));
        let ow = regs.get::<dpu::BsOwCfg>();
        let engine = |master, read: fn(&Reads) -> Option<ChannelRead>| ChannelOperands {
            dma,
            master,
            read: reads.and_then(read),
            channels: reads.map_or(0, |reads| reads.cube[2]),
            narrow: is_half(precision),
        };
        let b = engine(DmaEngine::Brdma, |reads| reads.bs);
        let n = engine(DmaEngine::Nrdma, |reads| reads.bn);
        let cpend = if ow.od_bypass() == 1 {
            None
        } else {
            let register = regs.get::<dpu::BsOwOp>().ow_op() as u32;
            Some(b.operand(ChannelRead::CPEND, ow.ow_src(), register)?)
        };
        Ok(Self {
            float,
            cpend,
            bs: decode_stage(regs, false, &b, contested)?,
            bn: decode_stage(regs, true, &n, contested)?,
            ew: Ew::decode(regs, reads, flying, float, contested),
            out: OutCvt::decode(regs, narrow, contested),
        })
    }

    /// Takes a tile through all stages. Returns its bytes, in the order
    /// (pixel, channel), and reports values that the output cannot hold.
    pub(crate) fn process(
        &self,
        parts: &CoreParts<'_>,
        regs: &RegisterFile,
        tile: &mut DpuTile,
    ) -> Result<Vec<u8>, Stop> {
        tile.enter_pipeline(self.float);
        self.bs.apply(tile);
        self.bn.apply(tile);
        self.ew.apply(&parts.dma, parts.lut, tile)?;
        let mut out = Vec::new();
        let faults = self.out.encode(&tile.values, &mut out);
        let report = parts.report;
        if faults.wrapped {
            // Signed functions wrap where they are 0. Their clients replace
            // those results on the CPU (librocketnpu).
            let effect = if Ew::looks_up(regs) {
                Effect::Note
            } else {
                Effect::Garbage
            };
            let values = "a value is too small";
            report.broken_with(&EXPONENT_WRAPS, effect, regs, values)?;
        }
        if faults.saturated {
            let values = "a value is too large";
            report.broken(&INT16_SATURATES, regs, values)?;
        }
        Ok(out)
    }
}

impl ChannelOperands<'_, '_> {
    /// The operand of `consumer`: from the engine if `source` is not 0, else
    /// from the register.
    fn operand(&self, consumer: u32, source: u32, register: u32) -> Result<ChannelOperand, Stop> {
        if source == 0 {
            return Ok(ChannelOperand::Scalar(register));
        }
        let words = self.words(consumer)?;
        Ok(words.map_or(ChannelOperand::Scalar(0), ChannelOperand::Array))
    }
}

/// Decodes BS, or BN, whose registers have the same layout. `engine` fetches the
/// operands.
fn decode_stage(
    regs: &RegisterFile,
    is_bn: bool,
    engine: &ChannelOperands<'_, '_>,
    contested: Contested,
) -> Result<DpuStage, Stop> {
    const BN: u16 = dpu::BnCfg::OFFSET - dpu::BsCfg::OFFSET;
    let bits = |bs: u16| regs.value(if is_bn { bs + BN } else { bs });
    let cfg = dpu::BsCfg::from_bits(bits(dpu::BsCfg::OFFSET));
    let mul = dpu::BsMulCfg::from_bits(bits(dpu::BsMulCfg::OFFSET));
    let bound = dpu::BsReluxCmpValue::from_bits(bits(dpu::BsReluxCmpValue::OFFSET));
    let format = regs.get::<dpu::DataFormat>();
    let active = cfg.bs_bypass() == 0;
    let alu = if active && cfg.bs_alu_bypass() == 0 {
        let register = dpu::BsAluCfg::from_bits(bits(dpu::BsAluCfg::OFFSET)).bs_alu_operand();
        let operand = engine.operand(ChannelRead::ALU, cfg.bs_alu_src(), register)?;
        Some((AluOp::from_code(cfg.bs_alu_algo(), contested), operand))
    } else {
        None
    };
    let multiplier = if active && cfg.bs_mul_bypass() == 0 {
        let (register, shift) = (mul.bs_mul_operand(), mul.bs_mul_shift_value());
        Some(StageMultiplier {
            operand: engine.operand(ChannelRead::MUL, mul.bs_mul_src(), register)?,
            shift: engine.operand(ChannelRead::SHIFT, mul.bs_truncate_src(), shift)?,
            negative_shift: if is_bn {
                format.bn_mul_shift_value_neg()
            } else {
                format.bs_mul_shift_value_neg()
            },
            prelu: cfg.bs_mul_prelu() == 1,
        })
    } else {
        None
    };
    let bypass = if active { cfg.bs_relu_bypass() } else { 1 };
    Ok(DpuStage {
        alu,
        multiplier,
        relu: Relu::new(bypass, cfg.bs_relux_en(), bound.bs_relux_cmp_dat()),
        multiply_first: is_bn,
    })
}
