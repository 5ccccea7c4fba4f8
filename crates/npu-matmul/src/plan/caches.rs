// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a product passes through the CPU's caches.
//!
//! PREP_BO and FINI_BO invalidate and clean the caches over whole buffer
//! objects, by whole pages; a product needs that for the elements alone.

use rocket_uapi::{PAGE_BYTES, WITNESS_PROGRAMS};

use super::waves::Packed;
use super::{JobPlan, Plan};

/// Bytes of one product, in steady state: buffers and programs are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheBytes {
    /// What must cross: each element of A once for each file descriptor that
    /// reads it, and each result, those of every K tile.
    pub needed: u64,
    /// What PREP_BO and FINI_BO pass, if each job is seen running and ends in
    /// time.
    pub passed: u64,
}

impl CacheBytes {
    /// How many times what is needed is passed.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.passed as f64 / self.needed.max(1) as f64
    }

    /// Those of a job that packs them: later ones leave the caches alone.
    fn add_activations(&mut self, job: &JobPlan, input_bits: u64) {
        self.passed += pages(job.band.activation_bytes);
        let depth: usize = job.band.k_tiles.iter().map(|tile| tile.k.len()).sum();
        let elements = job.band.rows.len() as u64 * depth as u64;
        self.needed += (elements * input_bits).div_ceil(8);
    }

    fn add_results(&mut self, job: &JobPlan) {
        // A job has a page, which is looked at once; that of a long job is
        // cleared before and read after.
        let looks = if job.tasks.len() < WITNESS_PROGRAMS {
            1
        } else {
            3
        };
        self.passed += pages(job.output_bytes) + looks * PAGE_BYTES as u64;
        for task in &job.tasks {
            let rows = job.band.activations[task.activation].rows.len();
            let elements = rows as u64 * task.n.len() as u64;
            self.needed += elements * u64::from(job.ty.out_bytes());
        }
    }
}

impl Plan {
    /// What a product of this plan passes through the CPU's caches.
    #[must_use]
    pub fn cache_bytes(&self) -> CacheBytes {
        let input_bits = self.weights.dtype.input_bits() as u64;
        let mut bytes = CacheBytes::default();
        let mut packed = Packed::default();
        for step in self.steps() {
            for job in &step.jobs {
                if packed.is_first(job) {
                    bytes.add_activations(job, input_bits);
                }
                bytes.add_results(job);
            }
        }
        bytes
    }
}

fn pages(bytes: usize) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES) as u64
}
