// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the model: kills, faults, silent drops.
//!
//! The real driver does not report them, or only in the kernel log. The model keeps
//! them for clients, and sends them to `tracing` too.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::base::bugs::Bug;
use crate::base::lock::lock;
use rknpu_chip::{Diagnosis, Fault};

/// The place of a task: its job and its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPlace {
    /// Number of the job, from 1 on, in the order in which the driver
    /// accepted them on this device.
    pub job: u64,
    /// Core that ran it.
    pub core: u32,
    /// Index of the task in its job.
    pub task: usize,
}

impl fmt::Display for TaskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "job {}, task {}, core {}",
            self.job, self.task, self.core
        )
    }
}

/// Why the driver killed a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KillCause {
    /// The task never raised its interrupt.
    #[error("no interrupt")]
    Hang,
    /// The job was accepted, and its first task was never started: a fault of the board
    /// ([`Damage::stall`](crate::Damage::stall)).
    #[error("it never started")]
    NeverStarted,
    /// The tasks so far together take longer on the device than the driver allows
    /// for a job.
    #[error("too long: {device_time:?} of modelled device time")]
    TooLong {
        /// Modelled time of the job, up to and including the task.
        device_time: Duration,
    },
    /// Its process ended while the job was queued or running, and its memory with
    /// it. This says nothing about its programs.
    #[error("its process had ended")]
    ClientDied,
    /// The model itself failed. Please report it with the program.
    #[error("the software model failed; please report this bug")]
    ModelFailure,
}

/// A call that a client forgot. A board needs it, because the NPU does not see the
/// CPU's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissedCall {
    /// FINI_BO between the CPU's writing and SUBMIT. Without it the job reads old
    /// bytes, and cached bytes may overwrite its results.
    #[error("no FINI_BO between the CPU's write and SUBMIT: the NPU sees old bytes")]
    FiniBeforeSubmit,
    /// FINI_BO between the CPU's writing and PREP_BO. Without it PREP_BO discards
    /// the written bytes.
    #[error("no FINI_BO between the CPU's write and PREP_BO: the written bytes are lost")]
    FiniBeforePrep,
    /// PREP_BO between the end of a job that wrote the object and the CPU's
    /// writing. Without it whole cache lines of old bytes replace the job's.
    #[error(
        "no PREP_BO between a job's end and the CPU's write: old bytes replaced the job's results"
    )]
    PrepBeforeWrite,
}

/// An event in the driver or on the chip that no ioctl reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// SUBMIT returned 0, but this job will never run.
    JobDropped {
        /// Position in the job array of that SUBMIT.
        index: usize,
        /// The error that the kernel found and did not report.
        reason: String,
    },
    /// A job ended in the driver's timeout path. Its fence has an error, but
    /// PREP_BO returns 0.
    JobKilled {
        /// The task on which the job stopped.
        place: TaskPlace,
        /// Why the driver killed the job.
        cause: KillCause,
        /// What the chip found wrong with the task.
        diagnosis: Vec<Diagnosis>,
    },
    /// A task broke a rule of the silicon, but raised its interrupt.
    Diagnosed {
        /// The task that was diagnosed.
        place: TaskPlace,
        /// What the chip found wrong with the task.
        diagnosis: Vec<Diagnosis>,
    },
    /// A DMA access to an address that is not mapped.
    Fault {
        /// The task whose access it was.
        place: TaskPlace,
        /// The access: its engine, direction and address.
        fault: Fault,
    },
    /// The interrupt status had a DMA error bit, for which the real driver
    /// prints a warning with a stack trace.
    DmaErrorInterrupt {
        /// The task whose interrupt it was.
        place: TaskPlace,
        /// PC.INTERRUPT_RAW_STATUS.
        raw_status: u32,
    },
    /// The client triggered a bug of the real kernel.
    KernelBug {
        /// The bug; docs/driver.md has the list.
        bug: Bug,
        /// What the client did.
        how: String,
        /// Whether it took the modelled kernel down: only an enabled bug does; see
        /// [`ModelOptions::bugs`](crate::ModelOptions::bugs).
        oops: bool,
    },
    /// The client forgot PREP_BO or FINI_BO. Only with
    /// [`Caches::Manual`](crate::driver::Caches::Manual).
    MissedCall {
        /// Address of the buffer object in the file that made it.
        iova: u64,
        /// The call that was missing.
        call: MissedCall,
    },
    /// A core was without a job for so long that its registers are lost.
    RegistersLost {
        /// Number of the core.
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
                write!(f, "buffer object at {iova:#x}: {call}")
            }
            Self::RegistersLost { core } => write!(f, "core {core}: idle, its registers are lost"),
        }
    }
}

/// Number of events that are kept; older ones are forgotten.
const EVENTS_KEPT: usize = 4096;

/// Counts of all events since the device was created, also of those that were
/// forgotten or taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventTally {
    /// Number of [`Event::JobDropped`].
    pub jobs_dropped: u64,
    /// Tasks that met a trap, by [`Diagnosis::trap`], with the first diagnosis.
    pub traps: BTreeMap<&'static str, Tally<Diagnosis>>,
    /// [`Event::KernelBug`] by bug, with what the client did.
    pub bugs: BTreeMap<Bug, Tally<String>>,
    /// Events that [`Model::events`](crate::Model::events) has forgotten.
    pub forgotten: u64,
}

/// How often something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally<T> {
    /// Number of times.
    pub times: u64,
    /// What happened the first time.
    pub first: T,
}

/// Counts an event of kind `kind`.
fn count<K: Ord, T: Clone>(tallies: &mut BTreeMap<K, Tally<T>>, kind: K, what: &T) {
    let new = || Tally {
        times: 0,
        first: what.clone(),
    };
    tallies.entry(kind).or_insert_with(new).times += 1;
}

impl EventTally {
    fn note(&mut self, event: &Event) {
        match event {
            Event::JobDropped { .. } => self.jobs_dropped += 1,
            Event::JobKilled { diagnosis, .. } | Event::Diagnosed { diagnosis, .. } => {
                for one in diagnosis {
                    count(&mut self.traps, one.trap, one);
                }
            }
            Event::KernelBug { bug, how, .. } => count(&mut self.bugs, *bug, how),
            _ => (),
        }
    }
}

/// The latest events of one device, and the counts of all.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Event>,
    tally: EventTally,
}

impl EventLog {
    pub(crate) fn push(&self, event: Event) {
        match &event {
            // One for each run of the same program.
            Event::Diagnosed { .. } => tracing::info!("{event}"),
            _ => tracing::warn!("{event}"),
        }
        let mut kept = lock(&self.0);
        kept.tally.note(&event);
        if kept.events.len() == EVENTS_KEPT {
            kept.events.pop_front();
            kept.tally.forgotten += 1;
        }
        kept.events.push_back(event);
    }

    pub(crate) fn snapshot(&self) -> Vec<Event> {
        lock(&self.0).events.iter().cloned().collect()
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.0).events).into()
    }

    pub(crate) fn tally(&self) -> EventTally {
        lock(&self.0).tally.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_events_are_counted() {
        let log = EventLog::default();
        let more = 10;
        for index in 0..EVENTS_KEPT + more {
            log.push(Event::JobDropped {
                index,
                reason: String::new(),
            });
        }
        assert_eq!(log.take().len(), EVENTS_KEPT);
        log.push(Event::RegistersLost { core: 0 });
        assert_eq!(log.snapshot().len(), 1);
        let tally = log.tally();
        assert_eq!(tally.jobs_dropped, (EVENTS_KEPT + more) as u64);
        assert_eq!(tally.forgotten, more as u64);
    }
}
