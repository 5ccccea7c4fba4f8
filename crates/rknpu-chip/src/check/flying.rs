// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks whose main input comes from memory.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::{dpu, dpu_rdma};
use rknpu_regcmd::task::{COMB_SHARED, Reads};

use super::shown;
use super::stream::operand_channels;
use super::writer::transposing;
use crate::dpu::ew::Ew;
use crate::precision::Precision;
use crate::rdma;
use crate::trap::{Report, Stop};
use crate::writer::Writer;
use crate::{Contested, Effect, FlyingDual};

/// Widths at which trap 30 was measured, and how many elements were wrong.
pub(crate) const WIDTH_LIMIT: usize = 8191;
pub(crate) const TRAILING: usize = 54;

/// Whether MRDMA delivers what the DPU waits for.
pub(crate) fn flying_stream(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
    reads: &Reads,
) -> Result<(), Stop> {
    operand_channels(report, regs, writer, reads)?;
    let show = [
        shown::<dpu_rdma::FeatureModeCfg>(regs),
        shown::<dpu_rdma::DataCubeWidth>(regs),
        shown::<dpu_rdma::DataCubeHeight>(regs),
        shown::<dpu::DataCubeWidth>(regs),
        shown::<dpu::DataCubeHeight>(regs),
    ];
    let delivered = if reads.flying && reads.main.is_some() {
        reads.pixels()
    } else {
        0
    };
    if writer.output.pixels() > delivered {
        return report.note(
            "H05-flying-input",
            Effect::Hang,
            &show,
            format!(
                "the DPU waits for {} pixels from MRDMA, which delivers {}",
                writer.output.pixels(),
                delivered
            ),
            "set flying_mode in both blocks, clear mrdma_disable, and give both the same size",
        );
    }
    if writer.output.cube[0] >= WIDTH_LIMIT {
        report.note(
            "T30-width",
            Effect::Garbage,
            &show,
            format!(
                "in the widest lines about {TRAILING} elements at the end were measured to be \
                 wrong; here they read as 0"
            ),
            "keep lines at 4096 pixels or below",
        )?;
    }
    let cfg = regs.get::<dpu::EwCfg>();
    let float = Precision::from_code(regs.get::<dpu::DataFormat>().proc_precision()).is_float();
    let alu = Ew::wants_memory(regs) && cfg.ew_op_type() == 0;
    let wide = rdma::ew_precision(reads, false) == Some(Precision::Int32);
    if alu && !float && cfg.ew_op_cvt_bypass() == 0 && wide {
        report.note(
            "T46-operand-as-float",
            Effect::Garbage,
            &[shown::<dpu::EwCfg>(regs)],
            "an int32 operand goes through the operand converter and comes out as a float",
            "set OP_CVT_BYPASS (EW_CFG 0x10C203C0)",
        )?;
    }
    transposing(report, regs, writer)
}

/// COMB_USE 5 in a flying task: everything comes out as zeros, or nothing.
pub(crate) fn comb_use_flying(
    report: &mut Report,
    regs: &RegisterFile,
    reads: &Reads,
    contested: &Contested,
) -> Result<bool, Stop> {
    let shared = Ew::wants_memory(regs) && reads.comb_use == COMB_SHARED;
    let effect = match contested.flying_dual {
        FlyingDual::Works => return Ok(false),
        FlyingDual::Zeros => Effect::Garbage,
        FlyingDual::Hangs => Effect::Hang,
    };
    if shared {
        report.note(
            "T48-comb-use-flying",
            effect,
            &[shown::<dpu_rdma::FeatureModeCfg>(regs)],
            "a flying operation on two operands with COMB_USE 5 writes zeros or never ends",
            "set comb_use to 0",
        )?;
    }
    Ok(shared)
}

/// ORIG_CHANNEL of a flying task: lanes beyond it are wrong. Returns whether
/// only the first lane of each atom is right.
pub(crate) fn orig_channel(report: &mut Report, regs: &RegisterFile) -> Result<bool, Stop> {
    let cube = regs.get::<dpu::DataCubeChannel>();
    let wrong = cube.orig_channel() == 0 && cube.channel() != 0 && Ew::wants_memory(regs);
    if wrong {
        report.note(
            "T48-orig-channel",
            Effect::Garbage,
            &[shown::<dpu::DataCubeChannel>(regs)],
            "ORIG_CHANNEL is 0: only the first lane of each atom is right (measured by \
             rockchip-npu-notes; the others are 0 here)",
            "write the number of channels less one to both halves of DATA_CUBE_CHANNEL",
        )?;
    }
    Ok(wrong)
}

/// A multiplication of 16-bit floats with the operand converter on.
pub(crate) fn converted_product(report: &mut Report, regs: &RegisterFile) -> Result<(), Stop> {
    let cfg = regs.get::<dpu::EwCfg>();
    let float = Precision::from_code(regs.get::<dpu::DataFormat>().proc_precision()).is_float();
    if float && Ew::wants_memory(regs) && cfg.ew_op_type() == 1 && cfg.ew_op_cvt_bypass() == 0 {
        return report.note(
            "T47-converted-product",
            Effect::Hang,
            &[shown::<dpu::EwCfg>(regs)],
            "a float multiplication with the operand converter on never ends (measured by \
             rockchip-npu-notes)",
            "set OP_CVT_BYPASS (EW_CFG 0x108003C4)",
        );
    }
    Ok(())
}
