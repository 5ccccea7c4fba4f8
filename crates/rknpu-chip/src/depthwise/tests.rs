// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of lines against gathered windows.

use super::super::dpu::steps::Steps;
use super::super::rows::Rows;
use super::*;
use proptest::prelude::*;

/// Numbers without a pattern.
pub(super) fn noise(seed: u32) -> impl FnMut() -> u32 {
    let mut state = seed | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    window: Window,
    /// Width, height and atoms of a pixel of the features.
    cube: (usize, usize, usize),
    /// Atoms of the part: first, and how many.
    atoms: (usize, usize),
    seed: u32,
}

fn case() -> impl Strategy<Value = Case> {
    let axis = || {
        (
            1usize..7,
            1usize..6,
            0usize..4,
            1usize..4,
            0usize..4,
            0usize..5,
        )
    };
    let channels = (
        1usize..140,
        0usize..5,
        1usize..9,
        any::<bool>(),
        any::<u16>(),
    );
    (axis(), axis(), 0usize..3, channels, any::<u32>()).prop_map(|(x, y, deconv, rest, seed)| {
        let (channels, first, atoms, low_pad, pad_value) = rest;
        let spread = [1, 2, 4][deconv];
        Case {
            window: Window {
                in_width: x.0,
                in_height: y.0,
                out_width: x.1,
                stride: (x.2, y.2),
                dilation: (x.3, y.3),
                spread: (spread, spread),
                pad: (x.4, y.4),
                kernel: (1 + x.5, 1 + y.5),
                channels,
                precision: Precision::Int8,
                pad_value: pad_value.into(),
                low_pad,
            },
            cube: (
                1 + seed as usize % 7,
                y.1,
                channels.div_ceil(ATOM).max(first),
            ),
            atoms: (first, atoms),
            seed,
        }
    })
}

/// By the windows, tap by tap.
fn expected(
    case: &Case,
    cube: &FeatureCube,
    (pixel, count): (usize, usize),
    atom: &Atom,
) -> Vec<Sums> {
    let mut padding = case.window.padding::<i16>();
    padding.resize(padding.len().max(atom.channel + ATOM), 0);
    let mut rows = Rows::default();
    let range = atom.channel..atom.channel + ATOM;
    case.window
        .rows(cube, &padding, (pixel, count), range, &mut rows)
        .unwrap();
    let sum = |pixel: usize, c: usize| {
        let taps = atom.weights.iter().enumerate();
        taps.map(|(tap, weights)| {
            i32::from(rows.row(pixel)[tap * ATOM + c]) * i32::from(weights[c])
        })
        .sum()
    };
    (0..count)
        .map(|pixel| std::array::from_fn(|c| sum(pixel, c)))
        .collect()
}

/// A window of 3x3 that moves by single pixels.
fn by_single_pixels(case: Case) -> Case {
    let window = Window {
        kernel: (3, 3),
        stride: (1, 1),
        dilation: (1, 1),
        ..case.window
    };
    Case { window, ..case }
}

proptest! {
    #![proptest_config(test_support::cases(256))]

    #[test]
    fn bytes_are_what_the_sums_become(
        case in prop_oneof![case(), case().prop_map(by_single_pixels)],
        first in 0usize..20,
        counts in prop::collection::vec(1usize..40, 1..4),
        (factor, bias) in (1e-6f32..0.1, -200f32..200.0),
        seed: u32,
    ) {
        let mut next = noise(seed);
        let (width, height, surfaces) = case.cube;
        let mut cube = FeatureCube::empty(width, height, surfaces).unwrap();
        for y in 0..height {
            cube.line_mut(y).fill_with(|| next() as u8);
        }
        let windows = Depthwise::new(&case.window, cube.width, Vectors::detect())
            .unwrap()
            .unwrap();
        let channel = case.atoms.0 * ATOM;
        let weight_bits = next() % 9;
        let atom = Atom {
            channel,
            padding: std::array::from_fn(|_| next() as u8),
            weights: (0..case.window.taps())
                .map(|_| std::array::from_fn(|_| next() as i16 >> weight_bits))
                .collect(),
        };
        let finish = Finish {
            addends: std::array::from_fn(|_| next() as i32 >> 9),
            steps: Steps { factor, bias },
            least: -100,
            most: 110,
        };
        let (mut lines, mut other) = (Lines::default(), Lines::default());
        windows.begin(&mut lines, &atom);
        windows.begin(&mut other, &atom);
        let mut kept = Vec::new();
        let mut pixel = first;
        for count in counts {
            let mut bytes = vec![[7; ATOM]; count];
            windows.bytes((&cube, &mut lines), (&atom, &finish), &mut kept, pixel, &mut bytes);
            for bytes in bytes {
                let mut sums = [[0; ATOM]];
                windows.sums(&cube, &mut other, &atom, pixel, &mut sums);
                prop_assert_eq!(bytes, finish.bytes(&sums[0]), "pixel {}", pixel);
                pixel += 1;
            }
        }
    }

    #[test]
    fn sums_are_those_of_gathered_windows(
        case in case(),
        first in 0usize..20,
        lines in 1usize..6,
        wide: bool,
    ) {
        let mut next = noise(case.seed);
        let (width, height, surfaces) = case.cube;
        let mut cube = FeatureCube::empty(width, height, surfaces).unwrap();
        for y in 0..height {
            cube.line_mut(y).fill_with(|| next() as u8);
        }
        let padding = case.window.padding::<i16>();
        let padding_at = |c: usize| padding.get(c).copied().unwrap_or(0);
        let windows = Depthwise::new(&case.window, cube.width, Vectors::detect())
            .unwrap()
            .unwrap();
        let mut kept = Lines::default();
        for channel in (case.atoms.0 * ATOM..).step_by(ATOM).take(case.atoms.1) {
            let mut weight = || if wide { next() as i16 } else { i16::from(next() as i8) };
            let atom = Atom {
                channel,
                padding: std::array::from_fn(|c| padding_at(channel + c) as u8),
                weights: (0..case.window.taps())
                    .map(|_| std::array::from_fn(|_| weight()))
                    .collect(),
            };
            windows.begin(&mut kept, &atom);
            let mut pixel = first;
            for _ in 0..lines {
                let out_width = case.window.out_width;
                let count = out_width - pixel % out_width;
                let mut sums = vec![[-1; ATOM]; count];
                windows.sums(&cube, &mut kept, &atom, pixel, &mut sums);
                prop_assert_eq!(&sums, &expected(&case, &cube, (pixel, count), &atom));
                pixel += count;
            }
        }
    }
}

#[test]
fn the_largest_sums_fit() {
    let window = Window {
        in_width: 1,
        in_height: TAPS_MAX,
        out_width: 1,
        stride: (1, 1),
        dilation: (1, 1),
        spread: (1, 1),
        pad: (0, 0),
        kernel: (1, TAPS_MAX),
        channels: ATOM,
        precision: Precision::Int8,
        pad_value: 0,
        low_pad: false,
    };
    let mut cube = FeatureCube::empty(1, TAPS_MAX, 1).unwrap();
    for y in 0..TAPS_MAX {
        cube.line_mut(y).fill(0x80);
    }
    let atom = Atom {
        weights: vec![[i16::MIN; ATOM]; TAPS_MAX],
        ..Atom::default()
    };
    let mut sums = [[0; ATOM]];
    let windows = Depthwise::new(&window, 1, Vectors::detect())
        .unwrap()
        .unwrap();
    let mut lines = Lines::default();
    windows.begin(&mut lines, &atom);
    windows.sums(&cube, &mut lines, &atom, 0, &mut sums);
    assert_eq!(sums, [[TAPS_MAX as i32 * 128 * 32768; ATOM]]);
    let longer = Window {
        kernel: (1, TAPS_MAX + 1),
        ..window
    };
    let longer = Depthwise::new(&longer, 1, Vectors::detect());
    assert!(longer.unwrap().is_none());
}
