// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether attention can be computed, before there is anything to compute.

use super::plan::{HALF, Tiling};
use super::time::AttentionBatch;
use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Whether [`Engine::attend`] can compute such attention: for whoever has to decide before there
    /// are operands.
    ///
    /// # Errors
    /// What `attend` would say before anything runs: there is no plan, such as
    /// [`PlanError::TooManyKeys`](crate::PlanError::TooManyKeys), or FP16 is not used because it was
    /// computed wrong.
    pub fn can_attend(&self, batch: &AttentionBatch) -> Result<(), Error> {
        if !self.is_usable(HALF) {
            return Err(Error::Distrusted { dtype: HALF });
        }
        Tiling::new(batch.sizes(), self.options(), self.program(HALF))?;
        Ok(())
    }
}
