// SPDX-License-Identifier: MIT OR Apache-2.0
//! PREP_BO and FINI_BO: giving a buffer object to the CPU and back.

use std::time::{Duration, Instant};

use rocket_uapi::{Deadline, Errno};

use super::create::UNKNOWN_HANDLE;
use crate::RowContext;
use crate::busy::{Busy, PATIENCE, SHORT, patience};
use crate::check::{Must, RowOutcome, ensure, expect, refused};
use crate::raw::File;
use crate::signal::under_signals;

const FOREVER: i64 = i64::MAX;

/// Deadlines that have passed whenever this runs.
const PAST: [i64; 4] = [0, 1, -1, i64::MIN];

/// The longest unit of the driver's deadlines: a tick at CONFIG_HZ=100.
const JIFFY: Duration = Duration::from_millis(10);

/// Signals that a wait gets before it may end.
const SIGNALS: usize = 4;

pub(super) fn reserved(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(1).must("CREATE_BO")?;
    for handle in [bo.handle, UNKNOWN_HANDLE] {
        refused("PREP_BO", file.prep_reserved(handle, 1, 0), Errno::INVAL)?;
        refused("FINI_BO", file.fini(handle, 1), Errno::INVAL)?;
    }
    Ok(())
}

pub(super) fn unknown_handle(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for handle in [0, UNKNOWN_HANDLE] {
        refused("PREP_BO", file.prep(handle, 0), Errno::NOENT)?;
        refused("FINI_BO", file.fini(handle, 0), Errno::NOENT)?;
    }
    Ok(())
}

pub(super) fn fini_any_state(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(1).must("CREATE_BO")?;
    for what in ["FINI_BO without PREP_BO", "FINI_BO again"] {
        expect(what, file.fini(bo.handle, 0), Ok(()))?;
    }
    let busy = Busy::start(&context.device)?;
    for handle in [busy.output, busy.input] {
        expect("FINI_BO of a busy BO", file.fini(handle, 0), Ok(()))?;
    }
    still_busy(&file, &busy)?;
    busy.finish()
}

pub(super) fn idle(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let bo = file.create(1).must("CREATE_BO")?;
    for timeout in PAST.into_iter().chain([FOREVER]) {
        let what = format!("PREP_BO until {timeout}");
        expect(&what, file.prep(bo.handle, timeout), Ok(()))?;
    }
    Ok(())
}

pub(super) fn busy_past(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let busy = Busy::start(&context.device)?;
    for timeout in PAST {
        let what = format!("PREP_BO until {timeout}");
        refused(&what, file.prep(busy.output, timeout), Errno::BUSY)?;
    }
    busy.finish()
}

pub(super) fn busy_future(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let busy = Busy::start(&context.device)?;
    let mut moment = SHORT;
    let (prep, waited) = loop {
        let start = Instant::now();
        let deadline = Deadline::after(moment);
        let prep = file.prep(busy.output, deadline.as_nanos());
        let waited = start.elapsed();
        // On a busy machine the deadline may have passed before the driver
        // looked at it, or the tick from which it counts was late.
        let again = prep == Err(Errno::BUSY) || waited + JIFFY < moment;
        if !again || moment > PATIENCE {
            break (prep, waited);
        }
        moment *= 4;
    };
    refused("PREP_BO for a moment", prep, Errno::TIMEDOUT)?;
    ensure(
        &format!("it waits for at least {moment:?}, not {waited:?}"),
        waited + JIFFY >= moment,
    )?;
    still_busy(&file, &busy)?;
    busy.finish()
}

pub(super) fn busy_forever(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let busy = Busy::start(&context.device)?;
    still_busy(&file, &busy)?;
    let prep = busy.let_go_during(|| file.prep(busy.output, FOREVER))?;
    expect("PREP_BO", prep, Ok(()))?;
    expect("PREP_BO after the wait", file.prep(busy.output, 0), Ok(()))?;
    busy.finish()
}

pub(super) fn only_read(context: &RowContext) -> RowOutcome {
    let file = context.file();
    let busy = Busy::start(&context.device)?;
    for timeout in [0, FOREVER] {
        let what = format!("PREP_BO of the input until {timeout}");
        expect(&what, file.prep(busy.input, timeout), Ok(()))?;
    }
    still_busy(&file, &busy)?;
    busy.finish()
}

pub(super) fn interrupted(context: &RowContext) -> RowOutcome {
    let file = context.file();
    for (restart, want) in [(false, Err(Errno::INTR)), (true, Ok(()))] {
        let busy = Busy::start(&context.device)?;
        // Not for ever: a wait that no signal ends must not block the suite.
        let until = patience().as_nanos();
        let wait = || file.prep(busy.output, until);
        let prep = under_signals(restart, wait, |count| {
            if restart && count == SIGNALS {
                busy.let_go()
            } else {
                Ok(())
            }
        })?;
        let what = format!("PREP_BO under signals, SA_RESTART {restart}");
        expect(&what, prep, want)?;
        busy.finish()?;
    }
    Ok(())
}

/// Checks that the job still runs, else the earlier checks prove nothing.
fn still_busy(file: &File, busy: &Busy) -> RowOutcome {
    let prep = file.prep(busy.output, 0);
    refused("PREP_BO while the job runs", prep, Errno::BUSY)
}
