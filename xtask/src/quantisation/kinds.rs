// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways to quantise that docs/quantisation.md compares, a row each.

use npu_matmul::quantise::search::Search;
use npu_matmul::quantise::{Operands, QuantiseOptions};

/// A way to quantise.
#[derive(Clone, Copy)]
pub(super) struct QuantiseVariant {
    /// Name of the row.
    pub(super) name: &'static str,
    pub(super) options: QuantiseOptions,
}

impl QuantiseVariant {
    /// A scale for each channel, and nothing else.
    fn new(name: &'static str, operands: Operands) -> Self {
        let options = QuantiseOptions {
            operands,
            ..QuantiseOptions::default()
        };
        Self { name, options }
    }

    fn k_group(mut self, channels: usize) -> Self {
        self.options.k_group = Some(channels);
        self
    }

    fn search(mut self, search: Search) -> Self {
        self.options.search = search;
        self
    }

    fn rotated(mut self) -> Self {
        self.options.rotated = true;
        self
    }

    /// The products that the NPU computes, as a cell of the table.
    pub(super) fn products(&self) -> String {
        let operands = self.options.operands;
        let dtype = operands.dtype().to_string().to_uppercase();
        format!("{} {dtype}", operands.passes())
    }
}

/// All variants of the table, in its order.
pub(super) fn all() -> Vec<QuantiseVariant> {
    use Operands::{W4A4, W4A8, W8A8};
    let of = QuantiseVariant::new;
    vec![
        of("W8A8", W8A8),
        of("W8A8, least square error", W8A8).search(Search::MeanSquare),
        of("W8A8, groups of 512", W8A8).k_group(512),
        of("W8A8, groups of 128", W8A8).k_group(128),
        of("W8A8, rotated", W8A8).rotated(),
        of("W4A8", W4A8),
        of("W4A8, least square error", W4A8).search(Search::MeanSquare),
        of("W4A8, groups of 128", W4A8).k_group(128),
        of("W4A8, rotated", W4A8).rotated(),
        of("W4A8, rotated, least square error", W4A8)
            .rotated()
            .search(Search::MeanSquare),
        of("W4A8, rotated, groups of 128", W4A8)
            .rotated()
            .k_group(128),
        of("W4A4", W4A4),
        of("W4A4, rotated", W4A4).rotated(),
        of("W4A4, rotated, groups of 128", W4A4)
            .rotated()
            .k_group(128),
    ]
}
