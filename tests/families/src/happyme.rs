// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of happyme531/rknpu2_matmul_open: layouts of A and C other than packed
//! cubes, and chains of matmuls and additions.

use super::conv::{ConvProgram, Rdma, WriterWalk};
use super::matmul::INT4_INT16;
use super::{A, B, C, CONV, CONV_RDMA, D, Sample, Words, flying, mesa};
use rknpu_regcmd::Word;

/// The layout of the rows of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLayout {
    RowMajor,
    /// A cube of this number of rows, of which the task takes some.
    Native(u32),
    Panel(u32),
}

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    let (m, k, n) = (64, 256, 96);
    let layouts = [
        RowLayout::RowMajor,
        RowLayout::Native(64),
        RowLayout::Native(128),
        RowLayout::Panel(8),
    ];
    for a in layouts {
        for c in layouts {
            let name = format!("happyme int8 {a:?} to {c:?}");
            samples.push(Sample::new(name, short(&int8((m, k, n), a, c), None)));
        }
    }
    for (m, k) in [(4, 64), (128, 2048), (32, 5000), (1, 8192)] {
        let name = format!("happyme int8 row-major {m}x{k}");
        let conv = int8((m, k, 64), RowLayout::RowMajor, RowLayout::RowMajor);
        samples.push(Sample::new(name, short(&conv, None)));
    }
    let shape = (32, 320, 64);
    for (name, bytes, codes) in [
        ("fp16", 2, (2, 2)),
        ("bf16", 2, (3, 3)),
        ("tf32", 4, (7, 5)),
    ] {
        for layout in [
            RowLayout::RowMajor,
            RowLayout::Native(32),
            RowLayout::Native(64),
        ] {
            let name = format!("happyme {name} {layout:?}");
            let words = long(&float(bytes, codes, shape, layout));
            samples.push(Sample::new(name, words.finish(CONV)));
        }
    }
    let deep = float(4, (7, 5), (4, 4096, 64), RowLayout::RowMajor);
    samples.push(Sample::new("happyme tf32 K=4096", long(&deep).finish(CONV)));
    for (op, shape, ew) in [
        ("add", (16, 64, 64), 0x1082_02c0),
        ("mul", (64, 320, 64), 0x1080_03c4),
    ] {
        let words = long(&fused(shape, ew)).finish(CONV_RDMA);
        samples.push(Sample::new(format!("happyme fp16 fused {op}"), words));
    }
    let native = int8((64, 2048, 96), RowLayout::Native(64), RowLayout::Native(64));
    let mut chain = short(&native, Some((0x8000, 34)));
    chain.extend(short(&native, Some((0x9000, 34))));
    chain.extend(flying::int32_add(64, 96, 4, None));
    samples.push(Sample::new("happyme int8 chain with addition", chain));
    for (m, k, n) in [(4, 64, 64), (128, 2048, 256)] {
        let name = format!("happyme int4 {m}x{k}x{n}");
        samples.push(Sample::new(name, long(&int4(m, k, n)).finish(CONV)));
    }
    samples
}

/// The matmul of `m` padded rows of `bytes` bytes, with CNA and CORE walking A.
fn walk(layout: RowLayout, (m, k, n): (u32, u32, u32), bytes: u32) -> ConvProgram {
    let (group_line_off, width, height, line_stride, surf_stride) = match layout {
        RowLayout::RowMajor => (true, 1, m, bytes / 16, 0),
        RowLayout::Native(rows) if rows == m => (false, m, 1, 0x200, -3 * m as i32),
        RowLayout::Native(rows) => (true, m, 1, rows, rows as i32 - m as i32),
        RowLayout::Panel(w) => (true, w, m / w, w * bytes / 16, 0),
    };
    ConvProgram {
        group_line_off,
        kernel_bytes: bytes,
        weight_bytes: bytes * n,
        data_banks: (m * bytes).div_ceil(32768).clamp(1, 11),
        entries: (width * bytes).div_ceil(64),
        line_stride,
        surf_stride,
        ..ConvProgram::new((width, height, k), (width, height, n), (1, 1))
    }
}

/// How the DPU writes C, whose rows have `row` atoms.
fn output(layout: RowLayout, m: u32, row: u32, group: u32) -> WriterWalk {
    let (width, stride, notch) = match layout {
        RowLayout::RowMajor => (1, 1, row - 1),
        RowLayout::Native(rows) => (m, rows, 0),
        RowLayout::Panel(w) => (w, w, (row - 1) * w),
    };
    WriterWalk {
        width,
        height: m / width,
        stride,
        notch,
        add: group * stride,
    }
}

/// int8 to int32, from any layout to any.
#[must_use]
pub fn int8((m, k, n): (u32, u32, u32), a: RowLayout, c: RowLayout) -> ConvProgram {
    let (k, n) = (k.next_multiple_of(32), n.next_multiple_of(32));
    ConvProgram {
        qd: 1,
        od_bypass: 0,
        grains: match a {
            RowLayout::RowMajor if k > 4096 && m >= 16 => 30,
            RowLayout::RowMajor => (m + 1).min(65536u32.div_ceil(k).next_multiple_of(2)).max(1),
            RowLayout::Native(_) => 2,
            RowLayout::Panel(w) => (m / w + 1)
                .min(65536u32.div_ceil(w * k).next_multiple_of(2))
                .max(1),
        },
        writer: output(c, m, n / 4, 8),
        ..walk(a, (m, k, n), k)
    }
}

/// Ranges of registers that int8 programs leave out.
const LEFT_OUT: [(u16, u16); 12] = [
    (0x1060, 0x1068),
    (0x1074, 0x1074),
    (0x1180, 0x1184),
    (0x301c, 0x301c),
    (0x4014, 0x4014),
    (0x4044, 0x404c),
    (0x4054, 0x4054),
    (0x4064, 0x406c),
    (0x4074, 0x4080),
    (0x4088, 0x40ac),
    (0x40c4, 0x40c4),
    (0x4100, 0x412c),
];

/// The words of int8 programs.
fn short(conv: &ConvProgram, link: Option<(u32, u32)>) -> Vec<Word> {
    let mut words = Words::default();
    words.extend(&[(0x1104, 0), (0x1100, 0)]);
    let written = conv.words().0.into_iter();
    words.0.extend(written.filter(|word| {
        let left_out = |&(first, last): &(u16, u16)| (first..=last).contains(&word.offset());
        !LEFT_OUT.iter().any(left_out)
    }));
    words.finish_linked(link, CONV)
}

/// The words of all other programs.
fn long(conv: &ConvProgram) -> Words {
    let mut words = mesa::prefix(conv);
    words.0.extend(conv.words().0);
    words
}

/// A matmul of floats of `bytes` bytes, with these precision codes, and one layout of
/// A and C.
#[must_use]
pub fn float(
    bytes: u32,
    (p, pd): (u32, u32),
    (m, k, n): (u32, u32, u32),
    layout: RowLayout,
) -> ConvProgram {
    let (k, n) = (k.next_multiple_of(64 / bytes), n.next_multiple_of(32));
    let walk = walk(layout, (m, k, n), k * bytes);
    ConvProgram {
        p,
        pd,
        po: pd,
        grains: match layout {
            RowLayout::RowMajor => m + 1,
            _ => 2,
        },
        size_e: bytes - 1,
        out_scale: if bytes == 4 { 1 } else { 0x10001 },
        writer: output(layout, m, n * bytes / 16, bytes),
        ..walk
    }
}

/// A matmul whose result is combined with a cube. The output has gaps of two atoms
/// after every two.
fn fused((m, k, n): (u32, u32, u32), ew_cfg: u32) -> ConvProgram {
    let (k, n) = (
        k.next_multiple_of(32).max(n.next_multiple_of(32)),
        n.next_multiple_of(32),
    );
    ConvProgram {
        qd: 1,
        grains: 65536u32.div_ceil(2 * k).next_multiple_of(2).max(80),
        // The rows are as long as the groups with their gaps.
        writer: output(RowLayout::RowMajor, m, n / 4, 4),
        ew_cfg,
        rdma: Some(Rdma {
            ew_stride: m,
            ..Rdma::operand(D, 2 * m, 2 * m)
        }),
        ..float(2, (2, 2), (m, k, n), RowLayout::RowMajor)
    }
}

fn int4(m: u32, k: u32, n: u32) -> ConvProgram {
    let entries = m * k.div_ceil(128);
    ConvProgram {
        qd: 1,
        grains: 2,
        data_banks: (entries * 64).div_ceil(32768),
        entries,
        ..INT4_INT16.conv((m, 1, k), (m, 1, n), (1, 1), (A, B, C))
    }
}
