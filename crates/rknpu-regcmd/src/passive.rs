// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of registers of stages that a program does not use, alike in all
//! programs of this crate and in those that are known to run.

use crate::field::FieldRangeError;
use crate::regs::{dpu, dpu_rdma};

/// Equal arbitration of the read engines.
const ARBITRATION: u32 = 1;

/// BS lets everything through.
pub(crate) fn bs_bypassed() -> Result<dpu::BsCfg, FieldRangeError> {
    dpu::BsCfg::new()
        .with_bs_bypass(1)?
        .with_bs_alu_bypass(1)?
        .with_bs_mul_bypass(1)?
        .with_bs_relu_bypass(1)
}

/// BN lets everything through.
pub(crate) fn bn_bypassed() -> Result<dpu::BnCfg, FieldRangeError> {
    dpu::BnCfg::new()
        .with_bn_bypass(1)?
        .with_bn_alu_bypass(1)?
        .with_bn_mul_bypass(1)?
        .with_bn_relu_bypass(1)
}

/// No read engine comes before another.
pub(crate) fn equal_arbitration() -> Result<dpu_rdma::Weight, FieldRangeError> {
    dpu_rdma::Weight::new()
        .with_m_weight(ARBITRATION)?
        .with_b_weight(ARBITRATION)?
        .with_n_weight(ARBITRATION)?
        .with_e_weight(ARBITRATION)
}
