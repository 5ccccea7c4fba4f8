// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 products whose operands are row-major, native or in panels: all
//! combinations that happyme531 measured.

use rknpu_regcmd::Word;

use super::board::Board;
use super::programs::MatType;
use super::tensor::{Numbers, check, dot, pack_b};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    RowMajor,
    Native,
    /// Rows `first..` of a native cube of `rows` rows.
    Split {
        rows: usize,
        first: usize,
    },
    Panel(usize),
}

impl Layout {
    /// Byte offset of element (row, column) of a matrix of `rows` rows and
    /// `columns` columns; an atom holds `per_atom` elements of `size` bytes.
    fn offset(
        self,
        (rows, columns): (usize, usize),
        (row, column): (usize, usize),
        per_atom: usize,
        size: usize,
    ) -> usize {
        let (block, rest) = (column / per_atom, (column % per_atom) * size);
        match self {
            Self::RowMajor => (row * columns + column) * size,
            Self::Native => (block * rows + row) * 16 + rest,
            Self::Split { rows, first } => (block * rows + first + row) * 16 + rest,
            Self::Panel(w) => {
                let panel = (row / w) * (columns / per_atom) * w;
                (panel + block * w + row % w) * 16 + rest
            }
        }
    }

    /// Rows of the whole matrix.
    fn rows(self, m: usize) -> usize {
        match self {
            Self::Split { rows, .. } => rows,
            _ => m,
        }
    }

    /// Where the first row of the task is.
    fn base(self) -> u32 {
        match self {
            Self::Split { first, .. } => first as u32 * 16,
            _ => 0,
        }
    }
}

fn program(
    from: Layout,
    to: Layout,
    (m, k, n): (usize, usize, usize),
    (a, b, c): (u32, u32, u32),
) -> Vec<Word> {
    let (mw, kw, nw) = (m as u32, k as u32, n as u32);
    let mut conv = MatType::Int8Int32.matmul(mw, kw, nw, (a + from.base(), b, c + to.base()));
    conv.qd = 1;
    conv.od_bypass = 0;
    let even = |x: u32| (x + 1) & !1;
    match from {
        Layout::RowMajor => {
            conv.group_line_off = true;
            conv.entries = kw.div_ceil(64);
            conv.line_stride = kw / 16;
            conv.surf_stride = 0;
            conv.grains = even(65536u32.div_ceil(kw)).min(mw + 1);
        }
        Layout::Native | Layout::Split { .. } => {
            conv.input = (mw, 1, kw);
            conv.output = (mw, 1, nw);
            conv.entries = (mw * kw).div_ceil(64);
            conv.grains = 2;
            if let Layout::Split { rows, .. } = from {
                conv.group_line_off = true;
                conv.line_stride = rows as u32;
                conv.surf_stride = rows as i32 - m as i32;
            } else {
                conv.line_stride = 0x200;
                conv.surf_stride = -3 * m as i32;
            }
        }
        Layout::Panel(w) => {
            let w = w as u32;
            conv.group_line_off = true;
            conv.input = (w, mw / w, kw);
            conv.output = (w, mw / w, nw);
            conv.entries = (w * kw).div_ceil(64);
            conv.line_stride = w * kw / 16;
            conv.surf_stride = 0;
            conv.grains = even(65536u32.div_ceil(w * kw)).min(mw / w + 1).max(1);
        }
    }
    conv.writer = match to {
        Layout::RowMajor => (1, mw, 1, nw / 4 - 1, 8),
        Layout::Native => (mw, 1, mw, 0, 8 * mw),
        Layout::Split { rows, .. } => (mw, 1, rows as u32, 0, 8 * rows as u32),
        Layout::Panel(w) => {
            let w = w as u32;
            (w, mw / w, w, (nw / 4 - 1) * w, 8 * w)
        }
    };
    conv.program()
}

fn try_layouts(from: Layout, to: Layout, (m, k, n): (usize, usize, usize)) {
    let ty = MatType::Int8Int32;
    let mut numbers = Numbers::new((m * k * n) as u64);
    let a: Vec<f64> = (0..m * k).map(|_| numbers.int(-128, 127) as f64).collect();
    let b: Vec<f64> = (0..n * k).map(|_| numbers.int(-128, 127) as f64).collect();
    let mut packed = vec![0u8; from.rows(m) * k];
    for (i, &v) in a.iter().enumerate() {
        let at = from.offset((from.rows(m), k), (i / k, i % k), 16, 1);
        packed[at] = v as i8 as u8;
    }
    let mut board = Board::strict(4 << 20);
    let at = (
        board.place(&packed),
        board.place(&pack_b(ty, k, &b)),
        board.reserve(to.rows(m) * n * 4),
    );
    let words = program(from, to, (m, k, n), at);
    board.run(&words).assert_clean();
    let c = board.bytes(at.2, to.rows(m) * n * 4);
    for row in 0..m {
        for col in 0..n {
            let at = to.offset((to.rows(m), n), (row, col), 4, 4);
            let place = format!("{from:?} to {to:?} at ({row}, {col})");
            check(ty, &c[at..at + 4], dot(&a, &b, k, row, col), &place);
        }
    }
}

#[test]
fn all_combinations_of_layouts() {
    let layouts = [
        Layout::RowMajor,
        Layout::Native,
        Layout::Split { rows: 24, first: 8 },
        Layout::Panel(8),
    ];
    for from in layouts {
        for to in layouts {
            try_layouts(from, to, (16, 96, 64));
        }
    }
}

#[test]
fn one_row_of_a_matrix() {
    for from in [Layout::RowMajor, Layout::Native] {
        try_layouts(from, Layout::RowMajor, (1, 256, 96));
    }
}
