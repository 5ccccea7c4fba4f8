// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs activations by look-up on a board.

pub(crate) use families::lookup::{Activation, logistic};
use half::f16;

use super::board::{Board, Outcome};

/// Values of an atom.
const LANES: usize = 8;
/// The widest task: wider ones lose values at their end (T30).
const WIDEST: usize = 4096 * LANES;

/// The results of an activation, and the traps of its tasks.
pub(crate) fn run(activation: &Activation, arguments: &[f16]) -> (Vec<f16>, Vec<&'static str>) {
    let (mut results, mut traps) = (Vec::new(), Vec::new());
    for part in arguments.chunks(WIDEST) {
        let (of_part, outcome) = run_on(activation, &mut Board::new(1 << 18), part);
        results.extend(of_part);
        traps.extend(outcome.traps());
    }
    (results, traps)
}

pub(crate) fn run_on(
    activation: &Activation,
    board: &mut Board,
    arguments: &[f16],
) -> (Vec<f16>, Outcome) {
    let cols = arguments.len().div_ceil(LANES);
    // 1, in the rest of the last atom, causes no trap.
    let mut padded = arguments.to_vec();
    padded.resize(cols * LANES, f16::ONE);
    let bytes: Vec<u8> = padded.into_iter().flat_map(f16::to_le_bytes).collect();
    let a = board.place(&bytes);
    let d = board.reserve(bytes.len());
    let outcome = board.run(&activation.program(cols as u32, (a, d)));
    assert!(outcome.completed());
    let results = board.bytes(d, size_of_val(arguments));
    let results = results.as_chunks().0.iter();
    let results = results.map(|&value| f16::from_le_bytes(value)).collect();
    (results, outcome)
}
