// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ways to quantise that docs/quantisation.md compares, a row each.

use npu_matmul::quantise::rotate::Rotation;
use npu_matmul::quantise::search::Search;
use npu_matmul::quantise::{Operands, Outliers, QuantiseOptions, Scheme, outlier_columns};

use super::data::{K, OperandMatrices};

/// A column is an outlier beyond so many times the median column.
const THRESHOLD: f32 = 6.0;

/// A way to quantise.
pub(super) struct QuantiseVariant {
    /// Name of the row.
    pub(super) name: &'static str,
    pub(super) operands: Operands,
    pub(super) scheme: Scheme,
    pub(super) search: Search,
    pub(super) rotated: bool,
    pub(super) beside: Fp16Columns,
}

/// Columns of A that are kept in FP16, beside the quantised product, since they are
/// outliers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fp16Columns {
    None,
    Calibrated,
    ByCall,
}

impl QuantiseVariant {
    /// A scale for each channel, and nothing else.
    const fn new(name: &'static str, operands: Operands) -> Self {
        Self {
            name,
            operands,
            scheme: Scheme::PerChannel,
            search: Search::AbsMax,
            rotated: false,
            beside: Fp16Columns::None,
        }
    }

    const fn scheme(self, scheme: Scheme) -> Self {
        Self { scheme, ..self }
    }

    const fn search(self, search: Search) -> Self {
        Self { search, ..self }
    }

    const fn rotated(self) -> Self {
        Self {
            rotated: true,
            ..self
        }
    }

    const fn beside(self, beside: Fp16Columns) -> Self {
        Self { beside, ..self }
    }

    /// The engine's options for products of `data`; what is calibrated is calibrated
    /// with it.
    pub(super) fn options(&self, data: &OperandMatrices) -> QuantiseOptions {
        QuantiseOptions {
            operands: self.operands,
            scheme: self.scheme,
            search: self.search,
            rotation: self.rotated.then(|| Rotation::new(K, 7)).flatten(),
            outliers: match self.beside {
                Fp16Columns::None => Outliers::Quantised,
                Fp16Columns::Calibrated => {
                    Outliers::Columns(outlier_columns(&data.a, K, THRESHOLD))
                }
                Fp16Columns::ByCall => Outliers::Above(THRESHOLD),
            },
        }
    }

    /// The products that the NPU computes, as a cell of the table.
    pub(super) fn products(&self) -> String {
        let dtype = self.operands.dtype().to_string().to_uppercase();
        let beside = match self.beside {
            Fp16Columns::None => "",
            Fp16Columns::Calibrated | Fp16Columns::ByCall => " + 1 FP16",
        };
        format!("{} {dtype}{beside}", self.operands.passes())
    }
}

/// All variants of the table, in its order.
pub(super) fn all() -> Vec<QuantiseVariant> {
    use Operands::{W4A4, W4A8, W8A8};
    let of = QuantiseVariant::new;
    let groups = Scheme::PerKGroup;
    vec![
        of("W8A8, per tensor", W8A8).scheme(Scheme::PerTensor),
        of("W8A8", W8A8),
        of("W8A8, least square error", W8A8).search(Search::MeanSquare),
        of("W8A8, groups of 512", W8A8).scheme(groups(512)),
        of("W8A8, groups of 128", W8A8).scheme(groups(128)),
        of("W8A8, rotated", W8A8).rotated(),
        of("W8A8, outlier columns", W8A8).beside(Fp16Columns::Calibrated),
        of("W8A8, outliers by call", W8A8).beside(Fp16Columns::ByCall),
        of("W4A8", W4A8),
        of("W4A8, 99.9 % percentile", W4A8).search(Search::Percentile(0.999)),
        of("W4A8, least square error", W4A8).search(Search::MeanSquare),
        of("W4A8, least divergence", W4A8).search(Search::KullbackLeibler),
        of("W4A8, groups of 128", W4A8).scheme(groups(128)),
        of("W4A8, rotated", W4A8).rotated(),
        of("W4A8, rotated, least square error", W4A8)
            .rotated()
            .search(Search::MeanSquare),
        of("W4A8, rotated, groups of 128", W4A8)
            .rotated()
            .scheme(groups(128)),
        of("W4A8, outlier columns, least square error", W4A8)
            .beside(Fp16Columns::Calibrated)
            .search(Search::MeanSquare),
        of("W4A4", W4A4),
        of("W4A4, rotated", W4A4).rotated(),
        of("W4A4, rotated, groups of 128", W4A4)
            .rotated()
            .scheme(groups(128)),
    ]
}
