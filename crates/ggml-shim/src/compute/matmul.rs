// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns ggml's matmuls into calls of the engine, all of a list at once.
//!
//! ```text
//! for each matmul of the list
//!     for each of its weight matrices that multiplies activation rows  -> a part
//!         pack the matrix, unless it is resident
//!         make the rows contiguous        (nothing to do in the usual case)
//!         FP16: round the rows            (once for all parts of the same rows)
//! multiply all parts                      (the engine quantises rows for INT8, once)
//! correct the outputs, and copy rows that chose their weights to their places
//! ```
//!
//! Matmuls of a list do not depend on each other: none writes what another reads or writes. The
//! engine does tiling, packing and quantising.

mod activation_rows;
mod by_expert;
mod operands;
mod rows;

use std::collections::HashMap;
use std::sync::Arc;

use npu_matmul::{AbortCheck, Engine};

use self::activation_rows::{ActivationRows, RowSet};
pub(crate) use self::operands::MatmulNode;
use self::operands::NodeCall;
use self::rows::CallRows;
pub(crate) use self::rows::RowScratch;
use crate::decide::offload::MatmulSize;
use crate::ggml::tensor_data::{NodeOutput, TensorMatrix};
use crate::weights::node_error::{FailedNode, NodeFailure};
use crate::weights::pack::{self, PackedMatrix};
use crate::weights::packed_tensor::MatrixKey;
use crate::weights::verify::OriginalWeights;

/// Limits of the memory that a batch holds beside the weights that are kept: no budget counts it. A
/// single part may exceed them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GroupLimits {
    /// Elements of weights that are packed for this batch only.
    weights: usize,
    /// Elements of rows that are copied for it, and of outputs that are set aside.
    rows: usize,
}

/// Half a gibibyte of FP16 weights, and 64 MiB of binary32 rows and outputs, with half as much more
/// for the rows in FP16: far more jobs than one wave of the engine has.
pub(crate) const MOST: GroupLimits = GroupLimits {
    weights: 1 << 28,
    rows: 1 << 24,
};

impl GroupLimits {
    fn with(self, more: Self) -> Self {
        Self {
            weights: self.weights.saturating_add(more.weights),
            rows: self.rows.saturating_add(more.rows),
        }
    }

    fn fits(self, more: Self, most: Self) -> bool {
        let all = self.with(more);
        all.weights <= most.weights && all.rows <= most.rows
    }
}

/// Computes matmuls that do not depend on each other, in batches of at most these sizes. `gives_up` is
/// asked before a failed job runs again.
///
/// # Errors
/// See [`NodeFailure`]; then all outputs are invalid.
pub(crate) fn compute(
    engine: &Engine,
    scratch: &RowScratch,
    matmuls: &mut [MatmulNode<'_>],
    most: GroupLimits,
    gives_up: AbortCheck<'_>,
) -> Result<(), FailedNode> {
    let mut batch = CallGroup::new(engine, scratch, most, gives_up);
    for index in 0..matmuls.len() {
        let matmul = &matmuls[index];
        let parts = match matmul.offload.experts {
            Some(experts) => by_expert::parts(matmul, index, experts),
            None => Ok(parts(matmul, index)),
        };
        for part in parts.map_err(FailedNode::of(index))? {
            batch.push(matmuls, part)?;
        }
    }
    batch.flush(matmuls)
}

/// Returns each weight matrix with the activation rows that it multiplies, in the order of the
/// outputs.
fn parts<'a>(matmul: &MatmulNode<'a>, index: usize) -> Vec<NodeCall<'a>> {
    let MatmulSize {
        m,
        matrices,
        repeats,
        ..
    } = matmul.offload.shape;
    // Matrices next to each other in dimension 2 that the same weights multiply are one run of
    // rows, and so are their outputs.
    let rows = repeats[0] * m;
    let runs = matrices[0] * matrices[1] * repeats[1];
    let part = |run: usize| NodeCall {
        matmul: index,
        matrix: [run % matrices[0], run / matrices[0] / repeats[1]],
        source: ActivationRows::of(
            matmul.activations,
            &matmul.offload,
            RowSet::Run(run * rows..(run + 1) * rows),
        ),
    };
    (0..runs).map(part).collect()
}

/// Parts that wait for the engine.
struct CallGroup<'e, 'a> {
    engine: &'e Engine,
    scratch: &'e RowScratch,
    gives_up: AbortCheck<'e>,
    most: GroupLimits,
    /// What it holds now.
    held: GroupLimits,
    /// Weight matrices of this batch, by matmul and index.
    loaded: HashMap<(usize, [usize; 2]), Arc<PackedMatrix>>,
    rows: Vec<CallRows<'a>>,
    /// Parts, with their weights and the index of their rows.
    parts: Vec<(NodeCall<'a>, Arc<PackedMatrix>, usize)>,
}

impl<'e, 'a> CallGroup<'e, 'a> {
    fn new(
        engine: &'e Engine,
        scratch: &'e RowScratch,
        most: GroupLimits,
        gives_up: AbortCheck<'e>,
    ) -> Self {
        Self {
            engine,
            scratch,
            gives_up,
            most,
            held: GroupLimits::default(),
            loaded: HashMap::new(),
            rows: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Adds a part. First computes the present parts, if both together would exceed the limits.
    fn push(
        &mut self,
        matmuls: &mut [MatmulNode<'a>],
        part: NodeCall<'a>,
    ) -> Result<(), FailedNode> {
        // No matmul of the batch writes what another reads.
        let same = |(other, ..): &&(NodeCall<'a>, _, _)| part.source == other.source;
        let mut rows = self.parts.iter().find(same).map(|(.., rows)| *rows);
        let mut more = self.held_by(&matmuls[part.matmul], &part, rows.is_some());
        if !self.parts.is_empty() && !self.held.fits(more, self.most) {
            self.flush(matmuls)?;
            rows = None;
            more = self.held_by(&matmuls[part.matmul], &part, false);
        }
        let matmul = &matmuls[part.matmul];
        let failed = FailedNode::of(part.matmul);
        let packed = self.weights(matmul, &part).map_err(&failed)?;
        let rows = match rows {
            Some(rows) => rows,
            None => {
                let rows = part.source.prepare(self.engine, self.scratch);
                self.rows.push(rows.map_err(&failed)?);
                self.rows.len() - 1
            }
        };
        self.held = self.held.with(more);
        self.parts.push((part, packed, rows));
        Ok(())
    }

    /// What the batch would hold in addition for this part, whose rows it has if `has_rows`.
    fn held_by(&self, matmul: &MatmulNode<'_>, part: &NodeCall<'_>, has_rows: bool) -> GroupLimits {
        let MatmulSize { n, k, .. } = matmul.offload.shape;
        let is_held =
            matmul.kept.is_some() || self.loaded.contains_key(&(part.matmul, part.matrix));
        let outputs = match &part.source.rows {
            RowSet::Run(_) => 0,
            RowSet::Scattered(rows) => rows.len() * n,
        };
        let made = if has_rows { 0 } else { part.source.elements() };
        GroupLimits {
            weights: if is_held { 0 } else { n * k },
            rows: made.saturating_add(outputs),
        }
    }

    /// Computes the parts of the batch, which is empty then.
    fn flush(&mut self, matmuls: &mut [MatmulNode<'a>]) -> Result<(), FailedNode> {
        let parts = std::mem::take(&mut self.parts);
        let rows = std::mem::take(&mut self.rows);
        self.loaded.clear();
        self.held = GroupLimits::default();
        if parts.is_empty() {
            return Ok(());
        }
        let mut outputs = self.outputs(matmuls, &parts)?;
        let mut prepared_matmuls = Vec::with_capacity(parts.len());
        for (part, packed, _) in &parts {
            let prepared = (self.engine).prepare(&packed.weights, part.source.rows.len());
            prepared_matmuls
                .push(prepared.map_err(|error| FailedNode::of(part.matmul)(error.into()))?);
        }
        let calls = prepared_matmuls.iter().zip(&parts).zip(&mut outputs);
        let calls = calls.map(|((prepared, (_, _, at)), out)| {
            prepared.call(rows[*at].activations(), out.values_mut())
        });
        let computed = self.engine.run_abortable(calls, self.gives_up);
        computed.map_err(|error| {
            let matmul = parts[error.call].0.matmul;
            FailedNode::of(matmul)(error.source.into())
        })?;
        drop(prepared_matmuls);
        let mut scattered = Vec::new();
        for ((part, packed, at), mut out) in parts.iter().zip(outputs) {
            rows[*at].correct(&packed.factors, packed.weights.n(), out.values_mut());
            if let NodeOutput::Aside(values) = out {
                scattered.push((part, values));
            }
        }
        for (part, values) in scattered {
            let matmul = &mut matmuls[part.matmul];
            let copied = self.scatter(matmul, part, values);
            copied.map_err(FailedNode::of(part.matmul))?;
        }
        for (part, packed, _) in &parts {
            let matmul = &mut matmuls[part.matmul];
            let verified = verify(matmul, part, packed);
            verified.map_err(FailedNode::of(part.matmul))?;
        }
        for rows in rows {
            rows.recycle(self.scratch);
        }
        Ok(())
    }

    /// Returns the memory for each part's outputs: for runs of rows it is in the node's output. The
    /// runs of one matmul come in order.
    fn outputs<'p>(
        &self,
        matmuls: &'p mut [MatmulNode<'a>],
        parts: &[(NodeCall<'a>, Arc<PackedMatrix>, usize)],
    ) -> Result<Vec<NodeOutput<'p>>, FailedNode> {
        // The rest of each matmul's output, and the index of its first element.
        let outputs = matmuls.iter_mut();
        let mut left: Vec<_> = outputs.map(|matmul| (0, matmul.out.values_mut())).collect();
        let mut part_output = |part: &NodeCall<'_>, n: usize| {
            let rows = match &part.source.rows {
                RowSet::Run(rows) => rows,
                RowSet::Scattered(rows) => {
                    let values = self.scratch.floats.take(rows.len() * n);
                    return Ok(NodeOutput::Aside(values?));
                }
            };
            let (start, out) = std::mem::take(&mut left[part.matmul]);
            let skipped = (rows.start * n).checked_sub(start);
            let tail = skipped.and_then(|skipped| out.get_mut(skipped..));
            let split = tail.and_then(|tail| tail.split_at_mut_checked(rows.len() * n));
            let (values, tail) = split.ok_or(NodeFailure::Data("outputs"))?;
            left[part.matmul] = (rows.end * n, tail);
            Ok(NodeOutput::InPlace(values))
        };
        let each = parts.iter().map(|(part, packed, _)| {
            let output = part_output(part, packed.weights.n());
            output.map_err(FailedNode::of(part.matmul))
        });
        each.collect()
    }

    /// Copies outputs to their rows of the node's output.
    fn scatter(
        &self,
        matmul: &mut MatmulNode<'_>,
        part: &NodeCall<'_>,
        values: Vec<f32>,
    ) -> Result<(), NodeFailure> {
        let n = matmul.offload.shape.n;
        for (row, values) in part.source.rows.iter().zip(values.chunks_exact(n)) {
            let row = matmul.out.values_mut().get_mut(row * n..(row + 1) * n);
            row.ok_or(NodeFailure::Data("outputs"))?
                .copy_from_slice(values);
        }
        self.scratch.floats.put(values);
        Ok(())
    }

    /// Returns the packed weights of a part.
    fn weights(
        &mut self,
        matmul: &MatmulNode<'_>,
        part: &NodeCall<'_>,
    ) -> Result<Arc<PackedMatrix>, NodeFailure> {
        if let Some(found) = self.loaded.get(&(part.matmul, part.matrix)) {
            return Ok(Arc::clone(found));
        }
        let load = |key: MatrixKey| {
            if matmul.weights.bytes.is_empty() {
                return Err(NodeFailure::NotPacked);
            }
            let matrix = TensorMatrix::new(&matmul.weights, key.index)
                .ok_or(NodeFailure::Data("weights"))?;
            // The original is not kept, as it can be read again in place.
            pack::load_matrix(self.engine, key.precision, &matrix, false)
        };
        let key = MatrixKey {
            index: part.matrix,
            precision: matmul.offload.precision,
        };
        let packed = match &matmul.kept {
            Some(kept) => kept.get_or_load(key, load)?,
            None => Arc::new(load(key)?),
        };
        self.loaded
            .insert((part.matmul, part.matrix), Arc::clone(&packed));
        Ok(packed)
    }
}

/// Compares the outputs of a part with the CPU's, if the matmul is verified: with the current
/// weights or, if these cannot be read in place, with those of the model file.
fn verify(
    matmul: &mut MatmulNode<'_>,
    part: &NodeCall<'_>,
    packed: &PackedMatrix,
) -> Result<(), NodeFailure> {
    let Some(mut errors) = matmul.errors else {
        return Ok(());
    };
    let now = TensorMatrix::new(&matmul.weights, part.matrix);
    let original = packed.original.as_ref().map(OriginalWeights::matrix);
    let Some(weights) = now.or(original) else {
        return Ok(());
    };
    let n = matmul.offload.shape.n;
    let (mut activations, mut out) = (Vec::new(), Vec::new());
    for row in part.source.rows.iter() {
        activations.extend_from_slice(part.source.row(row)?);
        out.extend_from_slice(&matmul.out.values()[row * n..][..n]);
    }
    errors.add(&weights, &activations, &out);
    matmul.errors = Some(errors);
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
