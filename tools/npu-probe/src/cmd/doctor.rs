// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe doctor`: checks whether this machine can use its NPU.

use crate::doctor::{self, SystemRoot};
use crate::exit::{Failure, NO_DEVICE};
use crate::flags::DoctorFlags;

/// Prints the report; the exit code is 3 if no NPU is usable.
pub(crate) fn run(doctor: &DoctorFlags) -> Result<u8, Failure> {
    let report = doctor::examine(&SystemRoot::new(&doctor.root, doctor.paste));
    doctor.report.print(&report, || match doctor.paste {
        true => report.paste(),
        false => report.text(),
    })?;
    Ok(if report.usable.is_some() {
        0
    } else {
        NO_DEVICE
    })
}
