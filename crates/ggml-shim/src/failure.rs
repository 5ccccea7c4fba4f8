// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies failures of matmuls, since the driver's report may hide the cause: with the software
//! model, lack of memory looks like a job that never ends.

use npu_matmul::{Error, JobFailure, SoftwareNpu};

use crate::memory::OutOfMemory;
use crate::mul_mat_error::MulMatError;

/// Returns the cause of a failure. If the software model gets no memory for a task's data, its
/// driver sees a task that never ends, as a kernel would.
pub(crate) fn explain(error: MulMatError, model: Option<&SoftwareNpu>) -> MulMatError {
    let killed = matches!(
        error,
        MulMatError::Engine(Error::Job {
            source: JobFailure::Killed,
            ..
        })
    );
    match model {
        Some(model) if killed && model.ran_out_of_memory() => OutOfMemory::Model.into(),
        _ => error,
    }
}

/// Whether a matmul may be right when it runs again: after a wrong first task, the engine computes
/// tasks of that kind differently.
pub(crate) fn may_run_again(error: &MulMatError) -> bool {
    match error {
        MulMatError::Engine(Error::WrongResult { source, .. }) => source.remedy.may_run_again(),
        _ => false,
    }
}

/// Whether the NPU is no longer used for the precision of a matmul.
pub(crate) fn is_distrusted(error: &MulMatError) -> bool {
    match error {
        MulMatError::Engine(Error::WrongResult { source, .. }) => !source.remedy.may_run_again(),
        MulMatError::Engine(Error::Distrusted { .. }) => true,
        _ => false,
    }
}

/// Whether the host, or the driver, has no memory left.
pub(crate) fn is_out_of_memory(error: &MulMatError) -> bool {
    matches!(
        error,
        MulMatError::Memory(_)
            | MulMatError::Engine(
                Error::Memory(_)
                    | Error::Device {
                        source: rocket_uapi::Error::OutOfMemory { .. },
                        ..
                    }
            )
    )
}

#[cfg(test)]
mod tests {
    use npu_matmul::{Dtype, Remedy, TaskKind, WrongResult, open_npu};
    use rknpu_regcmd::{MatmulForm, MatmulType, Reuse};
    use rocket_uapi::Selector;

    use super::*;

    #[test]
    fn a_job_that_is_killed_for_lack_of_memory_is_not_the_drivers_fault() {
        let job = || {
            MulMatError::Engine(Error::Job {
                device: 0,
                source: JobFailure::Killed,
            })
        };
        let model = open_npu(&Selector::Model, false).unwrap().software;
        for nothing_known in [None, model.as_ref()] {
            let error = explain(job(), nothing_known);
            assert!(error.to_string().contains("500 ms"), "{error}");
            assert!(!is_out_of_memory(&error));
        }
        // Unlike a kernel, the model starts threads when the first jobs come.
        let call = rocket_uapi::Call::Submit;
        let source = rocket_uapi::Error::of(call, None, rocket_uapi::Errno::AGAIN);
        let no_thread = MulMatError::Engine(Error::Device { device: 0, source });
        let no_thread = explain(no_thread, model.as_ref());
        assert!(!is_out_of_memory(&no_thread));
        let line = no_thread.to_string();
        assert!(line.contains("no thread could be started"), "{line}");
        let line = MulMatError::from(OutOfMemory::Model).to_string();
        assert!(line.contains("out of memory") && !line.contains("500 ms"));
    }

    #[test]
    fn only_what_changed_is_run_again_and_only_what_is_refused_is_left_to_the_cpu() {
        let wrong = |remedy| {
            let kind = TaskKind {
                ty: MatmulType::Int8ToInt32,
                rows: 4,
                m: 4,
                k: 64,
                n: 64,
                reuse: Reuse::default(),
                form: MatmulForm::A,
            };
            let source = Box::new(WrongResult {
                kind,
                row: 0,
                column: 1,
                got: 2.0,
                expected: 3.0,
                remedy,
            });
            MulMatError::Engine(Error::WrongResult { device: 0, source })
        };
        assert!(may_run_again(&wrong(Remedy::FormB)));
        assert!(may_run_again(&wrong(Remedy::NoReuse(Dtype::Int8))));
        assert!(!may_run_again(&wrong(Remedy::Refuse(Dtype::Int8))));
        assert!(!may_run_again(&MulMatError::NotPacked));

        let dtype = Dtype::Int8;
        assert!(is_distrusted(&wrong(Remedy::Refuse(dtype))));
        let refused = Error::Distrusted { dtype };
        assert!(is_distrusted(&MulMatError::Engine(refused)));
        // These run again on the NPU, or are faults that the CPU would hide.
        assert!(!is_distrusted(&wrong(Remedy::FormB)));
        assert!(!is_distrusted(&wrong(Remedy::NoReuse(dtype))));
        assert!(!is_distrusted(&MulMatError::NotPacked));
    }

    #[test]
    fn memory_is_told_from_other_failures() {
        let device = |source| MulMatError::Engine(Error::Device { device: 1, source });
        let len = rocket_uapi::ByteLen::new(4096).unwrap();
        let full = device(rocket_uapi::Error::OutOfMemory { len });
        assert!(is_out_of_memory(&full));
        assert!(is_out_of_memory(&OutOfMemory::Bytes(1).into()));
        let no_room = Vec::<u8>::new().try_reserve_exact(usize::MAX).unwrap_err();
        assert!(is_out_of_memory(&MulMatError::Engine(Error::Memory(
            no_room
        ))));
        assert!(!is_out_of_memory(&device(rocket_uapi::Error::OtherDevice)));
        assert!(!is_out_of_memory(&MulMatError::NotPacked));
    }
}
