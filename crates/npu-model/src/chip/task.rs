// SPDX-License-Identifier: MIT OR Apache-2.0
//! One task: what the enable word starts.

use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::{EnableMask, RegisterFile};

use super::Effect;
use super::check::shown;
use super::conv::{self, Machine};
use super::trap::Stop;
use super::{flying, ppu};

/// The blocks of a convolution.
const CONVOLUTION: EnableMask = EnableMask::CNA
    .union(EnableMask::CORE)
    .union(EnableMask::DPU);
/// The blocks of a flying task.
pub(crate) const FLYING: EnableMask = EnableMask::DPU.union(EnableMask::DPU_RDMA);
/// The blocks of pooling.
const POOLING: EnableMask = EnableMask::PPU.union(EnableMask::PPU_RDMA);

/// OUTPUT_MODE: to memory.
const OUTPUT_MEMORY: u32 = 2;
/// OUTPUT_MODE: to the PPU.
const OUTPUT_PPU: u32 = 1;

/// Runs the blocks of `enable` with the registers they execute.
pub(crate) fn run(
    machine: &mut Machine<'_>,
    regs: &RegisterFile,
    enable: EnableMask,
) -> Result<(), Stop> {
    let flying = regs.get::<dpu::FeatureModeCfg>().flying_mode() == 1;
    let mut ran = false;
    if enable.contains(FLYING) && flying {
        output(machine, regs)?;
        flying::run(machine, regs)?;
        ran = true;
    } else if enable.contains(CONVOLUTION) {
        if flying {
            return wait(
                machine,
                enable,
                "the DPU is flying, but DPU_RDMA is not enabled",
            );
        }
        output(machine, regs)?;
        conv::run(machine, regs, enable)?;
        ran = true;
    } else if enable.intersects(CONVOLUTION.union(FLYING)) {
        return wait(machine, enable, "a block waits for one that is not enabled");
    }
    if enable.contains(POOLING) {
        ppu::run(machine, regs)?;
        ran = true;
    } else if enable.intersects(POOLING) {
        return wait(machine, enable, "PPU and PPU_RDMA work together");
    }
    if ran {
        Ok(())
    } else {
        wait(machine, enable, "no block is enabled")
    }
}

/// A set of blocks of which none ends the task.
fn wait(machine: &mut Machine<'_>, enable: EnableMask, why: &str) -> Result<(), Stop> {
    machine.report.note(
        "H05-enable-mask",
        Effect::Hang,
        &[("enable", enable.bits())],
        why,
        "0x0D convolution, 0x1D with DPU_RDMA, 0x18 flying, 0x60 pooling",
    )
}

/// Where the DPU's output goes: only memory is modelled.
fn output(machine: &mut Machine<'_>, regs: &RegisterFile) -> Result<(), Stop> {
    let mode = regs.get::<dpu::FeatureModeCfg>().output_mode();
    let show = [shown::<dpu::FeatureModeCfg>(regs)];
    if mode & OUTPUT_PPU != 0 || mode & OUTPUT_MEMORY == 0 {
        return machine.report.note(
            "H05-output-mode",
            Effect::Hang,
            &show,
            format!("OUTPUT_MODE {mode}: only output to memory is modelled"),
            "set output_mode to 2",
        );
    }
    Ok(())
}
