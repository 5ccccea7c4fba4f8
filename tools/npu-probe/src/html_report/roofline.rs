// SPDX-License-Identifier: MIT OR Apache-2.0
//! What products reached, under the roofs of memory and MAC arrays, as SVG.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::axis::PictureAxis;
use super::files::BenchFile;
use super::text::number;
use crate::bench::{ROOFS, Roof};

const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 52.0;
const BOTTOM: f64 = 296.0;
const DOT: f64 = 4.5;

/// A product in the picture, at its row's number.
struct RooflineDot {
    row: usize,
    intensity: f64,
    gops: f64,
    is_measured: bool,
    color: String,
}

impl BenchFile {
    fn dots(&self) -> Vec<RooflineDot> {
        let mut dots = Vec::new();
        for (index, product) in self.measurements.iter().enumerate() {
            // Times of the software on its host say nothing of an NPU.
            let measured = product.gops.filter(|_| !self.conditions.device.is_model);
            let both = [(Some(product.modelled_gops), false), (measured, true)];
            for (gops, is_measured) in both {
                let roof = Roof::of(product.dtype.dtype());
                dots.extend(gops.map(|gops| RooflineDot {
                    row: index + 1,
                    intensity: product.operations_per_byte,
                    gops,
                    is_measured,
                    color: roof.map_or_else(|| "#808080".to_owned(), Roof::color),
                }));
            }
        }
        dots.retain(|dot| dot.gops > 0.0 && dot.intensity > 0.0);
        dots.truncate(200);
        dots
    }

    /// The picture, or nothing where no product is.
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
        let top = ROOFS
            .iter()
            .map(|roof| roof.peak(machine))
            .fold(1.0, f64::max);
        let (low, high) = ends(|dot| dot.gops, (top / 100.0, top));
        let y = PictureAxis::log((low / 2.0, high * 2.0), (BOTTOM, 10.0));
        let line = |roof: &Roof| {
            let (from, to) = x.ends();
            // Straight but for the corner where both roofs meet.
            let corner = roof.peak(machine) / roof.at(machine, 1.0).max(f64::MIN_POSITIVE);
            let points = [from, corner.clamp(from, to), to];
            let place = |at: f64| format!("{:.1},{:.1}", x.at(at), y.at(roof.at(machine, at)));
            points.map(place).join(" ")
        };
        let used: BTreeSet<String> = dots.iter().map(|dot| dot.color.clone()).collect();
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
                @for roof in ROOFS.iter().filter(|roof| used.contains(&roof.color())) {
                    polyline fill="none" stroke-width="1.6" stroke=(roof.color()) points=(line(roof)) {}
                    text.end x=(WIDTH - 12.0) y=(y.at(roof.peak(machine)) - 4.0) fill=(roof.color()) {
                        (roof.dtype) " " (number(roof.peak(machine)))
                    }
                }
                @for dot in &dots {
                    @let (cx, cy) = (x.at(dot.intensity), y.at(dot.gops));
                    @let fill = if dot.is_measured { &*dot.color } else { "none" };
                    circle cx=(format!("{cx:.1}")) cy=(format!("{cy:.1}")) r=(DOT) stroke=(dot.color) stroke-width="1.6" fill=(fill) {}
                    // One number for each product.
                    @if dot.is_measured || self.conditions.device.is_model {
                        text x=(format!("{:.1}", cx + DOT + 2.0)) y=(format!("{:.1}", cy - DOT)) { (dot.row) }
                    }
                }
            }
            figcaption {
                "Roofline: what memory and the MAC arrays allow at " (self.conditions.clock_mhz)
                " MHz. Numbers are rows of the table; rings are modelled"
                @if self.conditions.device.is_model { ". Nothing was measured on an NPU." } @else { ", dots measured." }
                " A multiply-accumulate is two operations."
            }
        } } }
    }
}
