// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matmuls of every type, in native layouts.

use families::conv::Rdma;
use families::matmul::{self, FP16_FP32, INT4_INT16, INT8_INT32};
use proptest::prelude::*;
use rknpu_chip::Level;

use super::board::{Board, at};
use super::board_matmul::BoardMatmul;

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn matmuls_are_exact(
        ty in prop::sample::select(matmul::ALL.to_vec()),
        m4 in 1usize..9,
        ks in 1usize..9,
        ns in 1usize..4,
        librocketnpu: bool,
        seed: u64,
    ) {
        let size = (m4 * 4, ks * ty.depth as usize, ns * ty.group as usize);
        let mut matmul = BoardMatmul::seeded(ty, size, &at(Level::Strict), seed);
        // Form B: DPU_RDMA starts, with nothing to do.
        matmul.conv.rdma = librocketnpu.then(Rdma::default);
        matmul.run().assert_clean();
        matmul.verify();
    }
}

#[test]
fn any_height_works_with_the_exact_surface_stride() {
    // mtx512 writes -3 for M = 1; Mesa's formula gives M - 4 for every M.
    for ty in matmul::ALL {
        for m in [1, 2, 3, 5, 6, 7] {
            let size = (m, 5 * ty.depth as usize, ty.group as usize);
            BoardMatmul::right(ty, size);
        }
    }
}

#[test]
fn long_rows_and_several_tiles_of_pixels() {
    for (ty, size) in [
        (INT8_INT32, (300, 1024, 64)),
        (FP16_FP32, (36, 2048, 32)),
        (INT4_INT16, (260, 256, 64)),
    ] {
        let mut matmul = BoardMatmul::new(ty, size, Level::Strict);
        let outcome = matmul.run();
        outcome.assert_clean();
        assert!(!outcome.device_time.is_zero());
        matmul.verify();
    }
}

#[test]
fn features_and_weights_are_reused_by_the_next_task() {
    let mut matmul = BoardMatmul::new(INT8_INT32, (8, 64, 64), Level::Strict);
    matmul.run().assert_clean();
    let len = matmul.len;
    matmul.conv.c = matmul.board.reserve(len);
    matmul.conv.data_reuse = true;
    matmul.conv.weight_reuse = true;
    // Addresses that do not exist show that nothing is fetched.
    matmul.conv.a = 0xffff_0000;
    matmul.conv.b = 0xfff0_0000;
    let outcome = matmul.run();
    assert!(outcome.completed());
    assert_eq!(outcome.traps(), ["T29-stale-cbuf"], "other addresses");
    matmul.verify();
}

#[test]
fn cores_do_not_share_what_they_keep() {
    let mut matmul = BoardMatmul::new(INT8_INT32, (4, 32, 32), Level::Faithful);
    for core in [0, 1, 2, 2] {
        assert!(matmul.run_on(core).completed());
        matmul.verify();
        matmul.conv.data_reuse = core == 2;
    }
    let words = matmul.conv.task();
    let outcome = Board::new(1 << 20).run(&words);
    assert_eq!(outcome.traps(), ["T29-stale-cbuf"]);
}
