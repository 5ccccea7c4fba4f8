// SPDX-License-Identifier: MIT OR Apache-2.0
//! State that the open files of one device share.

use std::sync::Arc;

use crate::base::options::ModelOptions;
use crate::jobs::sched::Scheduler;
use crate::objects::gem::ObjectPool;
use crate::objects::health::Health;
use rknpu_chip::NpuCore;

/// The driver's state of one device.
#[derive(Debug)]
pub(crate) struct DriverState {
    pub(crate) options: ModelOptions,
    pub(crate) health: Arc<Health>,
    pub(crate) objects: Arc<ObjectPool>,
    pub(crate) scheduler: Scheduler,
}

impl DriverState {
    /// A driver bound to these cores.
    pub(crate) fn new(options: ModelOptions, cores: Vec<Box<dyn NpuCore>>) -> Self {
        let health = Arc::new(Health::new(options.bugs.clone()));
        Self {
            objects: Arc::new(ObjectPool::new(&options, &health)),
            scheduler: Scheduler::new(&options, cores, Arc::clone(&health)),
            options,
            health,
        }
    }
}
