// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers and their fields as data, and the macro that declares them.

use alloc::format;
use alloc::string::String;
use core::fmt;

use thiserror::Error;

use crate::word::{Block, Word};

/// A bit field of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// Name as in the register database, lower case.
    pub name: &'static str,
    /// Lowest bit.
    pub lsb: u8,
    /// Highest bit.
    pub msb: u8,
    /// Whether the field holds a two's complement number.
    pub signed: bool,
    /// Meaning, with unit.
    pub doc: &'static str,
}

impl FieldInfo {
    /// Width in bits.
    #[must_use]
    pub const fn width(&self) -> u32 {
        (self.msb - self.lsb + 1) as u32
    }

    /// All bits of the field set, from bit 0 up.
    #[must_use]
    pub const fn max(&self) -> u32 {
        u32::MAX >> (32 - self.width())
    }

    /// The mask of the field's bits in the register.
    #[must_use]
    pub const fn mask(&self) -> u32 {
        self.max() << self.lsb
    }

    /// The field's bits of `register`, shifted down to bit 0.
    #[must_use]
    pub const fn extract(&self, register: u32) -> u32 {
        (register >> self.lsb) & self.max()
    }

    /// The number that the field holds in `register`.
    #[must_use]
    pub const fn get(&self, register: u32) -> i64 {
        let bits = self.extract(register);
        if self.signed {
            let unused = 32 - self.width();
            return (((bits << unused) as i32) >> unused) as i64;
        }
        bits as i64
    }

    /// Smallest and largest number that fits.
    #[must_use]
    pub const fn range(&self) -> (i64, i64) {
        let max = self.max() as i64;
        if self.signed {
            return (-(max >> 1) - 1, max >> 1);
        }
        (0, max)
    }

    /// `register` with the field set to `value`.
    ///
    /// # Errors
    /// When `value` is outside the field's range. The hardware would drop the upper
    /// bits without an error.
    pub const fn insert(&self, register: u32, value: i64) -> Result<u32, FieldRangeError> {
        let (min, max) = self.range();
        if value < min || value > max {
            return Err(FieldRangeError {
                field: self.name,
                value,
                min,
                max,
            });
        }
        Ok(register & !self.mask() | (value as u32 & self.max()) << self.lsb)
    }
}

/// A value that does not fit its register field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{value} does not fit the register field {field}, which holds {min} to {max}")]
pub struct FieldRangeError {
    /// Name of the field.
    pub field: &'static str,
    /// The value that was to be written.
    pub value: i64,
    /// Smallest value that fits.
    pub min: i64,
    /// Largest value that fits.
    pub max: i64,
}

/// Who may write a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterAccess {
    /// Written by programs.
    Program,
    /// Not written by any known program. If anything writes it, the kernel driver
    /// does, by MMIO.
    Driver,
    /// Read only.
    ReadOnly,
}

/// One register, as declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterInfo {
    /// Name as in the register database.
    pub name: &'static str,
    /// The block that owns it.
    pub block: Block,
    /// Byte offset in the core's register window.
    pub offset: u16,
    /// The fields, from bit 0 up.
    pub fields: &'static [FieldInfo],
    /// Meaning, and source where it is not the register database.
    pub doc: &'static str,
    /// Who may write it.
    pub access: RegisterAccess,
    /// Whether it holds a DMA base address: an IOVA, 16-byte aligned.
    pub is_address: bool,
}

/// Offset of S_POINTER in every block's page.
const S_POINTER: u16 = 0x004;

impl RegisterInfo {
    /// The word that writes `value`.
    #[must_use]
    pub const fn write(&self, value: u32) -> Word {
        Word::new(self.block.target(), self.offset, value)
    }

    /// Whether `word` writes this register.
    #[must_use]
    pub fn is_written_by(&self, word: Word) -> bool {
        self.write(word.value()) == word
    }

    /// Whether this is a block's S_POINTER, which selects register groups.
    #[must_use]
    pub fn is_pointer(&self) -> bool {
        self.block != Block::Pc && self.offset & 0xfff == S_POINTER
    }

    /// Whether this is a parameter of a task: a register of a block other than PC that programs
    /// write, and no S_POINTER. A complete program writes all of them.
    #[must_use]
    pub(crate) fn is_operand(&self) -> bool {
        self.block != Block::Pc && self.access == RegisterAccess::Program && !self.is_pointer()
    }

    /// Describes the bits of `value` that belong to no field, if any: the hardware drops
    /// them. The sign of a negative number in a narrower field does not count.
    #[must_use]
    pub fn overflow(&self, value: u32) -> Option<String> {
        let lost = value & !self.declared_bits();
        let sign = |field: &FieldInfo| {
            field.get(value) < 0 && lost == !(u32::MAX >> (u32::BITS - 1 - u32::from(field.msb)))
        };
        (lost != 0 && !self.fields.iter().any(sign))
            .then(|| format!("bits {lost:#010x} of {value:#010x} are in no field"))
    }

    /// The bits that belong to a field. What the other bits do is not known.
    #[must_use]
    pub(crate) fn declared_bits(&self) -> u32 {
        self.fields
            .iter()
            .fold(0, |bits, field| bits | field.mask())
    }
}

/// Block and name, such as `CNA.CBUF_CON0`.
impl fmt::Display for RegisterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.block, self.name)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for RegisterInfo {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A register value whose type names the register.
pub trait Register: Copy {
    /// Block, name, offset and fields.
    const INFO: &'static RegisterInfo;
    /// The register holding `bits`.
    fn from_bits(bits: u32) -> Self;
    /// The bits to write.
    fn bits(self) -> u32;
}

/// A register that holds a DMA base address.
pub trait AddressRegister: Register {}

/// Declares the registers of a block. Each gets a type with getters and range-checked
/// setters, and its [`RegisterInfo`]. The block gets the table `REGISTERS`.
macro_rules! registers {
    (@signed) => { false };
    (@signed signed) => { true };
    (@number) => { u32 };
    (@number signed) => { i32 };
    (@address plain) => { false };
    (@address address) => { true };
    (@access) => { $crate::field::RegisterAccess::Program };
    (@access driver) => { $crate::field::RegisterAccess::Driver };
    (@access readonly) => { $crate::field::RegisterAccess::ReadOnly };
    (@mark plain $type:ident) => {};
    (@mark address $type:ident) => { impl $crate::field::AddressRegister for $type {} };

    (@accessors $index:expr;) => {};
    (@accessors $index:expr; $fdoc:literal $field:ident $($signed:ident)?; $($rest:tt)*) => {
        pastey::paste! {
            #[doc = $fdoc]
            #[must_use]
            pub const fn $field(self) -> registers!(@number $($signed)?) {
                Self::FIELDS[$index].get(self.0) as _
            }
            #[doc = concat!("Sets `", stringify!($field), "`: ", $fdoc)]
            ///
            /// # Errors
            /// When the value does not fit the field.
            pub const fn [<with_ $field>](
                self,
                value: registers!(@number $($signed)?),
            ) -> Result<Self, $crate::field::FieldRangeError> {
                match Self::FIELDS[$index].insert(self.0, value as i64) {
                    Ok(bits) => Ok(Self(bits)),
                    Err(error) => Err(error),
                }
            }
        }
        registers!(@accessors $index + 1; $($rest)*);
    };

    // The three registers with which every block except PC begins. The arguments are
    // their offsets, the meaning of S_POINTER, and its fields that only some blocks
    // have.
    (
        block $block:ident;
        common $status:literal $pointer:literal $enable:literal $meaning:literal { $($extra:tt)* }
        $($rest:tt)+
    ) => {
        registers! {
            block $block;

            /// State of the two register groups.
            plain(readonly) SStatus S_STATUS @ $status {
                status_0: 0..=1 = "Group 0: 0 idle, 1 executing, 2 waiting.",
                status_1: 16..=17 = "Group 1: 0 idle, 1 executing, 2 waiting.",
            }
            #[doc = $meaning]
            plain SPointer S_POINTER @ $pointer {
                pointer: 0..=0 = "Group that writes go to.",
                pointer_pp_en: 1..=1 = "1: toggle the pointer.",
                executer_pp_en: 2..=2 = "1: toggle the executer.",
                pointer_pp_mode: 3..=3 = "0: toggle by the executer, 1: by the pointer.",
                pointer_pp_clear: 4..=4 = "Write 1: pointer to 0.",
                executer_pp_clear: 5..=5 = "Write 1: executer to 0.",
                executer: 16..=16 = "Read only: group in execution.",
                $($extra)*
            }
            /// Starts the block in CPU mode; programs use the enable word.
            plain(driver) OperationEnable OPERATION_ENABLE @ $enable {
                op_en: 0..=0 = "1: start.",
            }
            $($rest)+
        }
    };
    (
        block $block:ident;
        $(
            $(#[doc = $doc:literal])+
            $kind:ident $(($access:ident))? $type:ident $name:ident @ $offset:literal {
                $( $field:ident: $lsb:literal..=$msb:literal $($signed:ident)? = $fdoc:literal, )*
            }
        )+
    ) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $type(u32);

            impl $type {
                /// Byte offset in the core's register window.
                pub const OFFSET: u16 = $offset;
                const FIELDS: &'static [$crate::field::FieldInfo] = &[
                    $( $crate::field::FieldInfo {
                        name: stringify!($field),
                        lsb: $lsb,
                        msb: $msb,
                        signed: registers!(@signed $($signed)?),
                        doc: $fdoc,
                    }, )*
                ];
                /// All bits 0.
                #[must_use]
                pub const fn new() -> Self { Self(0) }
                registers!(@accessors 0; $( $fdoc $field $($signed)?; )*);
            }

            impl $crate::field::Register for $type {
                const INFO: &'static $crate::field::RegisterInfo = &$crate::field::RegisterInfo {
                    name: stringify!($name),
                    block: $crate::word::Block::$block,
                    offset: $offset,
                    fields: Self::FIELDS,
                    doc: concat!($($doc, "\n"),+),
                    access: registers!(@access $($access)?),
                    is_address: registers!(@address $kind),
                };
                fn from_bits(bits: u32) -> Self { Self(bits) }
                fn bits(self) -> u32 { self.0 }
            }

            registers!(@mark $kind $type);
        )+

        /// The registers of the block, by offset.
        pub static REGISTERS: &[&$crate::field::RegisterInfo] = &[
            $( <$type as $crate::field::Register>::INFO, )+
        ];
    };
}
pub(crate) use registers;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::{self, cna, dpu};

    #[test]
    fn every_field_holds_its_range_and_leaves_its_neighbours() {
        for register in regs::all() {
            for field in register.fields {
                let (min, max) = field.range();
                assert_eq!(max - min, i64::from(field.max()), "{}", field.name);
                assert_eq!(min < 0, field.signed);
                for around in [0, u32::MAX, 0x5555_5555] {
                    for value in [min, 0, 1, max / 2, max] {
                        let bits = field.insert(around, value).unwrap();
                        assert_eq!(field.get(bits), value, "{}", field.name);
                        assert_eq!(bits & !field.mask(), around & !field.mask());
                    }
                    for value in [min - 1, max + 1] {
                        let error = field.insert(around, value).unwrap_err();
                        assert_eq!((error.min, error.max), (min, max));
                    }
                }
            }
        }
    }

    /// Getters and setters of a register's first, middle and last fields.
    #[test]
    fn accessors_use_the_field_of_their_name() {
        let con1 = cna::ConvCon1::new()
            .with_conv_mode(3)
            .unwrap()
            .with_argb_in(8)
            .unwrap()
            .with_nonalign_dma(1)
            .unwrap();
        assert_eq!(con1.bits(), 1 << 30 | 8 << 12 | 3);
        assert_eq!(
            (con1.conv_mode(), con1.argb_in(), con1.nonalign_dma()),
            (3, 8, 1)
        );
        let ew = dpu::EwCfg::from_bits(0x1082_02c0);
        assert_eq!(
            (ew.ew_alu_algo(), ew.edata_size(), ew.ew_data_mode()),
            (2, 2, 1)
        );
        assert_eq!(
            (ew.ew_op_src(), ew.ew_lut_bypass(), ew.ew_op_cvt_bypass()),
            (1, 1, 0)
        );
    }
}
