// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inner products of the rows of two matrices: the hot loop of the model.
//!
//! Each type of element has a definition of its inner product, below; the tests compare the
//! loops with it. A row has eight lanes: element `i` goes to lane `i % 8`, in order.
//!
//! * `i16` (int8, int4): sums are exact, so their order does not matter.
//! * `f32` (fp16): a product of two fp16 numbers has at most 22 bits of
//!   mantissa and lies between 2^-48 and 2^32, so it is exact in float32. Each
//!   lane adds 8 products in float32. The lanes are added in pairs to two
//!   float32 values; these, and all later sums, are added in float64. Then
//!   follow the next 64 elements.
//! * `f64` (bf16, tf32, and mixtures): a product has at most 22 bits of mantissa
//!   and an exponent of at most 9 bits, so it is exact in float64. The lanes add
//!   in float64 to the end of the row. The eight are then added in order.
//!
//! As products are exact, a fused multiply-add gives the same bits as a
//! multiplication followed by an addition. So every host gives the same bits,
//! whatever vectors it has.
//!
//! ```text
//! for 16 kernels                       their chunks stay in the first cache
//!   for a chunk of the row
//!     for 3 pixels
//!       for NR kernels   tile(): 3 x NR pairs of rows, in registers
//! ```

use super::dma;
use super::rows::{MacOperand, OperandRows};
use super::trap::Stop;
use super::vectors::{self, Loop, Vectors};

/// Number of running sums of a pair of rows.
pub(crate) const LANES: usize = 8;
/// Products that a lane adds in float32.
const LANE_PRODUCTS: usize = 8;
/// Elements that are summed in float32.
const SEGMENT: usize = LANES * LANE_PRODUCTS;
/// Rows of `a` in a tile.
const MR: usize = 3;
/// Rows of `b` whose chunks are used together.
const BLOCK: usize = 16;
/// Tiles whose sums are kept at a time.
const TILES: usize = 16;
/// Bytes of a chunk of a row: whole segments. Chunks of [`BLOCK`] rows fill
/// half of a first-level cache of 32 KiB.
const CHUNK_BYTES: usize = 1024;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(SEGMENT * size_of::<f64>()));

/// An element type with a tile routine.
pub(crate) trait DotElement: MacOperand {
    /// The running sums of a pair of rows.
    type Sums: Copy + Default;
    /// The inner product of a pair of rows.
    type Total: Copy + Default;

    /// The final value of running sums.
    fn total(sums: &Self::Sums) -> Self::Total;

    /// Adds the inner product of parts of each of `MR` rows with each of `BLOCK`
    /// rows. A part starts where the previous one ended, after whole segments. All
    /// have the same length, a multiple of [`super::rows::ROW_ELEMENTS`].
    fn block(
        vectors: Vectors,
        a: [&[Self]; MR],
        b: &[&[Self]; BLOCK],
        sums: &mut [[Self::Sums; BLOCK]; MR],
    );
}

/// int8 and int4. A product is at most 2^14. The 2^16 elements of the longest
/// row add up to at most 2^30, in all lanes or in one.
impl DotElement for i16 {
    type Sums = [i32; LANES];
    type Total = i32;

    #[inline(always)]
    fn total(sums: &[i32; LANES]) -> i32 {
        sums.iter().sum()
    }

    #[inline(always)]
    fn block(
        vectors: Vectors,
        a: [&[Self]; MR],
        b: &[&[Self]; BLOCK],
        sums: &mut [[[i32; LANES]; BLOCK]; MR],
    ) {
        /// Twice the lanes: neighbours add to one lane, since the sum is exact.
        const PART: usize = 2 * LANES;
        let step = |lanes: &mut [i32; LANES], a: &[i16; PART], b: &[i16; PART]| match vectors {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2(host) => host.madd(lanes, a, b),
            _ => {
                let product = |i: usize| i32::from(a[i]) * i32::from(b[i]);
                for (l, lane) in lanes.iter_mut().enumerate() {
                    *lane += product(2 * l) + product(2 * l + 1);
                }
            }
        };
        whole_rows::<_, _, PART, 4>((a, b), sums, step);
    }
}

/// fp16, held exactly in float32.
impl DotElement for f32 {
    type Sums = f64;
    type Total = f64;

    #[inline(always)]
    fn total(&sum: &f64) -> f64 {
        sum
    }

    #[inline(always)]
    fn block(
        vectors: Vectors,
        a: [&[Self]; MR],
        b: &[&[Self]; BLOCK],
        sums: &mut [[f64; BLOCK]; MR],
    ) {
        let step = |lanes: &mut [f32; LANES], a: &[f32; LANES], b: &[f32; LANES]| {
            for l in 0..LANES {
                lanes[l] = if vectors.fuses() {
                    a[l].mul_add(b[l], lanes[l])
                } else {
                    a[l] * b[l] + lanes[l]
                };
            }
        };
        let end = |lanes: &[[f32; LANES]; 4], sums: &mut [f64]| {
            let added = match vectors {
                #[cfg(target_arch = "x86_64")]
                Vectors::Avx2(host) => host.halves(lanes),
                _ => lanes.each_ref().map(halves),
            };
            for (sum, added) in sums.iter_mut().zip(added) {
                *sum += added;
            }
        };
        tiles((a, b), sums, LANE_PRODUCTS, |_| [0.0; LANES], step, end);
    }
}

/// The sum of both halves of the lanes of a segment.
fn halves(&[l0, l1, l2, l3, l4, l5, l6, l7]: &[f32; LANES]) -> f64 {
    let (low, high) = ((l0 + l1) + (l2 + l3), (l4 + l5) + (l6 + l7));
    f64::from(low) + f64::from(high)
}

/// The other floats, and mixtures with them.
impl DotElement for f64 {
    type Sums = [f64; LANES];
    type Total = f64;

    /// The lanes are added in order.
    #[inline(always)]
    fn total(sums: &[f64; LANES]) -> f64 {
        sums.iter().sum()
    }

    #[inline(always)]
    fn block(
        vectors: Vectors,
        a: [&[Self]; MR],
        b: &[&[Self]; BLOCK],
        sums: &mut [[[f64; LANES]; BLOCK]; MR],
    ) {
        let step = |lanes: &mut [f64; LANES], a: &[f64; LANES], b: &[f64; LANES]| {
            for l in 0..LANES {
                lanes[l] = if vectors.fuses() {
                    a[l].mul_add(b[l], lanes[l])
                } else {
                    a[l] * b[l] + lanes[l]
                };
            }
        };
        whole_rows::<_, _, LANES, 2>((a, b), sums, step);
    }
}

/// Runs [`tiles`] with lanes that are the sums themselves, to the end of the
/// rows.
#[inline(always)]
fn whole_rows<T, L: Copy, const PART: usize, const NR: usize>(
    rows: ([&[T]; MR], &[&[T]; BLOCK]),
    sums: &mut [[L; BLOCK]; MR],
    step: impl Fn(&mut L, &[T; PART], &[T; PART]),
) {
    let keep = |lanes: &[L; NR], sums: &mut [L]| sums.copy_from_slice(lanes);
    tiles(rows, sums, usize::MAX, |lanes| *lanes, step, keep);
}

/// Computes a block in tiles of `NR` rows of `b`. The lanes of a tile stay in
/// registers for `segment` steps of `PART` elements. `begin` makes them from
/// the sums; `end` puts those of one row of `a` back.
#[inline(always)]
fn tiles<T, S: Copy, L: Copy, const PART: usize, const NR: usize>(
    (a, b): ([&[T]; MR], &[&[T]; BLOCK]),
    sums: &mut [[S; BLOCK]; MR],
    segment: usize,
    begin: impl Fn(&S) -> L,
    step: impl Fn(&mut L, &[T; PART], &[T; PART]),
    end: impl Fn(&[L; NR], &mut [S]),
) {
    let steps = a[0].len() / PART;
    let a: [&[[T; PART]]; MR] = a.map(|row| &row.as_chunks::<PART>().0[..steps]);
    for first in (0..BLOCK).step_by(NR) {
        let b: [&[[T; PART]]; NR] =
            std::array::from_fn(|n| &b[first + n].as_chunks::<PART>().0[..steps]);
        let mut start = 0;
        while start < steps {
            let stop = steps.min(start.saturating_add(segment));
            let mut lanes: [[L; NR]; MR] =
                std::array::from_fn(|m| std::array::from_fn(|n| begin(&sums[m][first + n])));
            for at in start..stop {
                for n in 0..NR {
                    for m in 0..MR {
                        step(&mut lanes[m][n], &a[m][at], &b[n][at]);
                    }
                }
            }
            for m in 0..MR {
                end(&lanes[m], &mut sums[m][first..first + NR]);
            }
            start = stop;
        }
    }
}

/// Calls `emit(row, first, totals)` for the first `rows` rows of `a`. `totals`
/// are the inner products of row `row` with rows of `b`, from row `first` on.
pub(crate) fn dot_products<T: DotElement>(
    vectors: Vectors,
    (a, rows): (&OperandRows<T>, usize),
    (b, columns): (&OperandRows<T>, usize),
    emit: impl FnMut(usize, usize, &[T::Total]),
) -> Result<(), Stop> {
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let tiles = rows.div_ceil(MR).min(TILES);
    let mut sums = dma::buffer::<[[T::Sums; BLOCK]; MR]>(tiles)?;
    let work = DotProducts {
        a,
        b,
        shape: (rows, columns),
        sums: &mut sums,
        emit,
    };
    vectors::run(vectors, work);
    Ok(())
}

/// The loop of [`dot_products`].
struct DotProducts<'a, T: DotElement, F> {
    a: &'a OperandRows<T>,
    b: &'a OperandRows<T>,
    shape: (usize, usize),
    sums: &'a mut [[[T::Sums; BLOCK]; MR]],
    emit: F,
}

impl<T: DotElement, F: FnMut(usize, usize, &[T::Total])> Loop for DotProducts<'_, T, F> {
    #[inline(always)]
    fn run(mut self, vectors: Vectors) {
        let (a, b, (rows, columns)) = (self.a, self.b, self.shape);
        let len = a.row(0).len();
        let chunk = CHUNK_BYTES / size_of::<T>();
        for first in (0..columns).step_by(BLOCK) {
            for top in (0..rows).step_by(TILES * MR) {
                let bottom = rows.min(top + TILES * MR);
                self.sums.fill(Default::default());
                for start in (0..len).step_by(chunk) {
                    let part = start..len.min(start + chunk);
                    // The last row stands in for missing rows.
                    let b: [&[T]; BLOCK] =
                        std::array::from_fn(|n| &b.row((first + n).min(columns - 1))[part.clone()]);
                    for (row, sums) in (top..bottom).step_by(MR).zip(&mut *self.sums) {
                        let a: [&[T]; MR] =
                            std::array::from_fn(|m| &a.row((row + m).min(rows - 1))[part.clone()]);
                        T::block(vectors, a, &b, sums);
                    }
                }
                for row in top..bottom {
                    let sums = &self.sums[(row - top) / MR][(row - top) % MR];
                    let totals: [T::Total; BLOCK] = std::array::from_fn(|n| T::total(&sums[n]));
                    (self.emit)(row, first, &totals[..BLOCK.min(columns - first)]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::{AddAssign, Mul};

    use super::super::mac_array::round_sum;
    use super::*;
    use proptest::prelude::*;

    fn rows<T: MacOperand>(
        count: usize,
        len: usize,
        mut value: impl FnMut() -> T,
    ) -> OperandRows<T> {
        let mut rows = OperandRows::zeroed(count, len).unwrap();
        for index in 0..count {
            rows.row_mut(index)[..len].fill_with(&mut value);
        }
        rows
    }

    /// Numbers from a seed, by the constants of PCG.
    fn numbers(mut state: u64) -> impl FnMut() -> u16 {
        move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 40) as u16
        }
    }

    #[test]
    fn the_longest_row_of_extremes_is_exact() {
        let len = super::super::mac_array::INT8_ROW_MAX;
        let a = rows(1, len, || -128i16);
        for vectors in [Vectors::Plain, Vectors::detect()] {
            dot_products(vectors, (&a, 1), (&a, 1), |_, _, total| {
                assert_eq!(total, [len as i32 * 16384]);
            })
            .unwrap();
        }
    }

    /// The definitions of the inner products.
    fn of_bytes(a: &[i16], b: &[i16]) -> i32 {
        let products = a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b));
        products.sum()
    }

    fn of_halves(a: &[f32], b: &[f32]) -> f64 {
        let segments = a.chunks(SEGMENT).zip(b.chunks(SEGMENT));
        segments.fold(0.0, |sum, (a, b)| sum + halves(&lanes(a, b)))
    }

    fn of_others(a: &[f64], b: &[f64]) -> f64 {
        lanes(a, b).into_iter().sum()
    }

    /// The products of each lane, added in order.
    fn lanes<T: Copy + Default + AddAssign + Mul<Output = T>>(a: &[T], b: &[T]) -> [T; LANES] {
        let mut lanes = [T::default(); LANES];
        for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
            lanes[i % LANES] += a * b;
        }
        lanes
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn products_equal_the_definition_to_the_bit(
            pixels in prop_oneof![1usize..9, 40usize..60],
            kernels in 1usize..40,
            len in prop_oneof![0usize..100, 400usize..1700],
            seed: u64,
        ) {
            // Bytes, all fp16, then bf16 up to where float32 overflows.
            let shape = (pixels, kernels, len);
            let mut next = numbers(seed);
            let byte = || i16::from(next() as i8);
            equal(shape, byte, of_bytes, |total| total)?;
            let mut next = numbers(seed);
            let half = || half::f16::from_bits(next()).to_f32();
            equal(shape, half, of_halves, |total| round_sum(total).to_bits())?;
            let brain = || half::bf16::from_bits(next()).to_f64();
            equal(shape, brain, of_others, |total| round_sum(total).to_bits())?;
        }

        #[test]
        fn fp16_sums_keep_the_stated_bound(len in 1usize..3000, seed: u64) {
            let mut next = numbers(seed);
            let mut value = || {
                let value = half::f16::from_bits(next()).to_f32();
                if value.is_finite() { value } else { 1.0 }
            };
            let a = rows(1, len, &mut value);
            let b = rows(1, len, &mut value);
            // Products of fp16 are multiples of 2^-48 below 2^32: exact sums.
            let fixed = |a: f32, b: f32| (f64::from(a) * f64::from(b) * 48f64.exp2()) as i128;
            let pairs = || a.row(0).iter().zip(b.row(0));
            let exact: i128 = pairs().map(|(&a, &b)| fixed(a, b)).sum();
            let magnitude: i128 = pairs().map(|(&a, &b)| fixed(a, b).abs()).sum();
            let scale = |value: i128| value as f64 * (-48f64).exp2();
            dot_products(Vectors::detect(), (&a, 1), (&b, 1), |_, _, sums| {
                let got = f64::from(round_sum(sums[0]));
                let bound = (scale(exact).abs() + 10.0 * scale(magnitude)) * (-24f64).exp2();
                assert!((got - scale(exact)).abs() <= bound, "{got} against {}", scale(exact));
            }).unwrap();
        }

        #[test]
        fn fp16_sums_of_integers_below_2_to_the_24_are_exact(
            len in 1usize..1000,
            seed: u64,
        ) {
            let mut next = numbers(seed);
            let mut value = || f32::from(next() as i8);
            let a = rows(1, len, &mut value);
            let b = rows(1, len, &mut value);
            let exact: f32 = a.row(0).iter().zip(b.row(0)).map(|(&a, &b)| a * b).sum();
            dot_products(Vectors::detect(), (&a, 1), (&b, 1), |_, _, sums| {
                assert_eq!(round_sum(sums[0]), exact);
            }).unwrap();
        }
    }

    /// Compares the products of random rows with their definition.
    fn equal<T: DotElement, B: PartialEq + std::fmt::Debug>(
        (pixels, kernels, len): (usize, usize, usize),
        mut value: impl FnMut() -> T,
        definition: fn(&[T], &[T]) -> T::Total,
        bits: impl Fn(T::Total) -> B,
    ) -> Result<(), TestCaseError> {
        let a = rows(pixels, len, &mut value);
        let b = rows(kernels, len, &mut value);
        for vectors in [Vectors::Plain, Vectors::detect()] {
            let mut seen = 0;
            let emit = |row, first, totals: &[T::Total]| {
                for (column, &total) in (first..).zip(totals) {
                    let want = definition(a.row(row), b.row(column));
                    assert_eq!(bits(total), bits(want));
                    seen += 1;
                }
            };
            dot_products(vectors, (&a, pixels), (&b, kernels), emit).unwrap();
            prop_assert_eq!(seen, pixels * kernels);
        }
        Ok(())
    }
}
