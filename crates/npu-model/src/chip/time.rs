// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long a task takes on the device. Rough: one number for the MAC array,
//! one for the DMA, and the larger of the two counts.
//!
//! Fitted to one measurement: a 256x384x256 fp16 tile takes 150 us within a
//! chain of tasks (rockchip-npu-notes, 600 MHz, mainline driver), of which
//! the MAC array needs 82. What the kernel adds to each task is not in here.

use std::time::Duration;

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;

use super::conv_config::ConvConfig;
use super::dpu::ew::Ew;
use super::precision::{ATOM, Precision};
use super::rdma::RdmaConfig;
use super::trap::Stop;
use super::writer::Writer;

/// Clock of the NPU, Hz (the highest that mainline Linux boards were measured
/// to gain from).
pub(crate) const CLOCK_HZ: f64 = 600e6;
/// Bytes a second that one core moves (3 to 6e9 inferred from the measured
/// tile times).
pub(crate) const BANDWIDTH: f64 = 4.5e9;

/// What a task has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Clocks of the MAC array, or of the pooling unit.
    clocks: f64,
    /// Bytes to and from memory.
    bytes: f64,
    /// Bytes that must be there before the MAC array starts.
    fill: f64,
}

impl Work {
    /// Fetching `words` commands.
    pub(crate) fn fetch(words: usize) -> Self {
        Self {
            bytes: (words * size_of::<u64>()) as f64,
            ..Self::default()
        }
    }

    /// A convolution whose writer takes groups of `group` channels.
    pub(crate) fn convolution(
        conv: &ConvConfig,
        writer: &Writer,
        group: usize,
        regs: &RegisterFile,
    ) -> Self {
        let channels = writer.channels.next_multiple_of(group) as f64;
        let rate = conv.precision.macs_per_clock() as f64;
        let taps = conv.window.taps() as f64;
        // Depthwise uses one of the channels that work in parallel.
        let clocks = if conv.depthwise {
            conv.pixels as f64 * taps * channels / (rate / conv.precision.kernel_group() as f64)
        } else {
            conv.pixels as f64 * taps * conv.window.channels as f64 * channels / rate
        };
        let features = if conv.cbuf.data_reuse {
            0.0
        } else {
            conv.source.bytes() as f64
        };
        let weights = if conv.cbuf.weight_reuse {
            0.0
        } else {
            let fetched = conv.compressed.map_or(0, |lanes| lanes.bytes());
            conv.weight_bytes.max(fetched) as f64
        };
        let (_, height, _) = conv.source.shape();
        let grains = conv.cbuf.grains.min(height) as f64;
        let operands = if Ew::wants_memory(regs) { 1.0 } else { 0.0 };
        let out = output_bytes(writer, group);
        Self {
            clocks,
            bytes: features + weights + out * (1.0 + operands),
            fill: features * grains / (height.max(1) as f64),
        }
    }

    pub(crate) fn flying(writer: &Writer, rdma: &RdmaConfig, regs: &RegisterFile) -> Self {
        let atoms = rdma.channels.div_ceil(rdma.in_precision.per_atom()) as f64;
        let input = rdma.pixels() as f64 * atoms * ATOM as f64;
        let operands = if Ew::wants_memory(regs) { 2.0 } else { 1.0 };
        let format = regs.get::<dpu::DataFormat>();
        let out_atom = Precision::from_code(format.out_precision()).per_atom();
        let out = output_bytes(writer, writer.atoms * out_atom);
        Self {
            bytes: input * operands + out,
            // An atom a clock, in and out.
            clocks: out / ATOM as f64,
            ..Self::default()
        }
    }

    /// Pooling: `taps` atoms a clock for each atom of the output.
    pub(crate) fn pooling(atoms_in: f64, atoms_out: f64, taps: f64) -> Self {
        Self {
            clocks: atoms_out * taps,
            bytes: (atoms_in + atoms_out) * ATOM as f64,
            fill: 0.0,
        }
    }

    fn seconds(&self) -> f64 {
        let mac = self.clocks / CLOCK_HZ;
        let dma = self.bytes / BANDWIDTH;
        mac.max(dma) + self.fill.min(self.bytes) / BANDWIDTH * 0.5
    }
}

/// Bytes that the writer writes, in groups of `group` channels.
fn output_bytes(writer: &Writer, group: usize) -> f64 {
    let atoms = writer.channels.div_ceil(group) * writer.atoms;
    writer.pixels() as f64 * atoms as f64 * ATOM as f64
}

/// Device time of the tasks of one kick, and the bound on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    seconds: f64,
    limit: f64,
}

impl Clock {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            seconds: 0.0,
            limit: limit.as_secs_f64(),
        }
    }

    /// Lets the time for `work` pass.
    ///
    /// # Errors
    /// [`Stop::TooLong`] when the limit is passed: no driver waits for such a
    /// task, so that it need not be computed.
    pub(crate) fn spend(&mut self, work: &Work) -> Result<(), Stop> {
        self.seconds += work.seconds();
        if self.seconds > self.limit {
            return Err(Stop::TooLong);
        }
        Ok(())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_stops_a_task_and_is_told() {
        let mut clock = Clock::new(Duration::from_millis(500));
        assert!(clock.spend(&Work::fetch(112)).is_ok());
        assert!(clock.elapsed() < Duration::from_micros(1));
        let endless = Work {
            clocks: 1e12,
            ..Work::default()
        };
        assert_eq!(clock.spend(&endless), Err(Stop::TooLong));
        assert!(clock.elapsed() > Duration::from_secs(1));
    }
}
