// SPDX-License-Identifier: MIT OR Apache-2.0
//! The largest tiles of a plan: those that the profile's envelope allows. The built-in ones, which
//! an uncalibrated board uses, are in `profile/envelope.rs`.

use super::options::{PlanError, PlanOptions};
use super::tiles::{N_TILE_MAX, max_rows};
use crate::numbers::dtype::{Dtype, ROW_MULTIPLE};
use crate::profile::MeasuredTile;

impl PlanOptions {
    fn measured(
        &self,
        dtype: Dtype,
        of: impl Fn(&MeasuredTile) -> bool,
    ) -> impl Iterator<Item = &MeasuredTile> {
        let tiles = self.profile.envelope.iter();
        tiles.filter(move |tile| tile.dtype == dtype && of(tile))
    }

    /// Whether tiles of this precision may have weights that do not fit CBUF and stream through it.
    #[must_use]
    pub fn streams(&self, dtype: Dtype) -> bool {
        let streamed = |tile: &MeasuredTile| !tile.fits_cbuf(false);
        !self.keeps_to_envelope() || self.measured(dtype, streamed).next().is_some()
    }

    fn keeps_to_envelope(&self) -> bool {
        self.unmeasured_tiles == Some(false)
    }

    /// Most rows of a tile of depth `k`; 0 if no tile is so deep.
    pub(crate) fn rows_max(&self, dtype: Dtype, k: usize) -> usize {
        let legal = max_rows(dtype, k);
        if !self.keeps_to_envelope() {
            return legal;
        }
        let known = |tile: &MeasuredTile| tile.k >= k;
        let rows = self.measured(dtype, known).map(|tile| tile.rows);
        legal.min(rows.max().unwrap_or(0)) / ROW_MULTIPLE * ROW_MULTIPLE
    }

    /// Most output channels of a tile of depth `k` with this number of rows.
    pub(crate) fn n_max(&self, dtype: Dtype, k: usize, rows: usize) -> usize {
        if !self.keeps_to_envelope() {
            return N_TILE_MAX;
        }
        let known = |tile: &MeasuredTile| tile.k >= k && tile.rows >= rows;
        let group = dtype.kernel_group();
        let most = self.measured(dtype, known).map(|tile| tile.n).max();
        // `check_measured` rejects an unknown tile and names its size.
        (most.unwrap_or(0) / group * group).clamp(group, N_TILE_MAX)
    }

    /// Checks that a tile may have the size `[rows, k, n]`.
    pub(crate) fn check_measured(
        &self,
        dtype: Dtype,
        [m, k, n]: [usize; 3],
    ) -> Result<(), PlanError> {
        let large = |tile: &MeasuredTile| tile.rows >= m && tile.k >= k && tile.n >= n;
        if self.keeps_to_envelope() && self.measured(dtype, large).next().is_none() {
            return Err(PlanError::Unmeasured { dtype, m, k, n });
        }
        Ok(())
    }
}
