// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPU_RDMA: the read engine of the PPU (page 7).
//! Source: E-field-widths; others are named at the register.

use crate::field::registers;

registers! {
    block PpuRdma;

    common 0x7000 0x7004 0x7008 "Selects register groups; programs write 0xE." {}

    /// Width of the input.
    plain CubeInWidth CUBE_IN_WIDTH @ 0x700c { cube_in_width: 0..=12 = "Pixels per line - 1.", }
    /// Height of the input.
    plain CubeInHeight CUBE_IN_HEIGHT @ 0x7010 { cube_in_height: 0..=12 = "Lines to read, - 1.", }
    /// Channels of the input.
    plain CubeInChannel CUBE_IN_CHANNEL @ 0x7014 { cube_in_channel: 0..=12 = "Channels to read, - 1.", }
    /// Base address of the input.
    address SrcBaseAddr SRC_BASE_ADDR @ 0x701c {
        src_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// Distance of lines.
    plain SrcLineStride SRC_LINE_STRIDE @ 0x7024 {
        src_line_stride: 4..=31 = "Distance, atoms.",
    }
    /// Distance of surfaces.
    plain SrcSurfStride SRC_SURF_STRIDE @ 0x7028 {
        src_surf_stride: 4..=31 = "Distance, atoms.",
    }
    /// Precision.
    plain DataFormat DATA_FORMAT @ 0x7030 {
        in_precision: 0..=1 = "0 4 bit, 1 8 bit, 2 16 bit, 3 32 bit (E-pool-width-codes).",
    }
}
