// SPDX-License-Identifier: MIT OR Apache-2.0
//! DPU: post-processing of each element and output addressing (page 4).
//! Source: E-field-widths; others are named at the register.

use crate::field::registers;
use crate::regfile::RegisterFile;

registers! {
    block Dpu;

    common 0x4000 0x4004 0x4008 "Selects register groups; programs write 0xE." {}

    /// Where data come from and go to.
    plain FeatureModeCfg FEATURE_MODE_CFG @ 0x400c {
        flying_mode: 0..=0 = "Main input: 0 from CORE, 1 from MRDMA.",
        output_mode: 1..=2 = "Bit 1: to memory, bit 0: to the PPU.",
        conv_mode: 3..=4 = "0 direct convolution, 3 depthwise.",
        burst_len: 5..=8 = "Beats - 1 of a burst.",
        surf_len: 9..=24 = "Unknown mode; programs write 0.",
        nonalign: 25..=25 = "Unknown mode; programs write 0.",
        rgp_type: 26..=29 = "0; semantics unknown.",
        tp_en: 30..=30 = "0; transposing writer.",
        comb_use: 31..=31 = "Unknown mode; programs write 0.",
    }
    /// Precisions, and negative shift amounts.
    plain DataFormat DATA_FORMAT @ 0x4010 {
        proc_precision: 0..=2 = "Precision code of the computation.",
        mc_surf_out: 3..=3 = "Unknown mode; programs write 0.",
        bs_mul_shift_value_neg: 4..=9 = "BS: shift for negative products, bits.",
        bn_mul_shift_value_neg: 10..=15 = "BN: shift for negative products, bits.",
        ew_truncate_neg: 16..=25 = "EW: shift for negative results, bits.",
        in_precision: 26..=28 = "Precision code of the input.",
        out_precision: 29..=31 = "Precision code of the output: 0 int8, 1 int16, 2 fp16, 3 bf16, 4 int32, 5 fp32.",
    }
    /// Value of invalid output.
    plain OffsetPend OFFSET_PEND @ 0x4014 {
        offset_pend: 0..=15 = "0 in all known programs.",
    }
    /// Base address of the output.
    address DstBaseAddr DST_BASE_ADDR @ 0x4020 {
        dst_base_addr: 0..=31 = "IOVA, 16-byte aligned.",
    }
    /// Distance of surfaces of the output.
    plain DstSurfStride DST_SURF_STRIDE @ 0x4024 {
        dst_surf_stride: 4..=31 = "Distance, atoms.",
    }
    /// Width of the data.
    plain DataCubeWidth DATA_CUBE_WIDTH @ 0x4030 {
        width: 0..=12 = "Pixels per line - 1.",
    }
    /// Height of the data.
    plain DataCubeHeight DATA_CUBE_HEIGHT @ 0x4034 {
        height: 0..=12 = "Lines computed, - 1.",
        minmax_ctl: 22..=24 = "0; semantics unknown.",
    }
    /// Gaps at the end of lines.
    plain DataCubeNotchAddr DATA_CUBE_NOTCH_ADDR @ 0x4038 {
        notch_addr_0: 0..=12 = "Atoms skipped after each line; both halves are written equal.",
        notch_addr_1: 16..=28 = "Atoms skipped after each line; both halves are written equal.",
    }
    /// Channels of the data.
    plain DataCubeChannel DATA_CUBE_CHANNEL @ 0x403c {
        channel: 0..=12 = "Channels computed, padded, - 1.",
        orig_channel: 16..=28 = "Channels before padding, - 1.",
    }
    /// BS stage: what it does.
    plain BsCfg BS_CFG @ 0x4040 {
        bs_bypass: 0..=0 = "1: the stage does nothing.",
        bs_alu_bypass: 1..=1 = "1: the ALU is bypassed.",
        bs_mul_bypass: 4..=4 = "1: the multiplier is bypassed.",
        bs_mul_prelu: 5..=5 = "1: multiply negative values only.",
        bs_relu_bypass: 6..=6 = "1: negative results stay.",
        bs_relux_en: 7..=7 = "1: clip above at BS_RELUX_CMP_VALUE too.",
        bs_alu_src: 8..=8 = "ALU operand: 0 register, 1 BRDMA.",
        bs_alu_algo: 16..=19 = "0 max, 1 min, 2 add, 4 minus.",
    }
    /// BS stage: ALU operand.
    plain BsAluCfg BS_ALU_CFG @ 0x4044 {
        bs_alu_operand: 0..=31 = "int32, in the float pipeline fp32 bits.",
    }
    /// BS stage: multiplier.
    plain BsMulCfg BS_MUL_CFG @ 0x4048 {
        bs_mul_src: 0..=0 = "Multiplier operand: 0 register, 1 BRDMA.",
        bs_truncate_src: 1..=1 = "Shift: 0 register, 1 BRDMA.",
        bs_mul_shift_value: 8..=13 = "Right shift of the product, bits.",
        bs_mul_operand: 16..=31 = "int16, in the float pipeline fp16 bits.",
    }
    /// BS stage: upper clip.
    plain BsReluxCmpValue BS_RELUX_CMP_VALUE @ 0x404c {
        bs_relux_cmp_dat: 0..=31 = "Upper bound of ReLUX.",
    }
    /// Weight zero point correction (CPEND), and the writer's groups.
    plain BsOwCfg BS_OW_CFG @ 0x4050 {
        ow_src: 0..=0 = "CPEND operand: 0 register, 1 BRDMA.",
        od_bypass: 1..=1 = "1: weights are used as stored.",
        size_e_0: 2..=4 = "Atoms per pixel and kernel group - 1; all three are written equal.",
        size_e_1: 5..=7 = "The same number as size_e_0.",
        size_e_2: 8..=10 = "The same number as size_e_0.",
        tp_org_en: 27..=27 = "1: transposing writer.",
        rgp_cnter: 28..=31 = "0; semantics unknown.",
    }
    /// Weight zero point correction.
    plain BsOwOp BS_OW_OP @ 0x4054 {
        ow_op: 0..=15 signed = "Added to every weight: 0x80 less the zero point of uint8 weights.",
    }
    /// Channels to write.
    plain WdmaSize0 WDMA_SIZE_0 @ 0x4058 {
        channel_wdma: 0..=12 = "Channels written, - 1.",
        size_c_wdma: 16..=26 = "Size for the transposing writer; no other program sets it.",
        tp_precision: 27..=27 = "Transposing writer: 0 8 bit, 1 16 bit.",
    }
    /// Size to write.
    plain WdmaSize1 WDMA_SIZE_1 @ 0x405c {
        width_wdma: 0..=12 = "Pixels per line - 1.",
        height_wdma: 16..=28 = "Lines written, - 1.",
    }
    /// BN stage: what it does.
    plain BnCfg BN_CFG @ 0x4060 {
        bn_bypass: 0..=0 = "1: the stage does nothing.",
        bn_alu_bypass: 1..=1 = "1: the ALU is bypassed.",
        bn_mul_bypass: 4..=4 = "1: the multiplier is bypassed.",
        bn_mul_prelu: 5..=5 = "1: multiply negative values only.",
        bn_relu_bypass: 6..=6 = "1: negative results stay.",
        bn_relux_en: 7..=7 = "1: clip above at BN_RELUX_CMP_VALUE too.",
        bn_alu_src: 8..=8 = "ALU operand: 0 register, 1 NRDMA.",
        bn_alu_algo: 16..=19 = "0 max, 1 min, 2 add, 4 minus.",
    }
    /// BN stage: ALU operand.
    plain BnAluCfg BN_ALU_CFG @ 0x4064 {
        bn_alu_operand: 0..=31 = "int32, in the float pipeline fp32 bits.",
    }
    /// BN stage: multiplier.
    plain BnMulCfg BN_MUL_CFG @ 0x4068 {
        bn_mul_src: 0..=0 = "Multiplier operand: 0 register, 1 NRDMA.",
        bn_truncate_src: 1..=1 = "Shift: 0 register, 1 NRDMA.",
        bn_mul_shift_value: 8..=13 = "Right shift of the product, bits.",
        bn_mul_operand: 16..=31 = "int16, in the float pipeline fp16 bits.",
    }
    /// BN stage: upper clip.
    plain BnReluxCmpValue BN_RELUX_CMP_VALUE @ 0x406c {
        bn_relux_cmp_dat: 0..=31 = "Upper bound of ReLUX.",
    }
    /// EW stage: what it does.
    plain EwCfg EW_CFG @ 0x4070 {
        ew_bypass: 0..=0 = "1: the stage does nothing.",
        ew_op_bypass: 1..=1 = "1: no operation with the operand.",
        ew_op_type: 2..=2 = "0 ALU, 1 multiplier.",
        ew_mul_prelu: 5..=5 = "1: multiply negative values only.",
        ew_op_src: 6..=6 = "Operand: 0 EW_OP_VALUE registers, 1 ERDMA.",
        ew_lut_bypass: 7..=7 = "1: no look-up table.",
        ew_op_cvt_bypass: 8..=8 = "1: the operand is not converted.",
        ew_relu_bypass: 9..=9 = "1: negative results stay.",
        ew_relux_en: 10..=10 = "1: clip above at EW_RELUX_CMP_VALUE too.",
        ew_alu_algo: 16..=19 = "0 max, 1 min, 2 add, 3 div, 4 minus, 5 abs, 6 neg, 7 floor, 8 ceil.",
        ew_binary_en: 20..=20 = "Unknown mode; programs write 0.",
        ew_equal_en: 21..=21 = "Unknown mode; programs write 0.",
        edata_size: 22..=23 = "Operand size: 0 4 bit, 1 8 bit, 2 16 bit, 3 32 bit.",
        ew_data_mode: 28..=29 = "Operand: 0 per channel, 1 per pixel, 2 channel by pixel.",
        ew_cvt_round: 30..=30 = "Ties of the operand conversion: 0 to even, 1 up.",
        ew_cvt_type: 31..=31 = "0: multiply, then add; 1: add, then multiply.",
    }
    /// EW operand conversion: offset.
    plain EwCvtOffsetValue EW_CVT_OFFSET_VALUE @ 0x4074 {
        ew_op_cvt_offset: 0..=31 = "Offset, int32; ew_cvt_type says whether it is added before or after the scale.",
    }
    /// EW operand conversion: scale and shift.
    plain EwCvtScaleValue EW_CVT_SCALE_VALUE @ 0x4078 {
        ew_op_cvt_scale: 0..=15 = "Factor.",
        ew_op_cvt_shift: 16..=21 = "Right shift, bits.",
        ew_truncate: 22..=31 = "Right shift of the result, bits.",
    }
    /// EW stage: upper clip.
    plain EwReluxCmpValue EW_RELUX_CMP_VALUE @ 0x407c {
        ew_relux_cmp_dat: 0..=31 = "Upper bound of ReLUX.",
    }
    /// Output conversion: offset.
    plain OutCvtOffset OUT_CVT_OFFSET @ 0x4080 {
        out_cvt_offset: 0..=31 signed = "Offset; cvt_type of OUT_CVT_SHIFT says whether it is added before or after the scale.",
    }
    /// Output conversion: scale.
    plain OutCvtScale OUT_CVT_SCALE @ 0x4084 {
        out_cvt_scale: 0..=15 signed = "Factor (sign: E-scale-signed).",
        fp32tofp16_en: 16..=16 = "1: narrow fp32 to fp16.",
    }
    /// Output conversion: shift and rounding.
    plain OutCvtShift OUT_CVT_SHIFT @ 0x4088 {
        out_cvt_shift: 0..=11 = "Right shift, bits.",
        minus_exp: 12..=19 = "Subtracted from the exponent of a float result.",
        cvt_round: 30..=30 = "Ties: 0 to even, 1 away from zero.",
        cvt_type: 31..=31 = "0: multiply, then add; 1: add, then multiply.",
    }
    /// EW register operand 0.
    plain EwOpValue0 EW_OP_VALUE_0 @ 0x4090 { ew_operand: 0..=31 = "Operand of channels 0 mod 8, supposedly.", }
    /// EW register operand 1.
    plain EwOpValue1 EW_OP_VALUE_1 @ 0x4094 { ew_operand: 0..=31 = "Operand of channels 1 mod 8, supposedly.", }
    /// EW register operand 2.
    plain EwOpValue2 EW_OP_VALUE_2 @ 0x4098 { ew_operand: 0..=31 = "Operand of channels 2 mod 8, supposedly.", }
    /// EW register operand 3.
    plain EwOpValue3 EW_OP_VALUE_3 @ 0x409c { ew_operand: 0..=31 = "Operand of channels 3 mod 8, supposedly.", }
    /// EW register operand 4.
    plain EwOpValue4 EW_OP_VALUE_4 @ 0x40a0 { ew_operand: 0..=31 = "Operand of channels 4 mod 8, supposedly.", }
    /// EW register operand 5.
    plain EwOpValue5 EW_OP_VALUE_5 @ 0x40a4 { ew_operand: 0..=31 = "Operand of channels 5 mod 8, supposedly.", }
    /// EW register operand 6.
    plain EwOpValue6 EW_OP_VALUE_6 @ 0x40a8 { ew_operand: 0..=31 = "Operand of channels 6 mod 8, supposedly.", }
    /// EW register operand 7.
    plain EwOpValue7 EW_OP_VALUE_7 @ 0x40ac { ew_operand: 0..=31 = "Operand of channels 7 mod 8, supposedly.", }
    /// Distance of kernel groups of the output.
    plain SurfaceAdd SURFACE_ADD @ 0x40c0 {
        surf_add: 4..=31 = "Distance, atoms.",
    }
    /// Undocumented. All known programs write 0.
    plain Unknown40c4 UNKNOWN_40C4 @ 0x40c4 {
        unknown: 0..=31 = "0 in all known programs.",
    }
    /// Access to the look-up tables.
    plain LutAccessCfg LUT_ACCESS_CFG @ 0x4100 {
        lut_addr: 0..=9 = "Entry; counts up with each access.",
        lut_table_id: 16..=16 = "0 LE, 1 LO.",
        lut_access_type: 17..=17 = "1: LUT_ACCESS_DATA is written into the table.",
    }
    /// Entry of a look-up table.
    plain LutAccessData LUT_ACCESS_DATA @ 0x4104 {
        lut_access_data: 0..=15 = "Value of the entry, int16.",
    }
    /// Look-up: choice between the tables.
    plain LutCfg LUT_CFG @ 0x4108 {
        lut_road_sel: 0..=0 = "Semantics unknown; activation programs write 0.",
        lut_expand_en: 1..=1 = "Semantics unknown; activation programs write 0.",
        lut_lo_le_mux: 2..=3 = "Activation programs write 2.",
        lut_uflow_priority: 4..=4 = "Table on underflow of both.",
        lut_oflow_priority: 5..=5 = "Table on overflow of both.",
        lut_hybrid_priority: 6..=6 = "Table on a hit in both.",
        lut_cal_sel: 7..=7 = "Semantics unknown; programs write 0.",
    }
    /// Look-up: index step.
    plain LutInfo LUT_INFO @ 0x410c {
        lut_le_index_select: 8..=15 = "log2 of the step of LE.",
        lut_lo_index_select: 16..=23 = "log2 of the step of LO.",
    }
    /// Look-up: start of LE.
    plain LutLeStart LUT_LE_START @ 0x4110 { lut_le_start: 0..=31 signed = "Smallest input.", }
    /// Look-up: end of LE.
    plain LutLeEnd LUT_LE_END @ 0x4114 { lut_le_end: 0..=31 signed = "Largest input.", }
    /// Look-up: start of LO.
    plain LutLoStart LUT_LO_START @ 0x4118 { lut_lo_start: 0..=31 signed = "Smallest input.", }
    /// Look-up: end of LO.
    plain LutLoEnd LUT_LO_END @ 0x411c { lut_lo_end: 0..=31 signed = "Largest input; reaching it is overflow.", }
    /// Look-up: slopes outside LE.
    plain LutLeSlopeScale LUT_LE_SLOPE_SCALE @ 0x4120 {
        lut_le_slope_uflow_scale: 0..=15 signed = "Slope below the start.",
        lut_le_slope_oflow_scale: 16..=31 signed = "Slope above the end.",
    }
    /// Look-up: shifts of the slopes outside LE.
    plain LutLeSlopeShift LUT_LE_SLOPE_SHIFT @ 0x4124 {
        lut_le_slope_uflow_shift: 0..=4 = "Right shift below the start, bits.",
        lut_le_slope_oflow_shift: 5..=9 = "Right shift above the end, bits.",
    }
    /// Look-up: slopes outside LO.
    plain LutLoSlopeScale LUT_LO_SLOPE_SCALE @ 0x4128 {
        lut_lo_slope_uflow_scale: 0..=15 signed = "Slope below the start.",
        lut_lo_slope_oflow_scale: 16..=31 signed = "Slope above the end.",
    }
    /// Look-up: shifts of the slopes outside LO.
    plain LutLoSlopeShift LUT_LO_SLOPE_SHIFT @ 0x412c {
        lut_lo_slope_uflow_shift: 0..=4 = "Right shift below the start, bits.",
        lut_lo_slope_oflow_shift: 5..=9 = "Right shift above the end, bits.",
    }
}

/// Mode and multiplier of the BN stage as registers of the BS stage, which have the same
/// fields in the same places.
pub(crate) fn bn_as_bs(regs: &RegisterFile) -> (BsCfg, BsMulCfg) {
    let (cfg, mul) = (regs.get::<BnCfg>(), regs.get::<BnMulCfg>());
    (BsCfg(cfg.0), BsMulCfg(mul.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldInfo;

    #[test]
    fn bn_has_the_fields_of_bs() {
        for (bs, bn) in [
            (BsCfg::FIELDS, BnCfg::FIELDS),
            (BsMulCfg::FIELDS, BnMulCfg::FIELDS),
        ] {
            let renamed = bs.iter().map(|field| field.name.replace("bs_", "bn_"));
            assert!(renamed.eq(bn.iter().map(|field| field.name)));
            let places = |field: &FieldInfo| (field.lsb, field.msb, field.signed);
            assert!(bs.iter().map(places).eq(bn.iter().map(places)));
        }
    }
}
