// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures clock, memory rates and start costs, as differences between jobs that differ
//! only in the measured property.

use anyhow::ensure;
use npu_matmul::{Dtype, Profile};
use npu_model::Opened;
use rknpu_regcmd::timing::{Dram, DriverCosts, Machine};

use super::timed::TimedTasks;
use crate::base::flags::planning::HERTZ_PER_MHZ;

const PS_PER_SECOND: f64 = 1e12;

/// Tasks of the clock's jobs on an NPU. The software model measures exactly and computes
/// slowly, so it runs two.
const CLOCK_TASKS: usize = 32;

/// Relative difference below which two rates count as equal.
const NEAR: f64 = 0.03;

/// Tasks that keep the MAC array busy longer than the memory, up to about 700 MHz: each but
/// the first finds its rows in CBUF (E-time-tiles, E-reuse-equal). Twice the columns double
/// the computation and change nothing else that takes time.
fn of_macs(columns: usize, count: usize) -> TimedTasks {
    TimedTasks {
        dtype: Dtype::Fp16,
        tile: [256, 384, columns],
        count,
        devices: 1,
    }
}

/// A task that takes hardly any time.
pub(super) const NOTHING: TimedTasks = TimedTasks {
    dtype: Dtype::Int8,
    tile: [4, 32, 32],
    count: 1,
    devices: 1,
};

/// Tasks that are limited by the fetch of their weights.
fn of_weights(columns: usize, devices: usize) -> TimedTasks {
    TimedTasks {
        tile: [4, 256, columns],
        count: 16,
        devices,
        ..NOTHING
    }
}

/// Measures clock, memory and driver costs of a device with `cores` cores, at least one.
pub(super) fn measure(
    opened: &Opened,
    cores: usize,
    tell: &impl Fn(&str),
) -> anyhow::Result<Machine> {
    let count = match opened.model {
        Some(_) => 2,
        None => CLOCK_TASKS,
    };
    let [few, many] = [of_macs(128, count), of_macs(256, count)];
    let more = |of: fn(&TimedTasks) -> u64| of(&many) - of(&few);
    let hz = per_second(more(clocks), few.run(opened)?, many.run(opened)?)?;
    let clock_hz = (hz / HERTZ_PER_MHZ as f64).round() as u64 * HERTZ_PER_MHZ;
    let one = memory(opened, 1)?;
    let [computing, moving] = [more(clocks) as f64 / hz, more(bytes) as f64 / one];
    if moving > (1.0 - NEAR) * computing {
        tell("  memory limits even these tasks: the clock below is a lower bound");
    }
    let all = memory(opened, cores)?;
    let mut machine = Profile::built_in().machine.at_clock(clock_hz);
    machine.dram = dram(clock_hz, one, all, cores);
    machine.driver = driver(opened, &machine)?;
    Ok(machine)
}

/// Clocks of the MAC array: one per row, group of channels and group of kernels.
fn clocks(tasks: &TimedTasks) -> u64 {
    let [rows, k, columns] = tasks.tile;
    let groups = k / tasks.dtype.k_multiple() * (columns / tasks.dtype.kernel_group());
    (rows * groups * tasks.count) as u64
}

/// Bytes of B and C, which grow with the columns; A stays in CBUF.
fn bytes(tasks: &TimedTasks) -> u64 {
    let [rows, k, columns] = tasks.tile;
    let results = rows * tasks.ty().out_bytes() as usize;
    ((tasks.dtype.input_bytes(k) + results) * columns * tasks.count * tasks.devices) as u64
}

/// Bytes per second that `devices` cores move together.
fn memory(opened: &Opened, devices: usize) -> anyhow::Result<f64> {
    let [few, many] = [of_weights(512, devices), of_weights(1024, devices)];
    let more = bytes(&many) - bytes(&few);
    per_second(more, few.run(opened)?, many.run(opened)?)
}

/// The rate per second: the longer job does `more` work than the shorter one.
fn per_second(more: u64, few_ps: u64, many_ps: u64) -> anyhow::Result<f64> {
    let ps = many_ps.saturating_sub(few_ps);
    // The board is busy; the measurement is meaningless.
    ensure!(
        ps > 0,
        "twice the work took no longer; stop other users of the NPU and try again"
    );
    Ok(more as f64 * PS_PER_SECOND / ps as f64)
}

/// The memory parameters for the measured rates at this clock: `one` of a single core, `all`
/// of all together. A rate of a whole number of bytes per clock is assumed to grow with the
/// clock. If all cores together reach the sum of their rates, their shared limit stays
/// unknown.
fn dram(clock_hz: u64, one: f64, all: f64, cores: usize) -> Dram {
    let published = Profile::built_in().machine.dram;
    let a_clock = one / clock_hz as f64;
    let whole = (a_clock - NEAR * a_clock).ceil().max(1.0);
    let by_clock = (whole - a_clock).abs() <= NEAR * a_clock;
    let shared = all < (1.0 - NEAR) * one * cores as f64;
    let at_least = |published: u64, measured: f64| published.max(measured as u64);
    Dram {
        core_bytes_per_clock: whole as u32,
        core_bytes_per_second: if by_clock {
            at_least(published.core_bytes_per_second, one)
        } else {
            one as u64
        },
        shared_bytes_per_second: if shared {
            all as u64
        } else {
            at_least(published.shared_bytes_per_second, all)
        },
    }
}

/// The driver's costs: measured times minus those that `machine` predicts for the tasks. How
/// a job's start divides into submitting, attaching and waking is not measurable here; it
/// follows the published figures (E-time-submit).
fn driver(opened: &Opened, machine: &Machine) -> anyhow::Result<DriverCosts> {
    const FEW: usize = 1;
    const MANY: usize = 63;
    let bare = machine.with_driver(DriverCosts::NONE);
    let beside = |count| -> anyhow::Result<u64> {
        let tasks = TimedTasks { count, ..NOTHING };
        let predicted_ps = tasks.predicted_ps(&bare)?;
        Ok(tasks.run(opened)?.saturating_sub(predicted_ps))
    };
    let (few, many) = (beside(FEW)?, beside(MANY)?);
    let kick_ps = many.saturating_sub(few) / (MANY - FEW) as u64;
    // The job's witness adds one kick.
    let start = few.saturating_sub(kick_ps * (FEW as u64 + 1));
    let usual = DriverCosts::MAINLINE;
    let whole = usual.submit_ps + usual.attach_ps + usual.wake_ps;
    let share = |part: u64| (u128::from(start) * u128::from(part) / u128::from(whole)) as u64;
    Ok(DriverCosts {
        submit_ps: share(usual.submit_ps),
        attach_ps: share(usual.attach_ps),
        kick_ps,
        wake_ps: share(usual.wake_ps),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_become_what_gives_them() {
        // The published bytes per clock, and no limit reached.
        assert_eq!(dram(200_000_000, 1.6e9, 4.8e9, 3), Dram::RK3588);
        assert_eq!(dram(600_000_000, 4.79e9, 14.4e9, 3), Dram::RK3588);
        // Below a whole number of bytes per clock, and with a shared limit.
        let slow = dram(600_000_000, 3.9e9, 9e9, 3);
        assert_eq!(slow.rate(600_000_000, 1), 3_900_000_000);
        assert_eq!(slow.rate(600_000_000, 3), 3_000_000_000);
    }
}
