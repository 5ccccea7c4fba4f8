// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA: feature and weight fetch into CBUF, input conversion, padding and
//! sequencing (page 1). Source: E-field-widths; others are named at the register.

use crate::field::registers;

registers! {
    block Cna;

    common 0x1000 0x1004 0x1008 "Selects register groups. The kernel writes 0xE with the core's number in bits 29..28; programs leave it alone (Linux `drivers/accel/rocket`)." {
        core: 28..=29 = "Number of the core, as the kernel sets it.",
    }

    /// Mode and precisions of the convolution.
    plain ConvCon1 CONV_CON1 @ 0x100c {
        conv_mode: 0..=3 = "0 direct convolution, 3 depthwise.",
        in_precision: 4..=6 = "Precision code: 0 int8, 1 int16, 2 fp16, 3 bf16, 6 int4, 7 tf32.",
        proc_precision: 7..=9 = "Precision code of the computation; equal to in_precision in all known programs.",
        argb_in: 12..=15 = "0 normal cube; 8..11 packed pixels with 1..4 channels.",
        deconv: 16..=16 = "Transposed convolution; semantics unknown, never used.",
        group_line_off: 29..=29 = "0: feature fetch in groups of four lines; 1: plain line and surface strides.",
        nonalign_dma: 30..=30 = "1, with argb_in: rows are not atom aligned.",
    }
    /// Prefetch before the computation starts.
    plain ConvCon2 CONV_CON2 @ 0x1010 {
        cmd_fifo_srst: 0..=0 = "Soft reset of the command FIFO; 0.",
        csc_do_en: 1..=1 = "1 disables the sequencer's data output (debug).",
        csc_wo_en: 2..=2 = "1 disables the sequencer's weight output (debug).",
        feature_grains: 4..=13 = "Lines that must be in CBUF before computing starts; at least kernel height + stride.",
        kernel_group: 16..=23 = "Number of kernel groups - 1; every known program writes 0.",
    }
    /// Strides and dilation.
    plain ConvCon3 CONV_CON3 @ 0x1014 {
        conv_x_stride: 0..=2 = "Horizontal stride, pixels.",
        conv_y_stride: 3..=5 = "Vertical stride, lines.",
        deconv_x_stride: 8..=10 = "Horizontal stride of a transposed convolution; programs write 0.",
        deconv_y_stride: 11..=13 = "Vertical stride of a transposed convolution; programs write 0.",
        atrous_x_dilation: 16..=20 = "Horizontal dilation - 1 (E-window).",
        atrous_y_dilation: 21..=25 = "Vertical dilation - 1 (E-window).",
        nn_mode: 28..=30 = "Unknown mode; programs write 0.",
    }
    /// Size of the convolution's input.
    plain DataSize0 DATA_SIZE0 @ 0x1020 {
        datain_height: 0..=10 = "Input lines.",
        datain_width: 16..=26 = "Input pixels per line.",
    }
    /// Channels of the convolution's input.
    plain DataSize1 DATA_SIZE1 @ 0x1024 {
        datain_channel: 0..=15 = "Input channels, padded to whole groups.",
        datain_channel_real: 16..=29 = "Input channels before padding, - 1.",
    }
    /// Width of the convolution's output.
    plain DataSize2 DATA_SIZE2 @ 0x1028 {
        dataout_width: 0..=10 = "Output pixels per line.",
    }
    /// Size of the convolution's output.
    plain DataSize3 DATA_SIZE3 @ 0x102c {
        dataout_atomics: 0..=21 = "Output pixels, width x height.",
        surf_mode: 22..=23 = "Unknown mode; programs write 0.",
    }
    /// Size of all weights.
    plain WeightSize0 WEIGHT_SIZE0 @ 0x1030 {
        weight_bytes: 0..=31 = "Bytes of all kernels.",
    }
    /// Size of one kernel.
    plain WeightSize1 WEIGHT_SIZE1 @ 0x1034 {
        weight_bytes_per_kernel: 0..=18 = "Bytes of one kernel; at most 32768 in all known programs.",
    }
    /// Shape and number of kernels.
    plain WeightSize2 WEIGHT_SIZE2 @ 0x1038 {
        weight_kernels: 0..=13 = "Number of kernels; depthwise 1.",
        weight_height: 16..=20 = "Kernel lines.",
        weight_width: 24..=28 = "Kernel pixels per line.",
    }
    /// Division of CBUF and reuse of its contents.
    plain CbufCon0 CBUF_CON0 @ 0x1040 {
        data_bank: 0..=3 = "Banks for feature data.",
        weight_bank: 4..=7 = "Banks for weights.",
        fc_data_bank: 8..=10 = "Must be 0; anything else corrupts results (E-fc-data-bank).",
        data_reuse: 12..=12 = "1: do not fetch feature data, use what CBUF holds.",
        weight_reuse: 13..=13 = "1: do not fetch weights, use what CBUF holds.",
    }
    /// CBUF space of a line.
    plain CbufCon1 CBUF_CON1 @ 0x1044 {
        data_entries: 0..=13 = "64-byte entries per input line.",
    }
    /// Input conversion: mode.
    plain CvtCon0 CVT_CON0 @ 0x104c {
        cvt_bypass: 0..=0 = "1: no conversion.",
        cvt_type: 1..=1 = "0: multiply, then add; 1: add, then multiply.",
        round_type: 2..=2 = "Ties: 0 to even, 1 up.",
        data_sign: 3..=3 = "1: the input is signed.",
        cvt_truncate_0: 4..=9 = "Right shift, channels 0 mod 4.",
        cvt_truncate_1: 10..=15 = "Right shift, channels 1 mod 4.",
        cvt_truncate_2: 16..=21 = "Right shift, channels 2 mod 4.",
        cvt_truncate_3: 22..=27 = "Right shift, channels 3 mod 4.",
    }
    /// Input conversion of channels 0 mod 4.
    plain CvtCon1 CVT_CON1 @ 0x1050 {
        cvt_offset: 0..=15 signed = "Offset; CVT_TYPE says whether it is added before or after the scale.",
        cvt_scale: 16..=31 = "Factor, 16 bits.",
    }
    /// Input conversion of channels 1 mod 4.
    plain CvtCon2 CVT_CON2 @ 0x1054 {
        cvt_offset: 0..=15 signed = "Offset; CVT_TYPE says whether it is added before or after the scale.",
        cvt_scale: 16..=31 = "Factor, 16 bits.",
    }
    /// Input conversion of channels 2 mod 4.
    plain CvtCon3 CVT_CON3 @ 0x1058 {
        cvt_offset: 0..=15 signed = "Offset; CVT_TYPE says whether it is added before or after the scale.",
        cvt_scale: 16..=31 = "Factor, 16 bits.",
    }
    /// Input conversion of channels 3 mod 4.
    plain CvtCon4 CVT_CON4 @ 0x105c {
        cvt_offset: 0..=15 signed = "Offset; CVT_TYPE says whether it is added before or after the scale.",
        cvt_scale: 16..=31 = "Factor, 16 bits.",
    }
    /// Fully connected mode; 0 in all known programs.
    plain FcCon0 FC_CON0 @ 0x1060 {
        fc_skip_en: 0..=0 = "Unknown mode; programs write 0.",
        fc_skip_data: 16..=31 = "Unknown mode; programs write 0.",
    }
    /// Fully connected mode; 0 in all known programs.
    plain FcCon1 FC_CON1 @ 0x1064 {
        data_offset: 0..=16 = "Unknown mode; programs write 0.",
    }
    /// Padding; right and bottom follow from the output size.
    plain PadCon0 PAD_CON0 @ 0x1068 {
        pad_top: 0..=3 = "Lines of padding above the input.",
        pad_left: 4..=7 = "Pixels of padding before each line.",
    }
    /// Base address of the input cube.
    address FeatureDataAddr FEATURE_DATA_ADDR @ 0x1070 {
        feature_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// Fully connected mode; 0 in all known programs.
    plain FcCon2 FC_CON2 @ 0x1074 {
        weight_offset: 0..=16 = "Unknown mode; programs write 0.",
    }
    /// Lengths of CNA's bursts on the memory bus.
    plain DmaCon0 DMA_CON0 @ 0x1078 {
        data_burst_len: 0..=3 = "Beats - 1 of feature bursts: 3, 7 or 15.",
        weight_burst_len: 16..=19 = "Beats - 1 of weight bursts: 3, 7 or 15.",
        ov4k_bypass: 31..=31 = "1: bursts may cross 4 KiB.",
    }
    /// Distance of lines; of groups of four lines where group_line_off is 0.
    plain DmaCon1 DMA_CON1 @ 0x107c {
        line_stride: 0..=27 = "Distance, atoms.",
    }
    /// Distance of surfaces, less the group's own extent.
    plain DmaCon2 DMA_CON2 @ 0x1080 {
        surf_stride: 0..=27 signed = "Distance, atoms, two's complement.",
    }
    /// Size of the cube to fetch.
    plain FcDataSize0 FC_DATA_SIZE0 @ 0x1084 {
        dma_height: 0..=10 = "Lines to fetch.",
        dma_width: 16..=29 = "Pixels to fetch of each line.",
    }
    /// Channels of the cube to fetch.
    plain FcDataSize1 FC_DATA_SIZE1 @ 0x1088 {
        dma_channel: 0..=15 = "Channels, padded.",
    }
    /// Clock gating; not used in programs.
    plain(driver) ClkGate CLK_GATE @ 0x1090 {
        gates: 0..=31 = "Bits of the blocks.",
    }
    /// Weight decompression. Persists: every program must write it.
    plain DcompCtrl DCOMP_CTRL @ 0x1100 {
        decomp_control: 0..=2 = "0 raw weights; 1 compressed (E-dcomp).",
        wt_dec_bypass: 3..=3 = "1: bypass.",
    }
    /// Weight decompression; 0 for raw weights.
    plain DcompRegnum DCOMP_REGNUM @ 0x1104 {
        decomp_regnum: 0..=31 = "Modes of the lanes, supposedly.",
    }
    /// Base address of the weights, raw or compressed.
    address DcompAddr0 DCOMP_ADDR0 @ 0x1110 {
        decompress_addr0: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// Weight decompression, lane 0; 0 for raw weights.
    plain DcompAmount0 DCOMP_AMOUNT0 @ 0x1140 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 1; 0 for raw weights.
    plain DcompAmount1 DCOMP_AMOUNT1 @ 0x1144 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 2; 0 for raw weights.
    plain DcompAmount2 DCOMP_AMOUNT2 @ 0x1148 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 3; 0 for raw weights.
    plain DcompAmount3 DCOMP_AMOUNT3 @ 0x114c { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 4; 0 for raw weights.
    plain DcompAmount4 DCOMP_AMOUNT4 @ 0x1150 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 5; 0 for raw weights.
    plain DcompAmount5 DCOMP_AMOUNT5 @ 0x1154 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 6; 0 for raw weights.
    plain DcompAmount6 DCOMP_AMOUNT6 @ 0x1158 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 7; 0 for raw weights.
    plain DcompAmount7 DCOMP_AMOUNT7 @ 0x115c { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 8; 0 for raw weights.
    plain DcompAmount8 DCOMP_AMOUNT8 @ 0x1160 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 9; 0 for raw weights.
    plain DcompAmount9 DCOMP_AMOUNT9 @ 0x1164 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 10; 0 for raw weights.
    plain DcompAmount10 DCOMP_AMOUNT10 @ 0x1168 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 11; 0 for raw weights.
    plain DcompAmount11 DCOMP_AMOUNT11 @ 0x116c { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 12; 0 for raw weights.
    plain DcompAmount12 DCOMP_AMOUNT12 @ 0x1170 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 13; 0 for raw weights.
    plain DcompAmount13 DCOMP_AMOUNT13 @ 0x1174 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 14; 0 for raw weights.
    plain DcompAmount14 DCOMP_AMOUNT14 @ 0x1178 { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Weight decompression, lane 15; 0 for raw weights.
    plain DcompAmount15 DCOMP_AMOUNT15 @ 0x117c { amount: 0..=31 = "16-byte blocks - 1.", }
    /// Which channels the input conversion applies to.
    plain CvtCon5 CVT_CON5 @ 0x1180 {
        per_channel_cvt_en: 0..=31 = "One bit a channel.",
    }
    /// Value of padded pixels.
    plain PadCon1 PAD_CON1 @ 0x1184 {
        pad_value: 0..=31 = "A 16-bit pattern in the low half: with int8 even channels take bits 7..0, odd ones 15..8 (E-pad-pattern).",
    }
}
