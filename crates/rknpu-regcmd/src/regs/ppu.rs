// SPDX-License-Identifier: MIT OR Apache-2.0
//! PPU: pooling (page 6).
//! Source: E-field-widths; others are named at the register.

use crate::field::registers;

registers! {
    block Ppu;

    common 0x6000 0x6004 0x6008 "Selects register groups; programs write 0xE." {}

    /// Width of the input.
    plain DataCubeInWidth DATA_CUBE_IN_WIDTH @ 0x600c { cube_in_width: 0..=12 = "Pixels per line - 1.", }
    /// Height of the input.
    plain DataCubeInHeight DATA_CUBE_IN_HEIGHT @ 0x6010 { cube_in_height: 0..=12 = "Input lines, - 1.", }
    /// Channels of the input.
    plain DataCubeInChannel DATA_CUBE_IN_CHANNEL @ 0x6014 { cube_in_channel: 0..=12 = "Input channels, - 1.", }
    /// Width of the output.
    plain DataCubeOutWidth DATA_CUBE_OUT_WIDTH @ 0x6018 { cube_out_width: 0..=12 = "Pixels per line - 1.", }
    /// Height of the output.
    plain DataCubeOutHeight DATA_CUBE_OUT_HEIGHT @ 0x601c { cube_out_height: 0..=12 = "Output lines, - 1.", }
    /// Channels of the output.
    plain DataCubeOutChannel DATA_CUBE_OUT_CHANNEL @ 0x6020 { cube_out_channel: 0..=12 = "Output channels, - 1.", }
    /// Mode of the pooling.
    plain OperationModeCfg OPERATION_MODE_CFG @ 0x6024 {
        pooling_method: 0..=1 = "0 average, 1 max, 2 min.",
        flying_mode: 4..=4 = "Input: 0 from the DPU, 1 from PPU_RDMA.",
        use_cnt: 5..=7 = "Unknown mode; programs write 0.",
        notch_addr: 16..=28 = "Atoms skipped after each output line.",
        index_en: 30..=30 = "0; semantics unknown.",
    }
    /// Size of the pooled window, and its steps.
    plain PoolingKernelCfg POOLING_KERNEL_CFG @ 0x6034 {
        kernel_width: 0..=3 = "Width of the window, pixels - 1.",
        kernel_height: 8..=11 = "Height of the window, lines - 1.",
        kernel_stride_width: 16..=19 = "Horizontal step, pixels - 1.",
        kernel_stride_height: 20..=23 = "Vertical step, lines - 1.",
    }
    /// Reciprocal of the kernel's width.
    plain RecipKernelWidth RECIP_KERNEL_WIDTH @ 0x6038 {
        recip_kernel_width: 0..=16 = "Average: fp16 bits of 65536 / width.",
    }
    /// Reciprocal of the kernel's height.
    plain RecipKernelHeight RECIP_KERNEL_HEIGHT @ 0x603c {
        recip_kernel_height: 0..=16 = "Average: fp16 bits of 65536 / height.",
    }
    /// Padding around the input.
    plain PoolingPaddingCfg POOLING_PADDING_CFG @ 0x6040 {
        pad_left: 0..=2 = "Pixels before each line.",
        pad_top: 4..=6 = "Lines above.",
        pad_right: 8..=10 = "Pixels behind each line.",
        pad_bottom: 12..=14 = "Lines below.",
    }
    /// Value of padded pixels.
    plain PaddingValue1 PADDING_VALUE_1 @ 0x6044 {
        pad_value_0: 0..=31 = "Max pooling with padding: 0xFC00, fp16 minus infinity.",
    }
    /// Value of padded pixels, upper part.
    plain PaddingValue2 PADDING_VALUE_2 @ 0x6048 {
        pad_value_1: 0..=2 = "Programs write 0.",
    }
    /// Base address of the output.
    address DstBaseAddr DST_BASE_ADDR @ 0x6070 {
        dst_base_addr: 4..=31 = "Bits 31..4 of the IOVA.",
    }
    /// Distance of surfaces of the output.
    plain DstSurfStride DST_SURF_STRIDE @ 0x607c {
        dst_surf_stride: 4..=31 = "Distance, atoms.",
    }
    /// Precision.
    plain DataFormat DATA_FORMAT @ 0x6084 {
        proc_precision: 0..=2 = "Precision code.",
        dpu_flyin: 3..=3 = "Unknown mode; programs write 0.",
        index_add: 4..=31 = "Atoms; as DST_SURF_STRIDE in known programs.",
    }
    /// Lengths of bursts on the memory bus.
    plain MiscCtrl MISC_CTRL @ 0x60dc {
        burst_len: 0..=3 = "Beats - 1 of a burst.",
        nonalign: 7..=7 = "Unknown mode; programs write 0.",
        mc_surf_out: 8..=8 = "Unknown mode; programs write 0.",
        surf_len: 16..=31 = "Unknown mode; programs write 0.",
    }
}
