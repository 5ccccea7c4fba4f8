// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sums of an int8 depthwise convolution, straight from the features: no
//! windows are gathered. [`super::patches`] and [`super::mac`] define them.

use super::cna::FeatureCube;
use super::dma;
use super::loops::{self, Loop};
use super::patches::{Under, Window};
use super::precision::{ATOM, Precision};
use super::trap::Stop;

/// Taps whose products fit an i32 together: a value is at most 2^7, a weight
/// with its offset 2^7 + 2^15, and 510 * 2^7 * (2^7 + 2^15) < 2^31.
const TAPS_MAX: usize = 510;

/// Channels that are summed together where the features have them all.
const BLOCK: usize = 64;

/// The windows of a task.
pub(crate) struct Depthwise<'a> {
    window: &'a Window,
    cube: &'a FeatureCube,
    /// What is under each column of the kernel, for each output column.
    columns: Vec<Under>,
}

/// Some pixels of some channels, whole atoms of them.
pub(crate) struct Part<'a> {
    /// First pixel, and how many.
    pub(crate) pixels: (usize, usize),
    pub(crate) channel: usize,
    pub(crate) channels: usize,
    /// What padding holds, from `channel` on; 0 behind its end.
    pub(crate) padding: &'a [i16],
    /// (tap, channel), each with its offset: an int8 and an int16.
    pub(crate) weights: &'a [i32],
}

impl<'a> Depthwise<'a> {
    /// `None` where the sums may not fit, or features are not bytes.
    pub(crate) fn new(window: &'a Window, cube: &'a FeatureCube) -> Result<Option<Self>, Stop> {
        let taps = 1..=TAPS_MAX;
        if window.precision != Precision::Int8 || !taps.contains(&window.taps()) {
            return Ok(None);
        }
        let mut columns = dma::buffer(window.out_width * window.kernel.0)?;
        for (ox, columns) in columns.chunks_exact_mut(window.kernel.0).enumerate() {
            let corner = window.corner(ox).1;
            for (kx, column) in columns.iter_mut().enumerate() {
                *column = match window.column_under(corner, kx) {
                    // The DMA brought less than the window expects.
                    Under::Input(x) if x >= cube.width => Under::Hole,
                    under => under,
                };
            }
        }
        Ok(Some(Self {
            window,
            cube,
            columns,
        }))
    }

    /// Makes `sums` those of `part`, in the order (pixel, channel).
    pub(crate) fn sums(&self, part: &Part<'_>, sums: &mut [i32]) {
        loops::run(Sums {
            windows: self,
            part,
            sums,
        });
    }

    /// The features under row `ky` of the kernel, `None` where it is padding,
    /// empty where there are none.
    fn line(&self, corner: usize, ky: usize) -> Option<&[u8]> {
        match self.window.line_under(corner, ky) {
            Under::Padding => None,
            Under::Input(y) if y < self.cube.height => Some(self.cube.line(y)),
            _ => Some(&[]),
        }
    }

    /// The sums of channels `at..at + N` of `part`. Where the features do not
    /// hold them they are zeros.
    #[inline(always)]
    fn block<const N: usize>(&self, part: &Part<'_>, at: usize, sums: &mut [i32]) {
        let (kernel_width, kernel_height) = self.window.kernel;
        let width = self.window.out_width;
        let from = part.channel + at;
        let held = from + N <= self.cube.pixel_bytes();
        let mut padding = [0; N];
        let source = part.padding.get(at..).unwrap_or_default();
        for (byte, &value) in padding.iter_mut().zip(source) {
            *byte = value as i8 as u8;
        }
        let (first, count) = part.pixels;
        let mut targets = sums.chunks_exact_mut(part.channels);
        let mut lines = Vec::new();
        let mut pixel = first;
        while pixel < first + count {
            let end = (pixel - pixel % width + width).min(first + count);
            let corner = self.window.corner(pixel).0;
            lines.clear();
            lines.extend((0..kernel_height).map(|ky| self.line(corner, ky)));
            for (pixel, target) in (pixel..end).zip(&mut targets) {
                let columns = &self.columns[pixel % width * kernel_width..][..kernel_width];
                let mut sums = [0i32; N];
                for (ky, &line) in lines.iter().enumerate() {
                    for (kx, &column) in columns.iter().enumerate() {
                        let features = match (line, column) {
                            (None, _) | (_, Under::Padding) => &padding,
                            (Some(line), Under::Input(x)) if held => {
                                let place = x * self.cube.pixel_bytes() + from;
                                match line.get(place..).and_then(<[u8]>::first_chunk::<N>) {
                                    Some(features) => features,
                                    None => continue,
                                }
                            }
                            _ => continue,
                        };
                        let tap = ky * kernel_width + kx;
                        let weights = &part.weights[tap * part.channels + at..][..N];
                        for c in 0..N {
                            sums[c] += i32::from(features[c] as i8) * weights[c];
                        }
                    }
                }
                target[at..at + N].copy_from_slice(&sums);
            }
            pixel = end;
        }
    }
}

/// [`Depthwise::sums`] as a loop.
struct Sums<'a> {
    windows: &'a Depthwise<'a>,
    part: &'a Part<'a>,
    sums: &'a mut [i32],
}

impl Loop for Sums<'_> {
    #[inline(always)]
    fn run(self) {
        let Self {
            windows,
            part,
            sums,
        } = self;
        let held = windows.cube.pixel_bytes().saturating_sub(part.channel);
        let whole = held.min(part.channels) / BLOCK * BLOCK;
        for at in (0..whole).step_by(BLOCK) {
            windows.block::<BLOCK>(part, at, sums);
        }
        for at in (whole..part.channels).step_by(ATOM) {
            windows.block::<ATOM>(part, at, sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::Rows;
    use super::*;
    use proptest::prelude::*;

    /// Numbers without a pattern.
    fn noise(seed: u32) -> impl FnMut() -> u32 {
        let mut state = seed | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state
        }
    }

    #[derive(Clone, Copy, Debug)]
    struct Case {
        window: Window,
        /// Width, height and atoms of a pixel of the features.
        cube: (usize, usize, usize),
        /// Atoms of the part: first, and how many.
        atoms: (usize, usize),
        seed: u32,
    }

    fn case() -> impl Strategy<Value = Case> {
        let axis = || {
            (
                1usize..7,
                1usize..6,
                0usize..4,
                1usize..4,
                0usize..4,
                0usize..5,
            )
        };
        let channels = (
            1usize..140,
            0usize..5,
            1usize..9,
            any::<bool>(),
            any::<u16>(),
        );
        (axis(), axis(), 0usize..3, channels, any::<u32>()).prop_map(
            |(x, y, deconv, rest, seed)| {
                let (channels, first, atoms, low_pad, pad_value) = rest;
                let spread = [1, 2, 4][deconv];
                Case {
                    window: Window {
                        in_width: x.0,
                        in_height: y.0,
                        out_width: x.1,
                        stride: (x.2, y.2),
                        dilation: (x.3, y.3),
                        spread: (spread, spread),
                        pad: (x.4, y.4),
                        kernel: (1 + x.5, 1 + y.5),
                        channels,
                        precision: Precision::Int8,
                        pad_value: pad_value.into(),
                        low_pad,
                    },
                    cube: (
                        1 + seed as usize % 7,
                        y.1,
                        channels.div_ceil(ATOM).max(first),
                    ),
                    atoms: (first, atoms),
                    seed,
                }
            },
        )
    }

    /// By the windows, tap by tap.
    fn expected(case: &Case, cube: &FeatureCube, part: &Part<'_>) -> Vec<i32> {
        let (channel, channels) = (part.channel, part.channels);
        let mut padding = case.window.padding::<i16>();
        padding.resize(padding.len().max(channel + channels), 0);
        let mut rows = Rows::default();
        let range = channel..channel + channels;
        case.window
            .rows(cube, &padding, part.pixels, range, &mut rows)
            .unwrap();
        let mut sums = vec![0; part.pixels.1 * channels];
        for (pixel, sums) in sums.chunks_exact_mut(channels).enumerate() {
            for tap in 0..case.window.taps() {
                for (c, sum) in sums.iter_mut().enumerate() {
                    let place = tap * channels + c;
                    *sum += i32::from(rows.row(pixel)[place]) * part.weights[place];
                }
            }
        }
        sums
    }

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn sums_are_those_of_gathered_windows(
            case in case(),
            first in 0usize..20,
            count in 1usize..20,
            wide: bool,
        ) {
            let mut next = noise(case.seed);
            let (width, height, surfaces) = case.cube;
            let mut cube = FeatureCube::empty(width, height, surfaces).unwrap();
            for y in 0..height {
                cube.line_mut(y).fill_with(|| next() as u8);
            }
            let channels = case.atoms.1 * ATOM;
            let weights: Vec<i32> = (0..case.window.taps() * channels)
                .map(|_| i32::from(next() as i8) + if wide { i32::from(next() as i16) } else { 0 })
                .collect();
            let padding = case.window.padding::<i16>();
            let channel = case.atoms.0 * ATOM;
            let part = Part {
                pixels: (first, count),
                channel,
                channels,
                padding: padding.get(channel..).unwrap_or_default(),
                weights: &weights,
            };
            let depthwise = Depthwise::new(&case.window, &cube).unwrap().unwrap();
            let mut sums = vec![-1; count * channels];
            depthwise.sums(&part, &mut sums);
            prop_assert_eq!(&sums, &expected(&case, &cube, &part));
            let mut portable = vec![-1; count * channels];
            Sums { windows: &depthwise, part: &part, sums: &mut portable }.run();
            prop_assert_eq!(sums, portable);
        }
    }

    #[test]
    fn the_largest_sums_fit() {
        let window = Window {
            in_width: 1,
            in_height: TAPS_MAX,
            out_width: 1,
            stride: (1, 1),
            dilation: (1, 1),
            spread: (1, 1),
            pad: (0, 0),
            kernel: (1, TAPS_MAX),
            channels: ATOM,
            precision: Precision::Int8,
            pad_value: 0,
            low_pad: false,
        };
        let mut cube = FeatureCube::empty(1, TAPS_MAX, 1).unwrap();
        for y in 0..TAPS_MAX {
            cube.line_mut(y).fill(0x80);
        }
        let least = i32::from(i8::MIN) + i32::from(i16::MIN);
        let part = Part {
            pixels: (0, 1),
            channel: 0,
            channels: ATOM,
            padding: &[],
            weights: &vec![least; TAPS_MAX * ATOM],
        };
        let mut sums = [0; ATOM];
        let depthwise = Depthwise::new(&window, &cube).unwrap().unwrap();
        depthwise.sums(&part, &mut sums);
        assert_eq!(sums, [TAPS_MAX as i32 * -128 * least; ATOM]);
        let longer = Window {
            kernel: (1, TAPS_MAX + 1),
            ..window
        };
        assert!(Depthwise::new(&longer, &cube).unwrap().is_none());
    }
}
