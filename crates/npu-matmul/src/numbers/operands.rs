// SPDX-License-Identifier: MIT OR Apache-2.0
//! A and C of a matmul, in host memory.

use half::f16;

/// A: M x K, row major.
#[derive(Clone, Copy, Debug)]
pub enum Activations<'a> {
    /// For integer weights.
    I8(&'a [i8]),
    /// For FP16 weights.
    F16(&'a [f16]),
    /// For quantised weights.
    F32(&'a [f32]),
}

/// C: M x N, row major.
#[derive(Debug)]
pub enum Outputs<'a> {
    /// For integer weights.
    I32(&'a mut [i32]),
    /// For FP16 and quantised weights.
    F32(&'a mut [f32]),
}

macro_rules! from_slices {
    ($($to:ident::$variant:ident($slice:ty)),+) => {
        $(impl<'a> From<$slice> for $to<'a> {
            fn from(slice: $slice) -> Self {
                Self::$variant(slice)
            }
        })+
    };
}

from_slices!(
    Activations::I8(&'a [i8]),
    Activations::F16(&'a [f16]),
    Activations::F32(&'a [f32]),
    Outputs::I32(&'a mut [i32]),
    Outputs::F32(&'a mut [f32])
);

impl<'a, T, const N: usize> From<&'a [T; N]> for Activations<'a>
where
    Self: From<&'a [T]>,
{
    fn from(rows: &'a [T; N]) -> Self {
        Self::from(&rows[..])
    }
}

impl<'a, T, const N: usize> From<&'a mut [T; N]> for Outputs<'a>
where
    Self: From<&'a mut [T]>,
{
    fn from(rows: &'a mut [T; N]) -> Self {
        Self::from(&mut rows[..])
    }
}

impl<'a, T> From<&'a Vec<T>> for Activations<'a>
where
    Self: From<&'a [T]>,
{
    fn from(rows: &'a Vec<T>) -> Self {
        Self::from(&rows[..])
    }
}

impl<'a, T> From<&'a mut Vec<T>> for Outputs<'a>
where
    Self: From<&'a mut [T]>,
{
    fn from(rows: &'a mut Vec<T>) -> Self {
        Self::from(&mut rows[..])
    }
}
