// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a chip of the family can hold and count: the numbers that programs
//! must respect.

/// Bytes of an atom: what one pixel holds in one surface, and the unit of all
/// strides (E-atom).
pub const ATOM_BYTES: u32 = 16;

/// Bytes of the unit in which DATA_ENTRIES counts the CBUF space of a line:
/// the value that all known matrix programs write is `ceil(bytes / 64)`
/// (E-entries).
pub const CBUF_ENTRY_BYTES: u32 = 64;

/// Limits of one chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChipProfile {
    /// Name of the chip, lower case.
    pub name: &'static str,
    /// NPU cores.
    pub cores: u32,
    /// CBUF banks of a core, which features and weights share.
    pub cbuf_banks: u32,
    /// Bytes of a CBUF bank.
    pub cbuf_bank_bytes: u32,
    /// Fewest banks that the weights get (E-one-weight-bank).
    pub weight_banks_min: u32,
    /// Kernels that must fit the weight banks together, or a kernel group where
    /// that is more (int4). E-weight-room-block; one kernel group was enough for
    /// tf32 (E-weight-room-group).
    pub resident_kernels: u32,
    /// Most bytes of one kernel: one bank (E-kernel-bytes).
    pub kernel_bytes_max: u32,
    /// The feature fetch takes lines in groups of so many.
    pub line_group: u32,
    /// Most lines that FEATURE_GRAINS can ask for (10 bits).
    pub grains_max: u32,
    /// Most input channels of a task: DATAIN_CHANNEL_REAL holds the number
    /// less one in 14 bits.
    pub input_channels_max: u32,
    /// Most output channels of a task: the DPU counts them, less one, in 13
    /// bits.
    pub output_channels_max: u32,
}

impl ChipProfile {
    /// RK3588. Sources: E-cores, E-cbuf-size, E-field-widths, and those named at
    /// the fields.
    pub const RK3588: Self = Self {
        name: "rk3588",
        cores: 3,
        cbuf_banks: 12,
        cbuf_bank_bytes: 32 << 10,
        weight_banks_min: 2,
        resident_kernels: 32,
        kernel_bytes_max: 32 << 10,
        line_group: 4,
        grains_max: 1023,
        input_channels_max: 1 << 14,
        output_channels_max: 1 << 13,
    };
}
