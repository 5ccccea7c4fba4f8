// SPDX-License-Identifier: MIT OR Apache-2.0
//! SUBMIT calls that are refused, or hold nothing.

use rocket_uapi::{Errno, sys};

use crate::Context;
use crate::check::{Outcome, expect, nothing};
use crate::raw::File;

/// The size of a job that the driver knows.
const JOB: u32 = size_of::<sys::Job>() as u32;

pub(super) fn no_jobs(context: &Context) -> Outcome {
    let file = File::new(&context.device)?;
    for reserved in [0, 1] {
        let what = format!("SUBMIT of no jobs, reserved {reserved}");
        let submitted = nothing(file.submit_empty(false, JOB, reserved));
        expect(&what, submitted, Ok(()))?;
    }
    Ok(())
}

pub(super) fn malformed(context: &Context) -> Outcome {
    let file = File::new(&context.device)?;
    for size in [0, 8, JOB - 1] {
        let what = format!("SUBMIT with a job size of {size}");
        let submitted = nothing(file.submit_empty(true, size, 0));
        expect(&what, submitted, Err(Errno::INVAL))?;
    }
    let submitted = nothing(file.submit_empty(true, JOB, 1));
    expect("SUBMIT with reserved 1", submitted, Err(Errno::INVAL))
}
