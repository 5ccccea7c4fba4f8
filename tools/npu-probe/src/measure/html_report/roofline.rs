// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws a roofline plot of matmuls as SVG, with the limits of memory and MAC arrays.

use maud::{Markup, html};
use npu_matmul::Dtype;
use rknpu_regcmd::timing::Machine;

use super::axis::PictureAxis;
use super::text::number;
use crate::measure::bench::BenchReport;

/// Operations per multiply-accumulate.
const OPERATIONS: f64 = 2.0;

const GIGA: f64 = 1e9;

/// The roofs: rates of the MAC arrays in these precisions.
const ROOFS: [Dtype; 3] = [Dtype::Fp16, Dtype::Int8, Dtype::Int4];

const fn color(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Fp16 => "#1f77b4",
        Dtype::Int8 => "#d62728",
        Dtype::Int4 => "#2ca02c",
    }
}

/// 10^9 operations per second of the machine at `intensity` operations per byte.
fn roof(dtype: Dtype, machine: &Machine, intensity: f64) -> f64 {
    (memory(machine) * intensity).min(peak(dtype, machine))
}

fn peak(dtype: Dtype, machine: &Machine) -> f64 {
    let per_clock = dtype.macs_per_clock() * u64::from(machine.chip.cores);
    OPERATIONS * per_clock as f64 * machine.clock_hz as f64 / GIGA
}

/// Memory bandwidth of all cores together, gigabytes per second.
fn memory(machine: &Machine) -> f64 {
    machine.dram.shared_bytes_per_second as f64 / GIGA
}

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 52.0;
const BOTTOM: f64 = 296.0;
const DOT: f64 = 4.5;

/// A matmul in the plot, labelled with the number of its row.
struct RooflineDot {
    row: usize,
    intensity: f64,
    gops: f64,
    is_measured: bool,
    dtype: Dtype,
}

impl BenchReport {
    fn dots(&self) -> Vec<RooflineDot> {
        let mut dots = Vec::new();
        for (index, matmul) in self.measurements.iter().enumerate() {
            // Wall times of the software model do not apply to an NPU.
            let measured = matmul.gops.filter(|_| !self.conditions.device.is_model);
            let both = [(Some(matmul.modelled_gops), false), (measured, true)];
            for (gops, is_measured) in both {
                dots.extend(gops.map(|gops| RooflineDot {
                    row: index + 1,
                    intensity: matmul.operations_per_byte,
                    gops,
                    is_measured,
                    dtype: matmul.dtype.dtype(),
                }));
            }
        }
        dots.retain(|dot| dot.gops > 0.0 && dot.intensity > 0.0);
        dots.truncate(200);
        dots
    }

    /// The plot; nothing if there is no matmul.
    pub(super) fn roofline(&self) -> Markup {
        let machine = &self.conditions.machine;
        let dots = self.dots();
        let ends = |of: fn(&RooflineDot) -> f64, start: (f64, f64)| {
            dots.iter().map(of).fold(start, |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let (low, high) = ends(|dot| dot.intensity, (1.0, 1000.0));
        let x = PictureAxis::log((low / 2.0, high * 2.0), (LEFT, WIDTH - 10.0));
        let top = ROOFS.map(|dtype| peak(dtype, machine));
        let top = top.into_iter().fold(1.0, f64::max);
        let (low, high) = ends(|dot| dot.gops, (top / 100.0, top));
        let y = PictureAxis::log((low / 2.0, high * 2.0), (BOTTOM, 10.0));
        let line = |dtype| {
            let (from, to) = x.values;
            let at = |intensity| roof(dtype, machine, intensity);
            // The roof is straight except at the corner of both limits.
            let corner = peak(dtype, machine) / at(1.0).max(f64::MIN_POSITIVE);
            let points = [from, corner.clamp(from, to), to];
            let place = |intensity| format!("{:.1},{:.1}", x.at(intensity), y.at(at(intensity)));
            points.map(place).join(" ")
        };
        let is_used = |dtype: &Dtype| dots.iter().any(|dot| dot.dtype == *dtype);
        html! { @if !dots.is_empty() { figure {
            svg.square role="img" aria-label="roofline" viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
                @for mark in x.marks() {
                    line.grid x1=(x.at(mark)) x2=(x.at(mark)) y1="10" y2=(BOTTOM) {}
                    text.mark x=(x.at(mark)) y=(BOTTOM + 16.0) { (mark) }
                }
                @for mark in y.marks() {
                    line.grid x1=(LEFT) x2=(WIDTH - 10.0) y1=(y.at(mark)) y2=(y.at(mark)) {}
                    text.end x=(LEFT - 6.0) y=(y.at(mark) + 4.0) { (mark) }
                }
                text.mark x=((LEFT + WIDTH) / 2.0) y=(HEIGHT - 8.0) { "operations for each byte of A, B and C" }
                text.mark transform={ "translate(12 " (BOTTOM / 2.0) ") rotate(-90)" } { "10^9 operations a second" }
                @for dtype in ROOFS.into_iter().filter(is_used) {
                    @let peak = peak(dtype, machine);
                    polyline fill="none" stroke-width="1.6" stroke=(color(dtype)) points=(line(dtype)) {}
                    text.end x=(WIDTH - 12.0) y=(y.at(peak) - 4.0) fill=(color(dtype)) {
                        (dtype) " " (number(peak))
                    }
                }
                @for dot in &dots {
                    @let (cx, cy) = (x.at(dot.intensity), y.at(dot.gops));
                    @let color = color(dot.dtype);
                    @let fill = if dot.is_measured { color } else { "none" };
                    circle cx=(format!("{cx:.1}")) cy=(format!("{cy:.1}")) r=(DOT) stroke=(color) stroke-width="1.6" fill=(fill) {}
                    // One label per matmul.
                    @if dot.is_measured || self.conditions.device.is_model {
                        text x=(format!("{:.1}", cx + DOT + 2.0)) y=(format!("{:.1}", cy - DOT)) { (dot.row) }
                    }
                }
            }
            figcaption {
                "Roofline: the upper bounds of memory and of the MAC arrays at " (self.conditions.clock_mhz)
                " MHz. Numbers are rows of the table. Rings are modelled"
                @if self.conditions.device.is_model { ". Nothing was measured on an NPU." } @else { ", dots are measured." }
                " A multiply-accumulate is two operations."
            }
        } } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roofs_are_of_memory_and_then_of_compute() {
        let machine = Machine::RK3588.at_clock(1_000_000_000);
        let [fp16, int8, int4] = ROOFS.map(|dtype| peak(dtype, &machine));
        // E-mac-rate: 6 TOPS of int8 for three cores at 1 GHz.
        assert_eq!(int8, 6144.0);
        assert_eq!((fp16 * 2.0, int4), (int8, int8 * 2.0));
        let at = |intensity| roof(Dtype::Int8, &machine, intensity);
        assert_eq!(at(2.0), memory(&machine) * 2.0);
        assert_eq!(at(1e9), int8);
    }
}
