// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiles that have run on silicon. The hardware rules allow larger tiles, but a tile that has never
//! run may be legal and still give wrong results.

use std::borrow::Cow;

use rknpu_regcmd::ChipProfile;
use serde::{Deserialize, Serialize};

use crate::numbers::dtype::Dtype;
use crate::numbers::layout::tile_task;

/// A tile size that has run; it also allows all smaller tiles.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredTile {
    /// Precision of the operands.
    pub dtype: Dtype,
    /// Rows of A.
    pub rows: usize,
    /// Input channels.
    pub k: usize,
    /// Output channels.
    pub n: usize,
    /// Evidence that it ran: an id of docs/evidence.md, or `calibrate` on the profile's own board.
    pub evidence: Cow<'static, str>,
}

impl MeasuredTile {
    /// Whether features and weights fit CBUF together, with one bank left if `spare`. All smaller
    /// tiles then fit, too.
    #[must_use]
    pub fn fits_cbuf(&self, spare: bool) -> bool {
        let task = tile_task(self.dtype, self.rows, self.k, self.n);
        task.fits_cbuf(spare, &ChipProfile::RK3588)
    }
}

/// Tiles that others ran on the mainline driver with checked results, in the fetch encoding of our
/// programs: tiles by lines in groups of four. Features and weights stay in CBUF. Nobody has streamed
/// weights through it on mainline (E-streamed-tiles), so only the profile of a board adds such tiles.
pub(super) fn published() -> Vec<MeasuredTile> {
    use Dtype::{Fp16, Int4, Int8};
    let tiles = [
        (Int8, [256, 640, 256], "E-resident-tiles"),
        (Int4, [256, 1408, 256], "E-resident-tiles"),
        (Int4, [64, 3840, 64], "E-resident-tiles"),
        (Fp16, [256, 384, 256], "E-resident-tiles"),
        (Fp16, [256, 512, 128], "E-resident-tiles"),
    ];
    let tile = |(dtype, [rows, k, n], evidence): (_, [usize; 3], _)| MeasuredTile {
        dtype,
        rows,
        k,
        n,
        evidence: Cow::Borrowed(evidence),
    };
    tiles.map(tile).into()
}
