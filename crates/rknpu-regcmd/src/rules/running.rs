// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of what takes more than a task's registers to see: what ran before, what
//! CBUF holds, what values come out. They are judged where that is known.

use super::Effect::{Garbage, Hang, NoWrite, Note};
use super::{Check, Rule, row};
use crate::field::Register;
use crate::lint::Severity;
use crate::regs::{cna, core, dpu, dpu_rdma};

/// Blocks that wait for each other.
pub static ENABLE_MASK: Rule = row(
    "H05-enable-mask",
    Hang,
    &[],
    [
        "a block waits for another that is not started, or none is: no interrupt comes",
        "start every block that the data pass through: 0x0D convolution, 0x1D with DPU_RDMA, 0x18 flying, 0x60 pooling",
    ],
    Check::Elsewhere,
);

/// A program of changed registers.
pub static DELTA_PROGRAM: Rule = row(
    "T07-delta-program",
    NoWrite,
    &[dpu::DstBaseAddr::INFO, dpu::DataFormat::INFO],
    [
        "a program that rewrites a few registers only, and not the sizes, the output address or a precision, leaves the output untouched (measured, rockchip-npu-notes)",
        "write all registers of every block that the program starts",
    ],
    Check::Dpu(|task| {
        let written = |offset| task.regs.was_written(offset);
        let (size, precision) = match task.conv {
            Some(_) => (cna::DataSize0::INFO, cna::ConvCon1::INFO),
            None => (dpu::DataCubeWidth::INFO, dpu_rdma::FeatureModeCfg::INFO),
        };
        let precisions = written(precision.offset) || written(dpu::DataFormat::OFFSET);
        let whole = written(size.offset) && written(dpu::DstBaseAddr::OFFSET) && precisions;
        (!whole).then(|| "sizes, output address or precisions are not written".into())
    }),
)
.contested("delta-program");

/// Registers of an earlier program.
pub static STALE_REGISTERS: Rule = row(
    "T07-stale-registers",
    Garbage,
    &[],
    [
        "the task uses what it does not write and an earlier program left behind (measured, rockchip-npu-notes; for operands on the RK3576)",
        "write every register that the task uses in every program",
    ],
    Check::Elsewhere,
);

/// Accumulators that are not cleared.
pub static INTEGER_CHAIN: Rule = row(
    "T09-integer-chain",
    Garbage,
    &[core::MiscCfg::INFO, dpu::WdmaSize0::INFO],
    [
        "in later int8 and int4 tasks of a chain with QD_EN = 0 the accumulators still hold the sums of the task before (measured with programs of librocketnpu's form; the cause is inferred)",
        "set QD_EN, or kick each task by itself as the mainline driver does",
    ],
    Check::Elsewhere,
)
.as_bad_as(Severity::Warning)
.contested("integer-chain");

/// Raw weights that are decoded.
pub static STALE_DECOMPRESSION: Rule = row(
    "T14-stale-decompression",
    Garbage,
    &[cna::DcompCtrl::INFO, cna::DcompRegnum::INFO],
    [
        "after a task with compressed weights raw ones are decoded as a compressed stream (measured, happyme)",
        "write 0 to DCOMP_CTRL and DCOMP_REGNUM in every program",
    ],
    Check::Elsewhere,
)
.as_bad_as(Severity::Warning);

/// Reuse of what CBUF does not hold.
pub static STALE_CBUF: Rule = row(
    "T29-stale-cbuf",
    Garbage,
    &[cna::CbufCon0::INFO],
    [
        "what CBUF holds is used without a word, whatever it is (measured)",
        "fetch in the first task of a job, and reuse only what the task before fetched as a whole, with the same banks and sizes",
    ],
    Check::Elsewhere,
);

/// Groups of four lines that are not whole.
pub static SHORT_GROUP: Rule = row(
    "T21-short-group",
    Garbage,
    &[cna::FcDataSize0::INFO, cna::DmaCon2::INFO],
    [
        "a cube of fewer than four lines, fetched in groups of four (librocketnpu)",
        "pad to four lines",
    ],
    Check::Elsewhere,
)
.contested("short-height");

/// Lines that computing does not wait for.
pub static LINES_NOT_AWAITED: Rule = row(
    "T23-lines-not-awaited",
    Garbage,
    &[cna::ConvCon2::INFO, cna::FcDataSize0::INFO],
    [
        "fewer grains than lines: with fp16 some of these were measured to be garbage (happyme531)",
        "use the input height + 1, at most 1023",
    ],
    Check::Elsewhere,
)
.contested("few-grains");

/// Values that their fields cut.
pub static FIELD_OVERFLOW: Rule = row(
    "T30-field-overflow",
    Note,
    &[],
    [
        "bits beyond all fields: a value too large for its field, which the hardware cuts without a word (vendor compiler: REGTASK overflow)",
        "keep sizes below 8192 (CNA widths and heights below 2048), strides within 28 bits",
    ],
    Check::Elsewhere,
)
.as_bad_as(Severity::Warning);

/// Sums beyond int16.
pub static INT16_SATURATES: Rule = row(
    "T38-int16-saturates",
    Note,
    &[dpu::DataFormat::INFO],
    [
        "a sum did not fit the int16 of the output and was cut to its limit (measured)",
        "keep K of int4 products at 511 or below (668 for operands of -7 to 7)",
    ],
    Check::Elsewhere,
);

/// Zeros that wrap.
pub static EXPONENT_WRAPS: Rule = row(
    "T52-exponent-wraps",
    Garbage,
    &[
        dpu::OutCvtShift::INFO,
        dpu::OutCvtOffset::INFO,
        dpu::DataFormat::INFO,
    ],
    [
        "the exponent of a value is below MINUS_EXP and wraps: a zero becomes 2^(17 - MINUS_EXP) (measured values, rockchip-npu-notes)",
        "choose table entries and OUT_CVT_OFFSET so that their sum is never 0 or tiny, or replace the results where the function is about 0 on the CPU",
    ],
    Check::Elsewhere,
)
.contested("small-exponent");

pub(super) const RULES: &[&Rule] = &[
    &ENABLE_MASK,
    &STALE_REGISTERS,
    &INTEGER_CHAIN,
    &STALE_DECOMPRESSION,
    &STALE_CBUF,
    &SHORT_GROUP,
    &LINES_NOT_AWAITED,
    &FIELD_OVERFLOW,
    &INT16_SATURATES,
    &EXPONENT_WRAPS,
];
