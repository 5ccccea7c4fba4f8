// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a core that its task borrows.

use super::Contested;
use super::cbuf::Cbuf;
use super::dma::Dma;
use super::dpu::lut::Lut;
use super::time;
use super::trap::DiagnosisReport;

pub(crate) struct CoreParts<'a> {
    pub(crate) dma: Dma<'a>,
    pub(crate) cbuf: &'a mut Cbuf,
    pub(crate) lut: &'a mut Lut,
    pub(crate) report: &'a mut DiagnosisReport,
    pub(crate) clock: &'a mut time::DeviceClock,
    pub(crate) contested: &'a Contested,
}
