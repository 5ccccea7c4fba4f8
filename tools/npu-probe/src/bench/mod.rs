// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the speed of matmuls, for `npu-probe bench`.

mod measure;
mod report;

pub(crate) use measure::{MeasuredMatmul, Measurement};
pub(crate) use report::{BUILD, BenchReport, MeasuringConditions, to};
