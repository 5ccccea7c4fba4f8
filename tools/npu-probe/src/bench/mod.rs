// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast products are, for `npu-probe bench`.

mod measure;
mod report;

pub(crate) use measure::MeasuredProduct;
pub(crate) use report::{BenchReport, MeasuringConditions, to};
