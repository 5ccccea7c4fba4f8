// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of cache maintenance of a matmul.
//!
//! PREP_BO and FINI_BO clean and invalidate the caches for whole pages of whole buffer objects. A
//! matmul needs that for its elements only.

use rocket_uapi::PAGE_BYTES;

use crate::plan::{Packed, Plan};
use crate::profile::Choices;

impl Plan {
    /// `[needed, processed]` bytes of cache maintenance for one matmul whose buffers and programs
    /// exist. Needed are the elements of A, once for each file descriptor that reads them, and the
    /// results of every K tile. Processed are the bytes that PREP_BO and FINI_BO maintain.
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
                // Later jobs that read these activations need no cache maintenance.
                passed += pages(job.band.activation_bytes + slack);
            }
            for task in &job.tasks {
                let rows = job.band.activations[task.activation].rows.len();
                let elements = rows as u64 * task.n.len() as u64;
                needed += elements * u64::from(job.ty.out_bytes());
            }
            // The page of a job's witness is cleared, checked and read.
            const PASSES: u64 = 3;
            passed += pages(job.output_bytes) + PASSES * PAGE_BYTES as u64;
        }
        [needed, passed]
    }
}

fn pages(bytes: usize) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES) as u64
}
