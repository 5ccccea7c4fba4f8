// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks output tiles into rows of the result: stores them, adds them, or converts them to
//! floats.
//!
//! The inverse of [`crate::pack`]: a tile holds one atom of each row, then the next atom of each
//! row. The loops read a few rows together, so each cache line of the tile is read once. All work
//! on the sums of a line happens before they are written, so each line of the result is written
//! once.

mod lines;
mod partial;
mod scaled;

use std::array;

pub use lines::{Destination, Mode, ROWS, TileRows};
use lines::{LINE, Take, each_line};
pub use partial::Partial;
pub use scaled::{Scales, unpack_dequantised};

fastest! {
    /// Unpacks the sums of a tile into rows of a result. Elements outside the tile are unchanged.
    pub fn unpack<T: Partial>(tile: TileRows<'_>, mode: Mode, to: Destination<'_, T::Sum>) {
        match mode {
            Mode::Store => each_line(tile, to, &Plain(|x: T, _| x.widen())),
            Mode::Add => each_line(tile, to, &Plain(T::add_to)),
        }
    }
}

/// Combines an element with the old value.
struct Plain<F>(F);

impl<T: Copy, Out: Copy, F: Fn(T, Out) -> Out> Take<T, Out> for Plain<F> {
    type Columns = ();

    fn columns(&self, _: usize) {}

    #[inline(always)]
    fn take(&self, _: usize, (): &(), elements: [T; LINE], old: [Out; LINE]) -> [Out; LINE] {
        array::from_fn(|n| (self.0)(elements[n], old[n]))
    }
}

#[cfg(test)]
mod tests;
