// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which scale loses least.
//!
//! A smaller scale than max|x| / limit clips the largest elements and resolves
//! all others finer. Which is better depends on the data: heavy tails gain
//! from clipping, even distributions lose. Each search tries a number of
//! scales, that of [`Search::AbsMax`] among them, and takes the best by its own
//! measure; so it is never worse than that one by this measure.

use npu_kernels::quantise::row_scale;

/// Scales that a search tries, evenly spaced from the largest down to
/// [`SMALLEST`] of it. More are not worth the time: neighbours differ by one
/// percent.
const STEPS: u32 = 80;

/// The smallest scale tried, of the largest.
const SMALLEST: f32 = 0.2;

/// Bins of the histograms that [`Search::KullbackLeibler`] compares, over the
/// magnitudes up to the largest: several for each of 127 levels.
const BINS: usize = 2048;

/// How a scale is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Search {
    /// max|x| / limit: nothing is clipped.
    AbsMax,
    /// The magnitude that this part of all elements does not exceed becomes
    /// the limit. From 0 to 1; what is not in between counts as 1.
    Percentile(f64),
    /// The least mean square error.
    MeanSquare,
    /// The least Kullback-Leibler divergence of the magnitudes' distribution
    /// from that of the quantised ones.
    KullbackLeibler,
}

impl Search {
    /// The scale for `values`, quantised to `-limit..=limit`; `limit` is an
    /// integer from 1 to 127. 0 and NaN as in [`super::quantise_row`].
    #[must_use]
    pub fn scale(self, values: &[f32], limit: f32) -> f32 {
        let largest = row_scale(values, limit);
        if largest.is_nan() || largest == 0.0 {
            return largest;
        }
        match self {
            Self::AbsMax => largest,
            Self::Percentile(part) => percentile(values, part, limit, largest),
            Self::MeanSquare => least(largest, |scale| square_error(values, scale, limit)),
            Self::KullbackLeibler => {
                let histogram = Histogram::of(values, largest * limit);
                least(largest, |scale| histogram.divergence(scale, limit))
            }
        }
    }
}

/// The scale with the least measure; the largest of equals.
fn least(largest: f32, measure: impl Fn(f32) -> f64) -> f32 {
    let mut best = (measure(largest), largest);
    for step in 1..=STEPS {
        let part = 1.0 - (1.0 - SMALLEST) * step as f32 / STEPS as f32;
        let scale = largest * part;
        let here = measure(scale);
        // A subnormal scale has no inverse to multiply with.
        if here < best.0 && scale >= f32::MIN_POSITIVE {
            best = (here, scale);
        }
    }
    best.1
}

fn percentile(values: &[f32], part: f64, limit: f32, largest: f32) -> f32 {
    let part = if (0.0..=1.0).contains(&part) {
        part
    } else {
        1.0
    };
    let mut magnitudes: Vec<f32> = values.iter().map(|x| x.abs()).collect();
    let Some(last) = magnitudes.len().checked_sub(1) else {
        return largest;
    };
    // The least element that `part` of all do not exceed.
    let rank = (part * magnitudes.len() as f64).ceil() as usize;
    let at = rank.saturating_sub(1).min(last);
    let (_, magnitude, _) = magnitudes.select_nth_unstable_by(at, f32::total_cmp);
    let scale = *magnitude / limit;
    // Most elements are zeros: what is left is the largest.
    if scale < f32::MIN_POSITIVE {
        largest
    } else {
        scale
    }
}

/// The sum of the squared errors of all elements.
fn square_error(values: &[f32], scale: f32, limit: f32) -> f64 {
    let inverse = scale.recip();
    values
        .iter()
        .map(|&x| {
            let q = (x * inverse).clamp(-limit, limit).round_ties_even();
            (f64::from(x) - f64::from(q) * f64::from(scale)).powi(2)
        })
        .sum()
}

/// How many magnitudes lie in each of [`BINS`] parts of their range.
#[derive(Clone, Debug)]
struct Histogram {
    counts: Vec<u64>,
    width: f64,
}

impl Histogram {
    /// Of the magnitudes of `values`, none above `largest`, which is not 0.
    fn of(values: &[f32], largest: f32) -> Self {
        let width = f64::from(largest) / BINS as f64;
        let mut counts = vec![0; BINS];
        for x in values {
            let bin = (f64::from(x.abs()) / width) as usize;
            counts[bin.min(BINS - 1)] += 1;
        }
        Self { counts, width }
    }

    /// The divergence of this distribution from what remains of it after
    /// quantising: bins that become one integer share their counts evenly,
    /// and clipped ones are where the limit is. Each count is one more than
    /// it is, so that an empty bin does not make the divergence infinite.
    fn divergence(&self, scale: f32, limit: f32) -> f64 {
        let level = |bin: usize| {
            let middle = (bin as f64 + 0.5) * self.width;
            (middle / f64::from(scale))
                .round_ties_even()
                .min(f64::from(limit)) as usize
        };
        let clipped_from = f64::from(limit + 0.5) * f64::from(scale);
        let inside = |bin: usize| (bin as f64 + 0.5) * self.width < clipped_from;
        let mut sums = vec![(0_u64, 0_u64); limit as usize + 1];
        for (bin, &count) in self.counts.iter().enumerate() {
            let (sum, bins) = &mut sums[level(bin)];
            *sum += count;
            // Clipped elements all come back at the limit, not where they were.
            *bins += u64::from(inside(bin));
        }
        let total: u64 = self.counts.iter().sum();
        let all = (total + BINS as u64) as f64;
        self.counts
            .iter()
            .enumerate()
            .map(|(bin, &count)| {
                let (sum, bins) = sums[level(bin)];
                let quantised = if inside(bin) && bins > 0 {
                    sum as f64 / bins as f64
                } else {
                    0.0
                };
                let p = (count as f64 + 1.0) / all;
                let q = (quantised + 1.0) / all;
                p * (p / q).ln()
            })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Search; 4] = [
        Search::AbsMax,
        Search::Percentile(0.999),
        Search::MeanSquare,
        Search::KullbackLeibler,
    ];

    /// A bulk of small values and a few large ones.
    fn heavy_tail() -> Vec<f32> {
        (0..4096_i32)
            .map(|at| {
                let x = ((at * 37) % 201 - 100) as f32 / 100.0;
                if at % 1024 == 5 { 6.0 * x.signum() } else { x }
            })
            .collect()
    }

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn never_worse_than_absmax_by_its_own_measure(
            values in prop::collection::vec(-1e3_f32..1e3, 1..200),
            power in 1..6_i32,
            limit in 1..=127_u8,
        ) {
            let limit = f32::from(limit);
            let values: Vec<f32> = values.iter().map(|x| (x / 1e3).powi(power)).collect();
            let largest = Search::AbsMax.scale(&values, limit);
            prop_assume!(largest > 0.0);
            let found = Search::MeanSquare.scale(&values, limit);
            let error = |scale| square_error(&values, scale, limit);
            prop_assert!(error(found) <= error(largest));
            let found = Search::KullbackLeibler.scale(&values, limit);
            let histogram = Histogram::of(&values, largest * limit);
            let loss = |scale| histogram.divergence(scale, limit);
            prop_assert!(loss(found) <= loss(largest));
        }

        #[test]
        fn a_percentile_is_not_exceeded_by_more(
            values in prop::collection::vec(-1e3_f32..1e3, 1..200),
            part in 0.0..=1.0_f64,
        ) {
            let scale = Search::Percentile(part).scale(&values, 127.0);
            prop_assume!(scale > 0.0);
            let magnitude = scale * 127.0 * (1.0 + f32::EPSILON);
            let within = values.iter().filter(|x| x.abs() <= magnitude).count();
            prop_assert!(within as f64 >= part * values.len() as f64);
        }

        #[test]
        fn any_bits_give_a_scale_that_can_be_used(
            values in prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..60),
            part in any::<f64>(),
        ) {
            for search in ALL.into_iter().chain([Search::Percentile(part)]) {
                let scale = search.scale(&values, 127.0);
                let usable = scale >= f32::MIN_POSITIVE && scale.is_finite();
                prop_assert!(usable || scale == 0.0 || scale.is_nan(), "{search:?}: {scale}");
                let finite = values.iter().all(|x| x.is_finite());
                prop_assert_eq!(scale.is_nan(), !finite);
            }
        }
    }

    #[test]
    fn coarse_integers_of_a_heavy_tail_gain_from_clipping() {
        let values = heavy_tail();
        let limit = 7.0;
        let largest = Search::AbsMax.scale(&values, limit);
        let error = |search: Search| square_error(&values, search.scale(&values, limit), limit);
        let absmax = error(Search::AbsMax);
        assert_eq!(largest, 6.0 / 7.0);
        assert!(error(Search::MeanSquare) < 0.7 * absmax);
        let histogram = Histogram::of(&values, 6.0);
        let found = Search::KullbackLeibler.scale(&values, limit);
        assert!(histogram.divergence(found, limit) < histogram.divergence(largest, limit));
        assert_eq!(Search::Percentile(0.99).scale(&values, limit), 1.0 / 7.0);
    }
}
