// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output tiles -> rows of floats.

use std::array;

use super::{Destination, LINE, Mode, Partial, Take, TileRows, each_line};
use crate::dequantise::{add_scaled, scaled};

/// The scales of a result. What has none becomes NaN.
#[derive(Clone, Copy, Debug)]
pub struct Scales<'a> {
    /// Of the destination's first row, and so on.
    pub rows: &'a [f32],
    /// How far the scales of two rows are apart.
    pub row_step: usize,
    /// Of column 0 of the destination, and so on.
    pub columns: &'a [f32],
}

impl Scales<'_> {
    #[inline(always)]
    fn row(&self, row: usize) -> f64 {
        self.rows
            .get(row * self.row_step)
            .copied()
            .unwrap_or(f32::NAN)
            .into()
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

fastest! {
    /// As [`unpack`](super::unpack) for the last K tile: then each result is
    /// replaced by the bits of the float that it stands for,
    /// [`dequantise`](crate::dequantise::dequantise)d. The memory is that of the
    /// floats.
    pub fn unpack_dequantised<T: Partial<Sum = i32>>(
        tile: TileRows<'_>,
        mode: Mode,
        scales: Scales<'_>,
        to: Destination<'_, i32>,
    ) = unpack_dequantised_body;
}

#[inline(always)]
fn unpack_dequantised_body<T: Partial<Sum = i32>>(
    tile: TileRows<'_>,
    mode: Mode,
    scales: Scales<'_>,
    to: Destination<'_, i32>,
) {
    match mode {
        Mode::Store => each_line::<T, _, _>(tile, to, &Dequantise::<false>(scales)),
        Mode::Add => each_line::<T, _, _>(tile, to, &Dequantise::<true>(scales)),
    }
}

/// Elements, with what is there if `ADD`, become bits of floats.
struct Dequantise<'a, const ADD: bool>(Scales<'a>);

impl<T: Partial<Sum = i32>, const ADD: bool> Take<T, i32> for Dequantise<'_, ADD> {
    type Columns = [f64; LINE];

    #[inline(always)]
    fn columns(&self, first: usize) -> [f64; LINE] {
        self.0.columns(first)
    }

    #[inline(always)]
    fn take(
        &self,
        row: usize,
        columns: &[f64; LINE],
        elements: [T; LINE],
        old: [i32; LINE],
    ) -> [i32; LINE] {
        let row_scale = self.0.row(row);
        array::from_fn(|n| {
            let sum = if ADD {
                elements[n].add_to(old[n])
            } else {
                elements[n].widen()
            };
            let float = scaled(sum.into(), row_scale, columns[n]);
            float.to_bits().cast_signed()
        })
    }
}

fastest! {
    /// Takes the sums of a tile, each times its two scales, to the rows of a
    /// result; added to what is there, each is rounded to f32 once. What the tile
    /// does not have stays as it is there.
    pub fn unpack_scaled<T: Partial<Sum: Into<f64>>>(
        tile: TileRows<'_>,
        mode: Mode,
        scales: Scales<'_>,
        to: Destination<'_, f32>,
    ) = unpack_scaled_body;
}

#[inline(always)]
fn unpack_scaled_body<T: Partial<Sum: Into<f64>>>(
    tile: TileRows<'_>,
    mode: Mode,
    scales: Scales<'_>,
    to: Destination<'_, f32>,
) {
    match mode {
        Mode::Store => each_line::<T, _, _>(tile, to, &Scaled::<false>(scales)),
        Mode::Add => each_line::<T, _, _>(tile, to, &Scaled::<true>(scales)),
    }
}

/// Elements times their scales become results, or are added to them if `ADD`.
struct Scaled<'a, const ADD: bool>(Scales<'a>);

impl<T: Partial<Sum: Into<f64>>, const ADD: bool> Take<T, f32> for Scaled<'_, ADD> {
    type Columns = [f64; LINE];

    #[inline(always)]
    fn columns(&self, first: usize) -> [f64; LINE] {
        self.0.columns(first)
    }

    #[inline(always)]
    fn take(
        &self,
        row: usize,
        columns: &[f64; LINE],
        elements: [T; LINE],
        old: [f32; LINE],
    ) -> [f32; LINE] {
        let row_scale = self.0.row(row);
        array::from_fn(|n| {
            let number = elements[n].widen().into();
            if ADD {
                add_scaled(old[n], number, row_scale, columns[n])
            } else {
                scaled(number, row_scale, columns[n])
            }
        })
    }
}
