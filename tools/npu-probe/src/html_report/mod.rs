// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe report`: renders the files of other commands as one HTML page.
//!
//! The page needs no network and no script. Files are not trusted: when they are read, all
//! their texts pass through [`text::shown`]; lengths are bounded, and the page shows what it
//! leaves out.

mod axis;
mod input;
mod page;
mod roofline;
mod sections;
mod text;
mod timeline;
mod trace;

#[cfg(test)]
mod tests;

pub(crate) use input::ReportInput;
pub(crate) use page::page;
