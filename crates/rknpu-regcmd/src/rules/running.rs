// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows that need more than a task's registers to check: what ran before, what CBUF
//! holds, which values result. Code that knows these checks them.

use crate::regs::{cna, dpu, dpu_rdma};

rules! { pub,
    "T07-delta-program" ["E-delta-in-group", "E-groups-alternate"] [dpu::DstBaseAddr, dpu::DataFormat] Warning Note:
        "a program that does not write sizes, output address or a precision runs with the values in its register group: with 0xe in S_POINTER, those of the task before the last (measured)",
        "write all registers of every block that the program starts, at least in the first two tasks of a job",
        Dpu |task| {
            let written = |offset| task.regs.was_written(offset);
            let (size, precision) = match task.conv {
                Some(_) => (cna::DataSize0::OFFSET, cna::ConvCon1::OFFSET),
                None => (dpu::DataCubeWidth::OFFSET, dpu_rdma::FeatureModeCfg::OFFSET),
            };
            let precisions = written(precision) || written(dpu::DataFormat::OFFSET);
            let whole = written(size) && written(dpu::DstBaseAddr::OFFSET) && precisions;
            (!whole).then(|| "sizes, output address or precisions are not written".into())
        };
    /// Blocks that wait for a block that does not start.
    ENABLE_MASK "H05-enable-mask" ["E-enable-mask"] [] Error Hang:
        "a block waits for one that is not started, or no block is started: no interrupt comes",
        "start every block that the data pass through: 0x0D convolution, 0x1D with DPU_RDMA, 0x18 flying, 0x60 pooling";
    /// Registers that keep the value of an earlier program.
    STALE_REGISTERS "T07-stale-registers" ["E-registers-persist", "E-stale-operand"] [] Error Garbage:
        "the task uses register values that an earlier program left behind (measured; for operands on the RK3576)",
        "write every register that the task uses in every program";
    /// Raw weights that are decoded as compressed ones.
    STALE_DECOMPRESSION "T14-stale-decompression" ["E-dcomp-left"] [cna::DcompCtrl, cna::DcompRegnum] Warning Garbage:
        "after a task with compressed weights raw ones are decoded as a compressed stream (measured)",
        "write 0 to DCOMP_CTRL and DCOMP_REGNUM in every program";
    /// Reuse of data that CBUF does not hold.
    STALE_CBUF "T29-stale-cbuf" ["E-reuse"] [cna::CbufCon0] Error Garbage:
        "the contents of CBUF are used without an error, whatever they are (measured)",
        "fetch in the first task of a job, and reuse only what the previous task fetched completely, with the same banks and sizes";
    /// Fewer than four lines, fetched in groups of four.
    SHORT_GROUP "T21-short-group" ["E-short-height-garbage"] [cna::FcDataSize0, cna::DmaCon2] Error Garbage, contested "short-height":
        "a cube of fewer than four lines, fetched in groups of four (measured)",
        "pad to four lines";
    /// Lines that computing does not wait for.
    LINES_NOT_AWAITED "T23-lines-not-awaited" ["E-grains", "E-grains-stream"] [cna::ConvCon2, cna::FcDataSize0] Error Garbage, contested "few-grains":
        "fewer grains than lines: with fp16 some of these were measured to be garbage",
        "use the input height + 1, at most 1023";
    /// Values that do not fit their fields.
    FIELD_OVERFLOW "T30-field-overflow" ["E-field-overflow"] [] Warning Note:
        "bits outside all fields: a value too large for its field, which the hardware truncates without an error (stated)",
        "keep sizes below 8192 (CNA widths and heights below 2048), strides within 28 bits";
    /// Sums beyond int16.
    INT16_SATURATES "T38-int16-saturates" ["E-int4-saturates"] [dpu::DataFormat] Note Note:
        "a sum did not fit the int16 of the output and was clamped to its limit (measured)",
        "keep K of int4 matmuls at 511 or below (668 for operands of -7 to 7)";
    /// Exponents below MINUS_EXP, which wrap.
    EXPONENT_WRAPS "T52-exponent-wraps" ["E-zero-wraps"] [dpu::OutCvtShift, dpu::OutCvtOffset, dpu::DataFormat] Error Garbage, contested "small-exponent":
        "the exponent of a value is below MINUS_EXP and wraps: a zero becomes 2^(17 - MINUS_EXP) (measured values; the wrap is inferred)",
        "choose table entries and OUT_CVT_OFFSET so that their sum is never 0 or tiny, or let the CPU replace the results where the function is about 0";
}
