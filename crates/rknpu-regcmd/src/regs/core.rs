// SPDX-License-Identifier: MIT OR Apache-2.0
//! CORE: MAC array and accumulators (page 3). Source: Mesa `registers.xml`,
//! RK3588 TRM.

use crate::field::registers;

registers! {
    block Core;

    /// State of the two register groups.
    plain(readonly) SStatus S_STATUS @ 0x3000 {
        status_0: 0..=1 = "Group 0: 0 idle, 1 executing, 2 waiting.",
        status_1: 16..=17 = "Group 1, likewise.",
    }
    /// Selects register groups. The kernel writes 0xE with the core's number in bits 29..28; programs leave it alone (Linux `drivers/accel/rocket`).
    plain SPointer S_POINTER @ 0x3004 {
        pointer: 0..=0 = "Group that writes go to.",
        pointer_pp_en: 1..=1 = "1: toggle the pointer.",
        executer_pp_en: 2..=2 = "1: toggle the executer.",
        pointer_pp_mode: 3..=3 = "0: toggle by the executer, 1: by the pointer.",
        pointer_pp_clear: 4..=4 = "Write 1: pointer to 0.",
        executer_pp_clear: 5..=5 = "Write 1: executer to 0.",
        executer: 16..=16 = "Read only: group in execution.",
        core: 28..=29 = "Number of the core, as the kernel sets it.",
    }
    /// Starts the block in CPU mode; programs use the enable word.
    plain(driver) OperationEnable OPERATION_ENABLE @ 0x3008 {
        op_en: 0..=0 = "1: start.",
    }
    /// Clock gating; not written by programs.
    plain(driver) MacGating MAC_GATING @ 0x300c {
        slcg_op_en: 0..=26 = "Bits of the clock gates.",
    }
    /// Mode of the MAC array.
    plain MiscCfg MISC_CFG @ 0x3010 {
        qd_en: 0..=0 = "1: also sum the input window, for the weight zero point correction.",
        dw_en: 1..=1 = "1: depthwise.",
        proc_precision: 8..=10 = "Precision code, as CONV_CON1.",
        soft_gating: 14..=19 = "0.",
    }
    /// Size of the output.
    plain DataoutSize0 DATAOUT_SIZE_0 @ 0x3014 {
        dataout_width: 0..=15 = "Pixels per line - 1.",
        dataout_height: 16..=31 = "Lines - 1.",
    }
    /// Channels of the output.
    plain DataoutSize1 DATAOUT_SIZE_1 @ 0x3018 {
        dataout_channel: 0..=15 = "Channels - 1.",
    }
    /// Shift of the accumulator.
    plain ClipTruncate CLIP_TRUNCATE @ 0x301c {
        clip_truncate: 0..=4 = "Arithmetic right shift, bits.",
        round_type: 6..=6 = "Ties: 0 to even, 1 up.",
    }
    /// Undocumented. All known programs write 0.
    plain Unknown3030 UNKNOWN_3030 @ 0x3030 {
        unknown: 0..=31 = "0 in all known programs.",
    }
}
