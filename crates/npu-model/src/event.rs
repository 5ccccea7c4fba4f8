// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the model noticed while it ran: kills, faults, silent drops.
//!
//! The real driver keeps such things to itself or writes them to the kernel
//! log. Here they can be read back, and go to `tracing` as well.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::chip::{Diagnosis, Fault};
use crate::driver::{Bug, lock};

/// Which task of which job on which core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the job, from 1 on, in the order in which the driver
    /// accepted them on this device.
    pub job: u64,
    /// Core that ran it.
    pub core: u32,
    /// Index of the task in its job.
    pub task: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "job {}, task {}, core {}",
            self.job, self.task, self.core
        )
    }
}

/// Why the driver killed a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillCause {
    /// The task never raised its interrupt.
    Hang,
    /// All tasks so far together take longer on the device than the driver
    /// allows for a job.
    TooLong {
        /// Modelled time up to and including the task, of the whole job.
        device_time: Duration,
    },
    /// The model itself failed. Please report it with the program.
    ModelFailure,
}

impl fmt::Display for KillCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hang => f.write_str("no interrupt"),
            Self::TooLong { device_time } => {
                write!(f, "too long: {device_time:?} of modelled device time")
            }
            Self::ModelFailure => f.write_str("the model itself failed (a bug)"),
        }
    }
}

/// A call that a client forgot and needs on a board, where the NPU does not
/// see the CPU's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedCall {
    /// FINI_BO between writing and SUBMIT: the job reads old bytes, and what
    /// is in the cache may fall over what it writes.
    FiniBeforeSubmit,
    /// FINI_BO between writing and PREP_BO, which threw away what was written.
    FiniBeforePrep,
    /// PREP_BO between the end of a job that wrote the object and the CPU's
    /// writing: whole cache lines of old bytes went over the job's.
    PrepBeforeWrite,
}

impl fmt::Display for MissedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FiniBeforeSubmit => {
                "FINI_BO between the CPU's writing and SUBMIT: the NPU sees old bytes"
            }
            Self::FiniBeforePrep => {
                "FINI_BO between the CPU's writing and PREP_BO: what it wrote is lost"
            }
            Self::PrepBeforeWrite => {
                "PREP_BO between a job's end and the CPU's writing: old bytes went over the job's"
            }
        })
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// SUBMIT returned 0 and this job will never run.
    JobDropped {
        /// Position in the job array of that SUBMIT.
        index: usize,
        /// What the kernel found, and kept to itself.
        reason: String,
    },
    /// A job ended in the driver's timeout path; its fence has an error,
    /// PREP_BO returns 0 all the same.
    JobKilled {
        /// The task that did it.
        place: Place,
        /// Why.
        cause: KillCause,
        /// What the chip knows about it.
        diagnosis: Vec<Diagnosis>,
    },
    /// A task did something that silicon punishes, but raised its interrupt.
    Diagnosed {
        /// The task.
        place: Place,
        /// What the chip knows about it.
        diagnosis: Vec<Diagnosis>,
    },
    /// A DMA access went where nothing is mapped.
    Fault {
        /// The task.
        place: Place,
        /// The access.
        fault: Fault,
    },
    /// The interrupt status had a DMA error bit, for which the real driver
    /// prints a warning with a stack trace.
    DmaErrorInterrupt {
        /// The task.
        place: Place,
        /// PC.INTERRUPT_RAW_STATUS.
        raw_status: u32,
    },
    /// The client ran into a bug of the real kernel.
    KernelBug {
        /// Which.
        bug: Bug,
        /// What the client did.
        how: String,
        /// Whether it took the modelled kernel down; see [`DriverBugs`].
        ///
        /// [`DriverBugs`]: crate::driver::DriverBugs
        oops: bool,
    },
    /// The client forgot PREP_BO or FINI_BO. Only with
    /// [`Caches::Manual`](crate::driver::Caches::Manual).
    MissedCall {
        /// Address of the buffer object in the file that made it.
        iova: u64,
        /// Which.
        call: MissedCall,
    },
    /// A core was without a job for so long that its registers are lost.
    RegistersLost {
        /// The core.
        core: u32,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JobDropped { index, reason } => write!(
                f,
                "job {index} of a SUBMIT that returned 0 was dropped: {reason}"
            ),
            Self::JobKilled {
                place,
                cause,
                diagnosis,
            } => {
                write!(f, "{place}: killed, {cause}")?;
                diagnosis.iter().try_for_each(|one| write!(f, "; {one}"))
            }
            Self::Diagnosed { place, diagnosis } => {
                write!(f, "{place}: trap")?;
                diagnosis.iter().try_for_each(|one| write!(f, "; {one}"))
            }
            Self::Fault { place, fault } => write!(f, "{place}: {fault}"),
            Self::DmaErrorInterrupt { place, raw_status } => {
                write!(f, "{place}: DMA error in interrupt status {raw_status:#x}")
            }
            Self::KernelBug { bug, how, oops } => {
                write!(f, "kernel bug {bug}: {how}")?;
                f.write_str(if *oops { "; the kernel is down" } else { "" })
            }
            Self::MissedCall { iova, call } => {
                write!(f, "buffer object at {iova:#x}: the client forgot {call}")
            }
            Self::RegistersLost { core } => write!(f, "core {core}: idle, its registers are lost"),
        }
    }
}

/// How many events are kept; older ones are forgotten.
const EVENTS_KEPT: usize = 4096;

/// The latest events of one device.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: Mutex<VecDeque<Event>>,
}

impl EventLog {
    pub(crate) fn push(&self, event: Event) {
        match &event {
            // One for each run of the same program.
            Event::Diagnosed { .. } => tracing::info!("{event}"),
            _ => tracing::warn!("{event}"),
        }
        let mut events = lock(&self.events);
        if events.len() == EVENTS_KEPT {
            events.pop_front();
        }
        events.push_back(event);
    }

    pub(crate) fn snapshot(&self) -> Vec<Event> {
        lock(&self.events).iter().cloned().collect()
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.events)).into()
    }
}
