// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output tiles -> rows of the result: stored, added to what is there, or made
//! floats.
//!
//! The inverse of [`crate::pack`]: the tile holds one atom of each row, then
//! the next atom of each row. A few rows are read together, so that each cache
//! line of the tile is read once, and whatever becomes of its sums is done to
//! those of a line before they are written, so that no line of the result is
//! met twice.

mod lines;
mod partial;
mod scaled;

use std::array;

pub use lines::{Destination, Mode, ROWS, TileRows};
use lines::{LINE, Take, each_line};
pub use partial::{Partial, Split};
pub use scaled::{Scales, unpack_dequantised, unpack_scaled};

fastest! {
    /// Takes the sums of a tile to the rows of a result. What the tile does not
    /// have stays as it is there.
    pub fn unpack<T: Partial>(tile: TileRows<'_>, mode: Mode, to: Destination<'_, T::Sum>)
        = unpack_body;
}

#[inline(always)]
fn unpack_body<T: Partial>(tile: TileRows<'_>, mode: Mode, to: Destination<'_, T::Sum>) {
    match mode {
        Mode::Store => each_line(tile, to, &Plain(|x: T, _| x.widen())),
        Mode::Add => each_line(tile, to, &Plain(T::add_to)),
    }
}

/// Makes a result of an element and what was there.
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
