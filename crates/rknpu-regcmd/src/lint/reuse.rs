// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the reuse of data in CBUF.

use alloc::format;

use super::view::View;
use crate::chip::ChipProfile;
use crate::field::Register;
use crate::regs::cna;
use crate::rules::STALE_CBUF;
use crate::task::ConvTask;
use crate::word::EnableMask;

impl View<'_> {
    pub(super) fn check_reuse(&mut self) {
        if !self.runs(EnableMask::CNA) {
            return;
        }
        let now = self.conv;
        let (data, weight) = (now.cbuf.data_reuse, now.cbuf.weight_reuse);
        if self.first_in_job {
            if data || weight {
                let (data, weight) = (u32::from(data), u32::from(weight));
                let message = format!("DATA_REUSE {data}, WEIGHT_REUSE {weight} in the first task");
                self.report(&STALE_CBUF, &[cna::CbufCon0::INFO], message);
            }
            return;
        }
        let Some(left) = self.left else { return };
        let mut other = |what, register| {
            let message = format!(
                "{what} reuse, but the previous task left data of another size or in other banks"
            );
            self.report(&STALE_CBUF, &[cna::CbufCon0::INFO, register], message);
        };
        if data && features(&left) != features(&now) {
            other("data", cna::FcDataSize0::INFO);
        }
        if weight && (weights(&left) != weights(&now) || !weights_fit(&now)) {
            other("weight", cna::WeightSize0::INFO);
        }
    }
}

/// The place and size of the features: the split, entries of a line, the cube.
fn features(conv: &ConvTask) -> impl PartialEq + use<> {
    let ConvTask { cbuf, features, .. } = conv;
    (
        cbuf.split(),
        cbuf.entries,
        features.fetched,
        features.precision,
    )
}

/// The place and size of the weights.
fn weights(conv: &ConvTask) -> impl PartialEq + use<> {
    let ConvTask { cbuf, weights, .. } = conv;
    (
        cbuf.split(),
        weights.bytes,
        weights.kernel_bytes,
        weights.precision,
    )
}

/// Whether CBUF holds all weights. If they do not fit, they streamed through it.
fn weights_fit(conv: &ConvTask) -> bool {
    let room = conv.cbuf.weight_banks as u64 * u64::from(ChipProfile::RK3588.cbuf_bank_bytes);
    u64::from(conv.weights.bytes) <= room
}
