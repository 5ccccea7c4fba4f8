// SPDX-License-Identifier: MIT OR Apache-2.0
//! Speeds: benchmarks, what `calibrate` measures, and the page of plots.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod html_report;
