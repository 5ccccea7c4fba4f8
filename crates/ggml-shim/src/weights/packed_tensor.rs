// SPDX-License-Identifier: MIT OR Apache-2.0
//! Weights that may be on the NPU, and those of their matrices that are packed.
//!
//! Each host buffer has a table of them, which is dropped with the buffer. The packed matrices of a
//! tensor are dropped when the host writes into any of its bytes: ggml reuses addresses freely.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use npu_offload::ComputeType;

use crate::ggml::reason::LeftOnCpu;
use crate::ggml::shared::lock;
use crate::weights::budget::{PackedCount, WeightDecision};
use crate::weights::node_error::NodeFailure;
use crate::weights::pack::PackedMatrix;

/// One matrix: empty until the first use.
type Slot = Arc<Mutex<Option<(Arc<PackedMatrix>, PackedCount)>>>;

/// One matrix of a tensor: everything that the packed one depends on, beside the tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MatrixKey {
    pub(crate) index: [usize; 2],
    pub(crate) precision: ComputeType,
}

/// The weights of one tensor.
#[derive(Debug)]
pub(crate) struct PackedTensor {
    /// Addresses of their bytes.
    pub(crate) extent: Range<usize>,
    /// Whether they may be on the NPU.
    pub(crate) decision: Arc<WeightDecision>,
    /// Packed matrices.
    matrices: Mutex<HashMap<MatrixKey, Slot>>,
}

impl PackedTensor {
    /// Creates weights of which no matrix is packed.
    pub(crate) fn new(extent: Range<usize>, decision: Arc<WeightDecision>) -> Arc<Self> {
        Arc::new(Self {
            extent,
            decision,
            matrices: Mutex::default(),
        })
    }

    /// Returns a matrix, made by `load` if it is not packed. Two threads that need the
    /// same matrix load it once. Threads that need different ones do not wait for each other. If
    /// `load` fails, all of the tensor stays on the CPU from then on.
    pub(crate) fn get_or_load(
        &self,
        matrix: MatrixKey,
        load: impl FnOnce(MatrixKey) -> Result<PackedMatrix, NodeFailure>,
    ) -> Result<Arc<PackedMatrix>, NodeFailure> {
        let slot = Arc::clone(lock(&self.matrices).entry(matrix).or_default());
        let mut slot = lock(&slot);
        if let Some((matrix, _)) = &*slot {
            return Ok(Arc::clone(matrix));
        }
        let loaded = load(matrix).inspect_err(|_| {
            self.decision.revoke(LeftOnCpu::Failed);
            self.forget();
        });
        let matrix = Arc::new(loaded?);
        *slot = Some((Arc::clone(&matrix), self.decision.count_packed()));
        Ok(matrix)
    }

    /// Inserts a matrix that was packed elsewhere.
    pub(crate) fn insert(&self, matrix: MatrixKey, packed: PackedMatrix) {
        let packed = Some((Arc::new(packed), self.decision.count_packed()));
        lock(&self.matrices).insert(matrix, Arc::new(Mutex::new(packed)));
    }

    /// Whether all matrices are packed.
    pub(crate) fn are_packed(&self) -> bool {
        // A slot is locked while its matrix is packed; the table must not wait for that.
        let slots: Vec<Slot> = lock(&self.matrices).values().cloned().collect();
        slots.len() == self.decision.matrices && slots.iter().all(|slot| lock(slot).is_some())
    }

    /// Forgets the packed matrices.
    pub(crate) fn forget(&self) {
        lock(&self.matrices).clear();
    }
}

#[cfg(test)]
pub(crate) mod tests;
