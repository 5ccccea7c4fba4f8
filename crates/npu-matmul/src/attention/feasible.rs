// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether attention can be computed, before there is anything to compute.

use super::plan::{HALF, Sizes, Tiling};
use crate::engine::Engine;
use crate::error::Error;

impl Engine {
    /// Whether [`Engine::attend`] can compute attention of so many query and KV heads, of so many rows
    /// and keys, and of vectors of K and V with so many elements: for whoever has to decide before
    /// there are operands.
    ///
    /// # Errors
    /// What `attend` would say before anything runs: there is no plan, or FP16 is not used because it
    /// was computed wrong.
    pub fn can_attend(
        &self,
        [heads, kv_heads]: [usize; 2],
        [rows, keys]: [usize; 2],
        [head_dim, value_dim]: [usize; 2],
    ) -> Result<(), Error> {
        if !self.is_usable(HALF) {
            return Err(Error::Distrusted { dtype: HALF });
        }
        let sizes = Sizes {
            group: heads / kv_heads.max(1),
            rows,
            keys,
            head_dim,
            value_dim,
        };
        Tiling::new(sizes, self.options(), self.program(HALF))?;
        Ok(())
    }
}
