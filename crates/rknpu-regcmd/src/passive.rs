// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of registers of stages that a program does not use, alike in all
//! programs of this crate and in those that are known to run.

use crate::field::FieldRangeError;
use crate::program::{RegisterSet, set};
use crate::regs::{dpu, dpu_rdma};

/// Beats less one of the longest bursts, which all known programs use.
pub(crate) const BURST_16: u32 = 15;
/// Multiplier of a converter that changes nothing.
pub(crate) const SCALE_ONE: u32 = 1;

/// BS and BN let everything through, operands are not converted, and no read
/// engine comes before another.
pub(crate) fn set(set: &mut RegisterSet) -> Result<(), FieldRangeError> {
    set! { set;
        dpu::BsCfg { bs_bypass: 1, bs_alu_bypass: 1, bs_mul_bypass: 1, bs_relu_bypass: 1 }
        dpu::BnCfg { bn_bypass: 1, bn_alu_bypass: 1, bn_mul_bypass: 1, bn_relu_bypass: 1 }
        dpu::EwCvtScaleValue { ew_op_cvt_scale: SCALE_ONE }
        dpu_rdma::Weight { m_weight: 1, b_weight: 1, n_weight: 1, e_weight: 1 }
    }
    Ok(())
}
