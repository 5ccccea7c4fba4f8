// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that the DPU runs alone, fed from memory: elementwise operations
//! (happyme, allbilly), dequantisation and copies (happyme), look-up tables
//! (librocketnpu).

use super::conv::words;
use super::{A, B, C, FLYING, Sample, trailer, write};
use rknpu_regcmd::Word;

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (rows, channels) in [(4, 32), (64, 1024), (128, 96)] {
        for (name, out) in [("int32", 4), ("fp32", 5)] {
            let name = format!("happyme int32 add to {name}, {rows} rows of {channels}");
            samples.push(Sample::new(name, int32_add(rows, channels, out, None)));
        }
    }
    for cols in [1, 512, 4096] {
        for (op, word, fmc, cvt) in [
            ("add", 0x1082_02c0, 0x17849, 0x10001),
            ("sub", 0x1084_02c0, 0x17849, 0x10001),
            ("max", 0x1080_02c0, 0x17849, 0x10001),
            ("min", 0x1081_02c0, 0x17849, 0x10001),
            ("mul", 0x1080_03c4, 0x17849, 0x10001),
            ("div", 0x1083_03c0, 0x17841, 1),
        ] {
            let name = format!("allbilly fp16 {op}, {cols} atoms");
            samples.push(Sample::new(name, fp16_elementwise(cols, word, fmc, cvt)));
        }
    }
    samples.push(Sample::new(
        "happyme dequantise a row",
        dequantise_row(64, 3, 256),
    ));
    samples.push(Sample::new("happyme copy a row", copy_row(128, 7680)));
    for cols in [1, 4096] {
        let name = format!("librocketnpu sigmoid, {cols} atoms");
        samples.push(Sample::new(name, sigmoid(cols)));
    }
    samples
}

/// Zeros for every register of DPU and DPU_RDMA between the given ones, as the
/// complete programs write them.
fn dpu(list: &[(u16, u32)]) -> Vec<Word> {
    let mut all: Vec<(u16, u32)> = vec![(0x4004, 0xe), (0x5004, 0xe)];
    let plain = (0x400c..=0x4014)
        .chain(0x4020..=0x4024)
        .chain(0x4030..=0x4088)
        .chain(0x4090..=0x40ac)
        .chain(0x40c0..=0x40c4)
        .chain(0x500c..=0x5020)
        .chain(0x5028..=0x502c)
        .chain(0x5034..=0x5038)
        .chain(0x5040..=0x504c)
        .chain(0x5064..=0x506c)
        .filter(|offset| offset % 4 == 0);
    for offset in plain {
        let value = list.iter().find(|&&(other, _)| other == offset);
        all.push((offset, value.map_or(0, |&(_, value)| value)));
    }
    words(&all)
}

/// C = A + B, cubes of `rows` and `channels`.
pub(crate) fn int32_add(rows: u32, channels: u32, out: u32, link: Option<(u32, u32)>) -> Vec<Word> {
    let (r, c) = (rows - 1, channels - 1);
    let mut words = dpu(&[
        (0x400c, 0x1e5),
        (0x4010, out << 29 | 4 << 26 | 4),
        (0x4020, C),
        (0x4024, rows << 4),
        (0x4030, r),
        (0x403c, c << 16 | c),
        (0x4040, 0x53),
        (0x4050, 2),
        (0x4058, c),
        (0x405c, r),
        (0x4060, 0x53),
        (0x4070, 0x10c2_03c0),
        (0x4078, 1),
        (0x4084, 1),
        (0x40c0, rows << 4),
        (0x500c, r),
        (0x5014, c),
        (0x5018, A),
        (0x5034, 0x4000_000c),
        (0x5038, B),
        (0x5040, rows << 4),
        (0x5044, 0x27881),
        (0x5068, 0x0101_0101),
    ]);
    trailer(&mut words, link, FLYING);
    words
}

fn fp16_elementwise(cols: u32, op: u32, fmc: u32, out_cvt: u32) -> Vec<Word> {
    let w = cols - 1;
    let mut words = dpu(&[
        (0x400c, 0x1e5),
        (0x4010, 2 << 29 | 2 << 26 | 2),
        (0x4020, C),
        (0x4024, cols << 4),
        (0x4030, w),
        (0x403c, 0x0007_0007),
        (0x4040, 0x53),
        (0x4050, 2),
        (0x4058, 7),
        (0x405c, w),
        (0x4060, 0x53),
        (0x4070, op),
        (0x4078, 1),
        (0x4084, out_cvt),
        (0x40c0, cols << 4),
        (0x500c, w),
        (0x5014, 7),
        (0x5018, A),
        (0x5034, 0x4000_0008),
        (0x5038, B),
        (0x5040, cols << 4),
        (0x5044, fmc),
        (0x5068, 0x0101_0101),
    ]);
    trailer(&mut words, None, FLYING);
    words
}

/// Row `m` of a cube of `rows`, times a scale of the row and one of each
/// channel.
fn dequantise_row(rows: u32, m: u32, channels: u32) -> Vec<Word> {
    let c = channels - 1;
    let mut words = dpu(&[
        (0x400c, 0x1e5),
        (0x4010, 0xb400_0005),
        (0x4020, C),
        (0x4024, 16),
        (0x403c, c << 16 | c),
        (0x4040, 0x42),
        (0x4048, 0x3c00 << 16),
        (0x4050, 2),
        (0x4058, c),
        (0x4060, 0x53),
        (0x4070, 0x10c0_03c4),
        (0x4078, 1),
        (0x4084, 1),
        (0x40c0, 16),
        (0x5014, c),
        (0x5018, A + 16 * m),
        (0x5034, 0x4000_000c),
        (0x5038, B),
        (0x5040, 16),
        (0x5044, 0x2f8a1),
        (0x504c, (rows - 1) << 4),
        (0x5068, 0x0101_0101),
    ]);
    trailer(&mut words, None, FLYING);
    words
}

/// A vector of `channels` int8 into a row of a cube of `rows`.
fn copy_row(rows: u32, channels: u32) -> Vec<Word> {
    let c = channels - 1;
    let mut words = dpu(&[
        (0x400c, 0x1e5),
        (0x4020, C),
        (0x4024, rows << 4),
        (0x403c, c << 16 | c),
        (0x4040, 0x53),
        (0x4050, 2),
        (0x4058, c),
        (0x4060, 0x53),
        (0x4070, 0x383),
        (0x4078, 1),
        (0x4084, 1),
        (0x40c0, rows << 4),
        (0x5014, c),
        (0x5018, A),
        (0x5034, 1),
        (0x5044, 0x7801),
        (0x5068, 0x0101_0101),
    ]);
    trailer(&mut words, None, FLYING);
    words
}

/// A look-up table program as librocketnpu writes it: not every register.
fn sigmoid(cols: u32) -> Vec<Word> {
    let mut list = words(&[(0x4004, 0xe), (0x5004, 0xe)]);
    for (table, start) in [(0x20000, -512i32), (0x30000, 0)] {
        list.push(write(0x4100, table));
        for i in 0..=512 {
            let x = f64::from(start + i) * 32.0 / 2596.0;
            let y = (32768.0 / (1.0 + (-x).exp())).round().clamp(0.0, 32767.0);
            list.push(write(0x4104, y as u32));
        }
    }
    let w = cols - 1;
    list.extend(words(&[
        (0x400c, 0x1e5),
        (0x4010, 2 << 29 | 2 << 26 | 2),
        (0x4020, C),
        (0x4024, cols << 4),
        (0x4030, w),
        (0x4034, 0),
        (0x403c, 0x0007_0007),
        (0x4040, 0x53),
        (0x4050, 2),
        (0x4058, 7),
        (0x405c, w),
        (0x4060, 0x20040),
        (0x4064, 0x8000_0000),
        (0x4068, 0x6912 << 16),
        (0x4070, 0x300),
        (0x4078, 1),
        (0x4080, 1),
        (0x4084, 0x10001),
        (0x4088, 1 << 31 | 15 << 12),
        (0x40c0, cols << 4),
        (0x40c4, 0),
        (0x4108, 0x68),
        (0x410c, 0x50500),
        (0x4110, 0xffff_c000),
        (0x411c, 0x4000),
        (0x4120, 23107),
        (0x4124, 22),
        (0x4128, 0),
        (0x412c, 0),
        (0x500c, w),
        (0x5010, 0),
        (0x5014, 7),
        (0x5018, A),
        (0x5034, 1),
        (0x5044, 0x17849),
        (0x5068, 0x0101_0101),
    ]));
    trailer(&mut list, None, FLYING);
    list
}
