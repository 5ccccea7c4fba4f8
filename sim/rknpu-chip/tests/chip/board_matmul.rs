// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of random operands on a board.

use families::conv::ConvProgram;
use families::matmul::{INT8_INT32, OperandTypes};
use rknpu_chip::{ChipOptions, Effect, Level};

use super::board::{Board, Outcome, SENTINEL, at};
use super::convolution::{Shape, Tensors};

/// Rows, inner dimension and columns.
pub(crate) type Size = (usize, usize, usize);

/// A matmul, ready to run.
pub(crate) struct BoardMatmul {
    pub(crate) board: Board,
    pub(crate) conv: ConvProgram,
    ty: OperandTypes,
    tensors: Tensors,
    /// Bytes of the result.
    pub(crate) len: usize,
}

/// A matmul as a convolution.
pub(crate) fn shape((m, k, n): Size) -> Shape {
    Shape::plain((1, m, k), n, (1, 1))
}

impl BoardMatmul {
    pub(crate) fn new(ty: OperandTypes, size: Size, level: Level) -> Self {
        Self::seeded(ty, size, &at(level), 1)
    }

    pub(crate) fn seeded(ty: OperandTypes, size: Size, options: &ChipOptions, seed: u64) -> Self {
        let mut board = Board::with_options(8 << 20, options);
        let (tensors, conv, len) = Tensors::place(&mut board, &shape(size), ty, false, seed);
        Self {
            board,
            conv,
            ty,
            tensors,
            len,
        }
    }

    /// The result at [`Level::Strict`], without a trap. Compares it with plain
    /// sums.
    #[track_caller]
    pub(crate) fn right(ty: OperandTypes, size: Size) -> Vec<u8> {
        let mut matmul = Self::new(ty, size, Level::Strict);
        matmul.run().assert_clean();
        matmul.verify();
        matmul.out()
    }

    pub(crate) fn run(&mut self) -> Outcome {
        self.run_on(0)
    }

    pub(crate) fn run_on(&mut self, core: usize) -> Outcome {
        self.board.run_on(core, &self.conv.task())
    }

    /// Runs the program with other values in some registers, and without others.
    pub(crate) fn run_with(&mut self, changes: &[(u16, u32)], left_out: &[u16]) -> Outcome {
        let mut words = self.conv.words();
        for &(offset, value) in changes {
            words.change(offset, value);
        }
        for &offset in left_out {
            words.remove(offset);
        }
        self.board.run(&words.finish(families::CONV))
    }

    pub(crate) fn out(&self) -> Vec<u8> {
        self.board.bytes(self.conv.c, self.len)
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.out().iter().all(|&b| b == SENTINEL)
    }

    /// Compares the result with plain sums.
    #[track_caller]
    pub(crate) fn verify(&self) {
        self.tensors.assert_sums(self.ty, &self.out(), |_| 0.0);
    }
}

pub(crate) fn small() -> BoardMatmul {
    BoardMatmul::new(INT8_INT32, (8, 64, 64), Level::Faithful)
}

#[track_caller]
pub(crate) fn assert_trap(outcome: &Outcome, trap: &str, effect: Effect) {
    let found = outcome.diagnosis.iter().find(|d| d.trap == trap);
    let Some(found) = found else {
        panic!("{trap} is not in {:#?}", outcome.diagnosis);
    };
    assert_eq!(found.effect, effect);
    assert!(!found.rule.is_empty() && !found.remedy.is_empty());
    // A task that hangs raises no interrupt.
    assert_eq!(outcome.completed(), effect != Effect::Hang, "{trap}");
}
