// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that the DPU runs alone, fed from memory: elementwise operations
//! (happyme, allbilly), dequantisation and copies (happyme).

use super::{A, B, C, FLYING, Sample, Words, lookup};
use rknpu_regcmd::Word;

/// A flying program: main input from memory. Strides are in atoms.
#[derive(Clone, Debug)]
pub struct Flying {
    pub format: u32,
    pub dst: u32,
    pub dst_stride: u32,
    /// Width, height, channels.
    pub cube: (u32, u32, u32),
    /// BS_CFG and BS_MUL_CFG.
    pub bs: (u32, u32),
    pub ew_cfg: u32,
    /// Offset, scale and shift of the output converter.
    pub out: (u32, u32, u32),
    pub src: u32,
    pub erdma: u32,
    pub ew: u32,
    pub ew_stride: u32,
    pub mode: u32,
    pub notch: u32,
}

impl Flying {
    #[must_use]
    pub fn words(&self) -> Words {
        let (w, h, c) = self.cube;
        dpu(&[
            (0x400c, 0x1e5),
            (0x4010, self.format),
            (0x4020, self.dst),
            (0x4024, self.dst_stride << 4),
            (0x4030, w - 1),
            (0x4034, h - 1),
            (0x403c, (c - 1) << 16 | (c - 1)),
            (0x4040, self.bs.0),
            (0x4048, self.bs.1),
            (0x4050, 2),
            (0x4058, c - 1),
            (0x405c, (h - 1) << 16 | (w - 1)),
            (0x4060, 0x53),
            (0x4070, self.ew_cfg),
            (0x4078, 1),
            (0x4080, self.out.0),
            (0x4084, self.out.1),
            (0x4088, self.out.2),
            (0x40c0, self.dst_stride << 4),
            (0x500c, w - 1),
            (0x5010, h - 1),
            (0x5014, c - 1),
            (0x5018, self.src),
            (0x5034, self.erdma),
            (0x5038, self.ew),
            (0x5040, self.ew_stride << 4),
            (0x5044, self.mode),
            (0x504c, self.notch << 4),
            (0x5068, 0x0101_0101),
        ])
    }

    #[must_use]
    pub fn program(&self) -> Vec<Word> {
        self.words().finish(FLYING)
    }

    /// fp16 operation on flat vectors of `8 * cols` elements (allbilly).
    #[must_use]
    pub fn fp16(cols: u32, ew_cfg: u32, at: (u32, u32, u32)) -> Self {
        Self {
            format: 2 << 29 | 2 << 26 | 2,
            ew_cfg,
            out: (0, 0x10001, 0),
            erdma: 0x4000_0008,
            mode: 0x17849,
            ..Self::int32_add(cols, 8, at)
        }
    }

    /// int32 addition of native cubes of `rows` rows (happyme531).
    #[must_use]
    pub fn int32_add(rows: u32, channels: u32, (a, b, d): (u32, u32, u32)) -> Self {
        Self {
            format: 4 << 29 | 4 << 26 | 4,
            dst: d,
            dst_stride: rows,
            cube: (rows, 1, channels),
            bs: (0x53, 0),
            ew_cfg: 0x10c2_03c0,
            out: (0, 1, 0),
            src: a,
            erdma: 0x4000_000c,
            ew: b,
            ew_stride: rows,
            mode: 0x27881,
            notch: 0,
        }
    }

    /// Row `row` of a cube of `rows` fp32 rows, times `scale` (fp16) and one
    /// scale of each channel (happyme531).
    #[must_use]
    pub fn dequantise_row(
        (rows, row): (u32, u32),
        channels: u32,
        scale: u32,
        (a, b, d): (u32, u32, u32),
    ) -> Self {
        Self {
            format: 0xb400_0005,
            bs: (0x42, scale << 16),
            ew_cfg: 0x10c0_03c4,
            mode: 0x2f8a1,
            notch: rows - 1,
            ..Self::int32_add(1, channels, (a + 16 * row, b, d))
        }
    }

    /// Copies a vector of `channels` int8 into a row of a cube of `rows`
    /// (happyme531).
    #[must_use]
    pub fn copy_row(rows: u32, channels: u32, a: u32, d: u32) -> Self {
        Self {
            format: 0,
            dst_stride: rows,
            ew_cfg: 0x383,
            erdma: 1,
            ew_stride: 0,
            mode: 0x7801,
            ..Self::int32_add(1, channels, (a, 0, d))
        }
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (rows, channels) in [(4, 32), (64, 1024), (128, 96)] {
        for (name, out) in [("int32", 4), ("fp32", 5)] {
            let name = format!("happyme int32 add to {name}, {rows} rows of {channels}");
            samples.push(Sample::new(name, int32_add(rows, channels, out, None)));
        }
    }
    for cols in [1, 512, 4096] {
        for (op, word, mode, scale) in [
            ("add", 0x1082_02c0, 0x17849, 0x10001),
            ("sub", 0x1084_02c0, 0x17849, 0x10001),
            ("max", 0x1080_02c0, 0x17849, 0x10001),
            ("min", 0x1081_02c0, 0x17849, 0x10001),
            ("mul", 0x1080_03c4, 0x17849, 0x10001),
            ("div", 0x1083_03c0, 0x17841, 1),
        ] {
            let name = format!("allbilly fp16 {op}, {cols} atoms");
            let flying = Flying {
                mode,
                out: (0, scale, 0),
                ..Flying::fp16(cols, word, (A, B, C))
            };
            samples.push(Sample::new(name, flying.program()));
        }
    }
    let row = Flying::dequantise_row((64, 3), 256, 0x3c00, (A, B, C));
    samples.push(Sample::new("happyme dequantise a row", row.program()));
    let copy = Flying::copy_row(128, 7680, A, C);
    samples.push(Sample::new("happyme copy a row", copy.program()));
    for cols in [1, 4096] {
        let name = format!("librocketnpu sigmoid, {cols} atoms");
        let sigmoid = lookup::Activation::gate(lookup::logistic);
        samples.push(Sample::new(name, sigmoid.program(cols, (A, C))));
    }
    samples
}

/// The registers of DPU and DPU_RDMA that complete programs write: those of
/// `list`, and zeros.
fn dpu(list: &[(u16, u32)]) -> Words {
    let mut words = Words::default();
    words.extend(&[(0x4004, 0xe), (0x5004, 0xe)]);
    for (first, last) in [
        (0x400c, 0x4014),
        (0x4020, 0x4024),
        (0x4030, 0x4088),
        (0x4090, 0x40ac),
        (0x40c0, 0x40c4),
        (0x500c, 0x5020),
        (0x5028, 0x502c),
        (0x5034, 0x5038),
        (0x5040, 0x504c),
        (0x5064, 0x506c),
    ] {
        words.zeros(first, last);
    }
    for &(offset, value) in list {
        words.change(offset, value);
    }
    words
}

/// C = A + B, cubes of `rows` and `channels`.
#[must_use]
pub fn int32_add(rows: u32, channels: u32, out: u32, link: Option<(u32, u32)>) -> Vec<Word> {
    let flying = Flying {
        format: out << 29 | 4 << 26 | 4,
        ..Flying::int32_add(rows, channels, (A, B, C))
    };
    flying.words().finish_linked(link, FLYING)
}
