// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of random operands on a board.

use families::Words;
use families::conv::ConvProgram;
use families::matmul::{INT8_INT32, OperandTypes};
use rknpu_chip::{ChipOptions, Effect, Level};

use super::board::{Board, Outcome, SENTINEL, at};
use super::tensor::{Numbers, check, cube_index, dot, pack_a, pack_b};

/// Rows, inner dimension and columns.
pub(crate) type Size = (usize, usize, usize);

/// A matmul, ready to run.
pub(crate) struct BoardMatmul {
    pub(crate) board: Board,
    pub(crate) conv: ConvProgram,
    ty: OperandTypes,
    size: Size,
    a: Vec<f64>,
    b: Vec<f64>,
}

/// Places operands on a board. Returns the program and the operands.
pub(crate) fn place(
    board: &mut Board,
    numbers: &mut Numbers,
    ty: OperandTypes,
    (m, k, n): Size,
) -> (ConvProgram, [Vec<f64>; 2]) {
    let (a, b) = (numbers.values(ty, m * k), numbers.values(ty, n * k));
    let at = (
        board.place(&pack_a(ty, m, k, &a)),
        board.place(&pack_b(ty, k, &b)),
        board.reserve(m * n * ty.out_bytes()),
    );
    (ty.matmul(m as u32, k as u32, n as u32, at), [a, b])
}

impl BoardMatmul {
    pub(crate) fn new(ty: OperandTypes, size: Size, level: Level) -> Self {
        matmul_with(ty, size, &at(level))
    }

    /// The result at [`Level::Strict`], without a trap.
    pub(crate) fn right(ty: OperandTypes, size: Size) -> Vec<u8> {
        let mut matmul = Self::new(ty, size, Level::Strict);
        matmul.run().assert_clean();
        matmul.out()
    }

    pub(crate) fn run(&mut self) -> Outcome {
        self.run_on(0)
    }

    pub(crate) fn run_on(&mut self, core: usize) -> Outcome {
        let words = self.conv.task();
        let at = self.board.place_program(&words);
        self.board.kick(core, at, words.len(), 1)
    }

    /// Runs the program with changed words.
    pub(crate) fn run_with(&mut self, change: impl FnOnce(&mut Words)) -> Outcome {
        let mut words = self.conv.words();
        change(&mut words);
        self.board.run(&words.finish(families::CONV))
    }

    pub(crate) fn len(&self) -> usize {
        self.size.0 * self.size.2 * self.ty.out_bytes()
    }

    pub(crate) fn out(&self) -> Vec<u8> {
        self.board.bytes(self.conv.c, self.len())
    }

    pub(crate) fn is_untouched(&self) -> bool {
        self.out().iter().all(|&b| b == SENTINEL)
    }

    /// Compares the result with plain sums.
    #[track_caller]
    pub(crate) fn verify(&self) {
        let (m, k, n) = self.size;
        let out = self.out();
        for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
            let at = cube_index(16 / self.ty.out_bytes(), m, row, col);
            let expected = dot(&self.a, &self.b, k, row, col);
            let place = format!("{:?} {:?} at ({row}, {col})", self.ty, self.size);
            check(self.ty, &out, at, expected, &place);
        }
    }
}

pub(crate) fn matmul_with(ty: OperandTypes, size: Size, options: &ChipOptions) -> BoardMatmul {
    seeded(ty, size, options, 1)
}

pub(crate) fn seeded(
    ty: OperandTypes,
    size: Size,
    options: &ChipOptions,
    seed: u64,
) -> BoardMatmul {
    let mut board = Board::with_options(8 << 20, options);
    let (conv, [a, b]) = place(&mut board, &mut Numbers::new(seed), ty, size);
    BoardMatmul {
        board,
        conv,
        ty,
        size,
        a,
        b,
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
