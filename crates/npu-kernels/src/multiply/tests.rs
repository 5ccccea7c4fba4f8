// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares each version with sums of one product at a time.

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::pack::{Bytes, pack};
use crate::unpack::{Destination, TileRows, unpack};

const MODES: [Mode; 2] = [Mode::Store, Mode::Add];

type Multiply = fn(MatrixView<'_, i8>, KernelGroups<'_>, Mode, &mut [i32]);

/// What the host runs, and what it would run without dot products.
const VERSIONS: [Multiply; 2] = [multiply, portable];

/// The definition: weight (n, k) has its place, and each sum has its place.
fn reference(a: MatrixView<'_, i8>, b: KernelGroups<'_>, mode: Mode, tile: &mut [i32]) {
    let KernelGroups { weights, depth } = b;
    if a.columns() == 0 {
        return;
    }
    let channels = weights.len().checked_div(32 * depth).unwrap_or(0) * 32;
    let (atoms, _) = tile.as_chunks_mut::<4>();
    let tile = atoms.as_flattened_mut();
    for (m, n) in (0..a.rows()).flat_map(|m| (0..channels).map(move |n| (m, n))) {
        let Some(to) = tile.get_mut((n / 4 * a.rows() + m) * 4 + n % 4) else {
            continue;
        };
        if mode == Mode::Store {
            *to = 0;
        }
        for (k, &x) in a.row(m).iter().enumerate().take(depth) {
            let at = n / 32 * 32 * depth + k / 32 * 1024 + n % 32 * 32 + k % 32;
            *to = to.wrapping_add(i32::from(x) * i32::from(weights[at]));
        }
    }
}

/// Fails if a version differs from the definition in a sum or in an element without a sum.
fn check(a: MatrixView<'_, i8>, b: KernelGroups<'_>, tile: &[i32]) {
    for mode in MODES {
        let mut slow = tile.to_vec();
        reference(a, b, mode, &mut slow);
        for (version, multiply) in VERSIONS.into_iter().enumerate() {
            let mut fast = tile.to_vec();
            multiply(a, b, mode, &mut fast);
            assert!(fast == slow, "version {version}, {mode:?}");
        }
    }
}

/// Numbers from a seed: proptest takes longer to choose this many than they take to multiply.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> i32 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.0 >> 32) as i32
    }

    /// One in four is an extreme.
    fn element(&mut self) -> i8 {
        match self.next() >> 16 & 7 {
            0 => i8::MIN,
            1 => i8::MAX,
            _ => (self.next() >> 16) as i8,
        }
    }

    fn elements(&mut self, count: usize) -> Vec<i8> {
        (0..count).map(|_| self.element()).collect()
    }
}

#[derive(Clone, Debug)]
struct Case {
    a: Vec<i8>,
    rows: usize,
    columns: usize,
    stride: usize,
    weights: Vec<i8>,
    depth: usize,
    tile: Vec<i32>,
}

/// Weights that are as deep as rows with padding, deeper or less deep; whole tiles, and tiles and
/// weights that are up to a group and a half too long or too short.
fn case() -> impl Strategy<Value = Case> {
    let shape = (1..40_usize, 1..200_usize, 1..=4_usize, 0..9_usize);
    let lengths = (-300..600_isize, -300..600_isize);
    let others = (any::<bool>(), -1..4_isize, any::<u64>());
    (shape, lengths, others).prop_map(|(shape, lengths, (whole, more_blocks, seed))| {
        let (rows, columns, groups, gap) = shape;
        let (more_weights, more_sums) = if whole { (0, 0) } else { lengths };
        let stride = columns + gap;
        let depth = columns.next_multiple_of(32);
        let depth = depth.saturating_add_signed(32 * more_blocks);
        let weights = groups * 32 * depth;
        let weights = weights.saturating_add_signed(more_weights);
        let sums = (rows * groups * 32).saturating_add_signed(more_sums);
        let mut numbers = Numbers(seed);
        Case {
            a: numbers.elements(rows * stride),
            rows,
            columns,
            stride,
            weights: numbers.elements(weights),
            depth,
            tile: (0..sums).map(|_| numbers.next()).collect(),
        }
    })
}

proptest! {
    #![proptest_config(test_support::cases(128))]

    #[test]
    fn equals_the_reference(case in case()) {
        let a = MatrixView::strided(&case.a, case.rows, case.columns, case.stride).unwrap();
        let b = KernelGroups { weights: &case.weights, depth: case.depth };
        check(a, b, &case.tile);
    }
}

/// More columns than a panel has, and the largest products there are.
#[test]
fn long_rows_of_extremes() {
    for (columns, left, right) in [(1024, -128, -128), (2100, -128, 127), (1025, 127, 127)] {
        let a = vec![left; 19 * columns];
        let a = MatrixView::new(&a, 19, columns).unwrap();
        let depth = columns.next_multiple_of(32);
        let weights = &vec![right; 64 * depth];
        check(a, KernelGroups { weights, depth }, &[i32::MIN + 9; 19 * 64]);
    }
}

/// Nothing to multiply, and views with more rows than memory could hold.
#[test]
fn empty_operands() {
    let b = KernelGroups {
        weights: &[1; 2048],
        depth: 64,
    };
    let tile = [7; 256];
    let none = MatrixView::new(&[], 0, 40).unwrap();
    check(none, b, &tile);
    check(MatrixView::new(&[], 8, 0).unwrap(), b, &tile);
    let two = MatrixView::new(&[1; 80], 2, 40).unwrap();
    let weights = &b.weights[1..];
    check(two, KernelGroups { weights, ..b }, &tile);
    check(two, KernelGroups { depth: 0, ..b }, &tile);
    let rows = MatrixView::strided(&[1; 40], usize::MAX, 40, 0).unwrap();
    for multiply in VERSIONS {
        let mut tile = tile;
        multiply(rows, b, Mode::Add, &mut tile);
        // All of it belongs to the first four channels.
        assert_eq!(tile, [47; 256]);
    }
}

#[test]
fn unpack_reads_the_tile() {
    let a: Vec<i8> = (0..6 * 50).map(|at| (at % 251) as i8).collect();
    let a = MatrixView::new(&a, 6, 50).unwrap();
    let mut b = [[0_i8; 50]; 32];
    for (at, b) in b.as_flattened_mut().iter_mut().enumerate() {
        *b = (at % 241) as i8;
    }
    let mut weights = [0_u8; 32 * 64];
    let view = MatrixView::new(b.as_flattened(), 32, 50).unwrap();
    pack::<32, Bytes>(view, 32, &mut weights);
    let weights: [i8; 32 * 64] = zerocopy::transmute!(weights);
    let mut tile = [0; 6 * 32];
    let b_tile = KernelGroups {
        weights: &weights,
        depth: 64,
    };
    multiply(a, b_tile, Mode::Store, &mut tile);
    let mut rows = [0; 6 * 32];
    let from = TileRows {
        bytes: tile.as_bytes(),
        rows: 6,
        first: 0,
    };
    let to = Destination {
        rows: &mut rows,
        stride: 32,
        columns: 0..32,
    };
    unpack::<i32>(from, Mode::Store, to);
    for (at, sum) in rows.into_iter().enumerate() {
        let products = a.row(at / 32).iter().zip(b[at % 32]);
        let expected: i32 = products.map(|(&l, r)| i32::from(l) * i32::from(r)).sum();
        assert_eq!(sum, expected, "{at}");
    }
}

/// Otherwise the tests would never run the version for the board.
#[cfg(target_arch = "aarch64")]
#[test]
fn the_emulated_processor_has_dot_products() {
    assert!(!test_support::emulated() || std::arch::is_aarch64_feature_detected!("dotprod"));
}
