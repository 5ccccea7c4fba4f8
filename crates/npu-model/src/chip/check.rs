// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traps that the registers of a task show before it runs.
//!
//! Each function is one group of traps and tells the rule, the registers that
//! break it, and what to change. Numbers are those of the list in
//! docs/model.md, which has the evidence.

use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma};
use rknpu_regcmd::{Register, RegisterFile};

use super::Effect;
use super::cbuf::{BANK_BYTES, BANKS, ENTRY_BYTES};
use super::conv_config::{ConvConfig, FeatureSource};
use super::dpu::ew::Ew;
use super::precision::{ATOM, Precision};
use super::rdma::{self, RdmaConfig};
use super::trap::{Report, Stop};
use super::writer::Writer;

/// Most bytes of one kernel: a bank.
const KERNEL_BYTES_MAX: u64 = BANK_BYTES as u64;

/// A register's name and value, as a diagnosis shows it.
pub(crate) fn shown<R: Register>(regs: &RegisterFile) -> (&'static str, u32) {
    (R::INFO.name, regs.get::<R>().bits())
}

/// Whether the operands that the DPU's stages wait for are read, and what is
/// read is waited for.
pub(crate) fn read_engines(
    report: &mut Report,
    regs: &RegisterFile,
    rdma: Option<&RdmaConfig>,
    flying: bool,
) -> Result<(), Stop> {
    let wants_ew = Ew::wants_memory(regs);
    let show = [
        shown::<dpu::EwCfg>(regs),
        shown::<dpu_rdma::ErdmaCfg>(regs),
        shown::<dpu_rdma::FeatureModeCfg>(regs),
    ];
    if wants_ew && !rdma.is_some_and(|rdma| rdma.erdma_enabled) {
        return report.note(
            "T02-operand-not-read",
            Effect::Hang,
            &show,
            "EW takes its operand from memory, but ERDMA is off or DPU_RDMA is not enabled",
            "enable DPU_RDMA and clear ERDMA_CFG.erdma_disable, or bypass EW (EW_CFG 0x383)",
        );
    }
    stage_operands(report, regs, rdma)?;
    let Some(rdma) = rdma else { return Ok(()) };
    if rdma.erdma_enabled && !wants_ew {
        report.note(
            "T02-operand-not-used",
            if flying { Effect::Note } else { Effect::Hang },
            &show,
            "ERDMA is on, but EW does not take an operand from memory",
            "set ERDMA_CFG.erdma_disable (ERDMA_CFG 1)",
        )?;
    }
    if flying {
        return Ok(());
    }
    if rdma.erdma_enabled && !rdma.mrdma_enabled {
        return report.note(
            "T03-erdma-without-mrdma",
            Effect::Hang,
            &show,
            "behind CORE, ERDMA works only together with MRDMA, on every other surface",
            "clear FEATURE_MODE_CFG.mrdma_disable and set comb_use to 5",
        );
    }
    let fed = wants_ew && rdma.comb_use == rdma::COMB_USE_DUAL;
    if rdma.mrdma_enabled && !fed {
        return report.note(
            "T01-mrdma-unfed",
            Effect::Hang,
            &show,
            "DPU_RDMA is enabled and MRDMA armed, but nothing takes what it reads",
            "leave DPU_RDMA out of the enable mask (0x0D), or set \
             FEATURE_MODE_CFG.mrdma_disable (0x7810)",
        );
    }
    if fed && rdma.ew_mode == rdma::DATA_MODE_CHANNEL {
        return report.note(
            "H06-operand-mode",
            Effect::Hang,
            &show,
            "COMB_USE 5 with one operand for each channel: no source says what that reads",
            "set ERDMA_CFG.erdma_data_mode to 1",
        );
    }
    ew_conv_fed(report, regs, rdma)
}

/// BS and BN operands from memory that no engine reads.
fn stage_operands(
    report: &mut Report,
    regs: &RegisterFile,
    rdma: Option<&RdmaConfig>,
) -> Result<(), Stop> {
    let bs = regs.get::<dpu::BsCfg>();
    let bs_mul = regs.get::<dpu::BsMulCfg>();
    let bn = regs.get::<dpu::BnCfg>();
    let bn_mul = regs.get::<dpu::BnMulCfg>();
    let uses =
        |alu: bool, mul: bool| u32::from(alu) * rdma::USE_ALU + u32::from(mul) * rdma::USE_MUL;
    let bs_on = bs.bs_bypass() == 0;
    let wants_b = uses(
        bs_on && bs.bs_alu_bypass() == 0 && bs.bs_alu_src() == 1,
        bs_on && bs.bs_mul_bypass() == 0 && bs_mul.bs_mul_src() == 1,
    );
    let bn_on = bn.bn_bypass() == 0;
    let wants_n = uses(
        bn_on && bn.bn_alu_bypass() == 0 && bn.bn_alu_src() == 1,
        bn_on && bn.bn_mul_bypass() == 0 && bn_mul.bn_mul_src() == 1,
    );
    let (has_b, has_n) = rdma.map_or((0, 0), |rdma| (rdma.brdma_use, rdma.nrdma_use));
    if wants_b & !has_b != 0 || wants_n & !has_n != 0 {
        return report.note(
            "T02-stage-operand-not-read",
            Effect::Hang,
            &[
                shown::<dpu::BsCfg>(regs),
                shown::<dpu_rdma::BrdmaCfg>(regs),
                shown::<dpu::BnCfg>(regs),
                shown::<dpu_rdma::NrdmaCfg>(regs),
            ],
            "BS or BN takes an operand from memory that BRDMA or NRDMA does not read (inferred)",
            "enable DPU_RDMA and set the operand's bit of BRDMA_CFG or NRDMA_CFG",
        );
    }
    Ok(())
}

/// Element-wise words that give garbage behind CORE.
fn ew_conv_fed(report: &mut Report, regs: &RegisterFile, rdma: &RdmaConfig) -> Result<(), Stop> {
    if !Ew::wants_memory(regs) {
        return Ok(());
    }
    let cfg = regs.get::<dpu::EwCfg>();
    let float = Precision::from_code(regs.get::<dpu::DataFormat>().proc_precision()).is_float();
    let show = [
        shown::<dpu::EwCfg>(regs),
        shown::<dpu_rdma::FeatureModeCfg>(regs),
        shown::<dpu_rdma::SurfNotch>(regs),
        shown::<dpu_rdma::EwSurfNotch>(regs),
    ];
    if float && cfg.ew_op_type() == 0 && cfg.ew_op_cvt_bypass() == 1 {
        report.note(
            "T47-operand-ignored",
            Effect::Garbage,
            &show,
            "behind CORE, a float ALU operation with OP_CVT_BYPASS ignores its operand",
            "use EW_CFG 0x108202C0 for fp16 addition",
        )?;
    }
    if float && rdma.ew_precision(float) == Precision::Int8 && cfg.edata_size() != 1 {
        report.note(
            "T45-operand-as-bytes",
            Effect::Garbage,
            &show,
            "with precision 0 in DPU_RDMA's FEATURE_MODE_CFG the operand is read as int8",
            "set proc_precision and in_precision to 2 for fp16 (0x17D40)",
        )?;
    }
    // One surface pair needs no step.
    let pairs = rdma.channels > 2 * rdma.ew_precision(float).per_atom();
    let pixels = rdma.pixels() as u32;
    if pairs && rdma.surf_notch == 0 {
        report.note(
            "T43-no-surface-notch",
            Effect::Garbage,
            &show,
            "MRDMA and ERDMA share the surfaces; without a notch each reads the other's",
            format!("set SURF_NOTCH and EW_SURF_NOTCH to {pixels} atoms, one surface"),
        )?;
    } else if pairs && rdma.surf_notch > pixels && rdma.ew_base_is_dense() {
        report.note(
            "T42-surface-notch",
            Effect::Garbage,
            &show,
            format!("the notch skips more than a surface of {pixels} atoms"),
            "give the operand at least 12 rows, or store it with the notch's pitch",
        )?;
    }
    let writer = Writer::decode(regs);
    if writer.base == rdma.src_base {
        report.note(
            "T44-in-place",
            Effect::Garbage,
            &[
                shown::<dpu::DstBaseAddr>(regs),
                shown::<dpu_rdma::SrcBaseAddr>(regs),
            ],
            "the result overwrites the operand before it is read; the model does not show how",
            "let the operand and the result take turns in two buffers",
        )?;
    }
    Ok(())
}

/// Whether the program is one of a few changed registers, which was measured
/// to leave its output untouched.
pub(crate) fn delta(report: &mut Report, regs: &RegisterFile, flying: bool) -> Result<bool, Stop> {
    let written = |offset| regs.was_written(offset);
    let (size, precision) = if flying {
        let mode = written(dpu_rdma::FeatureModeCfg::OFFSET);
        (written(dpu::DataCubeWidth::OFFSET), mode)
    } else {
        let con1 = written(cna::ConvCon1::OFFSET);
        (written(cna::DataSize0::OFFSET), con1)
    };
    let format = written(dpu::DataFormat::OFFSET);
    if size && written(dpu::DstBaseAddr::OFFSET) && (precision || format) {
        return Ok(false);
    }
    report.note(
        "T07-delta-program",
        Effect::NoWrite,
        &[
            shown::<dpu::DstBaseAddr>(regs),
            shown::<dpu::DataFormat>(regs),
        ],
        "the program does not write the sizes, the output address or any precision, \
         and relies on those of an earlier task",
        "write every register that the task uses",
    )?;
    Ok(true)
}

/// Weight decompression.
pub(crate) fn compression(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    if conv.compressed.is_none() {
        return Ok(());
    }
    let show = [
        shown::<cna::DcompCtrl>(regs),
        shown::<cna::DcompRegnum>(regs),
    ];
    if !regs.was_written(cna::DcompCtrl::OFFSET) {
        report.note(
            "T14-stale-decompression",
            Effect::Garbage,
            &show,
            "an earlier task left DCOMP_CTRL on: the weights are decoded as a compressed stream",
            "write 0 to DCOMP_CTRL and DCOMP_REGNUM in every program",
        )?;
    }
    if regs.get::<cna::DcompRegnum>().decomp_regnum() != DCOMP_KNOWN_MODE
        || conv.weights.precision != Precision::Int8
    {
        report.note(
            "H06-decompression-mode",
            Effect::Note,
            &show,
            "only DCOMP_REGNUM 0x55555555 with int8 weights is known; it is decoded as that",
            "write 0x55555555 to DCOMP_REGNUM",
        )?;
    }
    Ok(())
}

/// DCOMP_REGNUM of the known programs.
const DCOMP_KNOWN_MODE: u32 = 0x5555_5555;

/// The division of CBUF.
pub(crate) fn cbuf(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    let show = [
        shown::<cna::CbufCon0>(regs),
        shown::<cna::WeightSize1>(regs),
        shown::<cna::WeightSize2>(regs),
    ];
    let (data, weight) = (conv.cbuf.data_banks, conv.cbuf.weight_banks);
    if data == 0 || weight == 0 || data + weight > BANKS {
        return report.note(
            "T26-banks",
            Effect::Hang,
            &show[..1],
            format!("{data} data and {weight} weight banks; both must be above 0, together at most {BANKS}"),
            "give the weights what the features leave of 12 banks",
        );
    }
    if conv.depthwise {
        return Ok(());
    }
    let counted = conv.weights.precision.bytes(conv.weights.row_len() as u64);
    let kernel = conv.bytes_per_kernel.max(counted);
    if kernel > KERNEL_BYTES_MAX {
        return report.note(
            "T27-kernel-size",
            Effect::Hang,
            &show,
            format!("a kernel of {kernel} bytes does not fit a bank of {BANK_BYTES} (no known program tried)"),
            "split the channels over several tasks and add the results",
        );
    }
    let group = conv
        .weights
        .precision
        .kernel_group()
        .min(conv.weights.kernels) as u64;
    let room = (weight * BANK_BYTES) as u64;
    if group * kernel > room {
        return report.note(
            "T26a-weight-banks",
            Effect::Hang,
            &show,
            format!(
                "a group of {group} kernels of {kernel} bytes does not fit {weight} weight banks"
            ),
            "give the weights more banks, or split the channels",
        );
    }
    let safe = conv.weights.kernels.min(SAFE_KERNELS) as u64;
    if safe * kernel > room {
        report.note(
            "T26a-weight-block",
            Effect::Note,
            &show,
            format!(
                "a block of {safe} kernels of {kernel} bytes does not fit {weight} weight banks"
            ),
            "known to be safe: WEIGHT_BANK >= max(2, ceil(min(N, 32) * bytes per kernel / 32768))",
        )?;
    }
    grains(report, regs, conv)
}

/// Kernels that the planners whose limits were measured keep in CBUF.
const SAFE_KERNELS: usize = 32;

/// Lines that must be present before the computation starts.
fn grains(report: &mut Report, regs: &RegisterFile, conv: &ConvConfig) -> Result<(), Stop> {
    let show = [
        shown::<cna::ConvCon2>(regs),
        shown::<cna::WeightSize2>(regs),
    ];
    let lines = conv.window.kernel.1.min(conv.window.in_height);
    if conv.cbuf.grains < lines {
        return report.note(
            "T23-grains",
            Effect::Hang,
            &show,
            format!(
                "FEATURE_GRAINS {} is below the {lines} lines of a window (inferred)",
                conv.cbuf.grains
            ),
            "use the input height + 1, at most 1023",
        );
    }
    let (_, height, _) = conv.source.shape();
    if conv.cbuf.grains <= height && conv.cbuf.grains < lines + conv.window.stride.1 {
        report.note(
            "T23-few-grains",
            Effect::Note,
            &show,
            "fewer grains than kernel height + stride were seen to corrupt some shapes",
            "use the input height + 1, at most 1023",
        )?;
    }
    Ok(())
}

/// Whether each block produces what the next one waits for.
pub(crate) fn stream(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
    writer: &Writer,
    rdma: Option<&RdmaConfig>,
) -> Result<(), Stop> {
    let show = [
        shown::<cna::DataSize3>(regs),
        shown::<core::DataoutSize0>(regs),
        shown::<dpu::DataCubeWidth>(regs),
        shown::<dpu::DataCubeHeight>(regs),
    ];
    let reads = Ew::wants_memory(regs);
    let operand = rdma
        .filter(|_| reads)
        .map_or(usize::MAX, RdmaConfig::pixels);
    if conv.core_pixels > conv.pixels || writer.pixels() > conv.core_pixels.min(operand) {
        return report.note(
            "H05-pixels",
            Effect::Hang,
            &show,
            format!(
                "CNA produces {} pixels, CORE expects {}, the DPU {} (inferred)",
                conv.pixels,
                conv.core_pixels,
                writer.pixels()
            ),
            "all blocks need the same number of pixels: width x height",
        );
    }
    if let Some(rdma) = rdma.filter(|_| reads) {
        operand_channels(report, regs, writer, rdma)?;
    }
    if writer.pixels() < conv.pixels {
        report.note(
            "H05-pixels-left",
            Effect::Note,
            &show,
            format!(
                "CNA produces {} pixels, of which the DPU writes {}",
                conv.pixels,
                writer.pixels()
            ),
            "all blocks need the same number of pixels: width x height",
        )?;
    }
    let (width, height, surfaces) = conv.source.shape();
    let show = [
        shown::<cna::DataSize0>(regs),
        shown::<cna::DataSize1>(regs),
        shown::<cna::FcDataSize0>(regs),
        shown::<cna::FcDataSize1>(regs),
    ];
    if conv.window.in_height > height || width * height * surfaces == 0 {
        return report.note(
            "H05-lines",
            Effect::Hang,
            &show,
            format!(
                "the window moves over {} lines, but {height} are fetched (inferred)",
                conv.window.in_height
            ),
            "write the same size to DATA_SIZE0 and FC_DATA_SIZE0",
        );
    }
    let wanted = conv
        .window
        .channels
        .div_ceil(conv.window.precision.per_atom());
    if (conv.window.in_width, conv.window.in_height, wanted) != (width, height, surfaces) {
        report.note(
            "H05-sizes-differ",
            Effect::Note,
            &show,
            "the cube that is fetched and the one that is convolved differ",
            "write the same size to DATA_SIZE0/1 and FC_DATA_SIZE0/1",
        )?;
    }
    entries(report, regs, conv)
}

/// Whether DPU_RDMA delivers all channels that the DPU writes.
fn operand_channels(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
    rdma: &RdmaConfig,
) -> Result<(), Stop> {
    if rdma.channels >= writer.channels {
        return Ok(());
    }
    report.note(
        "H05-channels",
        Effect::Hang,
        &[
            shown::<dpu_rdma::DataCubeChannel>(regs),
            shown::<dpu::WdmaSize0>(regs),
        ],
        format!(
            "the DPU writes {} channels, DPU_RDMA delivers {} (inferred)",
            writer.channels, rdma.channels
        ),
        "write the same number of channels to both",
    )
}

/// Room of a line in CBUF.
fn entries(report: &mut Report, regs: &RegisterFile, conv: &ConvConfig) -> Result<(), Stop> {
    let FeatureSource::Cube(source) = &conv.source else {
        return Ok(());
    };
    let needed = (source.width * source.surfaces * ATOM).div_ceil(ENTRY_BYTES);
    if conv.cbuf.entries < needed {
        report.note(
            "T20-entries",
            Effect::Note,
            &[
                shown::<cna::CbufCon1>(regs),
                shown::<cna::FcDataSize0>(regs),
            ],
            format!(
                "a line takes {needed} entries of {ENTRY_BYTES} bytes, DATA_ENTRIES is {}",
                conv.cbuf.entries
            ),
            format!("set DATA_ENTRIES to {needed}"),
        )?;
    }
    Ok(())
}

/// Lines beyond the data banks.
pub(crate) fn lines(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
    height: usize,
) -> Result<(), Stop> {
    let fit = conv.cbuf.lines_that_fit();
    let banks = (height * conv.cbuf.line_bytes()).div_ceil(BANK_BYTES);
    report.note(
        "T20-line-rounding",
        Effect::Garbage,
        &[
            shown::<cna::CbufCon0>(regs),
            shown::<cna::CbufCon1>(regs),
            shown::<cna::ConvCon2>(regs),
        ],
        format!(
            "{height} lines of {} bytes need {banks} data banks; in {} only {fit} lines fit, \
             and the rest reads as weights",
            conv.cbuf.line_bytes(),
            conv.cbuf.data_banks
        ),
        format!("DATA_BANK = ceil(lines * DATA_ENTRIES * {ENTRY_BYTES} / {BANK_BYTES})"),
    )
}

/// FC_DATA_BANK.
pub(crate) fn fc_data_bank(report: &mut Report, regs: &RegisterFile) -> Result<(), Stop> {
    report.note(
        "T28-fc-data-bank",
        Effect::Garbage,
        &[shown::<cna::CbufCon0>(regs)],
        "FC_DATA_BANK is not 0: the features are looked for in other banks than they are in",
        "write 0 to CBUF_CON0.fc_data_bank",
    )
}

/// DATA_REUSE and WEIGHT_REUSE.
pub(crate) fn reuse(
    report: &mut Report,
    regs: &RegisterFile,
    what: &str,
    found: bool,
) -> Result<(), Stop> {
    if found {
        return Ok(());
    }
    report.note(
        "T29-stale-cbuf",
        Effect::Garbage,
        &[shown::<cna::CbufCon0>(regs)],
        format!(
            "{what} reuse, but the task before on this core left no such {what} in CBUF, \
             or divided the banks otherwise"
        ),
        "fetch in the first task of a job, and reuse only with the same banks and size",
    )
}

/// The weight zero point correction without its sum.
pub(crate) fn correction(
    report: &mut Report,
    regs: &RegisterFile,
    conv: &ConvConfig,
) -> Result<(), Stop> {
    let ow = regs.get::<dpu::BsOwCfg>();
    let op = regs.get::<dpu::BsOwOp>().ow_op();
    if conv.precision.is_float() || ow.od_bypass() == 1 || op == 0 {
        return Ok(());
    }
    let show = [
        shown::<dpu::BsOwCfg>(regs),
        shown::<dpu::BsOwOp>(regs),
        shown::<core::MiscCfg>(regs),
    ];
    if !conv.sum_features {
        report.note(
            "T51-no-feature-sum",
            Effect::Note,
            &show,
            "BS_OW_OP corrects the weights, but QD_EN is 0: there is no sum to correct by (inferred)",
            "set MISC_CFG.qd_en, or BS_OW_CFG.od_bypass where no correction is meant",
        )?;
    }
    if !regs.was_written(dpu::BsOwOp::OFFSET) {
        report.note(
            "T51-stale-ow-op",
            Effect::Garbage,
            &show,
            format!("{op} of an earlier task is added to every weight"),
            "write BS_OW_OP in every program that leaves od_bypass 0",
        )?;
    }
    Ok(())
}

/// The writer's groups.
pub(crate) fn writer(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
    group: usize,
    out: Precision,
) -> Result<(), Stop> {
    let show = [
        shown::<dpu::BsOwCfg>(regs),
        shown::<dpu::SurfaceAdd>(regs),
        shown::<dpu::DstSurfStride>(regs),
        shown::<dpu::DataFormat>(regs),
    ];
    let needed = group.div_ceil(out.per_atom());
    let present = needed.min(writer.channels.div_ceil(out.per_atom()));
    if writer.atoms < present {
        let trap = if needed > SIZE_E_MAX {
            "T35-group-too-wide"
        } else {
            "T33-size-e-small"
        };
        report.note(
            trap,
            Effect::NoWrite,
            &show,
            format!(
                "a group of {group} channels is {needed} atoms, SIZE_E writes {}",
                writer.atoms
            ),
            if needed > SIZE_E_MAX {
                "choose an output type of at most 8 atoms a group".to_owned()
            } else {
                format!("set all three SIZE_E to {}", needed - 1)
            },
        )?;
    }
    let groups = writer.channels.div_ceil(group);
    let step = (present as u64).min(writer.atoms as u64) * u64::from(writer.surf_stride);
    if groups > 1 && writer.atoms > needed {
        report.note(
            "T37-size-e-large",
            Effect::Garbage,
            &show,
            format!(
                "a group of {group} channels is {needed} atoms, SIZE_E says {}",
                writer.atoms
            ),
            format!("set all three SIZE_E to {}", needed - 1),
        )?;
    } else if groups > 1 && u64::from(writer.surf_add) < step {
        report.note(
            "T34-surf-add",
            Effect::Garbage,
            &show,
            format!("groups are {} atoms apart and take {step}", writer.surf_add),
            "SURF_ADD = (SIZE_E + 1) * DST_SURF_STRIDE",
        )?;
    }
    transposing(report, regs)
}

/// Most atoms that SIZE_E can ask for.
const SIZE_E_MAX: usize = 8;

/// Modes of the writer that are not modelled.
fn transposing(report: &mut Report, regs: &RegisterFile) -> Result<(), Stop> {
    let mode = regs.get::<dpu::FeatureModeCfg>();
    if regs.get::<dpu::BsOwCfg>().tp_org_en() == 1 || mode.tp_en() == 1 {
        report.note(
            "T41-transposing-writer",
            Effect::Garbage,
            &[
                shown::<dpu::BsOwCfg>(regs),
                shown::<dpu::FeatureModeCfg>(regs),
            ],
            "the transposing writer is not modelled; the result is written untransposed",
            "transpose on the host",
        )?;
    }
    Ok(())
}

/// Whether MRDMA delivers what the DPU waits for.
pub(crate) fn flying_stream(
    report: &mut Report,
    regs: &RegisterFile,
    writer: &Writer,
    rdma: &RdmaConfig,
) -> Result<(), Stop> {
    operand_channels(report, regs, writer, rdma)?;
    let show = [
        shown::<dpu_rdma::FeatureModeCfg>(regs),
        shown::<dpu_rdma::DataCubeWidth>(regs),
        shown::<dpu_rdma::DataCubeHeight>(regs),
        shown::<dpu::DataCubeWidth>(regs),
        shown::<dpu::DataCubeHeight>(regs),
    ];
    if !rdma.flying || !rdma.mrdma_enabled || writer.pixels() > rdma.pixels() {
        return report.note(
            "H05-flying-input",
            Effect::Hang,
            &show,
            format!(
                "the DPU waits for {} pixels from MRDMA, which delivers {}",
                writer.pixels(),
                if rdma.flying && rdma.mrdma_enabled {
                    rdma.pixels()
                } else {
                    0
                }
            ),
            "set flying_mode in both blocks, clear mrdma_disable, and give both the same size",
        );
    }
    if writer.width >= WIDTH_LIMIT {
        report.note(
            "T30-width",
            Effect::Note,
            &show,
            "at the widest lines some 54 elements at the end were measured to be wrong",
            "keep lines at 4096 pixels or below",
        )?;
    }
    let cfg = regs.get::<dpu::EwCfg>();
    let float = Precision::from_code(regs.get::<dpu::DataFormat>().proc_precision()).is_float();
    let alu = Ew::wants_memory(regs) && cfg.ew_op_type() == 0;
    if alu && !float && cfg.ew_op_cvt_bypass() == 0 && rdma.ew_precision(false) == Precision::Int32
    {
        report.note(
            "T46-operand-as-float",
            Effect::Garbage,
            &[shown::<dpu::EwCfg>(regs)],
            "an int32 operand goes through the operand converter and comes out as a float",
            "set OP_CVT_BYPASS (EW_CFG 0x10C203C0)",
        )?;
    }
    transposing(report, regs)
}

/// Widths at which trap 30 was measured.
const WIDTH_LIMIT: usize = 8191;

/// COMB_USE 5 in a flying task: everything comes out as zeros.
pub(crate) fn comb_use_flying(
    report: &mut Report,
    regs: &RegisterFile,
    rdma: &RdmaConfig,
) -> Result<bool, Stop> {
    let dropped = Ew::wants_memory(regs) && rdma.comb_use == rdma::COMB_USE_DUAL;
    if dropped {
        report.note(
            "T48-comb-use-flying",
            Effect::Garbage,
            &[shown::<dpu_rdma::FeatureModeCfg>(regs)],
            "a flying operation on two operands with COMB_USE 5 writes zeros",
            "set comb_use to 0",
        )?;
    }
    Ok(dropped)
}
