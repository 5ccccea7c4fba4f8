// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPU_RDMA: the read engine of the PPU (page 7).
//! Source: Mesa `registers.xml`, RK3588 TRM; other sources are named at the
//! register.

use crate::field::registers;

registers! {
    block PpuRdma;

    /// State of the two register groups.
    plain(readonly) SStatus S_STATUS @ 0x7000 {
        status_0: 0..=1 = "Group 0: 0 idle, 1 executing, 2 waiting.",
        status_1: 16..=17 = "Group 1, likewise.",
    }
    /// Selects register groups; programs write 0xE.
    plain SPointer S_POINTER @ 0x7004 {
        pointer: 0..=0 = "Group that writes go to.",
        pointer_pp_en: 1..=1 = "1: toggle the pointer.",
        executer_pp_en: 2..=2 = "1: toggle the executer.",
        pointer_pp_mode: 3..=3 = "0: toggle by the executer, 1: by the pointer.",
        pointer_pp_clear: 4..=4 = "Write 1: pointer to 0.",
        executer_pp_clear: 5..=5 = "Write 1: executer to 0.",
        executer: 16..=16 = "Read only: group in execution.",
    }
    /// Starts the block in CPU mode; programs use the enable word.
    plain(driver) OperationEnable OPERATION_ENABLE @ 0x7008 {
        op_en: 0..=0 = "1: start.",
    }
    /// Width of the input.
    plain CubeInWidth CUBE_IN_WIDTH @ 0x700c { cube_in_width: 0..=12 = "Pixels per line - 1.", }
    /// Height of the input.
    plain CubeInHeight CUBE_IN_HEIGHT @ 0x7010 { cube_in_height: 0..=12 = "Lines - 1.", }
    /// Channel of the input.
    plain CubeInChannel CUBE_IN_CHANNEL @ 0x7014 { cube_in_channel: 0..=12 = "Channels - 1.", }
    /// Base address of the input.
    address SrcBaseAddr SRC_BASE_ADDR @ 0x701c {
        src_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// Distance of lines.
    plain SrcLineStride SRC_LINE_STRIDE @ 0x7024 {
        src_line_stride: 4..=31 = "Atoms.",
    }
    /// Distance of surfaces.
    plain SrcSurfStride SRC_SURF_STRIDE @ 0x7028 {
        src_surf_stride: 4..=31 = "Atoms.",
    }
    /// Precision.
    plain DataFormat DATA_FORMAT @ 0x7030 {
        in_precision: 0..=1 = "0 4 bit, 1 8 bit, 2 16 bit, 3 32 bit (TRM).",
    }
}
