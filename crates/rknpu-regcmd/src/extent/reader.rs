// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that the extents of all engines share.

use core::cell::Cell;
use core::ops::Range;

use super::engine::{DmaEngine, Extent, ExtentError};
use crate::chip::ATOM_BYTES;
use crate::field::{AddressRegister, Register, RegisterInfo};
use crate::regfile::RegisterFile;
use crate::task::{Cube, ReadRegisters};
use crate::word::Iova;

/// A getter of a register's field.
pub(super) type Field<R> = fn(R) -> u32;

/// Reads registers and notes the first one that was not written.
pub(super) struct Reader<'a> {
    pub(super) regs: &'a RegisterFile,
    pub(super) unwritten: Cell<Option<&'static RegisterInfo>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(regs: &'a RegisterFile) -> Self {
        Self {
            regs,
            unwritten: Cell::new(None),
        }
    }

    /// Returns an error unless the base address in `R` is that of an atom.
    pub(super) fn aligned<R: AddressRegister>(&self) -> Result<(), ExtentError> {
        let value = self.get::<R>().bits();
        if !value.is_multiple_of(ATOM_BYTES) {
            return Err(ExtentError::Unaligned {
                register: R::INFO.name,
                value,
            });
        }
        Ok(())
    }

    /// Returns an error unless the field has one of the `known` values: those of known
    /// programs, for which the touched memory is known.
    pub(super) fn known<R: Register>(
        &self,
        field: Field<R>,
        known: &[u32],
    ) -> Result<(), ExtentError> {
        let value = field(self.get());
        if known.contains(&value) {
            return Ok(());
        }
        Err(unknown(field, value))
    }
}

impl ReadRegisters for Reader<'_> {
    fn get<R: Register>(&self) -> R {
        if !self.regs.was_written(R::INFO.offset) && self.unwritten.get().is_none() {
            self.unwritten.set(Some(R::INFO));
        }
        self.regs.get()
    }
}

/// Returns an error unless the registers `A` and `B` agree about `what`.
pub(super) fn must_agree<A: Register, B: Register>(
    what: &'static str,
    [a, b]: [impl PartialEq; 2],
) -> Result<(), ExtentError> {
    if a == b {
        return Ok(());
    }
    Err(ExtentError::Disagreement {
        first: A::INFO.name,
        second: B::INFO.name,
        what,
    })
}

pub(super) fn unknown<R: Register>(field: Field<R>, value: u32) -> ExtentError {
    ExtentError::UnknownMode {
        register: R::INFO.name,
        field: name_of(field),
        value,
    }
}

/// The name of a field: that of the register's only field whose bits its getter sees.
pub(super) fn name_of<R: Register>(field: Field<R>) -> &'static str {
    let mut fields = R::INFO.fields.iter();
    let found = fields.find(|info| field(R::from_bits(info.mask())) != 0);
    found.map_or("", |info| info.name)
}

/// The extent of `engine`, which walks one of `cubes`: it covers all of them.
pub(super) fn touched(engine: DmaEngine, cubes: &[Cube]) -> Result<Extent, ExtentError> {
    let all = cubes.iter().filter_map(Cube::bounds);
    let union = all.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
    bytes(engine, union.unwrap_or_default())
}

pub(super) fn bytes(
    engine: DmaEngine,
    Range { start, end }: Range<i64>,
) -> Result<Extent, ExtentError> {
    match (u64::try_from(start), u64::try_from(end)) {
        (Ok(first), Ok(past)) if past <= Iova::END => Ok(Extent {
            engine,
            start: first,
            end: past,
        }),
        _ => Err(ExtentError::OutOfRange { engine, start, end }),
    }
}
