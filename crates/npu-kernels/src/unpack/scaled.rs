// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks output tiles into rows of floats.

use std::array;

use super::lines::{Destination, LINE, Mode, Take, TileRows, each_line};
use super::partial::Partial;

/// The scales of a result. Elements without a scale become NaN.
#[derive(Clone, Copy, Debug)]
pub struct Scales<'a> {
    /// Scales of the destination's rows, starting at its first.
    pub rows: &'a [f32],
    /// Scales of the destination's columns, starting at its first.
    pub columns: &'a [f32],
}

impl Scales<'_> {
    #[inline(always)]
    fn row(&self, row: usize) -> f64 {
        self.rows.get(row).copied().unwrap_or(f32::NAN).into()
    }

    #[inline(always)]
    fn columns(&self, first: usize) -> [f64; LINE] {
        let scales = self.columns.get(first..).unwrap_or_default();
        if let Some(scales) = scales.first_chunk::<LINE>() {
            return scales.map(f64::from);
        }
        let mut all = [f64::NAN; LINE];
        for (to, &scale) in all.iter_mut().zip(scales) {
            *to = scale.into();
        }
        all
    }
}

/// A number times two scales. It multiplies in f64, because partial results may leave the range of
/// f32 even if the result is within it.
#[inline(always)]
fn scaled(number: f64, row_scale: f64, column_scale: f64) -> f32 {
    (number * row_scale * column_scale) as f32
}

fastest! {
    /// As [`unpack`](super::unpack), for the last K tile. Each result is then replaced by the bits
    /// of its float, the sum times its two scales, in the same memory.
    pub fn unpack_dequantised<T: Partial<Sum = i32>>(
        tile: TileRows<'_>,
        mode: Mode,
        scales: Scales<'_>,
        to: Destination<'_, i32>,
    ) {
        let bits = |sum: i32, row, column| scaled(sum.into(), row, column).to_bits().cast_signed();
        let store = |x: T, _, row, column| bits(x.widen(), row, column);
        let add = |x: T, old, row, column| bits(x.add_to(old), row, column);
        match mode {
            Mode::Store => each_line(tile, to, &Scaling { scales, take: store }),
            Mode::Add => each_line(tile, to, &Scaling { scales, take: add }),
        }
    }
}

/// Combines an element, the old value, and the scales of row and column.
struct Scaling<'a, F> {
    scales: Scales<'a>,
    take: F,
}

impl<T: Copy, Out: Copy, F: Fn(T, Out, f64, f64) -> Out> Take<T, Out> for Scaling<'_, F> {
    type Columns = [f64; LINE];

    #[inline(always)]
    fn columns(&self, first: usize) -> [f64; LINE] {
        self.scales.columns(first)
    }

    #[inline(always)]
    fn take(
        &self,
        row: usize,
        columns: &[f64; LINE],
        elements: [T; LINE],
        old: [Out; LINE],
    ) -> [Out; LINE] {
        let row_scale = self.scales.row(row);
        array::from_fn(|n| (self.take)(elements[n], old[n], row_scale, columns[n]))
    }
}
