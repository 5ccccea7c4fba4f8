// SPDX-License-Identifier: MIT OR Apache-2.0
//! The three-bit precision codes of CNA, CORE, DPU and DPU_RDMA (RK3588 TRM).

/// int8.
pub(crate) const INT8: u32 = 0;
/// int16.
pub(crate) const INT16: u32 = 1;
/// IEEE binary16.
pub(crate) const FP16: u32 = 2;
/// bfloat16.
pub(crate) const BF16: u32 = 3;
/// int32; DPU only.
pub(crate) const INT32: u32 = 4;
/// IEEE binary32; DPU only.
pub(crate) const FP32: u32 = 5;
/// int4, two to a byte.
pub(crate) const INT4: u32 = 6;
/// tf32 in the container of an fp32; CNA and CORE only.
pub(crate) const TF32: u32 = 7;

/// Bits of an element that CNA fetches.
pub(crate) const fn input_bits(code: u32) -> Option<u32> {
    match code {
        INT4 => Some(4),
        INT8 => Some(8),
        INT16 | FP16 | BF16 => Some(16),
        TF32 => Some(32),
        _ => None,
    }
}

/// Bits of an element that the DPU reads or writes.
pub(crate) const fn dpu_bits(code: u32) -> Option<u32> {
    match code {
        INT8 => Some(8),
        INT16 | FP16 | BF16 => Some(16),
        INT32 | FP32 => Some(32),
        INT4 => Some(4),
        _ => None,
    }
}

/// Bits of an element by the two-bit size codes of ERDMA, EW and PPU_RDMA.
pub(crate) const fn size_bits(code: u32) -> u32 {
    4 << (code & 3)
}

/// Output channels that CORE hands to the DPU at a time, for inputs of a
/// precision as the DPU names it (tf32 is fp32 there): the kernel group of the
/// weight layout, and twice that for depthwise convolutions.
///
/// Inferred from the writer settings of mtx512/rk3588-npu, librocketnpu, Mesa,
/// allbilly and happyme, all of which ran on silicon.
pub(crate) const fn writer_group(dpu_in: u32, depthwise: bool) -> Option<u32> {
    match (dpu_in, depthwise) {
        (INT8, false) => Some(32),
        (INT8, true) => Some(64),
        (INT16 | FP16 | BF16, false) => Some(16),
        (INT16 | FP16 | BF16, true) => Some(32),
        (INT4, false) => Some(64),
        (FP32, false) => Some(16),
        _ => None,
    }
}

/// The code that the DPU uses for what CORE calls `core`.
pub(crate) const fn in_dpu(core: u32) -> u32 {
    if core == TF32 { FP32 } else { core }
}
