// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reuse of what CBUF holds.

use alloc::format;

use super::{Findings, View, rules};
use crate::chip::ChipProfile;
use crate::field::Register;
use crate::regfile::RegisterFile;
use crate::regs::cna;
use crate::word::EnableMask;

pub(super) fn check(view: &View<'_>, findings: &mut Findings) {
    if !view.runs(EnableMask::CNA) {
        return;
    }
    let cbuf = view.get::<cna::CbufCon0>();
    let (data, weight) = (cbuf.data_reuse(), cbuf.weight_reuse());
    if (data | weight) == 0 {
        return;
    }
    if view.first_in_job {
        let message = format!("DATA_REUSE {data}, WEIGHT_REUSE {weight} in the first task");
        findings.report(view, &rules::REUSE, &[cna::CbufCon0::INFO], message);
        return;
    }
    let Some(left) = view.left else { return };
    let now = &view.task.regs;
    let mut other = |what, register| {
        let message = format!(
            "{what} reuse, but the task before left data of another size or in other banks"
        );
        let registers = [cna::CbufCon0::INFO, register];
        findings.report(view, &rules::REUSE_OTHER, &registers, message);
    };
    if data == 1 && features(left) != features(now) {
        other("data", cna::FcDataSize0::INFO);
    }
    if weight == 1 && (weights(left) != weights(now) || !weights_fit(now)) {
        other("weight", cna::WeightSize0::INFO);
    }
}

fn split(regs: &RegisterFile) -> (u32, u32) {
    let cbuf = regs.get::<cna::CbufCon0>();
    (cbuf.data_bank(), cbuf.weight_bank())
}

/// Where features lie, and how many: the split, entries of a line, the cube.
fn features(regs: &RegisterFile) -> impl PartialEq + use<> {
    let size = regs.get::<cna::FcDataSize0>();
    (
        split(regs),
        regs.get::<cna::CbufCon1>().data_entries(),
        (size.dma_width(), size.dma_height()),
        regs.get::<cna::FcDataSize1>().dma_channel(),
        regs.get::<cna::ConvCon1>().in_precision(),
    )
}

/// Where weights lie, and how many.
fn weights(regs: &RegisterFile) -> impl PartialEq + use<> {
    (
        split(regs),
        regs.get::<cna::WeightSize0>().weight_bytes(),
        regs.get::<cna::WeightSize1>().weight_bytes_per_kernel(),
        regs.get::<cna::ConvCon1>().proc_precision(),
    )
}

/// Whether all weights are there: more would have streamed through.
fn weights_fit(regs: &RegisterFile) -> bool {
    let room = u64::from(split(regs).1) * u64::from(ChipProfile::RK3588.cbuf_bank_bytes);
    u64::from(regs.get::<cna::WeightSize0>().weight_bytes()) <= room
}
