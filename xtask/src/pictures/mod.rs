// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pictures of docs/matmul.md.

mod layout;
mod pipeline;
mod tiles;

use anyhow::Result;

/// Fills of what belongs together: a device, a kind of work.
const FILLS: [&str; 3] = ["#dbe8f8", "#e3f2dc", "#fbe8d0"];

/// The pictures, by the file that each is.
pub(crate) fn all() -> Result<[(&'static str, String); 3]> {
    Ok([
        ("docs/layout.svg", layout::svg()),
        ("docs/tiles.svg", tiles::svg()?),
        ("docs/pipeline.svg", pipeline::svg()),
    ])
}
