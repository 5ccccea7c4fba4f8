// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 matmuls whose operands are row-major, native or in panels: all
//! combinations that happyme531 measured.

use families::happyme::{RowLayout, int8};
use families::matmul::INT8_INT32;

use super::board::Board;
use super::board_matmul::{Size, shape};
use super::convolution::Tensors;
use super::tensor::{Numbers, check};

/// A matrix in memory; the task takes rows `first..` of it.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    layout: RowLayout,
    rows: usize,
    columns: usize,
    first: usize,
    /// Elements of an atom.
    per_atom: usize,
}

impl Matrix {
    /// Index of element (row, column) of the task.
    fn index(&self, row: usize, column: usize) -> usize {
        // A row-major matrix has panels of one row, a native cube has one panel.
        let w = match self.layout {
            RowLayout::RowMajor => 1,
            RowLayout::Native(w) | RowLayout::Panel(w) => w as usize,
        };
        let (row, block) = (self.first + row, column / self.per_atom);
        let atom = (row / w * (self.columns / self.per_atom) + block) * w + row % w;
        atom * self.per_atom + column % self.per_atom
    }

    fn len(&self) -> usize {
        self.rows * self.columns
    }
}

/// Checks a matmul with layouts, and first rows, of A and of the result.
fn try_layouts(from: (RowLayout, usize), to: (RowLayout, usize), (m, k, n): Size) {
    let matrix = |(layout, first), columns, per_atom| Matrix {
        layout,
        rows: match layout {
            RowLayout::Native(rows) => rows as usize,
            _ => m,
        },
        columns,
        first,
        per_atom,
    };
    let (source, target) = (matrix(from, k, 16), matrix(to, n, 4));
    let mut numbers = Numbers::new((m * k * n) as u64);
    let values = |len| numbers.values(INT8_INT32, len);
    let tensors = Tensors::new(&shape((m, k, n)), false, values);
    let mut packed = vec![0u8; source.len()];
    for (i, &value) in tensors.input.iter().enumerate() {
        packed[source.index(i % m, i / m)] = value as i8 as u8;
    }
    let mut board = Board::strict(4 << 20);
    let mut conv = int8((m as u32, k as u32, n as u32), from.0, to.0);
    conv.a = board.place(&packed) + 16 * from.1 as u32;
    conv.b = board.place(&tensors.stream(INT8_INT32));
    let c = board.reserve(target.len() * 4);
    conv.c = c + 16 * to.1 as u32;
    board.run(&conv.task()).assert_clean();
    let c = board.bytes(c, target.len() * 4);
    for (col, row) in tensors.outputs() {
        let place = format!("{from:?} to {to:?} at ({row}, {col})");
        let sum = tensors.sum(col, row, |_| 0.0, 0.0);
        check(INT8_INT32, &c, target.index(row, col), sum, &place);
    }
}

#[test]
fn all_combinations_of_layouts() {
    let layouts = [
        (RowLayout::RowMajor, 0),
        (RowLayout::Native(16), 0),
        (RowLayout::Native(24), 8),
        (RowLayout::Panel(8), 0),
    ];
    for from in layouts {
        for to in layouts {
            try_layouts(from, to, (16, 96, 64));
        }
    }
}

#[test]
fn one_row_of_a_matrix() {
    for from in [RowLayout::RowMajor, RowLayout::Native(1)] {
        try_layouts((from, 0), (RowLayout::RowMajor, 0), (1, 256, 96));
    }
}
