// SPDX-License-Identifier: MIT OR Apache-2.0
//! Borrowed views of row-major matrices in host memory, and of blocks of them.

use std::ops::Range;

/// A view of a block of a row-major matrix.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatrixView<'a, T> {
    data: &'a [T],
    stride: usize,
    rows: usize,
    columns: usize,
}

impl<'a, T> MatrixView<'a, T> {
    /// A view of a whole matrix of `rows x columns`; `None` unless `data` has exactly that many
    /// elements.
    #[must_use]
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Option<Self> {
        let exact = rows.checked_mul(columns)? == data.len();
        Self::strided(data, rows, columns, columns).filter(|_| exact)
    }

    /// A view of rows that are `stride` elements apart; `None` if the last one ends behind `data`.
    #[must_use]
    pub fn strided(data: &'a [T], rows: usize, columns: usize, stride: usize) -> Option<Self> {
        if let Some(last) = rows.checked_sub(1) {
            let end = last.checked_mul(stride)?.checked_add(columns)?;
            data.get(..end)?;
        }
        Some(Self {
            data,
            stride,
            rows,
            columns,
        })
    }

    /// Whether both are the same part of the same memory, not only equal numbers.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let Self {
            data,
            stride,
            rows,
            columns,
        } = *self;
        std::ptr::eq(data, other.data)
            && [stride, rows, columns] == [other.stride, other.rows, other.columns]
    }

    /// The part of this view in both ranges, clipped to the view.
    #[must_use]
    pub fn block(&self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let row_end = rows.end.min(self.rows);
        let row_start = rows.start.min(row_end);
        let column_end = columns.end.min(self.columns);
        let column_start = columns.start.min(column_end);
        // An empty block may begin behind the last element.
        let start = row_start
            .saturating_mul(self.stride)
            .saturating_add(column_start);
        Self {
            data: self.data.get(start..).unwrap_or_default(),
            rows: row_end - row_start,
            columns: column_end - column_start,
            ..*self
        }
    }

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Row `row`; empty if out of range.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [T] {
        if row >= self.rows {
            return &[];
        }
        &self.data[row * self.stride..][..self.columns]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_clipped() {
        let data: Vec<u32> = (0..12).collect();
        let matrix = MatrixView::new(&data, 3, 4).unwrap();
        assert!(MatrixView::new(&data, 3, 5).is_none());
        let block = matrix.block(1..9, 2..9);
        assert_eq!((block.rows(), block.columns()), (2, 2));
        assert_eq!(block.row(0), [6, 7]);
        assert_eq!(block.row(1), [10, 11]);
        assert_eq!(block.row(2), [0; 0]);
        assert_eq!(block.block(1..2, 1..2).row(0), [11]);
        let empty = matrix.block(5..9, 0..4);
        assert_eq!((empty.rows(), empty.row(0)), (0, &[][..]));
        let no_columns = matrix.block(2..3, 4..9);
        assert_eq!((no_columns.columns(), no_columns.row(0)), (0, &[][..]));
    }

    #[test]
    fn rows_apart() {
        let data: Vec<u32> = (0..12).collect();
        let matrix = MatrixView::strided(&data, 3, 2, 5).unwrap();
        assert_eq!((matrix.row(1), matrix.row(2)), (&[5, 6][..], &[10, 11][..]));
        assert_eq!(matrix.block(1..3, 1..2).row(1), [11]);
        assert!(MatrixView::strided(&data, 3, 3, 5).is_none());
        assert!(MatrixView::strided(&data, usize::MAX, 3, 5).is_none());
        assert!(MatrixView::strided(&data, 0, 30, 5).is_some());
    }
}
