// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a core that its tasks borrow.

use super::Contested;
use super::cbuf::Cbuf;
use super::dma::Dma;
use super::dpu::lut::Lut;
use super::registers::RegisterGroups;
use super::time::DeviceClock;
use super::trap::DiagnosisReport;

pub(crate) struct CoreParts<'a> {
    pub(crate) registers: &'a mut RegisterGroups,
    pub(crate) dma: Dma<'a>,
    pub(crate) cbuf: &'a mut Cbuf,
    pub(crate) lut: &'a mut Lut,
    pub(crate) report: &'a DiagnosisReport,
    pub(crate) clock: &'a mut DeviceClock,
    pub(crate) contested: Contested,
}
