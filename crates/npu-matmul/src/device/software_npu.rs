// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software NPU, for machines without a board. Of the code in `crates/` only this file uses
//! `sim/`, and only with the feature `software-npu`.

use std::sync::Arc;

use npu_model::event::Event;
use npu_model::{Model, ModelOptions, OptionError};
use rknpu_regcmd::rules::program::HOST_MEMORY;
use rknpu_regcmd::timing::ChromeEvent;
use rocket_uapi::Device;

/// The software NPU cannot be started: its options are wrong.
pub type SoftwareError = OptionError;

/// A software NPU.
#[derive(Clone, Debug)]
pub struct SoftwareNpu(Arc<Model>);

impl SoftwareNpu {
    /// Starts a software NPU, and opens it.
    pub(crate) fn start(options: &str, timeline: bool) -> Result<(Device, Self), SoftwareError> {
        let mut options: ModelOptions = options.parse()?;
        options.timeline |= timeline;
        let model = Model::new(options);
        Ok((model.open_device(), Self(model)))
    }

    /// Whether the last job was killed because the host has no memory for the data of a task. The
    /// model's driver half then sees a task that never ends, as a kernel would.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        lacked_memory(&self.0.events())
    }

    /// The jobs so far in modelled time, as events of a trace, with process numbers from 1. Empty
    /// if jobs are not recorded.
    #[must_use]
    pub fn job_events(&self) -> Vec<ChromeEvent> {
        let timeline = self.0.timeline();
        timeline.map_or_else(Vec::new, |timeline| timeline.to_chrome_job_events())
    }
}

/// Whether the last job was killed because the host lacked memory.
fn lacked_memory(events: &[Event]) -> bool {
    let mut latest_first = events.iter().rev();
    let diagnosis = latest_first.find_map(|event| match event {
        Event::JobKilled { diagnosis, .. } => Some(diagnosis),
        _ => None,
    });
    diagnosis.is_some_and(|all| all.iter().any(|one| one.trap == HOST_MEMORY.id))
}

#[cfg(test)]
mod tests {
    use npu_model::event::{KillCause, TaskPlace};
    use rknpu_chip::{Diagnosis, Effect};

    use super::*;

    #[test]
    fn the_last_killed_job_decides() {
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
    }
}
