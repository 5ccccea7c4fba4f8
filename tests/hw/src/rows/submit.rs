// SPDX-License-Identifier: MIT OR Apache-2.0
//! SUBMIT calls that are refused, or that have no jobs.

use rocket_uapi::{Errno, sys};

use crate::RowContext;
use crate::check::{RowOutcome, expect};
use crate::raw::File;
use crate::submit::{JobArgs, SubmitArgs};

/// The size of a job that the driver knows.
const JOB: u32 = size_of::<sys::Job>() as u32;

pub(super) fn no_jobs(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    for reserved in [0, 1] {
        let nothing = SubmitArgs {
            reserved,
            ..SubmitArgs::of(Vec::new())
        };
        let what = format!("SUBMIT of no jobs, reserved {reserved}");
        expect(&what, nothing.submit(&file), Ok(()))?;
    }
    Ok(())
}

pub(super) fn malformed(context: &RowContext) -> RowOutcome {
    let file = File::new(&context.device);
    for (job_struct_size, reserved) in [(0, 0), (8, 0), (JOB - 1, 0), (JOB, 1)] {
        // A job without a task would not run.
        let malformed = SubmitArgs {
            job_struct_size,
            reserved,
            ..SubmitArgs::of(vec![JobArgs::default()])
        };
        let what = format!("SUBMIT with a job size of {job_struct_size}, reserved {reserved}");
        expect(&what, malformed.submit(&file), Err(Errno::INVAL))?;
    }
    Ok(())
}
