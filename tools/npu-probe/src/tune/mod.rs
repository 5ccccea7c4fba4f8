// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of several plans of a product is the fastest, for `npu-probe tune`.

mod measure;
mod modelled;
mod report;

pub(crate) use measure::PlanTuning;
pub(crate) use report::TuneReport;
