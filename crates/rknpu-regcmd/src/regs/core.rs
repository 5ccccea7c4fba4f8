// SPDX-License-Identifier: MIT OR Apache-2.0
//! CORE: MAC array and accumulators (page 3). Source: E-field-widths.

use crate::field::registers;

registers! {
    block Core;

    common 0x3000 0x3004 0x3008 "Selects register groups. The kernel writes 0xE with the core's number in bits 29..28; programs leave it alone (Linux `drivers/accel/rocket`)." {
        core: 28..=29 = "Number of the core, as the kernel sets it.",
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
        soft_gating: 14..=19 = "Unknown mode; programs write 0.",
    }
    /// Size of the output.
    plain DataoutSize0 DATAOUT_SIZE_0 @ 0x3014 {
        dataout_width: 0..=15 = "Pixels per line - 1.",
        dataout_height: 16..=31 = "Output lines, - 1.",
    }
    /// Channels of the output.
    plain DataoutSize1 DATAOUT_SIZE_1 @ 0x3018 {
        dataout_channel: 0..=15 = "Output channels, - 1.",
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
