// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of an int8 depthwise convolution, straight from the features: no
//! windows are gathered. [`super::patches`] and [`super::mac`] define them.
//!
//! The channels of an atom are summed line by line. Two lines of features that
//! the same kernel meets are widened together, with their padding and the
//! holes of a deconvolution, to every place that a window can reach; they stay
//! while windows reach them. Lines are always paired the same way: a window
//! that begins with the second line of a pair has a weight of zero for the
//! first. What is left, for any stride and dilation, is products at fixed
//! distances ([`taps`]), or fewer for the most common kernel ([`two_lines`]).

pub(crate) mod taps;
mod two_lines;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86;

use std::iter::StepBy;
use std::ops::Range;

use super::cna::FeatureCube;
use super::dma;
use super::dpu::steps::Finish;
use super::patches::{Under, Window};
use super::precision::{ATOM, Precision};
use super::trap::Stop;
use super::vectors::Vectors;
use taps::{BLOCK, KEPT, Lanes, NEIGHBOURS, Pairs, Source, Starts, Sums, Taps, Weights};
use two_lines::{Doubled, Filters, LINES, TwoLines};

/// Taps whose products fit an i32 together: a value is at most 2^7, a weight
/// with its offset 2^15, and 510 * 2^7 * 2^15 < 2^31.
const TAPS_MAX: usize = 510;

/// Bytes that widened lines may take: those of any window that the data banks
/// of CBUF can feed fit.
const LINES_BYTES: usize = 4 << 20;

/// The windows of a task.
pub(crate) struct Depthwise<'a> {
    window: &'a Window,
    vectors: Vectors,
    /// What is at each horizontal place that a window can reach.
    columns: Vec<Under>,
    /// The places of them that hold neighbouring pixels, from which one on.
    run: (Range<usize>, usize),
    /// The other places that are no padding.
    others: Vec<usize>,
    /// Lines from one tap of a column to the next; 1 if there is but one.
    apart: usize,
    /// Pairs of lines that a window may meet.
    pairs: usize,
}

/// The channels of an atom, for all pixels.
#[derive(Default)]
pub(crate) struct Atom {
    /// First channel.
    pub(crate) channel: usize,
    /// What padding holds.
    pub(crate) padding: [u8; ATOM],
    /// The weights of each tap, with their offsets.
    pub(crate) weights: Vec<Lanes>,
}

impl Atom {
    /// The largest magnitude of the sum of each channel.
    pub(crate) fn reach(&self) -> [i64; ATOM] {
        let of = |c: usize| {
            let weights = self.weights.iter();
            weights.map(|w| i64::from(w[c].unsigned_abs()) << 7).sum()
        };
        std::array::from_fn(of)
    }
}

/// Widened lines of an atom.
#[derive(Default)]
pub(crate) struct Lines {
    /// Rings of pairs of lines: for each line up to the distance of two taps
    /// those that are a multiple of it away.
    places: Vec<Pairs>,
    /// Which of the pairs of its ring each one is.
    held: Vec<Option<usize>>,
    starts: Starts,
    /// The weights for windows that begin with the first line of a pair, and
    /// with the second.
    weights: [Weights; 2],
    /// The weights of both for two lines of results at a time.
    filters: Option<Filters>,
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
        let (kernel, dilation) = (window.kernel, window.dilation);
        let width = (window.out_width - 1) * window.stride.0 + (kernel.0 - 1) * dilation.0 + 1;
        let apart = if kernel.1 == 1 { 1 } else { dilation.1.max(1) };
        let pairs = kernel.1 / 2 + 1;
        if width * apart * pairs > LINES_BYTES / size_of::<Pairs>() {
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
        let no_padding = |place: &usize| columns[*place] != Under::Padding;
        let others = (0..run.0.start).chain(run.0.end..width);
        let others = others.filter(no_padding).collect();
        Ok(Some(Self {
            window,
            vectors,
            columns,
            run,
            others,
            apart,
            pairs,
        }))
    }

    /// Gets `lines` ready for `atom`.
    pub(crate) fn begin(&self, lines: &mut Lines, atom: &Atom) {
        let slots = self.apart * self.pairs;
        let behind = BLOCK * self.window.stride.0;
        let places = slots * self.columns.len() + behind;
        lines.places.resize(places, Pairs::default());
        // Padding beside the input is the same in all lines.
        let padding = Pairs::of(atom.padding, atom.padding);
        for line in lines.places.chunks_mut(self.columns.len()).take(slots) {
            for (place, column) in line.iter_mut().zip(&self.columns) {
                if *column == Under::Padding {
                    *place = padding;
                }
            }
        }
        lines.held.clear();
        lines.held.resize(slots, None);
        let (columns, rows) = self.window.kernel;
        for (odd, weights) in lines.weights.iter_mut().enumerate() {
            let weight = |row: Option<usize>, column: usize| match row {
                Some(row) if row < rows => atom.weights[row * columns + column],
                _ => [0; ATOM],
            };
            let pair = |row: usize, column: usize| {
                let first = weight(row.checked_sub(odd), column);
                let second = weight((row + 1).checked_sub(odd), column);
                Pairs(std::array::from_fn(|c| [first[c], second[c]]))
            };
            weights.runs.clear();
            weights.singles.clear();
            for row in (0..rows + odd).step_by(2) {
                let (runs, singles) = self.runs();
                let run = |column| std::array::from_fn(|tap| pair(row, column + tap));
                weights.runs.extend(runs.map(run));
                weights
                    .singles
                    .extend(singles.map(|column| pair(row, column)));
            }
        }
        let by_single_lines = self.window.stride.1 == 1 && self.apart == 1;
        lines.filters = Some(&lines.weights)
            .filter(|_| by_single_lines)
            .and_then(Filters::new);
    }

    /// First columns of the runs of [`NEIGHBOURS`], and columns of no run.
    fn runs(&self) -> (StepBy<Range<usize>>, Range<usize>) {
        let columns = self.window.kernel.0;
        let neighbours = self.window.stride.0 == 1 && self.window.dilation.0 == 1;
        let end = if neighbours {
            columns - columns % NEIGHBOURS
        } else {
            0
        };
        ((0..end).step_by(NEIGHBOURS), end..columns)
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
        self.taps(cube, lines, atom, pixel).sum(self.vectors, sums);
    }

    /// Makes `out` what `finish` makes of the sums of successive pixels, from
    /// `pixel` on, with `kept` for some sums in between.
    pub(crate) fn bytes(
        &self,
        (cube, lines): (&FeatureCube, &mut Lines),
        (atom, finish): (&Atom, &Finish),
        kept: &mut Vec<Sums>,
        mut pixel: usize,
        mut out: &mut [[u8; ATOM]],
    ) {
        kept.resize(KEPT, [0; ATOM]);
        let width = self.window.out_width;
        let filters = lines.filters.take();
        let doubled = Doubled::new(finish);
        let two_lines = filters.as_ref().zip(doubled.as_ref());
        while !out.is_empty() {
            let taps = self.taps(cube, lines, atom, pixel);
            let (line, column) = (pixel / width, pixel % width);
            // Both lines meet the same pairs.
            let both = line.is_multiple_of(LINES) && column == 0 && out.len() >= LINES * width;
            let count = if let (true, Some((filters, finish))) = (both, two_lines)
                && let &[first, second] = taps.starts.runs.as_slice()
            {
                let (above, below) = out[..LINES * width].split_at_mut(width);
                let lines = TwoLines {
                    places: [&taps.places[first..], &taps.places[second..]],
                    filters,
                    finish,
                };
                lines.bytes(self.vectors, [above, below]);
                LINES * width
            } else {
                let count = out.len().min(width - column);
                taps.bytes(self.vectors, finish, kept, &mut out[..count]);
                count
            };
            pixel += count;
            out = &mut out[count..];
        }
        lines.filters = filters;
    }

    /// What pixels of a line are summed from, from `pixel` on.
    fn taps<'l>(
        &self,
        cube: &FeatureCube,
        lines: &'l mut Lines,
        atom: &Atom,
        pixel: usize,
    ) -> Taps<'l> {
        let window = self.window;
        let (line, column) = window.corner(pixel);
        let width = self.columns.len();
        let (ring, index) = (line % self.apart, line / self.apart);
        let last = index + window.kernel.1 - 1;
        lines.starts.runs.clear();
        lines.starts.singles.clear();
        for pair in index / 2..=last / 2 {
            let slot = ring * self.pairs + pair % self.pairs;
            let row = slot * width + column;
            let (runs, singles) = self.runs();
            lines.starts.runs.extend(runs.map(|column| row + column));
            let apart = window.dilation.0;
            let singles = singles.map(|column| row + column * apart);
            lines.starts.singles.extend(singles);
            if lines.held[slot] != Some(pair) {
                lines.held[slot] = Some(pair);
                let places = [2 * pair, 2 * pair + 1].map(|index| index * self.apart + ring);
                let out = &mut lines.places[slot * width..][..width];
                self.widen(cube, atom, places, out);
            }
        }
        Taps {
            places: &lines.places,
            weights: &lines.weights[index % 2],
            starts: &lines.starts,
            step: window.stride.0,
        }
    }

    /// Makes `out` the features at two vertical places, but for the padding
    /// that is there.
    fn widen(&self, cube: &FeatureCube, atom: &Atom, places: [usize; 2], out: &mut [Pairs]) {
        let zeros = Source {
            bytes: &[0; ATOM],
            stride: 0,
        };
        let padding = Source {
            bytes: &atom.padding,
            stride: 0,
        };
        // What is under the columns that hold pixels, and under holes. A line
        // that is not here has no weight in any window of the tile: it is there
        // for the other line of its pair.
        let lines = places.map(|place| match self.window.line_under(place, 0) {
            Under::Padding => [padding; 2],
            Under::Input(y) if cube.lines().contains(&y) => [cube.source(y, atom.channel), zeros],
            _ => [zeros; 2],
        });
        let (run, first) = self.run.clone();
        let pixels = lines.map(|[pixels, ..]| pixels.from(first));
        taps::pair_up(self.vectors, pixels, &mut out[run.clone()]);
        for &place in &self.others {
            let [a, b] = lines.map(|[pixels, hole]| match self.columns[place] {
                Under::Input(x) => pixels.atom(x),
                _ => hole.atom(0),
            });
            out[place] = Pairs::of(a, b);
        }
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

#[cfg(test)]
mod tests;
