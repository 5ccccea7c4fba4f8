// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares each kernel with scalar code, one element at a time.

use proptest::prelude::*;

use super::*;

/// A tile of these scores, given row by row.
fn tile(scores: &[f16], rows: usize) -> Vec<Atom> {
    let keys = scores.len() / rows;
    let mut atoms = vec![[0; 16]; keys.div_ceil(LANES) * rows];
    for row in 0..rows {
        for key in 0..keys {
            put(&mut atoms, rows, row, key, scores[row * keys + key]);
        }
    }
    atoms
}

fn put(tile: &mut [Atom], rows: usize, row: usize, key: usize, score: f16) {
    let at = key % LANES * 2;
    tile[key / LANES * rows + row][at..at + 2].copy_from_slice(&score.to_le_bytes());
}

fn get(tile: &[Atom], rows: usize, row: usize, key: usize) -> f16 {
    let at = key % LANES * 2;
    let atom = tile[key / LANES * rows + row];
    f16::from_le_bytes([atom[at], atom[at + 1]])
}

fn any_half() -> impl Strategy<Value = f16> {
    prop_oneof![
        any::<u16>().prop_map(f16::from_bits),
        (-100.0_f32..100.0).prop_map(f16::from_f32),
    ]
}

#[test]
fn every_score_becomes_the_bits_of_the_definition() {
    let every: Vec<_> = (0..=u16::MAX).map(f16::from_bits).collect();
    for most in [
        -f16::INFINITY,
        f16::MIN,
        f16::ZERO,
        f16::from_f32(81.3),
        f16::MAX,
        f16::INFINITY,
        f16::NAN,
    ] {
        for rows in [1, 4, 32] {
            let mut fast = tile(&every, rows);
            let mut slow = fast.clone();
            let offsets = vec![offset(most); rows];
            exponentials(&mut fast, &offsets);
            reference(&mut slow, &offsets);
            assert_eq!(fast, slow, "{most} {rows}");
        }
    }
}

#[test]
fn exponentials_are_as_near_as_they_say() {
    for most in [-90.0, -1.5, 0.0, 7.25, 80.0, 60000.0] {
        let most = f16::from_f32(most);
        for bits in 0..=u16::MAX {
            let score = f16::from_bits(bits);
            if score.is_nan() || score > most {
                continue;
            }
            let got = exponential(score.to_f32(), offset(most));
            let expected = (score.to_f64() - most.to_f64()).exp();
            // The offset is rounded, and so is the exponent.
            let share = 1.05e-4 + 2_f64.powi(-22) * most.to_f64().abs();
            let near = (f64::from(got) - expected).abs() <= share * expected;
            assert!(
                near || (got <= 2_f32.powi(-26) && expected < 2_f64.powi(-26) * 1.01),
                "{score} {most} {got} {expected}"
            );
        }
        assert_eq!(exponential(most.to_f32(), offset(most)).round(), 1.0);
    }
    assert_eq!(
        f16::from_f32(exponential(f32::NEG_INFINITY, 0.0)),
        f16::ZERO
    );
    assert_eq!(exponential(f32::INFINITY, offset(f16::INFINITY)), 1.0);
}

#[test]
fn halves_in_order() {
    let mut every: Vec<_> = (0..=u16::MAX)
        .map(f16::from_bits)
        .filter(|x| !x.is_nan())
        .collect();
    every.sort_by_key(|x| ordered(x.to_bits().cast_signed()));
    assert!(every.is_sorted());
    for bits in 0..=u16::MAX {
        assert_eq!(ordered(ordered(bits.cast_signed())), bits.cast_signed());
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

proptest! {
    #![proptest_config(test_support::cases(64))]

    #[test]
    fn maxima_are_exact(
        (rows, scores) in (1..9_usize, 1..6_usize).prop_flat_map(|(rows, surfaces)| {
            let scores = prop::collection::vec((-70000.0_f32..70000.0).prop_map(f16::from_f32), rows * surfaces * LANES);
            (Just(rows), scores)
        }),
    ) {
        let mut maxima = vec![NO_MAXIMUM; rows];
        take_maxima(&tile(&scores, rows), &mut maxima);
        for (row, maxima) in maxima.iter().enumerate() {
            let keys = scores.len() / rows;
            let of_row = scores[row * keys..][..keys].iter().copied();
            prop_assert_eq!(maximum(maxima), of_row.fold(f16::NEG_INFINITY, f16::max));
        }
    }

    #[test]
    fn rows_are_cut_and_biased(
        rows in 1..6_usize,
        surfaces in 1..5_usize,
        beyond in 0..12_usize,
        scores in prop::collection::vec(any_half(), 5 * 4 * 8),
        mask in prop::collection::vec(prop::sample::select(&[0.0_f32, -1.5, f32::NEG_INFINITY][..]), 32),
        softcap in prop::sample::select(&[0.0_f32, 30.0][..]),
        slope in 0.1_f32..2.0,
    ) {
        let scores: Vec<_> = scores.into_iter().map(|x| if x.is_finite() { x } else { f16::ONE }).collect();
        let keys = surfaces * LANES;
        let scores = &scores[..rows * keys];
        let before = tile(scores, rows);
        let masked = keys.saturating_sub(beyond);
        let row = rows / 2;

        let cut: Vec<_> = mask.iter().map(|&x| if x == 0.0 { f16::ZERO } else { f16::NEG_INFINITY }).collect();
        let mut after = before.clone();
        cut_row(&mut after, rows, row, &cut[..masked]);
        let mut expected = before.clone();
        for (key, mask) in (0..keys).map(|key| (key, cut[..masked].get(key))) {
            if mask != Some(&f16::ZERO) {
                put(&mut expected, rows, row, key, f16::NEG_INFINITY);
            }
        }
        prop_assert_eq!(after, expected);

        let halves: Vec<_> = mask.iter().copied().map(f16::from_f32).collect();
        for mask in [None, Some(&halves[..masked])] {
            let mut after = before.clone();
            let mut scratch = BiasScratch::default();
            let bias = Bias { softcap, slope };
            bias_row(&mut after, [rows, row], masked, mask, bias, &mut scratch);
            let mut expected = before.clone();
            for key in 0..keys {
                let x = scores[row * keys + key].to_f32();
                let x = if softcap == 0.0 { x } else { softcap * tanh(x / softcap) };
                let x = match mask.map(|mask| mask.get(key)) {
                    _ if key >= masked => f16::NEG_INFINITY,
                    Some(Some(m)) if *m == f16::NEG_INFINITY => *m,
                    Some(Some(m)) => f16::from_f32(x + slope * m.to_f32()),
                    _ => f16::from_f32(x),
                };
                put(&mut expected, rows, row, key, x);
            }
            prop_assert_eq!(after, expected);
        }
    }

    #[test]
    fn scores_add_up(scores in prop::collection::vec((-1e4_f32..1e4, -1e4_f32..1e4), 1..800)) {
        let (a, b): (Vec<_>, Vec<_>) = scores.into_iter().unzip();
        let [a, b] = [a, b].map(|x| x.into_iter().map(f16::from_f32).collect::<Vec<_>>());
        let mut sum = tile(&a, 1);
        add_scores(&mut sum, &tile(&b, 1));
        for key in 0..a.len() {
            prop_assert_eq!(get(&sum, 1, 0, key), f16::from_f32(a[key].to_f32() + b[key].to_f32()));
        }
    }
}
