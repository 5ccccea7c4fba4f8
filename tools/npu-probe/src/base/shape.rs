// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes of a matmul on the command line.

use std::fmt;
use std::str::FromStr;

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use crate::base::exit::Failure;

/// The written form of a shape.
pub(crate) const FORM: &str = "MxKxN";

/// Help text of each option and argument that takes a shape.
pub(crate) const HELP: &str =
    "M (rows of A) x K (depth) x N (columns of the result), such as 512x4096x4096";

/// Sizes of the matmul C\[M,N\] = A\[M,K\] x B\[N,K\]^T.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct MatmulShape {
    pub(crate) m: usize,
    pub(crate) k: usize,
    pub(crate) n: usize,
}

/// Most elements of one matrix: a buffer of 2 GiB cannot hold more.
const ELEMENTS_MAX: usize = 1 << 31;

/// Most multiplications of a planned matmul. 131,072 rows with weights of 8192 x 28,672 have
/// fewer. Planning four times as many took 700 MB and 90 seconds, in a build without
/// optimisation.
const MACS_MAX: u128 = 1 << 45;

impl MatmulShape {
    /// Elements of A, B and C.
    pub(crate) fn lengths(self) -> Result<[usize; 3], Failure> {
        let Self { m, k, n } = self;
        let length = |name: &str, rows: usize, columns: usize| {
            let product = rows.checked_mul(columns);
            product.filter(|&len| len <= ELEMENTS_MAX).ok_or_else(|| {
                Failure::Usage(anyhow!(
                    "{name} of {rows} x {columns} has more than {ELEMENTS_MAX} elements"
                ))
            })
        };
        Ok([length("A", m, k)?, length("B", n, k)?, length("C", m, n)?])
    }

    /// Checks that a plan, which lists each task, is small enough.
    pub(crate) fn check_plannable(self) -> Result<(), Failure> {
        let macs = (self.m as u128 * self.k as u128).saturating_mul(self.n as u128);
        if macs > MACS_MAX {
            return Err(Failure::Usage(anyhow!(
                "{self} has {macs} multiplications; the limit is {MACS_MAX}. Use fewer rows"
            )));
        }
        Ok(())
    }
}

impl FromStr for MatmulShape {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let sizes: Result<Vec<usize>, _> = text.split('x').map(str::parse).collect();
        match sizes.as_deref() {
            Ok(&[m, k, n]) if m.min(k).min(n) > 0 => Ok(Self { m, k, n }),
            _ => Err("expected three numbers of at least 1, such as 512x4096x4096"),
        }
    }
}

impl fmt::Display for MatmulShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, k, n } = self;
        write!(f, "{m}x{k}x{n}")
    }
}
