// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares each kernel with scalar code, one element at a time.

use proptest::prelude::*;

use super::*;

/// Bits of any float, and numbers near 0.
fn any_float() -> impl Strategy<Value = f32> {
    prop_oneof![
        any::<u32>().prop_map(f32::from_bits),
        -100.0_f32..100.0,
        prop::sample::select(&[f32::NEG_INFINITY, f32::NAN, 0.0][..]),
    ]
}

/// A tile of these scores, given row by row.
fn tile(scores: &[f32], rows: usize) -> Vec<Atom> {
    let keys = scores.len() / rows;
    let mut atoms = vec![[0; 16]; keys.div_ceil(SCORES) * rows];
    for (at, score) in scores.iter().enumerate() {
        let (row, key) = (at / keys, at % keys);
        let byte = key % SCORES * 4;
        atoms[key / SCORES * rows + row][byte..byte + 4].copy_from_slice(&score.to_le_bytes());
    }
    atoms
}

type Exponentials = fn(&[f32], usize, &[f32], &mut [&mut [Atom]]);

/// The exponentials of rows of `keys` scores, by `kernel`: rows of bits.
fn exponentials_by(kernel: Exponentials, scores: &[f32], keys: usize, maxima: &[f32]) -> Vec<u16> {
    let rows = maxima.len();
    let mut out = vec![[0; 16]; keys / LANES * rows];
    let mut surfaces: Vec<_> = out.chunks_mut(rows).collect();
    kernel(scores, keys, maxima, &mut surfaces);
    let halves = (0..rows * keys).map(|at| {
        let (row, key) = (at / keys, at % keys);
        let atom = out[key / LANES * rows + row];
        u16::from_le_bytes(atom.as_chunks().0[key % LANES])
    });
    halves.collect()
}

#[test]
fn exponentials_are_as_near_as_they_say() {
    for at in 0..4_000_000_u32 {
        let x = -(at as f32) / 1e5;
        let got = exponential(x);
        let expected = f64::from(ONE) * f64::from(x).exp();
        let near = (f64::from(got) - expected).abs() <= 1.05e-4 * expected;
        let is_tiny = got <= 2_f32.powi(-26) && expected < 2_f64.powi(-26) * 1.01;
        assert!(near || is_tiny, "{x} {got} {expected}");
    }
    assert_eq!(exponential(0.0), ONE);
    for least in [f32::NEG_INFINITY, f32::NAN, -1e30] {
        assert_eq!(f16::from_f32(exponential(least)), f16::ZERO);
    }
}

#[test]
fn tanh_is_near() {
    for at in -4000..4000 {
        let x = at as f32 / 200.0;
        let error = f64::from(tanh(x)) - f64::from(x).tanh();
        assert!(error.abs() < 5e-7, "{x}: {error}");
    }
}

/// A block of rows, each with as many scores.
fn rows_of_scores() -> impl Strategy<Value = (usize, Vec<f32>)> {
    (1..4_usize, 1..6_usize).prop_flat_map(|(groups, surfaces)| {
        let rows = GROUP * groups;
        let scores = prop::collection::vec(any_float(), rows * surfaces * LANES);
        (Just(rows), scores)
    })
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn scores_are_read_and_added(
        groups in 1..6_usize,
        first in 0..6_usize,
        beyond in 0..3_usize,
        keys in 1..12_usize,
        factors in prop::collection::vec((-8..8_i32).prop_map(|power| 2_f32.powi(power)), 4 * 12),
        seed in any::<u32>(),
    ) {
        let (keys, rows) = (SCORES * keys, GROUP * (groups + first + beyond));
        let (first, factors) = (GROUP * first, &factors[..GROUP * groups]);
        let score = |at: usize| (seed.wrapping_mul(at as u32 + 1) % 2001) as f32 - 1000.0;
        let scores: Vec<_> = (0..rows * keys).map(score).collect();
        let surfaces = tile(&scores, rows);
        let from = ScoreRows { surfaces: &surfaces, rows, first };
        let stride = keys + 8;
        let mut to = vec![f32::NAN; factors.len() * stride];
        for (mode, times) in [(ReadMode::Store, 1.0), (ReadMode::Add, 2.0)] {
            read_scores(from, mode, factors, &mut to, stride);
            for (row, (to, factor)) in to.chunks(stride).zip(factors).enumerate() {
                let row_scores = &scores[(first + row) * keys..][..keys];
                let expected: Vec<_> = row_scores.iter().map(|score| times * score * factor).collect();
                prop_assert_eq!(&to[..keys], &expected[..]);
                prop_assert!(to[keys..].iter().all(|x| x.is_nan()));
            }
        }
    }

    #[test]
    fn the_largest_is_exact(scores in prop::collection::vec(any_float(), 0..100)) {
        let numbers: Vec<_> = scores.iter().copied().filter(|x| !x.is_nan()).collect();
        let expected = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        prop_assert_eq!(largest(&numbers), expected);
        prop_assert_eq!(largest_by_integers(&numbers), expected);
        prop_assert_eq!(largest(&scores).is_nan(), numbers.len() < scores.len());
    }

    #[test]
    fn exponentials_have_the_bits_of_the_definition((rows, scores) in rows_of_scores()) {
        let keys = scores.len() / rows;
        let maxima: Vec<_> = scores.chunks(keys).map(|row| {
            let finite = row.iter().copied().filter(|x| x.is_finite());
            finite.fold(-1e30, f32::max)
        }).collect();
        let [fast, slow] = [exponentials, reference]
            .map(|kernel| exponentials_by(kernel, &scores, keys, &maxima));
        prop_assert_eq!(&fast, &slow);
        for (at, got) in fast.iter().enumerate() {
            let expected = f16::from_f32(exponential(scores[at] - maxima[at / keys]));
            prop_assert_eq!(*got, expected.to_bits());
        }
    }

    #[test]
    fn rows_are_cut_and_biased(
        scores in prop::collection::vec(-1e3_f32..1e3, 1..300),
        garbage in any_float(),
        beyond in 0..12_usize,
        mask in prop::collection::vec(prop::sample::select(&[0.0_f32, -1.5, f32::NEG_INFINITY][..]), 300),
        softcap in prop::sample::select(&[0.0_f32, 30.0][..]),
        slope in 0.1_f32..2.0,
    ) {
        let masked = scores.len().saturating_sub(beyond);
        let mask: Vec<_> = mask[..masked].iter().copied().map(f16::from_f32).collect();
        // A hidden score may be anything.
        let scores: Vec<_> = scores.iter().enumerate().map(|(key, score)| match mask.get(key) {
            Some(m) if *m == f16::NEG_INFINITY => garbage,
            _ => *score,
        }).collect();
        let cut: Vec<_> = mask.iter().map(|&m| if m == f16::ZERO { m } else { f16::NEG_INFINITY }).collect();
        let mut after = scores.clone();
        cut_row(&mut after, &cut);
        for (key, after) in after.into_iter().enumerate() {
            let expected = match cut.get(key) {
                Some(m) if *m == f16::NEG_INFINITY => f32::NEG_INFINITY,
                _ => scores[key],
            };
            prop_assert_eq!(after, expected);
        }
        for mask in [None, Some(&mask[..])] {
            let mut after = scores.clone();
            bias_row(&mut after, mask, Bias { softcap, slope });
            for (key, after) in after.into_iter().enumerate() {
                let x = scores[key];
                let x = if softcap == 0.0 { x } else { softcap * tanh(x / softcap) };
                let expected = match mask.and_then(|mask| mask.get(key)) {
                    Some(m) if *m == f16::NEG_INFINITY => f32::NEG_INFINITY,
                    Some(m) => x + slope * m.to_f32(),
                    None => x,
                };
                let same = after == expected || after.is_nan() && expected.is_nan();
                prop_assert!(same, "{} {}", after, expected);
            }
        }
    }
}
