// SPDX-License-Identifier: MIT OR Apache-2.0
//! Convolutions: settings on which the blocks must agree.

use alloc::format;

use super::row::Shows;
use crate::precision::Precision;
use crate::regs::{cna, core, dpu};
use crate::task::{DEPTHWISE, Reads};

const PIXELS: Shows = shows![
    cna::DataSize3,
    core::DataoutSize0,
    dpu::DataCubeWidth,
    dpu::DataCubeHeight
];
const SIZES: Shows = shows![
    cna::DataSize0,
    cna::DataSize1,
    cna::FcDataSize0,
    cna::FcDataSize1
];
const QD_EN: Shows = shows![core::MiscCfg, dpu::BsOwCfg, dpu::BsOwOp];

rules! { pub,
    "H05-pixels" [] [..PIXELS] Error Hang:
        "a block waits for more pixels than another sends (inferred)",
        "make DATAOUT_ATOMICS, DATAOUT_SIZE_0 and the DPU's width x height equal",
        Dpu |task| {
            let conv = task.conv?;
            let (cna, core, dpu) = (conv.pixels, conv.core_pixels(), conv.output.pixels());
            let reads = task.reads.filter(|_| task.takes());
            let operand = reads.map_or(usize::MAX, Reads::pixels);
            (core > cna || dpu > core.min(operand))
                .then(|| format!("CNA produces {cna} pixels, CORE expects {core}, the DPU {dpu}"))
        };
    "H05-pixels-left" [] [..PIXELS] Error Note:
        "the DPU writes fewer pixels than CNA produces; whether the rest blocks anything is not known",
        "make DATAOUT_ATOMICS, DATAOUT_SIZE_0 and the DPU's width x height equal",
        Conv |conv, _| {
            let (cna, dpu) = (conv.pixels, conv.output.pixels());
            (dpu < cna).then(|| format!("CNA produces {cna} pixels, of which the DPU writes {dpu}"))
        };
    "output-channels" [] [core::DataoutSize1, dpu::WdmaSize0] Warning:
        "CORE computes another number of channels than the DPU writes",
        "make DATAOUT_SIZE_1 and WDMA_SIZE_0 equal",
        Conv |conv, _| {
            let (core, dpu) = (conv.computed[2], conv.output.written[2]);
            (core != dpu).then(|| format!("CORE computes {core} channels, the DPU writes {dpu}"))
        };
    "H05-empty-input" ["E-empty-lines"] [..SIZES] Error Hang:
        "a size that is not stored minus one is 0: the silicon's behaviour is not known, and on the model no data arrive",
        "write the size; where there is nothing to compute, submit no task",
        Conv |conv, _| {
            let ([width, height, channels], [across, down, _]) =
                (conv.features.fetched, conv.features.window);
            // Packed pixels fill one atom at least, and their lines have at least the
            // window's width.
            let packed = conv.features.packed.is_some();
            let fetched = if packed { width.max(across) } else { width };
            let empty = fetched == 0 || channels == 0 && !packed;
            (empty || [height, across, down].contains(&0)).then(|| {
                format!("{width} x {height} pixels of {channels} channels are fetched, the window moves over {across} x {down}")
            })
        };
    "H05-lines" [] [..SIZES] Error Hang:
        "the window moves over more lines than are fetched (inferred)",
        "write the same size to DATA_SIZE0 and FC_DATA_SIZE0",
        Conv |conv, _| {
            let (lines, fetched) = (conv.features.window[1], conv.features.fetched[1]);
            (lines > fetched).then(|| format!("{lines} lines of {fetched}"))
        };
    "H05-sizes-differ" ["E-narrow-image"] [..SIZES] Note Note:
        "the cube that is fetched and the one that is convolved differ",
        "write the same size to DATA_SIZE0/1 and FC_DATA_SIZE0/1",
        Conv |conv, _| {
            let (fetched, window) = (conv.features.fetched, conv.features.window);
            let atoms = |channels: usize| channels.div_ceil(conv.features.precision.per_atom());
            // Mesa writes a window wider than the fetch for narrow images.
            let differs = window[1] != fetched[1]
                || atoms(window[2]) != atoms(fetched[2])
                || window[0] < fetched[0];
            differs.then(|| {
                format!("{fetched:?} are fetched, {window:?} convolved (width, height, channels)")
            })
        };
    "conv-mode" [] [cna::ConvCon1, core::MiscCfg, dpu::FeatureModeCfg] Error:
        "the blocks disagree about depthwise convolution",
        "set the same mode in CNA, CORE, DPU and DPU_RDMA",
        Conv |conv, regs| {
            let cna = regs.get::<cna::ConvCon1>().conv_mode();
            let dpu = regs.get::<dpu::FeatureModeCfg>().conv_mode();
            (conv.depthwise != (cna == DEPTHWISE) || dpu != cna).then(|| {
                format!("CNA mode {cna}, CORE depthwise {}, DPU mode {dpu}", conv.depthwise)
            })
        };
    "precision-mismatch" [] [cna::ConvCon1, core::MiscCfg, dpu::DataFormat] Error:
        "the blocks disagree about the type of the data",
        "set the same precision in CNA, CORE and DPU (tf32 is fp32 in the DPU)",
        Conv |conv, regs| {
            let core = conv.precision;
            let cna = [conv.features.precision, conv.weights.precision];
            let format = regs.get::<dpu::DataFormat>();
            let dpu = [format.in_precision(), format.proc_precision()].map(Precision::from_code);
            (cna != [core; 2] || dpu != [core.in_dpu(); 2]).then(|| {
                format!("CNA {} and {}, CORE {core}, DPU {} and {}", cna[0], cna[1], dpu[0], dpu[1])
            })
        };
    /// int16 convolutions without QD_EN.
    INT16_WITHOUT_SUM "T37-int16-without-sum" ["E-int16-first-16"] [core::MiscCfg, dpu::WdmaSize0] Error NoWrite, contested "int16-without-sum":
        "int16 with QD_EN = 0 writes its first 16 channels only (measured)",
        "set QD_EN",
        Conv |conv, _| {
            let (channels, sums) = (conv.output.written[2], conv.sums_features);
            let several = channels > conv.precision.kernel_group();
            (conv.precision == Precision::Int16 && several && !sums && !conv.depthwise)
                .then(|| format!("{channels} channels of int16 with QD_EN = 0"))
        };
    "T51-no-feature-sum" ["E-weight-offset", "E-qd-en"] [..QD_EN] Warning Note:
        "BS_OW_OP corrects the weights by the sum of the features, which QD_EN = 0 turns off (inferred)",
        "set QD_EN, or OD_BYPASS where no correction is meant",
        Conv |conv, regs| {
            let operand = regs.get::<dpu::BsOwOp>().ow_op();
            let corrects = operand != 0 && regs.get::<dpu::BsOwCfg>().od_bypass() == 0;
            (corrects && !conv.sums_features && !conv.precision.is_float())
                .then(|| format!("weights are corrected by {operand}, but QD_EN is 0"))
        };
    "T32-channels-not-padded" ["E-padded-channels"] [cna::DataSize1, cna::WeightSize1] Error Garbage:
        "channels end within an atom: the bytes behind them are multiplied too (generators refuse it)",
        "pad features and weights with zeros to whole atoms",
        Conv |conv, _| {
            let (channels, per_atom) = (conv.features.window[2], conv.features.precision.per_atom());
            (conv.features.packed.is_none() && !channels.is_multiple_of(per_atom))
                .then(|| format!("{channels} channels, {per_atom} to an atom"))
        };
    "T50-pad-pattern" ["E-pad-pattern"] [cna::PadCon1] Note Note:
        "PAD_CON1 is a pattern of 16 bits: odd int8 channels are padded with its upper byte (measured)",
        "repeat the byte: value x 0x01010101",
        Conv |conv, _| {
            let [even, odd, ..] = conv.window.pad_value.to_le_bytes();
            let int8 = conv.features.precision == Precision::Int8;
            (int8 && even != odd && conv.pads()).then(|| {
                format!("even channels are padded with {}, odd ones with {}", even as i8, odd as i8)
            })
        };
}
