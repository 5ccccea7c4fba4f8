// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPU_RDMA: the four read engines of the DPU, MRDMA (main input), BRDMA (BS
//! operands), NRDMA (BN operands) and ERDMA (EW operand) (page 5).
//! Source: E-field-widths; others are named at the register.

use crate::field::registers;

registers! {
    block DpuRdma;

    common 0x5000 0x5004 0x5008 "Selects register groups; programs write 0xE." {}

    /// Width of the cube to read.
    plain DataCubeWidth DATA_CUBE_WIDTH @ 0x500c {
        width: 0..=12 = "Pixels per line - 1.",
    }
    /// Height of the cube to read.
    plain DataCubeHeight DATA_CUBE_HEIGHT @ 0x5010 {
        height: 0..=12 = "Lines to read, - 1.",
        ew_line_notch_addr: 16..=28 = "Atoms skipped after each line of the EW operand.",
    }
    /// Channels of the cube to read.
    plain DataCubeChannel DATA_CUBE_CHANNEL @ 0x5014 {
        channel: 0..=12 = "Channels to read, - 1.",
    }
    /// Base address of the main input.
    address SrcBaseAddr SRC_BASE_ADDR @ 0x5018 {
        src_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// What BRDMA reads; 0 turns it off.
    plain BrdmaCfg BRDMA_CFG @ 0x501c {
        brdma_data_use: 1..=4 = "Bit 0 ALU operand, bit 1 CPEND, bit 2 multiplier operand, bit 3 shift.",
    }
    /// Base address of the BS operands.
    address BsBaseAddr BS_BASE_ADDR @ 0x5020 {
        bs_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// What NRDMA reads; 0 turns it off.
    plain NrdmaCfg NRDMA_CFG @ 0x5028 {
        nrdma_data_use: 1..=4 = "Bit 0 ALU operand, bit 1 CPEND, bit 2 multiplier operand, bit 3 shift.",
    }
    /// Base address of the BN operands.
    address BnBaseAddr BN_BASE_ADDR @ 0x502c {
        bn_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// What ERDMA reads.
    plain ErdmaCfg ERDMA_CFG @ 0x5034 {
        erdma_disable: 0..=0 = "1: off.",
        ov4k_bypass: 1..=1 = "1: bursts may cross 4 KiB.",
        erdma_data_size: 2..=3 = "0 4 bit, 1 8 bit, 2 16 bit, 3 32 bit.",
        erdma_nonalign: 28..=28 = "Unknown mode; programs write 0.",
        erdma_surf_mode: 29..=29 = "Unknown mode; programs write 0.",
        erdma_data_mode: 30..=31 = "0 per channel, 1 per pixel, 2 both.",
    }
    /// Base address of the EW operand.
    address EwBaseAddr EW_BASE_ADDR @ 0x5038 {
        ew_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// Distance of surfaces of the EW operand.
    plain EwSurfStride EW_SURF_STRIDE @ 0x5040 {
        ew_surf_stride: 4..=31 = "Distance, atoms.",
    }
    /// Mode of MRDMA.
    plain FeatureModeCfg FEATURE_MODE_CFG @ 0x5044 {
        flying_mode: 0..=0 = "1: MRDMA feeds the DPU's main input.",
        conv_mode: 1..=2 = "0 direct convolution, 3 depthwise.",
        mrdma_fp16tofp32_en: 3..=3 = "1: widen fp16 to fp32 on reading.",
        mrdma_disable: 4..=4 = "1: off.",
        proc_precision: 5..=7 = "Precision code of the computation.",
        comb_use: 8..=10 = "Bit 0: both engines read the same data, bit 1: to MRDMA, bit 2: to ERDMA.",
        burst_len: 11..=14 = "Beats - 1 of a burst.",
        in_precision: 15..=17 = "Precision code of the data in memory.",
    }
    /// Mode of MRDMA: line notch and unpooling.
    plain SrcDmaCfg SRC_DMA_CFG @ 0x5048 {
        kernel_width: 0..=2 = "Kernel width of unpooling; programs write 0.",
        kernel_height: 3..=5 = "Kernel height of unpooling; programs write 0.",
        kernel_stride_width: 6..=8 = "Horizontal stride of unpooling; programs write 0.",
        kernel_stride_height: 9..=11 = "Vertical stride of unpooling; programs write 0.",
        unpooling_en: 12..=12 = "Unknown mode; programs write 0.",
        pooling_method: 13..=13 = "Unknown mode; programs write 0.",
        line_notch_addr: 19..=31 = "Atoms skipped by MRDMA after each line.",
    }
    /// Gap after surfaces, MRDMA.
    plain SurfNotch SURF_NOTCH @ 0x504c {
        surf_notch_addr: 4..=31 = "Atoms skipped after each surface.",
    }
    /// Padding of the main input; 0 in all known programs.
    plain PadCfg PAD_CFG @ 0x5064 {
        pad_left: 0..=2 = "Pixels of padding before each line.",
        pad_top: 4..=6 = "Lines of padding above the input.",
        pad_value: 16..=31 = "Value of padded elements.",
    }
    /// Shares of the four read engines in the memory bus.
    plain Weight WEIGHT @ 0x5068 {
        m_weight: 0..=7 = "Share of MRDMA.",
        b_weight: 8..=15 = "Share of BRDMA.",
        n_weight: 16..=23 = "Share of NRDMA.",
        e_weight: 24..=31 = "Share of ERDMA.",
    }
    /// Gap after surfaces, ERDMA.
    plain EwSurfNotch EW_SURF_NOTCH @ 0x506c {
        ew_surf_notch: 4..=31 = "Atoms skipped after each surface.",
    }
}
