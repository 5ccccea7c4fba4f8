// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which the NPU's memory has the elements of a matrix.

use npu_matmul::Dtype;
use npu_matmul::layout::{activation, output, weight};
use rknpu_regcmd::MatmulType;

use super::FILLS;
use crate::svg::Svg;

/// A matrix, cut into the runs of a row that are in memory as they are in the
/// row.
struct Matrix {
    title: &'static str,
    /// What counts rows and columns.
    axes: [&'static str; 2],
    /// Runs of a column, and of a row.
    runs: [usize; 2],
    /// Elements of a run.
    length: usize,
    /// Rows whose runs follow each other.
    group: usize,
    /// A run in the picture, pixels.
    size: [u32; 2],
    corner: [u32; 2],
    /// First byte of an element.
    byte: fn(usize, usize) -> usize,
}

const ROWS: usize = 4;
const K: usize = 64;
const KERNELS: usize = 64;

const MATRICES: [Matrix; 3] = [
    Matrix {
        title: "A, int8: 4 rows, K = 64",
        axes: ["m", "k"],
        runs: [ROWS, 4],
        length: 16,
        group: ROWS,
        size: [72, 22],
        corner: [44, 48],
        byte: |m, k| activation(Dtype::Int8, ROWS, m, k).byte,
    },
    Matrix {
        title: "C, int32: 4 rows, N = 16",
        axes: ["m", "n"],
        runs: [ROWS, 4],
        length: 4,
        group: ROWS,
        size: [72, 22],
        corner: [44, 204],
        byte: |m, n| output(MatmulType::Int8ToInt32, ROWS, m, n),
    },
    Matrix {
        title: "B, int8: 64 kernels, K = 64",
        axes: ["n", "k"],
        runs: [KERNELS, 2],
        length: 32,
        group: Dtype::Int8.kernel_group(),
        size: [110, 4],
        corner: [430, 48],
        byte: |n, k| weight(Dtype::Int8, K, n, k).byte,
    },
];

impl Matrix {
    /// The runs, as row and column, in the order of memory.
    fn in_memory(&self) -> Vec<[usize; 2]> {
        let [rows, columns] = self.runs;
        let mut runs: Vec<_> = (0..rows)
            .flat_map(|row| (0..columns).map(move |column| [row, column]))
            .collect();
        runs.sort_by_key(|&run| self.first_byte(run));
        runs
    }

    fn first_byte(&self, [row, column]: [usize; 2]) -> usize {
        (self.byte)(row, column * self.length)
    }

    fn corner(&self, [row, column]: [usize; 2]) -> [u32; 2] {
        let [x, y] = self.corner;
        let [width, height] = self.size;
        [x + column as u32 * width, y + row as u32 * height]
    }

    fn draw(&self, svg: &mut Svg) {
        let ([x, y], [width, height]) = (self.corner, self.size);
        let [row_axis, column_axis] = self.axes;
        svg.note([x, y - 30], self.title);
        for column in 0..self.runs[1] {
            let [x, y] = self.corner([0, column]);
            let (from, to) = (column * self.length, (column + 1) * self.length);
            svg.text(
                [x + width / 2, y - 8],
                &format!("{column_axis} {from}..{to}"),
            );
        }
        let runs = self.in_memory();
        // What is cut into thin rows has its names and numbers a group apart.
        let step = if height < 20 { self.group } else { 1 };
        for run @ [row, column] in runs.iter().copied() {
            let [left, top] = self.corner(run);
            if row % step > 0 {
                continue;
            }
            let fill = FILLS[row / self.group % FILLS.len()];
            svg.rect([left, top], [width, step as u32 * height], fill, 1);
            let base = top + 15;
            if column == 0 {
                svg.text([x - 20, base], &format!("{row_axis} {row}"));
            }
            svg.text([left + 26, base], &self.first_byte(run).to_string());
        }
        let way = |&run: &[usize; 2]| {
            let [left, top] = self.corner(run);
            [left + width - 18, top + height / 2]
        };
        svg.path(&runs.iter().map(way).collect::<Vec<_>>());
    }
}

/// The picture.
pub(super) fn svg() -> String {
    let mut svg = Svg::new(672, 352);
    for matrix in &MATRICES {
        matrix.draw(&mut svg);
    }
    svg.note(
        [44, 340],
        "Numbers: first byte in memory. Line: the order of memory.",
    );
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run is one range of memory, and the next begins where it ends.
    #[test]
    fn runs_fill_memory() {
        for matrix in &MATRICES {
            let mut next = 0;
            let bytes = (matrix.byte)(0, 1);
            for [row, run] in matrix.in_memory() {
                for column in run * matrix.length..(run + 1) * matrix.length {
                    assert_eq!((matrix.byte)(row, column), next, "{}", matrix.title);
                    next += bytes;
                }
            }
        }
    }
}
