// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a product passes through the CPU's caches.
//!
//! PREP_BO and FINI_BO invalidate and clean the caches over whole buffer
//! objects, by whole pages; a product needs that for the elements alone.

use rocket_uapi::PAGE_BYTES;

use crate::plan::{Packed, Plan};
use crate::profile::Choices;

impl Plan {
    /// Bytes of a product of this plan in steady state, where buffers and programs are
    /// there: those that must cross the CPU's caches, which is each element of A once for
    /// each file descriptor that reads it and each result, those of every K tile; and
    /// those that PREP_BO and FINI_BO pass.
    #[must_use]
    pub fn cache_bytes(&self, choices: &Choices) -> [u64; 2] {
        let input_bits = self.weights.dtype.input_bits() as u64;
        let mut packed = Packed::default();
        let slack = choices.slack_bytes.value;
        let [mut needed, mut passed] = [0; 2];
        for job in self.steps().flat_map(|step| step.jobs) {
            if packed.is_first(&job) {
                let depth: usize = job.band.k_tiles.iter().map(|tile| tile.k.len()).sum();
                let elements = job.band.rows.len() as u64 * depth as u64;
                needed += (elements * input_bits).div_ceil(8);
                // Later jobs that read them leave the caches alone.
                passed += pages(job.band.activation_bytes + slack);
            }
            for task in &job.tasks {
                let rows = job.band.activations[task.activation].rows.len();
                let elements = rows as u64 * task.n.len() as u64;
                needed += elements * u64::from(job.ty.out_bytes());
            }
            // The page of a job's witness is cleared, looked at and read.
            const PASSES: u64 = 3;
            passed += pages(job.output_bytes) + PASSES * PAGE_BYTES as u64;
        }
        [needed, passed]
    }
}

fn pages(bytes: usize) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES) as u64
}
