// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where results go.

use std::ops::Range;

use half::f16;
use npu_kernels::half::to_f16;
use rayon::prelude::*;
use zerocopy::IntoBytes;

use crate::times::{Section, SectionTimes};

/// The memory that a product's results are made in.
pub(crate) trait ResultTarget: Send + Sync {
    /// An element.
    type Element: Send + Sync;

    /// All elements, row after row.
    fn elements(&mut self) -> &mut [Self::Element];

    /// Called when this part of the result, of rows of `stride` elements, will
    /// not change any more.
    fn complete(
        &mut self,
        clock: &SectionTimes,
        rows: Range<usize>,
        columns: Range<usize>,
        stride: usize,
    );
}

/// The caller's own.
impl<T: Send + Sync> ResultTarget for &mut [T] {
    type Element = T;

    fn elements(&mut self) -> &mut [T] {
        self
    }

    fn complete(&mut self, _: &SectionTimes, _: Range<usize>, _: Range<usize>, _: usize) {}
}

/// Sums in binary32 that become the caller's binary16, each rounded once.
pub(crate) struct Narrowed<'a> {
    sums: Vec<f32>,
    out: &'a mut [f16],
}

impl<'a> Narrowed<'a> {
    /// Sums for as many results.
    pub(crate) fn new(out: &'a mut [f16]) -> Self {
        Self {
            sums: vec![0.0; out.len()],
            out,
        }
    }
}

impl ResultTarget for Narrowed<'_> {
    type Element = f32;

    fn elements(&mut self) -> &mut [f32] {
        &mut self.sums
    }

    fn complete(
        &mut self,
        clock: &SectionTimes,
        rows: Range<usize>,
        columns: Range<usize>,
        stride: usize,
    ) {
        let part = rows.start * stride..rows.end * stride;
        let sums = self.sums[part.clone()].par_chunks(stride);
        let out = self.out[part].par_chunks_mut(stride);
        let watch = || clock.stopwatch(Section::Unpack);
        out.zip(sums).for_each_init(watch, |_, (out, sums)| {
            to_f16(&sums[columns.clone()], out[columns.clone()].as_mut_bytes());
        });
    }
}
