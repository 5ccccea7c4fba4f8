// SPDX-License-Identifier: MIT OR Apache-2.0
//! A picture: what was reached, under the roof of compute and memory.
//!
//! Across: operations for each byte of A, B and C moved once. Up: GOP/s. The
//! slope is what memory gives all cores together, the flat parts are what their
//! MAC arrays do in each precision, both by the timing model's machine.

use std::ops::Range;
use std::path::Path;

use anyhow::anyhow;
use npu_matmul::Dtype;
use plotters::prelude::*;
use rknpu_regcmd::timing::Machine;

use super::report::BenchReport;
use crate::exit::Failure;

/// Pixels.
const SIZE: (u32, u32) = (960, 640);
const MARGIN: u32 = 16;
const LABELS: u32 = 56;
const DOT: i32 = 5;

/// Points of a line that is straight but for one corner.
const STEPS: i32 = 200;

/// Operations of a multiply-accumulate.
const OPERATIONS: f64 = 2.0;

const GIGA: f64 = 1e9;

/// A precision's place in the picture.
pub(crate) struct Roof {
    pub(crate) dtype: Dtype,
    color: RGBColor,
}

pub(crate) static ROOFS: [Roof; 3] = [
    Roof {
        dtype: Dtype::Fp16,
        color: RGBColor(31, 119, 180),
    },
    Roof {
        dtype: Dtype::Int8,
        color: RGBColor(214, 39, 40),
    },
    Roof {
        dtype: Dtype::Int4,
        color: RGBColor(44, 160, 44),
    },
];

impl Roof {
    /// The one of products that the NPU multiplies in `dtype`.
    pub(crate) fn of(dtype: Dtype) -> Option<&'static Self> {
        ROOFS.iter().find(|roof| roof.dtype == dtype)
    }

    /// Its colour, as pages have it.
    pub(crate) fn color(&self) -> String {
        let RGBColor(red, green, blue) = self.color;
        format!("#{red:02x}{green:02x}{blue:02x}")
    }

    /// GOP/s that the machine can do at `intensity` operations a byte.
    pub(crate) fn at(&self, machine: &Machine, intensity: f64) -> f64 {
        (memory(machine) * intensity).min(self.peak(machine))
    }

    pub(crate) fn peak(&self, machine: &Machine) -> f64 {
        let per_clock = self.dtype.macs_per_clock() * u64::from(machine.chip.cores);
        OPERATIONS * per_clock as f64 * machine.clock_hz as f64 / GIGA
    }
}

/// What memory gives the cores, gigabytes a second.
fn memory(machine: &Machine) -> f64 {
    machine.dram.shared_bytes_per_second as f64 / GIGA
}

impl BenchReport {
    /// Draws the measurements of a run on `machine`.
    pub(crate) fn draw(&self, file: &Path, machine: &Machine) -> Result<(), Failure> {
        self.try_draw(file, machine)
            .map_err(|error| Failure::Output(anyhow!("cannot draw {}: {error}", file.display())))
    }

    fn try_draw(
        &self,
        file: &Path,
        machine: &Machine,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let root = SVGBackend::new(file, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let x = self.intensities();
        let top = ROOFS
            .iter()
            .map(|roof| roof.peak(machine))
            .fold(0.0, f64::max);
        let low = ROOFS
            .iter()
            .map(|roof| roof.at(machine, x.start))
            .chain(self.points().map(|point| point.gops))
            .fold(top, f64::min);
        let conditions = &self.conditions;
        let title = format!(
            "{} at {} MHz (assumed): {} GOP/s",
            conditions.device.name,
            conditions.clock_mhz,
            if conditions.device.is_model {
                "modelled"
            } else {
                "measured"
            },
        );
        let mut chart = ChartBuilder::on(&root)
            .caption(title, ("sans-serif", 20))
            .margin(MARGIN)
            .x_label_area_size(LABELS)
            .y_label_area_size(LABELS)
            .build_cartesian_2d(x.clone().log_scale(), (low / 2.0..top * 2.0).log_scale())?;
        chart
            .configure_mesh()
            .x_desc("operations for each byte of A, B and C")
            .y_desc("GOP/s")
            .draw()?;
        for roof in &ROOFS {
            let ratio = x.end / x.start;
            let line = (0..=STEPS).map(|step| {
                let at = x.start * ratio.powf(f64::from(step) / f64::from(STEPS));
                (at, roof.at(machine, at))
            });
            let color = roof.color;
            chart
                .draw_series(LineSeries::new(line, &color))?
                .label(format!("{} roof", roof.dtype))
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color));
        }
        for point in self.points() {
            chart.draw_series([EmptyElement::at((point.intensity, point.gops))
                + Circle::new((0, 0), DOT, point.color.filled())
                + Text::new(point.label, (DOT + 2, -DOT), ("sans-serif", 12))])?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE)
            .border_style(BLACK)
            .draw()?;
        root.present()?;
        Ok(())
    }

    /// Measured on an NPU, modelled on the model.
    fn points(&self) -> impl Iterator<Item = Point> {
        self.measurements.iter().filter_map(|measurement| {
            let gops = match self.conditions.device.is_model {
                true => Some(measurement.modelled_gops),
                false => measurement.gops,
            }?;
            let roof = Roof::of(measurement.dtype.dtype());
            let color = roof.map_or(BLACK, |roof| roof.color);
            let (m, k, n) = (measurement.m, measurement.k, measurement.n);
            Some(Point {
                intensity: measurement.operations_per_byte,
                gops,
                color,
                label: format!("{m}x{k}x{n}"),
            })
        })
    }

    /// All measurements, with room on both sides.
    fn intensities(&self) -> Range<f64> {
        let all = self.measurements.iter().map(|m| m.operations_per_byte);
        let (low, high) = all.fold((1.0_f64, 10.0_f64), |(low, high), at| {
            (low.min(at), high.max(at))
        });
        low / 2.0..high * 2.0
    }
}

struct Point {
    intensity: f64,
    gops: f64,
    color: RGBColor,
    label: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roofs_are_of_memory_and_then_of_compute() {
        let machine = Machine::RK3588.at_clock(1_000_000_000);
        let [fp16, int8, int4] = &ROOFS;
        // E-mac-rate: 6 TOPS of int8 for three cores at 1 GHz.
        assert_eq!(int8.peak(&machine), 6144.0);
        assert_eq!(fp16.peak(&machine) * 2.0, int8.peak(&machine));
        assert_eq!(int4.peak(&machine), int8.peak(&machine) * 2.0);
        assert_eq!(int8.at(&machine, 2.0), memory(&machine) * 2.0);
        assert_eq!(int8.at(&machine, 1e9), int8.peak(&machine));
    }
}
