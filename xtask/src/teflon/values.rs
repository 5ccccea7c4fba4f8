// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outputs of a network, and how far those of two runs are apart.

use std::fmt;

use anyhow::{Result, ensure};

/// An output of a network.
#[derive(Debug, Clone)]
pub(super) struct OutputTensor {
    pub(super) name: String,
    /// What one step is worth; 0 for numbers that are not quantised.
    pub(super) scale: f32,
    /// Steps, or numbers that are not quantised.
    pub(super) values: Vec<f64>,
}

/// How far two runs' values of an output are apart.
#[derive(Debug, PartialEq)]
pub(super) struct OutputDifference {
    /// Values that are not the same.
    pub(super) differing: usize,
    /// All values.
    pub(super) of: usize,
    /// The largest difference; infinite where one run has no number.
    pub(super) largest: f64,
}

impl OutputTensor {
    /// From bytes of the type that TensorFlow Lite calls `kind`; the values are
    /// bytes if it is none of the usual ones.
    pub(super) fn new(name: String, kind: &str, scale: f32, bytes: &[u8]) -> Self {
        let values = match kind {
            "INT8" => numbers(bytes, |[byte]| i8::from_le_bytes([byte]).into()),
            "INT16" => numbers(bytes, |bytes| i16::from_le_bytes(bytes).into()),
            "INT32" => numbers(bytes, |bytes| i32::from_le_bytes(bytes).into()),
            "FLOAT32" => numbers(bytes, |bytes| f32::from_le_bytes(bytes).into()),
            _ => numbers(bytes, |[byte]| byte.into()),
        };
        Self {
            name,
            scale,
            values,
        }
    }

    /// Compares with the same output of another run.
    pub(super) fn difference(&self, other: &Self) -> Result<OutputDifference> {
        let of = self.values.len();
        ensure!(of == other.values.len(), "outputs of different lengths");
        let apart = |(&a, &b): (&f64, &f64)| match a == b || (a.is_nan() && b.is_nan()) {
            true => 0.0,
            false if (a - b).is_nan() => f64::INFINITY,
            false => (a - b).abs(),
        };
        let differences = self.values.iter().zip(&other.values).map(apart);
        Ok(OutputDifference {
            differing: differences.clone().filter(|&apart| apart > 0.0).count(),
            of,
            largest: differences.fold(0.0, f64::max),
        })
    }
}

fn numbers<const N: usize>(bytes: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&chunk| number(chunk))
        .collect()
}

impl fmt::Display for OutputDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            differing,
            of,
            largest,
        } = self;
        let share = 100.0 * *differing as f64 / (*of).max(1) as f64;
        write!(
            f,
            "{differing} of {of} outputs ({share:.1} %) differ from TensorFlow Lite's, by up to {largest}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_in_steps() {
        let tensor = |bytes: &[u8]| OutputTensor::new("o".into(), "INT8", 0.5, bytes);
        let difference = tensor(&[0, 127, 255]).difference(&tensor(&[0, 126, 1]));
        let difference = difference.unwrap();
        assert_eq!((difference.differing, difference.largest), (2, 2.0));
        let text = difference.to_string();
        assert!(text.starts_with("2 of 3 outputs (66.7 %)"), "{text}");
        tensor(&[0]).difference(&tensor(&[])).unwrap_err();
    }

    #[test]
    fn what_is_no_number_on_one_side_only_differs() {
        let tensor =
            |value: f32| OutputTensor::new("o".into(), "FLOAT32", 0.0, &value.to_le_bytes());
        let apart = |a, b| tensor(a).difference(&tensor(b)).unwrap().largest;
        assert_eq!(apart(f32::NAN, f32::NAN), 0.0);
        assert_eq!(apart(f32::INFINITY, f32::INFINITY), 0.0);
        assert_eq!(apart(f32::NAN, 1.0), f64::INFINITY);
    }
}
