// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of channels that are not written, and tasks that do not end behind
//! their last write.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::rules::{INT16_WITHOUT_SUM, PARTIAL_GROUP, TRANSPOSED_HANG};

use super::Broken;
use crate::trap::{DiagnosisReport, Stop};

/// What becomes of the sums of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SumFaults {
    /// Channels of later kernel groups are not written.
    pub(crate) first_group_only: bool,
    /// The last group, which is not whole, is not written, and the task does
    /// not end.
    pub(crate) stuck: bool,
    /// All is written, but the task does not end.
    endless: bool,
}

impl SumFaults {
    /// What becomes of the sums of a task that breaks such rules.
    pub(crate) fn by(broken: &Broken) -> Self {
        Self {
            first_group_only: broken.has(&INT16_WITHOUT_SUM),
            stuck: broken.has(&PARTIAL_GROUP),
            endless: broken.has(&TRANSPOSED_HANG),
        }
    }

    /// The end of a task that does not end.
    pub(crate) fn finish(
        self,
        report: &mut DiagnosisReport,
        regs: &RegisterFile,
    ) -> Result<(), Stop> {
        if self.stuck {
            report.broken(&PARTIAL_GROUP, regs, "the last group is not whole")?;
        }
        if self.endless {
            report.broken(&TRANSPOSED_HANG, regs, "all is written")?;
        }
        Ok(())
    }
}
