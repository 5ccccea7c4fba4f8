// SPDX-License-Identifier: MIT OR Apache-2.0
//! What depends on QD_EN beside the weight zero point correction.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::{core, dpu};

use super::shown;
use crate::conv::Machine;
use crate::conv_config::ConvConfig;
use crate::precision::Precision;
use crate::trap::{Report, Stop};
use crate::writer::Writer;
use crate::{Effect, Int16WithoutSum, IntegerChain, PartialGroup};

/// What becomes of the sums of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spoiled {
    /// Channels of later kernel groups are not written.
    pub(crate) first_group_only: bool,
    /// The accumulators were not cleared.
    pub(crate) dirty: bool,
    /// The last group, which is not whole, is not written, and the task does
    /// not end.
    pub(crate) stuck: bool,
}

impl Spoiled {
    /// The end of a task that does not end.
    pub(crate) fn finish(self, report: &mut Report, regs: &RegisterFile) -> Result<(), Stop> {
        if !self.stuck {
            return Ok(());
        }
        report.note(
            "H08-partial-group",
            Effect::Hang,
            &[
                shown::<dpu::WdmaSize0>(regs),
                shown::<dpu::DataFormat>(regs),
            ],
            "the channels of an int8 result end within a group: that group is not written, and \
             the task never ends (contested: partial-group)",
            "program whole groups of 32 kernels (64 channels of a depthwise task), with zeros",
        )
    }
}

/// Whether QD_EN is missing where silicon was measured to need it.
pub(crate) fn sums(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
    writer: &Writer,
) -> Result<Spoiled, Stop> {
    let bytes = [
        regs.get::<dpu::DataFormat>().in_precision(),
        regs.get::<dpu::DataFormat>().out_precision(),
    ]
    .into_iter()
    .all(|code| Precision::from_code(code) == Precision::Int8);
    let mut spoiled = Spoiled {
        stuck: bytes
            && !writer.channels.is_multiple_of(writer.output.group)
            && machine.contested.partial_group == PartialGroup::Hangs,
        ..Spoiled::default()
    };
    if conv.sum_features || conv.depthwise {
        return Ok(spoiled);
    }
    let show = [shown::<core::MiscCfg>(regs), shown::<dpu::WdmaSize0>(regs)];
    let group = conv.precision.kernel_group();
    if conv.precision == Precision::Int16
        && writer.channels > group
        && machine.contested.int16_without_sum == Int16WithoutSum::First16
    {
        spoiled.first_group_only = true;
        machine.report.note(
            "T37-int16-without-sum",
            Effect::NoWrite,
            &show,
            format!("int16 with QD_EN 0 writes the first {group} output channels only"),
            "set MISC_CFG.qd_en",
        )?;
    }
    let integer = matches!(conv.precision, Precision::Int8 | Precision::Int4);
    if integer && machine.chain.later && machine.contested.integer_chain == IntegerChain::Dirty {
        spoiled.dirty = true;
        machine.report.note(
            "T09-integer-chain",
            Effect::Garbage,
            &show,
            "a later int8 or int4 task of a chain, with QD_EN 0: the accumulators still hold the \
             sums of the task before (measured with programs of librocketnpu's form; the cause \
             is inferred)",
            "set MISC_CFG.qd_en, or kick each task by itself as the mainline driver does",
        )?;
    }
    Ok(spoiled)
}
