// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traps that only the values show, on their way to memory.

use std::cell::RefCell;

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::rules::{EXPONENT_WRAPS, INT16_SATURATES};

use crate::Effect;
use crate::dpu::ew::Ew;
use crate::dpu::out_cvt::ValueFaults;
use crate::trap::{DiagnosisReport, Stop};

/// The report of a task while its tiles are computed.
pub(crate) struct TileReport<'a> {
    report: RefCell<&'a mut DiagnosisReport>,
    regs: &'a RegisterFile,
}

impl<'a> TileReport<'a> {
    pub(crate) fn new(report: &'a mut DiagnosisReport, regs: &'a RegisterFile) -> Self {
        Self {
            report: RefCell::new(report),
            regs,
        }
    }

    /// Notes what a tile ran into, before it is stored.
    ///
    /// # Errors
    /// [`Stop::Hang`] where that ends the task.
    pub(crate) fn note(&self, faults: ValueFaults) -> Result<(), Stop> {
        if faults == ValueFaults::default() {
            return Ok(());
        }
        let mut report = self.report.borrow_mut();
        if faults.wrapped {
            // Signed functions run into it where they are 0, and their clients
            // replace those results on the CPU (librocketnpu).
            let effect = if Ew::looks_up(self.regs) {
                Effect::Note
            } else {
                Effect::Garbage
            };
            report.broken_with(&EXPONENT_WRAPS, effect, self.regs, "a value is too small")?;
        }
        if faults.saturated {
            report.broken(&INT16_SATURATES, self.regs, "a value is too large")?;
        }
        Ok(())
    }
}
