// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attention: `softmax(scale * Q K^T + mask) V` for all heads of a layer.
//!
//! Query heads are divided evenly over KV heads, in order. For head `h` and row `r`, `q` is the
//! query of that head and row; `k` and `v` are the keys and values of its KV head:
//!
//! ```text
//! s[n] = scale * (q . k[n])                  with softcap c: c * tanh(scale / c * (q . k[n]))
//! s[n] = s[n] + slope[h] * mask[r][n]        a mask of -inf removes the key
//! m    = max s[n]                            and sink[h], where there are sinks
//! p[n] = exp(s[n] - m)
//! out  = sum p[n] v[n] / (sum p[n] + exp(sink[h] - m))
//! ```
//!
//! A row without any key gives zeros. [`reference()`] computes this in float64.
//!
//! ```
//! use half::f16;
//! use npu_matmul::Engine;
//! use npu_matmul::attention::{AttentionCall, HeadRows};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::open(npu_matmul::open_pool(3)?)?;
//! // 2 heads that share one KV head; 3 rows, 5 keys, vectors of 64 elements.
//! let (heads, kv_heads, rows, keys, len) = (2, 1, 3, 5, 64);
//! let q = vec![0.5; heads * rows * len];
//! let k = vec![f16::ONE; kv_heads * keys * len];
//! let v = vec![f16::from_f32(2.0); kv_heads * keys * len];
//! // Row 0 sees key 0, row 1 keys 0 and 1, and so on.
//! let causal: Vec<_> = (0..rows * keys)
//!     .map(|at| if at % keys <= at / keys { f16::ZERO } else { f16::NEG_INFINITY })
//!     .collect();
//! let mut out = vec![0.0; rows * heads * len];
//! engine.attend([AttentionCall {
//!     q: HeadRows::contiguous(&q, heads, rows, len).ok_or("q")?,
//!     k: HeadRows::contiguous(&k, kv_heads, keys, len).ok_or("k")?,
//!     v: HeadRows::contiguous(&v, kv_heads, keys, len).ok_or("v")?,
//!     mask: HeadRows::contiguous(&causal, 1, rows, keys),
//!     sinks: None,
//!     slopes: None,
//!     scale: 0.125,
//!     key_scales: None,
//!     softcap: 0.0,
//!     out: &mut out,
//! }])?;
//! assert!(out.iter().all(|&x| (x - 2.0).abs() < 1e-2));
//! # Ok(())
//! # }
//! ```

mod finite;
mod operands;
mod run;
mod scores;

use crate::engine::Engine;
use crate::exec::{AbortCheck, Again};
use crate::plan::attention::plan::{AttentionPlan, HALF};
use crate::plan::error::{EngineCallError, Error};
use crate::plan::first_run::MatmulKind;

pub use crate::plan::attention::{AttentionCall, AttentionShape, HeadRows, reference};

impl Engine {
    /// Computes attention for several independent calls, such as the sequences of a batch.
    ///
    /// A key or value that the mask hides from a row has no effect on that row, even if it is a
    /// NaN. If a visible key or its value contains a NaN or infinity, the row is NaN in all
    /// elements of that head.
    ///
    /// # Errors
    /// [`Error::AttentionShape`](crate::Error::AttentionShape) and
    /// [`PlanError::TooManyKeys`](crate::PlanError::TooManyKeys) (one job cannot hold the keys;
    /// [`Engine::can_attend`] checks this in advance) are reported before anything runs. Later
    /// errors come from a device, or are [`Error::AttentionOutOfRange`](crate::Error). Each has the index of the call. After an error the results of all
    /// calls are undefined.
    pub fn attend<'a>(
        &self,
        calls: impl IntoIterator<Item = AttentionCall<'a>>,
    ) -> Result<(), EngineCallError> {
        self.attend_again(calls, Again::Once)
    }

    /// As [`Engine::attend`], for a caller that may give up; see [`Engine::run_abortable`].
    ///
    /// # Errors
    /// As [`Engine::attend`]; [`Error::Aborted`](crate::Error::Aborted).
    pub fn attend_abortable<'a>(
        &self,
        calls: impl IntoIterator<Item = AttentionCall<'a>>,
        is_aborted: AbortCheck<'_>,
    ) -> Result<(), EngineCallError> {
        self.attend_again(calls, Again::OnceUnless(is_aborted))
    }

    fn attend_again<'a>(
        &self,
        calls: impl IntoIterator<Item = AttentionCall<'a>>,
        again: Again<'_>,
    ) -> Result<(), EngineCallError> {
        let calls: Vec<_> = calls.into_iter().collect();
        for (index, call) in calls.iter().enumerate() {
            call.check().map_err(EngineCallError::of(index))?;
        }
        run::attend(self, calls, again)
    }

    /// Checks whether [`Engine::attend`] can compute such attention, before there are operands.
    ///
    /// # Errors
    /// Those of `attend` before anything runs: no plan, such as
    /// [`PlanError::TooManyKeys`](crate::PlanError::TooManyKeys), or FP16 is disabled after a wrong
    /// result.
    pub fn can_attend(&self, batch: &AttentionShape) -> Result<(), Error> {
        if !self.is_usable(HALF) {
            return Err(Error::Distrusted {
                kind: MatmulKind::resident(HALF),
            });
        }
        AttentionPlan::new(batch, &self.current_options())?;
        Ok(())
    }
}
