// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matrix products of every type, native layouts.

use proptest::prelude::*;

use super::board::Board;
use super::programs::{MatType, Rdma};
use super::tensor::{Numbers, check, dot, pack_a, pack_b, value};

struct Product {
    board: Board,
    a: Vec<f64>,
    b: Vec<f64>,
    at: (u32, u32, u32),
    shape: (usize, usize, usize),
}

fn product(ty: MatType, (m, k, n): (usize, usize, usize), seed: u64) -> Product {
    let mut numbers = Numbers::new(seed);
    let mut board = Board::strict(8 << 20);
    let a: Vec<f64> = (0..m * k).map(|_| value(ty, &mut numbers)).collect();
    let b: Vec<f64> = (0..n * k).map(|_| value(ty, &mut numbers)).collect();
    let at = (
        board.place(&pack_a(ty, m, k, &a)),
        board.place(&pack_b(ty, k, &b)),
        board.reserve(m * n * ty.out_bytes()),
    );
    Product {
        board,
        a,
        b,
        at,
        shape: (m, k, n),
    }
}

#[track_caller]
fn verify(ty: MatType, product: &Product) {
    let (m, k, n) = product.shape;
    let out = ty.out_bytes();
    let co2 = 16 / out;
    let c = product.board.bytes(product.at.2, m * n * out);
    for row in 0..m {
        for col in 0..n {
            let at = ((col / co2) * m + row) * 16 + (col % co2) * out;
            let expected = dot(&product.a, &product.b, k, row, col);
            let place = format!("{ty:?} {m}x{k}x{n} at ({row}, {col})");
            check(ty, &c[at..at + out], expected, &place);
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn products_are_exact(
        ty in prop::sample::select(MatType::ALL.to_vec()),
        m4 in 1usize..9,
        ks in 1usize..9,
        ns in 1usize..4,
        librocketnpu: bool,
        seed: u64,
    ) {
        let (km, nm) = ty.multiples();
        let shape = (m4 * 4, ks * km, ns * nm);
        let mut product = product(ty, shape, seed);
        let mut conv = ty.matmul(shape.0 as u32, shape.1 as u32, shape.2 as u32, product.at);
        // The form with DPU_RDMA, which then has nothing to do.
        if librocketnpu {
            conv.rdma = Some(Rdma::default());
        }
        product.board.run(&conv.program()).assert_clean();
        verify(ty, &product);
    }
}

#[test]
fn any_height_works_with_the_exact_surface_stride() {
    // mtx512 writes -3 for M = 1; Mesa's formula gives M - 4 for every M.
    for ty in MatType::ALL {
        for m in [1, 2, 3, 5, 6, 7] {
            let (km, nm) = ty.multiples();
            let shape = (m, 5 * km, nm);
            let mut product = product(ty, shape, m as u64);
            let conv = ty.matmul(m as u32, shape.1 as u32, shape.2 as u32, product.at);
            product.board.run(&conv.program()).assert_clean();
            verify(ty, &product);
        }
    }
}

#[test]
fn long_rows_and_several_tiles_of_pixels() {
    for (ty, shape) in [
        (MatType::Int8Int32, (300, 1024, 64)),
        (MatType::Fp16Fp32, (36, 2048, 32)),
        (MatType::Int4Int16, (260, 256, 64)),
    ] {
        let mut product = product(ty, shape, 7);
        let conv = ty.matmul(shape.0 as u32, shape.1 as u32, shape.2 as u32, product.at);
        let outcome = product.board.run(&conv.program());
        outcome.assert_clean();
        assert!(!outcome.device_time.is_zero());
        verify(ty, &product);
    }
}

#[test]
fn features_and_weights_are_reused_by_the_next_task() {
    let ty = MatType::Int8Int32;
    let (m, k, n) = (8, 64, 32);
    let mut product = product(ty, (m, k, n), 3);
    let mut conv = ty.matmul(m as u32, k as u32, n as u32, product.at);
    product.board.run(&conv.program()).assert_clean();
    let second = product.board.reserve(m * n * 4);
    conv.c = second;
    conv.data_reuse = true;
    conv.weight_reuse = true;
    // Addresses that do not exist show that nothing is fetched.
    conv.a = 0xffff_0000;
    conv.b = 0xfff0_0000;
    let outcome = product.board.run(&conv.program());
    assert!(outcome.completed());
    assert_eq!(outcome.traps(), ["T29-stale-cbuf"], "other addresses");
    product.at.2 = second;
    verify(ty, &product);
}

#[test]
fn cores_do_not_share_what_they_keep() {
    let ty = MatType::Int8Int32;
    let mut product = product(ty, (4, 32, 32), 5);
    let mut conv = ty.matmul(4, 32, 32, product.at);
    for index in 0..3 {
        let words = conv.program();
        let at = product.board.place_program(&words);
        assert!(product.board.kick(index, at, words.len(), 1).completed());
        verify(ty, &product);
    }
    conv.data_reuse = true;
    let words = conv.program();
    let at = product.board.place_program(&words);
    assert!(product.board.kick(2, at, words.len(), 1).completed());
    let outcome = {
        let mut fresh = Board::new(1 << 20);
        fresh.run(&words)
    };
    assert_eq!(outcome.traps(), ["T29-stale-cbuf"]);
}
