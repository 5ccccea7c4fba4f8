// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a matmul, or attention, has no result.

use std::collections::TryReserveError;

use npu_matmul::{Error, ErrorKind, JobFailure, SoftwareNpu};

#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeFailure {
    #[error(transparent)]
    Engine(#[from] Error),
    /// For data between the host's operands and the engine's.
    #[error("out of memory: cannot allocate {0} bytes")]
    OutOfMemory(usize),
    /// For rows that the NPU reads, or for their outputs.
    #[error("out of memory: cannot allocate the rows of a matmul")]
    NoRows(#[from] TryReserveError),
    #[error("out of memory: cannot allocate the data of the software model")]
    NoModelMemory,
    /// The file is damaged; `row` is the first bad row.
    #[error("weight row {row} holds an infinity or a NaN; is the model file damaged?")]
    NotFinite { row: usize },
    /// Weights that the CPU has rearranged and that were not packed before.
    #[error("its weights were not packed when they were loaded")]
    NotPacked,
    #[error("a job failed and did not run again, because failed jobs took too much time")]
    GivenUp,
    #[error("a row selects expert {number}, but there are only {count}")]
    NoSuchExpert { number: i32, count: usize },
    #[error("the {0} are shorter than their strides require, or not aligned to their type")]
    Data(&'static str),
}

impl NodeFailure {
    /// Returns the cause of a failure, which the driver's report may hide: if the software model
    /// gets no memory for a task's data, its driver sees a task that never ends, as a kernel would.
    pub(crate) fn explained(self, model: Option<&SoftwareNpu>) -> Self {
        let is_killed = matches!(
            self,
            Self::Engine(Error::Job {
                source: JobFailure::Killed,
                ..
            })
        );
        match model {
            Some(model) if is_killed && model.ran_out_of_memory() => Self::NoModelMemory,
            _ => self,
        }
    }

    /// Whether the engine gave up because its caller said so.
    pub(crate) fn is_aborted(&self) -> bool {
        matches!(self, Self::Engine(Error::Aborted))
    }

    /// Whether a matmul may be right when it runs again: after a wrong first task, the engine
    /// computes tasks of that kind differently.
    pub(crate) fn may_run_again(&self) -> bool {
        match self {
            Self::Engine(Error::WrongResult { source, .. }) => source.remedy.may_run_again(),
            _ => false,
        }
    }

    /// What follows for the nodes of a list that failed so.
    pub(crate) fn consequence(&self) -> Consequence {
        match self {
            // The CPU would end the process, or read memory that is not there.
            Self::NoSuchExpert { .. } | Self::Data(_) => Consequence::Error,
            Self::NotFinite { .. } | Self::Engine(Error::TooDeep { .. }) => Consequence::CpuQuietly,
            Self::Engine(Error::AttentionOutOfRange { .. }) => Consequence::CpuOutOfRange,
            Self::Engine(error) => match error.kind() {
                ErrorKind::WrongResult => Consequence::CpuAndDistrust,
                ErrorKind::DeviceLost => Consequence::CpuAndRest,
                _ => Consequence::Cpu,
            },
            Self::OutOfMemory(_)
            | Self::NoRows(_)
            | Self::NoModelMemory
            | Self::NotPacked
            | Self::GivenUp => Consequence::Cpu,
        }
    }

    /// Whether the host, or the driver, has no memory left.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory(_)
                | Self::NoRows(_)
                | Self::NoModelMemory
                | Self::Engine(
                    Error::Memory(_)
                        | Error::Device {
                            source: rocket_uapi::Error::OutOfMemory { .. },
                            ..
                        }
                )
        )
    }
}

/// What follows from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// The graph fails: the program or its file is wrong, and the CPU would fail too.
    Error,
    /// The CPU computes what the NPU could not.
    Cpu,
    /// The CPU computes it without a warning: the NPU cannot hold these values, and is not at fault.
    CpuQuietly,
    /// The same, for attention whose scores only the CPU computes exactly enough.
    CpuOutOfRange,
    /// The CPU computes it, and all else in this precision.
    CpuAndDistrust,
    /// The CPU computes it, and the NPU rests, because it is lost or a job may still run.
    CpuAndRest,
}

impl Consequence {
    /// Whether the NPU, or the program, is at fault.
    pub(crate) const fn is_failure(self) -> bool {
        !matches!(self, Self::CpuQuietly | Self::CpuOutOfRange)
    }
}

/// Why a list of calls has no results.
#[derive(Debug)]
pub(crate) struct FailedNode {
    pub(crate) call: usize,
    pub(crate) error: NodeFailure,
}

impl FailedNode {
    /// For `map_err`: an error of this call.
    pub(crate) fn of(call: usize) -> impl Fn(NodeFailure) -> Self {
        move |error| Self { call, error }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use npu_matmul::{Dtype, MatmulKind, Remedy, TaskKind, WrongResult, open_npu};
    use rknpu_regcmd::Reuse;
    use rocket_uapi::Selector;

    use super::*;

    #[test]
    fn a_job_that_is_killed_for_lack_of_memory_is_not_the_drivers_fault() {
        let job = || {
            NodeFailure::Engine(Error::Job {
                device: 0,
                source: JobFailure::Killed,
                runs: 2,
            })
        };
        let model = open_npu(&Selector::Model, false).unwrap().software;
        for nothing_known in [None, model.as_ref()] {
            let error = job().explained(nothing_known);
            assert!(error.to_string().contains("500 ms"), "{error}");
            assert!(!error.is_out_of_memory());
        }
        // Unlike a kernel, the model starts threads when the first jobs come.
        let call = "SUBMIT";
        let source = rocket_uapi::Error::of(call, None, rocket_uapi::Errno::AGAIN);
        let no_thread = NodeFailure::Engine(Error::Device { device: 0, source });
        let no_thread = no_thread.explained(model.as_ref());
        assert!(!no_thread.is_out_of_memory());
        let line = no_thread.to_string();
        assert!(line.contains("no thread could be started"), "{line}");
        let line = NodeFailure::NoModelMemory.to_string();
        assert!(line.contains("out of memory") && !line.contains("500 ms"));
    }

    #[test]
    fn a_failure_of_the_npu_is_left_to_the_cpu_and_one_of_the_program_is_not() {
        let wrong = |remedy| {
            let kind = TaskKind {
                dtype: Dtype::Int8,
                rows: 4,
                m: 4,
                k: 64,
                n: 64,
                reuse: Reuse::default(),
                spare_data_bank: false,
            };
            let source = Box::new(WrongResult {
                kind,
                row: 0,
                column: 1,
                got: 2.0,
                expected: 3.0,
                remedy,
            });
            NodeFailure::Engine(Error::WrongResult { device: 0, source })
        };
        let dtype = Dtype::Int8;
        let kind = MatmulKind::resident(dtype);
        let refused = NodeFailure::Engine(Error::Distrusted { kind });
        let job = |source| {
            NodeFailure::Engine(Error::Job {
                device: 0,
                source,
                runs: 1,
            })
        };
        let waited = Duration::from_secs(2);
        let source = rocket_uapi::Error::DeviceGone("SUBMIT");
        let gone = NodeFailure::Engine(Error::Device { device: 1, source });
        let number = 4;
        let expert = NodeFailure::NoSuchExpert { number, count: 4 };
        for (error, may_run_again, consequence) in [
            (
                wrong(Remedy::NoReuse(dtype)),
                true,
                Consequence::CpuAndDistrust,
            ),
            (
                wrong(Remedy::Refuse(kind)),
                false,
                Consequence::CpuAndDistrust,
            ),
            (refused, false, Consequence::CpuAndDistrust),
            (job(JobFailure::Killed), false, Consequence::Cpu),
            (job(JobFailure::Dropped), false, Consequence::Cpu),
            (
                job(JobFailure::TimedOut { waited }),
                false,
                Consequence::CpuAndRest,
            ),
            (gone, false, Consequence::CpuAndRest),
            (NodeFailure::OutOfMemory(1), false, Consequence::Cpu),
            (NodeFailure::NoModelMemory, false, Consequence::Cpu),
            (NodeFailure::NotPacked, false, Consequence::Cpu),
            (NodeFailure::GivenUp, false, Consequence::Cpu),
            (
                NodeFailure::NotFinite { row: 1 },
                false,
                Consequence::CpuQuietly,
            ),
            (NodeFailure::Data("weights"), false, Consequence::Error),
            (expert, false, Consequence::Error),
        ] {
            let seen = (error.may_run_again(), error.consequence());
            assert_eq!(seen, (may_run_again, consequence), "{error}");
        }
    }

    #[test]
    fn memory_is_told_from_other_failures() {
        let device = |source| NodeFailure::Engine(Error::Device { device: 1, source });
        let len = rocket_uapi::ByteLen::new(4096).unwrap();
        let full = device(rocket_uapi::Error::OutOfMemory(len));
        assert!(full.is_out_of_memory());
        assert!(NodeFailure::OutOfMemory(1).is_out_of_memory());
        let no_room = Vec::<u8>::new().try_reserve_exact(usize::MAX).unwrap_err();
        assert!(NodeFailure::Engine(Error::Memory(no_room)).is_out_of_memory());
        assert!(!device(rocket_uapi::Error::OtherDevice).is_out_of_memory());
        assert!(!NodeFailure::NotPacked.is_out_of_memory());
    }
}
