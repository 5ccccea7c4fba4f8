// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pooling.

use alloc::format;

use super::{Findings, View, rules};
use crate::field::Register;
use crate::precision::Precision;
use crate::regs::{ppu, ppu_rdma};
use crate::word::EnableMask;

/// POOLING_METHOD.
pub(super) const AVERAGE: u32 = 0;
/// POOLING_METHOD.
const MAX: u32 = 1;
/// Outputs below so many lines or pixels are misread by a next pooling.
const SMALL: usize = 4;
/// IN_PRECISION of PPU_RDMA: 16 bit.
const SIZE_16: u32 = 2;

pub(super) fn check(view: &View<'_>, findings: &mut Findings) {
    if !view.runs(EnableMask::PPU) {
        return;
    }
    let method = view.get::<ppu::OperationModeCfg>().pooling_method();
    let [width, height] = view.pool.kernel;
    if method == AVERAGE {
        let reciprocals = (
            view.get::<ppu::RecipKernelWidth>().recip_kernel_width(),
            view.get::<ppu::RecipKernelHeight>().recip_kernel_height(),
        );
        if width == 1 || height == 1 {
            let message = format!("an average over {width} x {height}");
            let registers = [ppu::PoolingKernelCfg::INFO];
            findings.report(view, &rules::POOL_AVERAGE, &registers, message);
        } else if reciprocals.0 == 0 || reciprocals.1 == 0 {
            let message = format!("reciprocals {:#x} and {:#x}", reciprocals.0, reciprocals.1);
            let registers = [ppu::RecipKernelWidth::INFO, ppu::RecipKernelHeight::INFO];
            findings.report(view, &rules::POOL_RECIPROCAL, &registers, message);
        }
    }
    let padding = view.get::<ppu::PoolingPaddingCfg>().bits();
    if method == MAX && padding != 0 && view.get::<ppu::PaddingValue1>().pad_value_0() == 0 {
        let message = "max pooling pads with 0".into();
        let registers = [ppu::PaddingValue1::INFO, ppu::PoolingPaddingCfg::INFO];
        findings.report(view, &rules::POOL_PADDING, &registers, message);
    }
    let [width, height, _] = view.pool.written.size;
    if width < SMALL || height < SMALL {
        let message = format!("the output is {width} x {height}");
        let registers = [ppu::DataCubeOutWidth::INFO, ppu::DataCubeOutHeight::INFO];
        findings.report(view, &rules::POOL_SMALL, &registers, message);
    }
    check_input(view, findings);
}

fn check_input(view: &View<'_>, findings: &mut Findings) {
    let pool = &view.pool;
    let rdma = view.runs(EnableMask::PPU_RDMA);
    let (proc, size) = (pool.precision.code(), pool.read_size);
    if pool.precision != Precision::Fp16 || rdma && size != SIZE_16 {
        let message = format!("PPU precision {proc}, PPU_RDMA size code {size}");
        let registers = [ppu::DataFormat::INFO, ppu_rdma::DataFormat::INFO];
        findings.report(view, &rules::POOL_PRECISION, &registers, message);
    }
    if !rdma {
        return;
    }
    let less_one = |size: [usize; 3]| size.map(|size| size - 1);
    let (taken, read) = (less_one(pool.input), less_one(pool.read.size));
    if taken != read {
        let message = format!(
            "PPU takes {taken:?}, PPU_RDMA reads {read:?} (width, height, channels less one)"
        );
        let registers = [ppu::DataCubeInWidth::INFO, ppu_rdma::CubeInWidth::INFO];
        findings.report(view, &rules::POOL_INPUT, &registers, message);
    }
}
