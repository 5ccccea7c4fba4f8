// SPDX-License-Identifier: MIT OR Apache-2.0
//! What depends on QD_EN beside the weight zero point correction.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::rules::{INT16_WITHOUT_SUM, INTEGER_CHAIN, PARTIAL_GROUP};

use super::Broken;
use crate::IntegerChain;
use crate::conv::Machine;
use crate::conv_config::ConvConfig;
use crate::precision::Precision;
use crate::trap::{Report, Stop};

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
        report.broken(&PARTIAL_GROUP, regs, "the last group is not whole")
    }
}

/// What becomes of the sums of a task that breaks such rules.
pub(crate) fn sums(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    conv: &ConvConfig,
    broken: &Broken,
) -> Result<Spoiled, Stop> {
    let mut spoiled = Spoiled {
        stuck: broken.has(&PARTIAL_GROUP),
        first_group_only: broken.has(&INT16_WITHOUT_SUM),
        dirty: false,
    };
    let integer = matches!(conv.precision, Precision::Int8 | Precision::Int4);
    let summed = conv.sums_features || conv.depthwise;
    if integer
        && !summed
        && machine.chain.later
        && machine.contested.integer_chain == IntegerChain::Dirty
    {
        spoiled.dirty = true;
        let values = format!("{} with QD_EN 0", conv.precision);
        machine.report.broken(&INTEGER_CHAIN, regs, &values)?;
    }
    Ok(spoiled)
}
