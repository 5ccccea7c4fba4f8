// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traps that only the values show, on their way to memory.

use std::cell::RefCell;

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;

use super::shown;
use crate::Effect;
use crate::dpu::ew::Ew;
use crate::dpu::out_cvt::Noticed;
use crate::trap::{Report, Stop};

/// The report of a task while its tiles are computed.
pub(crate) struct Watch<'a> {
    report: RefCell<&'a mut Report>,
    regs: &'a RegisterFile,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(report: &'a mut Report, regs: &'a RegisterFile) -> Self {
        Self {
            report: RefCell::new(report),
            regs,
        }
    }

    /// Notes what a tile ran into, before it is stored.
    ///
    /// # Errors
    /// [`Stop::Hang`] where that ends the task.
    pub(crate) fn note(&self, noticed: Noticed) -> Result<(), Stop> {
        if noticed == Noticed::default() {
            return Ok(());
        }
        let mut report = self.report.borrow_mut();
        let show = [
            shown::<dpu::OutCvtShift>(self.regs),
            shown::<dpu::OutCvtOffset>(self.regs),
            shown::<dpu::DataFormat>(self.regs),
        ];
        if noticed.wrapped {
            // Signed functions run into it where they are 0, and their clients
            // replace those results on the CPU (librocketnpu).
            let effect = if Ew::looks_up(self.regs) {
                Effect::Note
            } else {
                Effect::Garbage
            };
            report.note(
                "T52-exponent-wraps",
                effect,
                &show,
                "the exponent of a value is below MINUS_EXP and wraps: a zero becomes \
                 2^(17 - MINUS_EXP)",
                "choose table entries and OUT_CVT_OFFSET so that their sum is never 0 or tiny, \
                 or replace the results where the function is about 0 on the CPU",
            )?;
        }
        if noticed.saturated {
            report.note(
                "T38-int16-saturates",
                Effect::Note,
                &show[2..],
                "a sum did not fit the int16 of the output and was cut to its limit",
                "keep K of int4 products at 511 or below (668 for operands of -7 to 7)",
            )?;
        }
        Ok(())
    }
}
