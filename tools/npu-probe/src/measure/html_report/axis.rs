// SPDX-License-Identifier: MIT OR Apache-2.0
//! Axes of pictures: positions of values, and round values for marks.

/// An axis: maps values to positions in the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct PictureAxis {
    /// Values at both ends; the first is less than the second, and both are finite.
    pub(super) values: (f64, f64),
    places: (f64, f64),
    is_log: bool,
}

/// Most marks of an axis.
const MOST_MARKS: i32 = 8;

impl PictureAxis {
    pub(super) fn linear((from, to): (f64, f64), places: (f64, f64)) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self {
            values: (from, to),
            places,
            is_log: false,
        }
    }

    /// For values above zero.
    pub(super) fn log((from, to): (f64, f64), places: (f64, f64)) -> Self {
        let from = from.clamp(1e-12, 1e12);
        let to = to.clamp(from * 10.0, 1e14);
        Self {
            values: (from, to),
            places,
            is_log: true,
        }
    }

    /// The position of a value; values beyond an end are moved to it.
    pub(super) fn at(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.is_log { value.log10() } else { value };
        let (from, to) = (scale(self.values.0), scale(self.values.1));
        let share = ((scale(value) - from) / (to - from)).clamp(0.0, 1.0);
        let share = if share.is_nan() { 0.0 } else { share };
        self.places.0 + share * (self.places.1 - self.places.0)
    }

    /// Values of the marks: powers of ten, or 1, 2 or 5 times a power of ten.
    pub(super) fn marks(&self) -> Vec<f64> {
        let (from, to) = self.values;
        if self.is_log {
            let (first, last) = (from.log10().ceil() as i32, to.log10().floor() as i32);
            let step = ((last - first) / MOST_MARKS + 1).max(1);
            let powers = (first..=last).step_by(step.unsigned_abs() as usize);
            return powers.map(|power| 10f64.powi(power)).collect();
        }
        let rough = (to - from) / f64::from(MOST_MARKS);
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let marks = (0..=MOST_MARKS).map(|mark| ((from / step).ceil() + f64::from(mark)) * step);
        marks.filter(|mark| *mark <= to).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn places_are_within_whatever_the_values(
            (a, b, value) in (any::<f64>(), any::<f64>(), any::<f64>())
        ) {
            let ends = (a.abs().min(1e300), b.abs().min(1e300));
            for new in [PictureAxis::linear, PictureAxis::log] {
                let axis = new(ends, (20.0, 10.0));
                prop_assert!((10.0..=20.0).contains(&axis.at(value)));
                prop_assert!(axis.marks().len() <= 9, "{:?}", axis.marks());
            }
        }
    }

    #[test]
    fn marks_are_round() {
        let axis = PictureAxis::linear((3.0, 27.0), (0.0, 1.0));
        assert_eq!(axis.marks(), [5.0, 10.0, 15.0, 20.0, 25.0]);
        let axis = PictureAxis::log((3.0, 2000.0), (0.0, 1.0));
        assert_eq!(axis.marks(), [10.0, 100.0, 1000.0]);
    }
}
