// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether attention can run, before there are operands.

use super::plan::{HALF, Tiling};
use super::time::AttentionBatch;
use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Checks whether [`Engine::attend`] can compute such attention, before there are operands.
    ///
    /// # Errors
    /// Those of `attend` before anything runs: no plan, such as
    /// [`PlanError::TooManyKeys`](crate::PlanError::TooManyKeys), or FP16 is disabled after a wrong
    /// result.
    pub fn can_attend(&self, batch: &AttentionBatch) -> Result<(), Error> {
        if !self.is_usable(HALF) {
            return Err(Error::Distrusted { dtype: HALF });
        }
        Tiling::new(batch.sizes(), self.options(), self.program(HALF))?;
        Ok(())
    }
}
