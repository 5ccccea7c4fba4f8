// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that the open files of one device share.

use std::sync::Arc;

use super::gem::ObjectPool;
use super::health::Health;
use super::sched::Scheduler;
use crate::options::ModelOptions;
use rknpu_chip::NpuCore;

/// The driver's state of one device.
#[derive(Debug)]
pub(super) struct DriverState {
    pub(super) options: ModelOptions,
    pub(super) health: Arc<Health>,
    pub(super) objects: Arc<ObjectPool>,
    pub(super) scheduler: Scheduler,
}

impl DriverState {
    /// A driver bound to these cores.
    pub(super) fn new(options: ModelOptions, cores: Vec<Box<dyn NpuCore>>) -> Self {
        let health = Arc::new(Health::new(options.bugs.clone()));
        Self {
            objects: Arc::new(ObjectPool::new(&options, &health)),
            scheduler: Scheduler::new(&options, cores, Arc::clone(&health)),
            options,
            health,
        }
    }
}
