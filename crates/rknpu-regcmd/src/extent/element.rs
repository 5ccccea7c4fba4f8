// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place in a task's output.

use core::fmt;

use crate::precision;

/// The type of an output element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// int8.
    Int8,
    /// int16.
    Int16,
    /// int32.
    Int32,
    /// IEEE binary16.
    Fp16,
    /// bfloat16.
    Bf16,
    /// IEEE binary32.
    Fp32,
}

impl ElementType {
    /// What the DPU's output precision code stands for.
    pub(super) const fn of_dpu(code: u32) -> Option<Self> {
        match code {
            precision::INT8 => Some(Self::Int8),
            precision::INT16 => Some(Self::Int16),
            precision::INT32 => Some(Self::Int32),
            precision::FP16 => Some(Self::Fp16),
            precision::BF16 => Some(Self::Bf16),
            precision::FP32 => Some(Self::Fp32),
            _ => None,
        }
    }

    /// Bytes of an element.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Int8 => 1,
            Self::Int16 | Self::Fp16 | Self::Bf16 => 2,
            Self::Int32 | Self::Fp32 => 4,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Int8 => "int8",
            Self::Int16 => "int16",
            Self::Int32 => "int32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp32 => "fp32",
        })
    }
}

/// One byte of one element of a task's output cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// Column of the cube.
    pub x: u32,
    /// Row of the cube.
    pub y: u32,
    /// Output channel.
    pub channel: u32,
    /// Which byte of the element.
    pub byte: u32,
    /// The element's type.
    pub ty: ElementType,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Binding, BufferId, ChipProfile, EnableMask, Iova, MatmulTask, MatmulType, RegisterFile,
        extents, tasks, written_element,
    };
    use std::collections::BTreeSet;

    /// Register values and blocks of a product, and where it writes.
    fn product(ty: MatmulType, m: u32, n: u32) -> (RegisterFile, EnableMask, u64, u64) {
        let [a, b, c] = [0, 1, 2].map(BufferId);
        let task = MatmulTask {
            ty,
            m,
            k: 64,
            n,
            a: a.at(0),
            b: b.at(0),
            c: c.at(0),
        };
        let place = |id, iova| Binding {
            id,
            iova: Iova(iova),
            len: 1 << 20,
        };
        let bindings = [place(a, 1 << 20), place(b, 2 << 20), place(c, 3 << 20)];
        let program = task.program(&ChipProfile::RK3588).unwrap();
        let linked = program.link(&bindings).unwrap();
        let task = tasks(linked.words()).next().unwrap();
        let touched = extents(&task.regs, task.enable).unwrap();
        let out = touched
            .iter()
            .find(|extent| extent.start >= 3 << 20)
            .unwrap();
        (task.regs, task.enable, out.start, out.end)
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of addresses")]
    fn each_byte_of_the_output_is_one_of_one_element() {
        for (ty, element) in [
            (MatmulType::Int8ToInt32, ElementType::Int32),
            (MatmulType::Fp16ToFp32, ElementType::Fp32),
            (MatmulType::Fp16ToFp16, ElementType::Fp16),
            (MatmulType::Int4ToInt16, ElementType::Int16),
        ] {
            let (m, n) = (8, 128);
            let (regs, enable, start, end) = product(ty, m, n);
            let mut seen = BTreeSet::new();
            for iova in start..end {
                let Some(found) = written_element(&regs, enable, iova) else {
                    continue;
                };
                assert_eq!(found.ty, element);
                assert!(found.channel < n);
                let row = found.x + found.y;
                assert!(row < m && (found.x == 0 || found.y == 0));
                assert_eq!(found.byte, iova as u32 % element.bytes());
                assert!(seen.insert((row, found.channel, found.byte)));
            }
            assert_eq!(seen.len() as u32, m * n * element.bytes());
            assert_eq!(written_element(&regs, enable, start - 1), None);
            assert_eq!(written_element(&regs, enable, end), None);
        }
    }
}
