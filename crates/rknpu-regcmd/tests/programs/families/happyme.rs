// SPDX-License-Identifier: MIT OR Apache-2.0
//! Products of happyme531/rknpu2_matmul_open: other layouts of A and C than
//! the packed cubes, and chains of products and additions.

use super::conv::words;
use super::{
    A, B, C, CONV, CONV_RDMA, D, Sample, align, ceil_div, flying, stride28, trailer, write,
};
use rknpu_regcmd::Word;

/// Where the rows of a matrix lie.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    RowMajor,
    /// A cube of so many rows, of which the task takes some.
    Native(u32),
    Panel(u32),
}

pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    let (m, k, n) = (64, 256, 96);
    for a in [
        Layout::RowMajor,
        Layout::Native(64),
        Layout::Native(128),
        Layout::Panel(8),
    ] {
        for c in [
            Layout::RowMajor,
            Layout::Native(64),
            Layout::Native(128),
            Layout::Panel(8),
        ] {
            let name = format!("happyme int8 {a:?} to {c:?}");
            samples.push(Sample::new(name, int8(m, k, n, a, c, None)));
        }
    }
    for (m, k) in [(4, 64), (128, 2048), (32, 5000), (1, 8192)] {
        let name = format!("happyme int8 row-major {m}x{k}");
        let layout = Layout::RowMajor;
        samples.push(Sample::new(name, int8(m, k, 64, layout, layout, None)));
    }
    for (name, bytes, code, dpu) in [("fp16", 2, 2, 2), ("bf16", 2, 3, 3), ("tf32", 4, 7, 5)] {
        for layout in [Layout::RowMajor, Layout::Native(32), Layout::Native(64)] {
            let name = format!("happyme {name} {layout:?}");
            samples.push(Sample::new(
                name,
                float(bytes, code, dpu, 32, 320, 64, layout),
            ));
        }
    }
    let deep = float(4, 7, 5, 4, 4096, 64, Layout::RowMajor);
    samples.push(Sample::new("happyme tf32 K=4096", deep));
    samples.push(Sample::new(
        "happyme fp16 fused add",
        fused(16, 64, 64, 0x1082_02c0),
    ));
    samples.push(Sample::new(
        "happyme fp16 fused mul",
        fused(64, 320, 64, 0x1080_03c4),
    ));
    let native = Layout::Native(64);
    let mut chain = int8(64, 2048, 96, native, native, Some((0x8000, 34)));
    chain.extend(int8(64, 2048, 96, native, native, Some((0x9000, 34))));
    chain.extend(flying::int32_add(64, 96, 4, None));
    samples.push(Sample::new("happyme int8 chain with addition", chain));
    for (m, k, n) in [(4, 64, 64), (128, 2048, 256)] {
        samples.push(Sample::new(
            format!("happyme int4 {m}x{k}x{n}"),
            int4(m, k, n),
        ));
    }
    samples
}

fn even(x: u32) -> u32 {
    (x + 1) & !1
}

/// How CNA and CORE walk A.
struct Walk {
    line_mode: bool,
    width: u32,
    height: u32,
    line_stride: u32,
    surf_stride: i32,
}

/// `bytes` is that of a row.
fn walk(layout: Layout, m: u32, bytes: u32) -> Walk {
    match layout {
        Layout::RowMajor => Walk {
            line_mode: true,
            width: 1,
            height: m,
            line_stride: bytes / 16,
            surf_stride: 0,
        },
        Layout::Native(rows) if rows == m => Walk {
            line_mode: false,
            width: m,
            height: 1,
            line_stride: 0x200,
            surf_stride: -3 * m as i32,
        },
        Layout::Native(rows) => Walk {
            line_mode: true,
            width: m,
            height: 1,
            line_stride: rows,
            surf_stride: rows as i32 - m as i32,
        },
        Layout::Panel(w) => Walk {
            line_mode: true,
            width: w,
            height: m / w,
            line_stride: w * bytes / 16,
            surf_stride: 0,
        },
    }
}

/// How the DPU writes C: stride, width, height, notch, SURF_ADD, all in atoms;
/// `row` atoms are a row.
fn output(layout: Layout, m: u32, row: u32, group: u32) -> (u32, u32, u32, u32, u32) {
    match layout {
        Layout::RowMajor => (1, 1, m, row - 1, group),
        Layout::Native(rows) => (rows, m, 1, 0, group * rows),
        Layout::Panel(w) => (w, w, m / w, (row - 1) * w, group * w),
    }
}

fn int8(m: u32, k: u32, n: u32, a: Layout, c: Layout, link: Option<(u32, u32)>) -> Vec<Word> {
    let (ka, na) = (align(k, 32), align(n, 32));
    let walk = walk(a, m, ka);
    let grains = match a {
        Layout::RowMajor if ka > 4096 && m >= 16 => 30,
        Layout::RowMajor => (m + 1).min(even(ceil_div(65536, ka))).max(1),
        Layout::Native(_) => 2,
        Layout::Panel(w) => (m / w + 1).min(even(ceil_div(65536, w * ka))).max(1),
    };
    let db = ceil_div(m * ka, 32768).clamp(1, 11);
    let size = walk.width << 16 | walk.height;
    let core = (walk.height - 1) << 16 | (walk.width - 1);
    let (stride, w, h, notch, add) = output(c, m, na / 4, 8);
    let mut list = words(&[
        (0x1104, 0),
        (0x1100, 0),
        (0x4004, 0xe),
        (0x100c, u32::from(walk.line_mode) << 29),
        (0x1010, grains << 4),
        (0x1014, 9),
        (0x1020, size),
        (0x1024, (ka - 1) << 16 | ka),
        (0x1028, walk.width),
        (0x102c, m),
        (0x1030, ka * na),
        (0x1034, ka),
        (0x1038, 0x0101_0000 | na),
        (0x1040, (12 - db) << 4 | db),
        (0x1044, ceil_div(walk.width * ka, 64)),
        (0x104c, 0xb),
        (0x1050, 0x10000),
        (0x1054, 0x10000),
        (0x1058, 0x10000),
        (0x105c, 0x10000),
        (0x1070, A),
        (0x1078, 0xf000f),
        (0x107c, walk.line_stride),
        (0x1080, stride28(walk.surf_stride)),
        (0x1084, size),
        (0x1088, ka),
        (0x1100, 0),
        (0x1104, 0),
        (0x1110, B),
    ]);
    list.extend((0x1140..=0x117c).step_by(4).map(|offset| write(offset, 0)));
    list.extend(words(&[
        (0x3010, 1),
        (0x3014, core),
        (0x3018, na - 1),
        (0x3030, 0),
        (0x400c, 0x1e4),
        (0x4010, 4 << 29),
        (0x4020, C),
        (0x4024, stride << 4),
        (0x4030, w - 1),
        (0x4034, h - 1),
        (0x4038, notch << 16 | notch),
        (0x403c, (na - 1) << 16 | (na - 1)),
        (0x4040, 0x53),
        (0x4050, 0x7fc),
        (0x4058, na - 1),
        (0x405c, (h - 1) << 16 | (w - 1)),
        (0x4060, 0x53),
        (0x4070, 0x383),
        (0x4084, 1),
        (0x40c0, add << 4),
    ]));
    trailer(&mut list, link, CONV);
    list
}

/// What the 108-word streams share, from CNA on.
struct Stream {
    con1: u32,
    grains: u32,
    size: u32,
    width: u32,
    m: u32,
    channels: u32,
    kernel_bytes: u32,
    n: u32,
    banks: u32,
    entries: u32,
    line_stride: u32,
    surf_stride: i32,
    misc: u32,
    core: u32,
    format: u32,
    /// Stride, width, height, notch, SURF_ADD.
    out: (u32, u32, u32, u32, u32),
    ow: u32,
    scale: u32,
    ew: u32,
}

impl Stream {
    fn words(&self, with_rdma: bool) -> Vec<Word> {
        let &Self { n, m, .. } = self;
        let cbuf = (12 - self.banks) << 4 | self.banks;
        let (stride, w, h, notch, add) = self.out;
        let mut list = words(&[
            (0x1040, cbuf),
            (0x1104, 0),
            (0x1100, 0),
            (0x100c, self.con1),
            (0x4004, 0xe),
        ]);
        if with_rdma {
            list.push(write(0x5004, 0xe));
        }
        list.extend(words(&[
            (0x100c, self.con1),
            (0x1010, self.grains << 4),
            (0x1014, 9),
            (0x1020, self.size),
            (0x1024, (self.channels - 1) << 16 | self.channels),
            (0x1028, self.width),
            (0x102c, m),
            (0x1030, self.kernel_bytes * n),
            (0x1034, self.kernel_bytes),
            (0x1038, 0x0101_0000 | n),
            (0x1040, cbuf),
            (0x1044, self.entries),
            (0x104c, 0xb),
            (0x1050, 0x10000),
            (0x1054, 0x10000),
            (0x1058, 0x10000),
            (0x105c, 0x10000),
            (0x1060, 0),
            (0x1064, 0),
            (0x1068, 0),
            (0x1070, A),
            (0x1074, 0),
            (0x1078, 0xf000f),
            (0x107c, self.line_stride),
            (0x1080, stride28(self.surf_stride)),
            (0x1084, self.size),
            (0x1088, self.channels),
            (0x1100, 0),
            (0x1104, 0),
            (0x1110, B),
        ]));
        list.extend((0x1140..=0x117c).step_by(4).map(|offset| write(offset, 0)));
        list.extend(words(&[
            (0x1180, 0),
            (0x1184, 0),
            (0x3010, self.misc),
            (0x3014, self.core),
            (0x3018, n - 1),
            (0x301c, 0),
            (0x3030, 0),
            (0x400c, 0x1e4),
            (0x4010, self.format),
            (0x4014, 0),
            (0x4020, C),
            (0x4024, stride << 4),
            (0x4030, w - 1),
            (0x4034, h - 1),
            (0x4038, notch << 16 | notch),
            (0x403c, (n - 1) << 16 | (n - 1)),
            (0x4040, 0x53),
            (0x4044, 0),
            (0x4048, 0),
            (0x404c, 0),
            (0x4050, self.ow),
            (0x4054, 0),
            (0x4058, n - 1),
            (0x405c, (h - 1) << 16 | (w - 1)),
            (0x4060, 0x53),
            (0x4064, 0),
            (0x4068, 0),
            (0x406c, 0),
            (0x4070, self.ew),
            (0x4074, 0),
            (0x4078, 1),
            (0x407c, 0),
            (0x4080, 0),
            (0x4084, self.scale),
            (0x4088, 0),
        ]));
        list.extend((0x4090..=0x40ac).step_by(4).map(|offset| write(offset, 0)));
        list.extend(words(&[(0x40c0, add << 4), (0x40c4, 0)]));
        list.extend((0x4100..=0x412c).step_by(4).map(|offset| write(offset, 0)));
        list
    }
}

fn size_e(e: u32, od_bypass: u32) -> u32 {
    e << 8 | e << 5 | e << 2 | od_bypass << 1
}

fn float_stream(bytes: u32, code: u32, dpu: u32, m: u32, k: u32, n: u32, layout: Layout) -> Stream {
    let ka_unit = 64 / bytes;
    let (ka, na) = (align(k, ka_unit), align(n, 32));
    let row = ka * bytes;
    let walk = walk(layout, m, row);
    Stream {
        con1: code << 4 | code << 7 | u32::from(walk.line_mode) << 29,
        grains: if layout == Layout::RowMajor { m + 1 } else { 2 },
        size: walk.width << 16 | walk.height,
        width: walk.width,
        m,
        channels: ka,
        kernel_bytes: row,
        n: na,
        banks: ceil_div(m * row, 32768).clamp(1, 11),
        entries: ceil_div(walk.width * ka, ka_unit),
        line_stride: walk.line_stride,
        surf_stride: walk.surf_stride,
        misc: code << 8,
        core: (walk.height - 1) << 16 | (walk.width - 1),
        format: dpu << 29 | dpu << 26 | dpu,
        out: output(layout, m, na * bytes / 16, bytes),
        ow: size_e(bytes - 1, 1),
        scale: if bytes == 4 { 1 } else { 0x10001 },
        ew: 0x383,
    }
}

fn float(bytes: u32, code: u32, dpu: u32, m: u32, k: u32, n: u32, layout: Layout) -> Vec<Word> {
    let mut list = float_stream(bytes, code, dpu, m, k, n, layout).words(false);
    trailer(&mut list, None, CONV);
    list
}

/// The product combined with a cube; the output has gaps of two atoms after
/// every two.
fn fused(m: u32, k: u32, n: u32, ew: u32) -> Vec<Word> {
    let (k, n) = (align(k, 32).max(align(n, 32)), align(n, 32));
    let stream = Stream {
        grains: even(ceil_div(65536, 2 * k)).max(80),
        misc: 0x201,
        // Rows as long as the groups with their gaps.
        out: (1, 1, m, n / 4 - 1, 4),
        ew,
        ..float_stream(2, 2, 2, m, k, n, Layout::RowMajor)
    };
    let mut list = stream.words(true);
    list.extend(words(&[
        (0x500c, 0),
        (0x5010, m - 1),
        (0x5014, n - 1),
        (0x5018, D),
        (0x501c, 0),
        (0x5020, 0),
        (0x5028, 0),
        (0x502c, 0),
        (0x5034, 0x4000_0008),
        (0x5038, D + 32 * m),
        (0x5040, m << 4),
        (0x5044, 0x17d40),
        (0x5048, 0),
        (0x504c, (2 * m) << 4),
        (0x5064, 0),
        (0x5068, 0x0101_0101),
        (0x506c, (2 * m) << 4),
    ]));
    trailer(&mut list, None, CONV_RDMA);
    list
}

fn int4(m: u32, k: u32, n: u32) -> Vec<Word> {
    let entries = m * ceil_div(k, 128);
    let stream = Stream {
        con1: 0x360,
        grains: 2,
        size: m << 16 | 1,
        width: m,
        m,
        channels: k,
        kernel_bytes: k / 2,
        n,
        banks: ceil_div(entries * 64, 32768),
        entries,
        line_stride: 4 * m,
        surf_stride: -3 * m as i32,
        misc: 0x601,
        core: m - 1,
        format: 0x3800_0006,
        out: (m, m, 1, 0, 8 * m),
        ow: 0x7fe,
        scale: 1,
        ew: 0x383,
    };
    let mut list = stream.words(false);
    trailer(&mut list, None, CONV);
    list
}
