// SPDX-License-Identifier: MIT OR Apache-2.0
//! One `MUL_MAT_ID`: a matmul in which each row chooses its weight matrices, the experts.
//!
//! ```text
//! weights      [K, N, experts]
//! activations  [K, given, tokens]     given: used, or a divisor of it
//! ids          [used, tokens]         which expert
//! output       [N, used, tokens]      output[j, u, t] = sum over k of
//!                                     weights[k, j, ids[u, t]] * activations[k, u % given, t]
//! ```
//!
//! The rows that chose the same expert are one part.

use super::activation_rows::{ActivationRows, RowSet};
use super::operands::{MatmulNode, NodeCall};
use crate::decide::offload::ExpertChoice;
use crate::weights::node_error::NodeFailure;

/// Returns a part for each expert that a row of `matmul` chose; `index` is that of `matmul`.
pub(super) fn parts<'a>(
    matmul: &MatmulNode<'a>,
    index: usize,
    experts: ExpertChoice,
) -> Result<Vec<NodeCall<'a>>, NodeFailure> {
    let misplaced = || NodeFailure::Data("numbers of experts");
    let ids = matmul.ids.as_ref().ok_or_else(misplaced)?;
    let count = matmul.offload.shape.matrices[0];
    let mut chosen = vec![Vec::new(); count];
    for token in 0..matmul.offload.shape.m {
        let row = ids.row([token, 0, 0]).ok_or_else(misplaced)?;
        let (numbers, _) = row.as_chunks::<{ size_of::<i32>() }>();
        if numbers.len() != experts.used {
            return Err(misplaced());
        }
        for (slot, number) in numbers.iter().enumerate() {
            let number = i32::from_le_bytes(*number);
            let rows = usize::try_from(number)
                .ok()
                .and_then(|expert| chosen.get_mut(expert))
                .ok_or(NodeFailure::NoSuchExpert { number, count })?;
            rows.push(token * experts.used + slot);
        }
    }
    let chosen = chosen.into_iter().enumerate();
    let chosen = chosen.filter(|(_, rows)| !rows.is_empty());
    let part = |(expert, rows)| NodeCall {
        matmul: index,
        matrix: [expert, 0],
        source: ActivationRows::of(matmul.activations, &matmul.offload, RowSet::Scattered(rows)),
    };
    Ok(chosen.map(part).collect())
}
