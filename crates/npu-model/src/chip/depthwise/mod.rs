// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of an int8 depthwise convolution, straight from the features: no
//! windows are gathered. [`super::patches`] and [`super::mac`] define them.
//!
//! The channels of an atom are summed line by line. A line of features is
//! widened once, with its padding and the holes of a deconvolution, to every
//! place that a window can reach; it stays while windows reach it. What is
//! left, for any stride and dilation, is products at fixed distances
//! ([`taps`]).

pub(crate) mod taps;

use std::ops::Range;

use super::cna::FeatureCube;
use super::dma;
use super::gemm::Vectors;
use super::loops::{self, Loop};
use super::patches::{Under, Window};
use super::precision::{ATOM, Precision};
use super::trap::Stop;
use taps::{Lanes, Sums, Taps};

/// Taps whose products fit an i32 together: a value is at most 2^7, a weight
/// with its offset 2^15, and 510 * 2^7 * 2^15 < 2^31.
const TAPS_MAX: usize = 510;

/// Bytes that widened lines may take: those of any window that the data banks
/// of CBUF can feed fit.
const LINES_BYTES: usize = 1 << 20;

/// The windows of a task.
pub(crate) struct Depthwise<'a> {
    window: &'a Window,
    vectors: Vectors,
    /// What is at each horizontal place that a window can reach.
    columns: Vec<Under>,
    /// The places of them that hold neighbouring pixels, from which one on.
    run: (Range<usize>, usize),
    /// Vertical places that a window spans.
    depth: usize,
}

/// The channels of an atom, for all pixels.
#[derive(Default)]
pub(crate) struct Atom {
    /// First channel.
    pub(crate) channel: usize,
    /// What padding holds.
    pub(crate) padding: Lanes,
    /// The weights of each tap, with their offsets.
    pub(crate) weights: Vec<Lanes>,
}

/// Widened lines of an atom.
#[derive(Default)]
pub(crate) struct Lines {
    /// A ring of lines, by vertical place.
    places: Vec<Lanes>,
    /// The vertical place of each line of the ring.
    held: Vec<Option<usize>>,
    starts: Vec<[usize; 2]>,
    weights: Vec<[Lanes; 2]>,
}

impl<'a> Depthwise<'a> {
    /// For features whose lines have `cube_width` pixels. `None` where the sums
    /// may not fit, features are not bytes, or lines are
    /// longer than any that CBUF holds.
    pub(crate) fn new(
        window: &'a Window,
        cube_width: usize,
        vectors: Vectors,
    ) -> Result<Option<Self>, Stop> {
        let taps = 1..=TAPS_MAX;
        if window.precision != Precision::Int8 || !taps.contains(&window.taps()) {
            return Ok(None);
        }
        let reach = |pixels: usize, stride: usize, kernel: usize, dilation: usize| {
            (pixels - 1) * stride + (kernel - 1) * dilation + 1
        };
        let (kernel, dilation) = (window.kernel, window.dilation);
        let width = reach(window.out_width, window.stride.0, kernel.0, dilation.0);
        let depth = reach(1, window.stride.1, kernel.1, dilation.1);
        if width * depth > LINES_BYTES / size_of::<Lanes>() {
            return Ok(None);
        }
        let mut columns = dma::buffer(width)?;
        for (place, column) in columns.iter_mut().enumerate() {
            *column = match window.column_under(place, 0) {
                // The DMA brought less than the window expects.
                Under::Input(x) if x >= cube_width => Under::Hole,
                under => under,
            };
        }
        let run = neighbours(&columns);
        Ok(Some(Self {
            window,
            vectors,
            columns,
            run,
            depth,
        }))
    }

    /// Gets `lines` ready for `atom`.
    pub(crate) fn begin(&self, lines: &mut Lines, atom: &Atom) {
        lines
            .places
            .resize(self.depth * self.columns.len(), [0; ATOM]);
        lines.held.clear();
        lines.held.resize(self.depth, None);
        lines.weights.clear();
        let pairs = atom.weights.chunks(2);
        // An odd last tap is paired with itself, times zero.
        let pair = |pair: &[Lanes]| [pair[0], pair.get(1).copied().unwrap_or_default()];
        lines.weights.extend(pairs.map(pair));
    }

    /// Makes `sums` those of successive pixels of one line, from `pixel` on.
    pub(crate) fn sums(
        &self,
        cube: &FeatureCube,
        lines: &mut Lines,
        atom: &Atom,
        pixel: usize,
        sums: &mut [Sums],
    ) {
        let window = self.window;
        let (line, column) = window.corner(pixel);
        let width = self.columns.len();
        lines.starts.clear();
        for tap in (0..window.taps()).step_by(2) {
            let pair = [tap, (tap + 1).min(window.taps() - 1)];
            lines.starts.push(pair.map(|tap| {
                let (ky, kx) = (tap / window.kernel.0, tap % window.kernel.0);
                let slot = (line + ky * window.dilation.1) % self.depth;
                slot * width + column + kx * window.dilation.0
            }));
        }
        for ky in 0..window.kernel.1 {
            let place = line + ky * window.dilation.1;
            let slot = place % self.depth;
            if lines.held[slot] != Some(place) {
                lines.held[slot] = Some(place);
                loops::run(Widen {
                    windows: self,
                    cube,
                    atom,
                    place,
                    out: &mut lines.places[slot * width..][..width],
                });
            }
        }
        let taps = Taps {
            places: &lines.places,
            starts: &lines.starts,
            weights: &lines.weights,
            step: window.stride.0,
        };
        taps.sum(self.vectors, sums);
    }
}

/// The first places that hold neighbouring pixels, and the first of those.
fn neighbours(columns: &[Under]) -> (Range<usize>, usize) {
    let pixel = |place: usize| match columns.get(place) {
        Some(Under::Input(x)) => Some(*x),
        _ => None,
    };
    let start = (0..columns.len()).find_map(|place| Some((place, pixel(place)?)));
    let Some((start, first)) = start else {
        return (0..0, 0);
    };
    let mut end = start + 1;
    while pixel(end) == Some(first + end - start) {
        end += 1;
    }
    (start..end, first)
}

/// Makes `out` the features at a vertical place.
struct Widen<'a> {
    windows: &'a Depthwise<'a>,
    cube: &'a FeatureCube,
    atom: &'a Atom,
    place: usize,
    out: &'a mut [Lanes],
}

impl Loop for Widen<'_> {
    #[inline(always)]
    fn run(self) {
        let Self {
            windows,
            cube,
            atom,
            place,
            out,
        } = self;
        let line = match windows.window.line_under(place, 0) {
            Under::Padding => {
                out.fill(atom.padding);
                return;
            }
            Under::Input(y) if y < cube.height => cube.line(y),
            _ => &[],
        };
        let pixel = cube.pixel_bytes();
        // Channels that the features do not have are zeros.
        let held = atom.channel + ATOM <= pixel;
        let line = if held { line } else { &[] };
        let widened = |x: usize| {
            let bytes = line.get(x * pixel + atom.channel..);
            match bytes.and_then(<[u8]>::first_chunk::<ATOM>) {
                Some(bytes) => bytes.map(|byte| i16::from(byte as i8)),
                None => [0; ATOM],
            }
        };
        let (run, first) = windows.run.clone();
        for (out, x) in out[run.clone()].iter_mut().zip(first..) {
            *out = widened(x);
        }
        for place in (0..run.start).chain(run.end..out.len()) {
            out[place] = match windows.columns[place] {
                Under::Padding => atom.padding,
                Under::Input(x) => widened(x),
                Under::Hole => [0; ATOM],
            };
        }
    }
}

#[cfg(test)]
mod tests;
