// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a product has no result, as far as that is memory: what the driver says of
//! the software model need not be the cause.

use npu_matmul::{Error, JobFailure};
use npu_model::Model;
use npu_model::event::Event;
use rknpu_regcmd::rules::program::HOST_MEMORY;

use crate::memory::OutOfMemory;
use crate::mul_mat_error::MulMatError;

/// A failure, as what caused it: where the software model gets no memory for a
/// task's data its driver sees a task that never ends, as a kernel would.
pub(crate) fn explain(error: MulMatError, model: Option<&Model>) -> MulMatError {
    let killed = matches!(
        error,
        MulMatError::Engine(Error::Job {
            source: JobFailure::Killed,
            ..
        })
    );
    match model {
        Some(model) if killed && lacked_memory(&model.events()) => OutOfMemory::Model.into(),
        _ => error,
    }
}

/// Whether that is why the last job was killed.
fn lacked_memory(events: &[Event]) -> bool {
    let mut latest_first = events.iter().rev();
    let diagnosis = latest_first.find_map(|event| match event {
        Event::JobKilled { diagnosis, .. } => Some(diagnosis),
        _ => None,
    });
    diagnosis.is_some_and(|all| all.iter().any(|one| one.trap == HOST_MEMORY.id))
}

/// Whether a product may be right when it runs again: what computed the first task of its kind
/// wrong is not used any more.
pub(crate) fn may_run_again(error: &MulMatError) -> bool {
    match error {
        MulMatError::Engine(Error::WrongResult { source, .. }) => source.remedy.may_run_again(),
        _ => false,
    }
}

/// Whether the precision of a product is not used on the NPU from now on.
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
    use npu_matmul::{Dtype, Remedy, TaskKind, WrongResult};
    use npu_model::ModelOptions;
    use npu_model::event::{KillCause, TaskPlace};
    use rknpu_chip::{Diagnosis, Effect};
    use rknpu_regcmd::{MatmulForm, MatmulType, Reuse};

    use super::*;

    #[test]
    fn a_job_that_is_killed_for_lack_of_memory_is_not_the_drivers_fault() {
        let killed = |trap| Event::JobKilled {
            place: TaskPlace {
                job: 1,
                core: 0,
                task: 0,
            },
            cause: KillCause::Hang,
            diagnosis: vec![Diagnosis {
                trap,
                effect: Effect::Hang,
                registers: Vec::new(),
                rule: String::new(),
                remedy: String::new(),
            }],
        };
        let memory = || killed(HOST_MEMORY.id);
        let other = || killed("another rule");
        assert!(lacked_memory(&[other(), memory()]));
        assert!(!lacked_memory(&[memory(), other()]));
        assert!(!lacked_memory(&[]));

        let job = || {
            MulMatError::Engine(Error::Job {
                device: 0,
                source: JobFailure::Killed,
            })
        };
        let model = Model::new(ModelOptions::default());
        for nothing_known in [None, Some(&*model)] {
            let error = explain(job(), nothing_known);
            assert!(error.to_string().contains("500 ms"), "{error}");
            assert!(!is_out_of_memory(&error));
        }
        // The model starts threads when the first jobs come, which a kernel does not.
        let call = rocket_uapi::Call::Submit;
        let source = rocket_uapi::Error::of(call, None, rocket_uapi::Errno::AGAIN);
        let no_thread = MulMatError::Engine(Error::Device { device: 0, source });
        let no_thread = explain(no_thread, Some(&*model));
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
        // These go on without the CPU, or are faults that it would hide.
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
