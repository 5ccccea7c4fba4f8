// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantisation schemes of weights and of their activations.

/// Longest dot product of quantised INT8 operands whose sum fits in 32 bits for all values.
pub const INT8_K_MAX: usize = i32::MAX as usize / (127 * 127);

/// A quantisation scheme: bits of weights (W) and activations (A), and whether both are
/// [rotated](super::rotate) first, which spreads outliers of the activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantisation {
    /// INT8 x INT8, with one scale for each output channel and each row of activations.
    W8A8,
    /// As `W8A8` with rotated operands. More accurate if activations have outliers. The CPU rotates
    /// the activations in each call.
    W8A8Hadamard,
}

impl Quantisation {
    /// All schemes, for tables and tests.
    pub const ALL: [Self; 2] = [Self::W8A8, Self::W8A8Hadamard];

    /// Whether both operands are rotated.
    #[must_use]
    pub const fn is_rotated(self) -> bool {
        matches!(self, Self::W8A8Hadamard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_sums_fit() {
        let largest = |k: usize| 127 * 127 * k as i64;
        assert!(largest(INT8_K_MAX) <= i64::from(i32::MAX));
        assert!(largest(INT8_K_MAX + 1) > i64::from(i32::MAX));
    }
}
