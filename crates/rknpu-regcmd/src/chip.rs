// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of the chips that programs must respect.

/// Bytes of an atom: the data of one pixel in one surface. All strides count atoms
/// (E-atom).
pub const ATOM_BYTES: u32 = 16;

/// Bytes of an entry, in which DATA_ENTRIES counts the CBUF space of a line. All
/// known matmul programs write `ceil(bytes / 64)` to it (E-entries).
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
    /// Minimum banks for the weights (E-one-weight-bank).
    pub weight_banks_min: u32,
    /// Kernels that must fit the weight banks at the same time (E-weight-room-block);
    /// a kernel group if that is larger (int4). For tf32 one kernel group was enough
    /// (E-weight-room-group).
    pub resident_kernels: u32,
    /// Maximum bytes of one kernel: one bank (E-kernel-bytes).
    pub kernel_bytes_max: u32,
    /// Lines that the feature fetch takes at a time.
    pub line_group: u32,
    /// Maximum lines of FEATURE_GRAINS (10 bits).
    pub grains_max: u32,
    /// Maximum input channels of a task: DATAIN_CHANNEL_REAL holds the number less
    /// one in 14 bits.
    pub input_channels_max: u32,
    /// Maximum output channels of a task: the DPU counts them, less one, in 13 bits.
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
