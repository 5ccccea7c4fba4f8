// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products of matrices: mtx512/rk3588-npu (form A), librocketnpu (form B), and
//! the latter's products that add to an earlier result.

use super::conv::Conv;
use super::{D, Sample, ceil_div, stride28};

/// Types of a product: operands, results, bits, precisions, writer groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Types {
    pub(crate) name: &'static str,
    pub(crate) bits: u32,
    pub(crate) codes: (u32, u32, u32),
    pub(crate) qd: u32,
    pub(crate) size_e: u32,
    pub(crate) narrow: u32,
    pub(crate) group: u32,
}

const fn types(
    name: &'static str,
    bits: u32,
    codes: (u32, u32, u32),
    qd: u32,
    size_e: u32,
    group: u32,
) -> Types {
    Types {
        name,
        bits,
        codes,
        qd,
        size_e,
        narrow: 0,
        group,
    }
}

pub(crate) const FP16_FP32: Types = types("fp16->fp32", 16, (2, 2, 5), 1, 3, 16);
pub(crate) const FP16_FP16: Types = Types {
    narrow: 1,
    ..types("fp16->fp16", 16, (2, 2, 2), 1, 1, 16)
};
pub(crate) const INT8_INT32: Types = types("int8->int32", 8, (0, 0, 4), 0, 7, 32);
pub(crate) const INT8_FP32: Types = types("int8->fp32", 8, (0, 0, 5), 0, 7, 32);
pub(crate) const INT4_INT16: Types = types("int4->int16", 4, (6, 6, 1), 0, 7, 64);
pub(crate) const BF16_FP32: Types = types("bf16->fp32", 16, (3, 3, 5), 1, 3, 16);
pub(crate) const TF32_FP32: Types = types("tf32->fp32", 32, (7, 5, 5), 1, 3, 16);
pub(crate) const INT16_INT32: Types = types("int16->int32", 16, (1, 1, 4), 1, 3, 16);

/// The product of `m` rows. The banks are those of the exact rule, by which
/// every line begins at an entry of its own; the original generators' agree or
/// are known to lose lines.
pub(crate) fn product(types: Types, m: u32, k: u32, n: u32) -> Conv {
    let (precision, dpu_precision, out_precision) = types.codes;
    let kernel_bytes = k * types.bits / 8;
    let entries = ceil_div(kernel_bytes, 64);
    let data = ceil_div(m * entries * 64, 32768);
    Conv {
        precision,
        dpu_precision,
        out_precision,
        qd: types.qd,
        grains: m + 1,
        input: (1, m),
        channels: k,
        output: (1, m),
        out_channels: n,
        kernels: n,
        kernel_bytes,
        weight_bytes: kernel_bytes * n,
        banks: (data, 12 - data),
        entries,
        surf_stride: stride28(m as i32 - 4),
        size_e: types.size_e,
        surf_add: types.size_e + 1,
        narrow: types.narrow,
        ..Conv::default()
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for types in [
        FP16_FP32,
        FP16_FP16,
        INT8_INT32,
        INT8_FP32,
        INT4_INT16,
        BF16_FP32,
        TF32_FP32,
        INT16_INT32,
    ] {
        for (m, k, groups) in [
            (4, 32, 1),
            (64, 64, 2),
            (144, 224, 3),
            (32, 1024, 16),
            (1020, 32, 4),
        ] {
            let n = types.group * groups;
            let product = product(types, m, k, n);
            for (form, with_rdma) in [("A", false), ("B", true)] {
                let name = format!("form {form} {} {m}x{k}x{n}", types.name);
                samples.push(Sample::new(name, product.program(with_rdma)));
            }
        }
    }
    for (op, ew) in [
        ("add", 0x1082_02c0),
        ("mul", 0x1080_03c4),
        ("max", 0x1080_02c0),
        ("min", 0x1081_02c0),
    ] {
        for (m, k, n) in [(12, 32, 16), (64, 256, 64)] {
            let name = format!("librocketnpu fp16 {m}x{k}x{n} with {op}");
            samples.push(Sample::new(name, accumulating(ew, m, k, n).program(true)));
        }
    }
    // Reuse of what CBUF holds is for the tasks after the first.
    let mut reuse = product(FP16_FP16, 64, 64, 32).program(false);
    let second = Conv {
        reuse: (1, 0),
        ..product(FP16_FP16, 64, 64, 32)
    };
    reuse.extend(second.program(false));
    samples.push(Sample::new(
        "form A fp16, second task reuses features",
        reuse,
    ));
    samples
}

/// fp16: the product combined with a cube at D.
pub(crate) fn accumulating(ew: u32, m: u32, k: u32, n: u32) -> Conv {
    Conv {
        ew,
        erdma: 0x4000_0008,
        feature_mode: Some(0x17d40),
        source: D,
        ew_base: D + 16 * m,
        ew_stride: m.max(12) << 4,
        notch: m.max(12) << 4,
        ..product(FP16_FP16, m, k, n)
    }
}
