// SPDX-License-Identifier: MIT OR Apache-2.0
//! The read engines of the DPU, and what they read for.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::{dpu, dpu_rdma};
use rknpu_regcmd::task::{ChannelRead, Output, PER_CHANNEL, Reads};

use super::shown;
use crate::Effect;
use crate::dpu::ew::Ew;
use crate::precision::{ATOM, Precision};
use crate::rdma;
use crate::trap::{Report, Stop};

/// Whether the operands that the DPU's stages wait for are read, and what is
/// read is waited for.
pub(crate) fn read_engines(
    report: &mut Report,
    regs: &RegisterFile,
    reads: Option<&Reads>,
    flying: bool,
) -> Result<(), Stop> {
    let wants_ew = Ew::wants_memory(regs);
    let show = [
        shown::<dpu::EwCfg>(regs),
        shown::<dpu_rdma::ErdmaCfg>(regs),
        shown::<dpu_rdma::FeatureModeCfg>(regs),
    ];
    if wants_ew && reads.is_none_or(|reads| reads.element.is_none()) {
        return report.note(
            "T02-operand-not-read",
            Effect::Hang,
            &show,
            "EW takes its operand from memory, but ERDMA is off or DPU_RDMA is not enabled",
            "enable DPU_RDMA and clear ERDMA_CFG.erdma_disable, or bypass EW (EW_CFG 0x383)",
        );
    }
    stage_operands(report, regs, reads)?;
    let Some(reads) = reads else { return Ok(()) };
    let element_on = reads.element.is_some();
    if element_on && !wants_ew {
        report.note(
            "T02-operand-not-used",
            if flying { Effect::Note } else { Effect::Hang },
            &show,
            "ERDMA is on, but EW does not take an operand from memory",
            "set ERDMA_CFG.erdma_disable (ERDMA_CFG 1)",
        )?;
    }
    if flying {
        return Ok(());
    }
    if element_on && reads.main.is_none() {
        return report.note(
            "T03-erdma-without-mrdma",
            Effect::Hang,
            &show,
            "behind CORE, ERDMA works only together with MRDMA, on every other surface",
            "clear FEATURE_MODE_CFG.mrdma_disable and set comb_use to 5",
        );
    }
    let fed = wants_ew && reads.shares(flying);
    if reads.main.is_some() && !fed {
        return report.note(
            "T01-mrdma-unfed",
            Effect::Hang,
            &show,
            "DPU_RDMA is enabled and MRDMA armed, but nothing takes what it reads",
            "leave DPU_RDMA out of the enable mask (0x0D), or set \
             FEATURE_MODE_CFG.mrdma_disable (0x7810)",
        );
    }
    let by_channel = reads.element.is_some_and(|read| read.mode == PER_CHANNEL);
    if fed && by_channel {
        return report.note(
            "H06-operand-mode",
            Effect::Hang,
            &show,
            "COMB_USE 5 with one operand for each channel: no source says what that reads",
            "set ERDMA_CFG.erdma_data_mode to 1",
        );
    }
    ew_conv_fed(report, regs, reads)
}

/// BS and BN operands from memory that no engine reads.
fn stage_operands(
    report: &mut Report,
    regs: &RegisterFile,
    reads: Option<&Reads>,
) -> Result<(), Stop> {
    let bs = regs.get::<dpu::BsCfg>();
    let bs_mul = regs.get::<dpu::BsMulCfg>();
    let bn = regs.get::<dpu::BnCfg>();
    let bn_mul = regs.get::<dpu::BnMulCfg>();
    let uses =
        |alu: bool, mul: bool| u32::from(alu) * rdma::USE_ALU + u32::from(mul) * rdma::USE_MUL;
    let bs_on = bs.bs_bypass() == 0;
    let wants_b = uses(
        bs_on && bs.bs_alu_bypass() == 0 && bs.bs_alu_src() == 1,
        bs_on && bs.bs_mul_bypass() == 0 && bs_mul.bs_mul_src() == 1,
    );
    let bn_on = bn.bn_bypass() == 0;
    let wants_n = uses(
        bn_on && bn.bn_alu_bypass() == 0 && bn.bn_alu_src() == 1,
        bn_on && bn.bn_mul_bypass() == 0 && bn_mul.bn_mul_src() == 1,
    );
    let uses = |read: Option<ChannelRead>| read.map_or(0, |read| read.uses);
    let (has_b, has_n) = reads.map_or((0, 0), |reads| (uses(reads.bs), uses(reads.bn)));
    if wants_b & !has_b != 0 || wants_n & !has_n != 0 {
        return report.note(
            "T02-stage-operand-not-read",
            Effect::Hang,
            &[
                shown::<dpu::BsCfg>(regs),
                shown::<dpu_rdma::BrdmaCfg>(regs),
                shown::<dpu::BnCfg>(regs),
                shown::<dpu_rdma::NrdmaCfg>(regs),
            ],
            "BS or BN takes an operand from memory that BRDMA or NRDMA does not read (inferred)",
            "enable DPU_RDMA and set the operand's bit of BRDMA_CFG or NRDMA_CFG",
        );
    }
    Ok(())
}

/// Element-wise words that give garbage behind CORE.
fn ew_conv_fed(report: &mut Report, regs: &RegisterFile, reads: &Reads) -> Result<(), Stop> {
    let (Some(main), Some(element)) = (reads.main, reads.element) else {
        return Ok(());
    };
    let cfg = regs.get::<dpu::EwCfg>();
    let float = Precision::from_code(regs.get::<dpu::DataFormat>().proc_precision()).is_float();
    let show = [
        shown::<dpu::EwCfg>(regs),
        shown::<dpu_rdma::FeatureModeCfg>(regs),
        shown::<dpu_rdma::SurfNotch>(regs),
        shown::<dpu_rdma::EwSurfNotch>(regs),
    ];
    let Some(precision) = rdma::ew_precision(reads, float) else {
        return Ok(());
    };
    if !float && precision == Precision::Int32 {
        report.note(
            "T46-wide-operand-behind-core",
            Effect::Garbage,
            &show,
            "no word is known that adds an int32 operand behind CORE",
            "add in a flying task of its own",
        )?;
    }
    if float && cfg.ew_op_type() == 0 && cfg.ew_op_cvt_bypass() == 1 {
        report.note(
            "T47-operand-ignored",
            Effect::Garbage,
            &show,
            "behind CORE, a float ALU operation with OP_CVT_BYPASS ignores its operand",
            "use EW_CFG 0x108202C0 for fp16 addition",
        )?;
    }
    if float && precision == Precision::Int8 && cfg.edata_size() != 1 {
        report.note(
            "T45-operand-as-bytes",
            Effect::Garbage,
            &show,
            "with precision 0 in DPU_RDMA's FEATURE_MODE_CFG the operand is read as int8",
            "set proc_precision and in_precision to 2 for fp16 (0x17D40)",
        )?;
    }
    // One surface pair needs no step.
    let pairs = reads.cube[2] > 2 * precision.per_atom();
    let pixels = reads.pixels();
    let dense = i64::from(element.base) - i64::from(main.base) == (pixels * ATOM) as i64;
    if pairs && main.surface_notch == 0 {
        report.note(
            "T43-no-surface-notch",
            Effect::Garbage,
            &show,
            "MRDMA and ERDMA share the surfaces; without a notch each reads the other's",
            format!("set SURF_NOTCH and EW_SURF_NOTCH to {pixels} atoms, one surface"),
        )?;
    } else if pairs && main.surface_notch > pixels && dense {
        report.note(
            "T42-surface-notch",
            Effect::Garbage,
            &show,
            format!("the notch skips more than a surface of {pixels} atoms"),
            "give the operand at least 12 rows, or store it with the notch's pitch",
        )?;
    }
    if Output::decode(regs).base == main.base {
        report.note(
            "T44-in-place",
            Effect::Garbage,
            &[
                shown::<dpu::DstBaseAddr>(regs),
                shown::<dpu_rdma::SrcBaseAddr>(regs),
            ],
            "an accumulation in place behind CORE was measured to be garbage (librocketnpu); how it \
             comes about is not known, and the model's sums are right",
            "let the operand and the result take turns in two buffers",
        )?;
    }
    Ok(())
}
