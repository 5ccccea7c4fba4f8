// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of mtx512/rk3588-npu (form A) and of librocketnpu (form B),
//! librocketnpu's matmuls that are combined with an earlier result, and its
//! convolutions.

use super::conv::{ConvProgram, Rdma, captured_depthwise};
use super::{A, B, C, D, Sample};

/// Types of a matmul: operands and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandTypes {
    pub name: &'static str,
    /// Bits of an operand's element.
    pub bits: u32,
    /// Precision codes: MAC array, DPU, output.
    pub codes: (u32, u32, u32),
    pub qd: u32,
    pub size_e: u32,
    /// FP32TOFP16_EN.
    pub narrow: u32,
    /// Multiples that K and N are padded to: channels and kernels of a group.
    pub depth: u32,
    pub group: u32,
}

const fn types(
    name: &'static str,
    bits: u32,
    codes: (u32, u32, u32),
    qd: u32,
    size_e: u32,
    group: u32,
) -> OperandTypes {
    OperandTypes {
        name,
        bits,
        codes,
        qd,
        size_e,
        narrow: 0,
        depth: 32,
        group,
    }
}

pub const FP16_FP32: OperandTypes = types("fp16->fp32", 16, (2, 2, 5), 1, 3, 16);
pub const FP16_FP16: OperandTypes = OperandTypes {
    narrow: 1,
    ..types("fp16->fp16", 16, (2, 2, 2), 1, 1, 16)
};
pub const INT8_INT32: OperandTypes = types("int8->int32", 8, (0, 0, 4), 0, 7, 32);
pub const INT8_FP32: OperandTypes = types("int8->fp32", 8, (0, 0, 5), 0, 7, 32);
pub const INT4_INT16: OperandTypes = types("int4->int16", 4, (6, 6, 1), 0, 7, 64);
pub const BF16_FP32: OperandTypes = types("bf16->fp32", 16, (3, 3, 5), 1, 3, 16);
pub const TF32_FP32: OperandTypes = OperandTypes {
    depth: 16,
    ..types("tf32->fp32", 32, (7, 5, 5), 1, 3, 16)
};
pub const INT16_INT32: OperandTypes = types("int16->int32", 16, (1, 1, 4), 1, 3, 16);

pub const ALL: [OperandTypes; 8] = [
    FP16_FP32,
    FP16_FP16,
    INT8_INT32,
    INT8_FP32,
    INT4_INT16,
    BF16_FP32,
    TF32_FP32,
    INT16_INT32,
];

impl OperandTypes {
    /// Bytes of `elements` elements of an operand.
    #[must_use]
    pub const fn bytes(self, elements: usize) -> usize {
        elements * self.bits as usize / 8
    }

    #[must_use]
    pub const fn out_bytes(self) -> usize {
        if matches!(self.codes.2, 4 | 5) { 4 } else { 2 }
    }

    /// [`matmul`] with A, B and the result at these addresses.
    #[must_use]
    pub fn matmul(self, m: u32, k: u32, n: u32, at: (u32, u32, u32)) -> ConvProgram {
        self.conv((1, m, k), (1, m, n), (1, 1), at)
    }

    /// The convolution of the features at `a` by the kernels at `b`. The banks follow
    /// the exact rule, by which every line begins at a new entry. The original
    /// generators agree with it, or are known to lose lines.
    #[must_use]
    pub fn conv(
        self,
        input: (u32, u32, u32),
        output: (u32, u32, u32),
        kernel: (u32, u32),
        (a, b, c): (u32, u32, u32),
    ) -> ConvProgram {
        let (p, pd, po) = self.codes;
        let (width, height, channels) = input;
        let kernel_bytes = kernel.0 * kernel.1 * channels * self.bits / 8;
        let entries = (width * channels * self.bits).div_ceil(8 * 64);
        let conv = ConvProgram {
            p,
            pd,
            po,
            qd: self.qd,
            kernel_bytes,
            weight_bytes: kernel_bytes * output.2,
            data_banks: (height * entries * 64).div_ceil(32768),
            entries,
            out_scale: self.narrow << 16 | 1,
            a,
            b,
            c,
            ..ConvProgram::new(input, output, kernel)
        };
        conv.groups(self.size_e)
    }
}

/// The matmul of `m` rows: a 1x1 convolution.
#[must_use]
pub fn matmul(types: OperandTypes, m: u32, k: u32, n: u32) -> ConvProgram {
    types.matmul(m, k, n, (A, B, C))
}

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for types in ALL {
        for (m, k, groups) in [
            (4, 32, 1),
            (64, 64, 2),
            (144, 224, 3),
            (32, 1024, 16),
            (1020, 32, 4),
        ] {
            let n = types.group * groups;
            let matmul = matmul(types, m, k, n);
            for (form, matmul) in [("A", matmul.clone()), ("B", matmul.with_rdma())] {
                let name = format!("form {form} {} {m}x{k}x{n}", types.name);
                samples.push(Sample::new(name, matmul.task()));
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
            samples.push(Sample::new(name, accumulating(ew, m, k, n).task()));
        }
    }
    // Only tasks after the first may reuse the data in CBUF.
    let mut reuse = matmul(FP16_FP16, 64, 64, 32).task();
    let second = ConvProgram {
        data_reuse: true,
        ..matmul(FP16_FP16, 64, 64, 32)
    };
    reuse.extend(second.task());
    let name = "form A fp16, second task reuses features";
    samples.push(Sample::new(name, reuse));
    samples
}

/// An fp16 matmul whose result is combined with a cube at D.
#[must_use]
pub fn accumulating(ew: u32, m: u32, k: u32, n: u32) -> ConvProgram {
    ConvProgram {
        ew_cfg: ew,
        rdma: Some(Rdma::operand(D, m, m.max(12))),
        ..matmul(FP16_FP16, m, k, n)
    }
}

/// Convolutions of librocketnpu: fp16, fp16 depthwise, int8, int8 depthwise
/// with requantisation.
pub(crate) fn convolutions() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (size, ic, oc, k, pad, dilation) in [
        (8, 32, 16, 1, 0, 1),
        (16, 64, 32, 3, 1, 1),
        (12, 32, 48, 3, 2, 2),
        (28, 32, 16, 5, 2, 1),
    ] {
        let name = |what: &str| format!("librocketnpu {what} {size}x{size}x{ic} {k}x{k} -> {oc}");
        let conv = |ty: OperandTypes, oc| {
            let out = size + 2 * pad - (k - 1) * dilation;
            ConvProgram {
                dilation: (dilation, dilation),
                pad: (pad, pad),
                ..ty.conv((size, size, ic), (out, out, oc), (k, k), (A, B, C))
            }
        };
        let fp16 = conv(FP16_FP16, oc).with_rdma();
        samples.push(Sample::new(name("fp16 conv"), fp16.task()));
        let mut int8 = conv(INT8_INT32, oc.max(32)).with_rdma();
        int8.data_banks += 1;
        samples.push(Sample::new(name("int8 conv"), int8.task()));
    }
    for (size, c) in [(8, 32), (14, 64), (20, 96)] {
        let name = format!("librocketnpu fp16 depthwise {size}x{size}x{c}");
        let conv = ConvProgram {
            pad: (1, 1),
            ..FP16_FP16.conv((size, size, c), (size, size, c), (3, 3), (A, B, C))
        };
        let conv = conv.depthwise(2 * c * 9).with_rdma();
        samples.push(Sample::new(name, conv.task()));
    }
    let name = "captured int8 depthwise 8x8x64";
    samples.push(Sample::new(name, captured_depthwise().task()));
    samples
}
