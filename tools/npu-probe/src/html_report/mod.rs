// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe report`: one page of HTML made of the files that other commands write.
//!
//! The page needs no network and no script. Files may come from anybody: all of their
//! texts are [`text::ShownText`], lengths are bounded, and what is left out is told.

mod axis;
mod files;
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
