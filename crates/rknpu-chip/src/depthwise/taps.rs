// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inner loop of a depthwise convolution: products of features and
//! weights, summed over the taps of each pixel's kernel, and what becomes of
//! the sums.
//!
//! Lines of features come in pairs, and so do the taps of a column of the
//! kernel: two products and their sum are what vectors compute at once. Two
//! products of a byte and an i16 fit an i32, and so does the sum of
//! [`super::TAPS_MAX`] of them.

use super::super::dpu::steps::Finish;
use super::super::precision::ATOM;
use super::super::vectors::Vectors;

/// An atom of features or weights, widened.
pub(crate) type Lanes = [i16; ATOM];
/// The sums of a pixel's atom.
pub(crate) type Sums = [i32; ATOM];

/// An atom of two lines, or of two taps, channel by channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub(super) struct Pairs(pub(super) [[i16; 2]; ATOM]);

/// Pixels that are summed at once: a block may read the places of all of them,
/// even where fewer are wanted.
pub(super) const BLOCK: usize = 8;

/// Pixels whose sums stay in a first-level cache on their way to bytes.
pub(super) const KEPT: usize = 64;

/// Neighbouring columns of the kernel that share the loads of their features.
pub(super) const NEIGHBOURS: usize = 3;

/// What pixels of one line and one atom are summed from.
#[derive(Clone, Copy)]
pub(super) struct Taps<'a> {
    /// Pairs of lines, an atom a place. Behind the last place of the last
    /// pixel are those of another [`BLOCK`].
    pub(super) places: &'a [Pairs],
    pub(super) weights: &'a Weights,
    pub(super) starts: &'a Starts,
    /// Places from one pixel to the next.
    pub(super) step: usize,
}

/// Pairs of weights, in any order.
#[derive(Clone, Debug, Default)]
pub(super) struct Weights {
    /// Of neighbouring columns, if pixels are neighbours, too.
    pub(super) runs: Vec<[Pairs; NEIGHBOURS]>,
    /// All others.
    pub(super) singles: Vec<Pairs>,
}

/// Where features of the first pixel meet [`Weights`].
#[derive(Clone, Debug, Default)]
pub(super) struct Starts {
    pub(super) runs: Vec<usize>,
    pub(super) singles: Vec<usize>,
}

impl Taps<'_> {
    /// Makes `sums` those of successive pixels.
    pub(super) fn sum(&self, vectors: Vectors, sums: &mut [Sums]) {
        match vectors {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2(host) => super::x86::sum(host, self, sums),
            _ => self.sum_portably(sums),
        }
    }

    /// Makes `out` what `finish` makes of the sums of successive pixels, with
    /// `kept` for [`KEPT`] sums in between.
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables))]
    pub(super) fn bytes(
        &self,
        vectors: Vectors,
        finish: &Finish,
        kept: &mut [Sums],
        out: &mut [[u8; ATOM]],
    ) {
        match vectors {
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2(host) => super::x86::bytes(host, self, finish, kept, out),
            _ => self.bytes_portably(finish, out),
        }
    }

    /// The definition of [`Self::sum`].
    fn sum_portably(&self, sums: &mut [Sums]) {
        for (pixel, sums) in sums.iter_mut().enumerate() {
            *sums = self.pixel(pixel);
        }
    }

    /// The definition of [`Self::bytes`].
    fn bytes_portably(&self, finish: &Finish, out: &mut [[u8; ATOM]]) {
        for (pixel, bytes) in out.iter_mut().enumerate() {
            *bytes = finish.bytes(&self.pixel(pixel));
        }
    }

    /// The sums of a pixel.
    #[inline]
    fn pixel(&self, pixel: usize) -> Sums {
        let mut running = [0; ATOM];
        let mut add = |start: usize, weights: &Pairs| {
            let Pairs(features) = &self.places[start + pixel * self.step];
            for c in 0..ATOM {
                let (x, w) = (features[c], weights.0[c]);
                running[c] += i32::from(x[0]) * i32::from(w[0]) + i32::from(x[1]) * i32::from(w[1]);
            }
        };
        for (&start, weights) in self.starts.runs.iter().zip(&self.weights.runs) {
            for (column, weights) in weights.iter().enumerate() {
                add(start + column, weights);
            }
        }
        for (&start, weights) in self.starts.singles.iter().zip(&self.weights.singles) {
            add(start, weights);
        }
        running
    }
}

/// Bytes of successive places of a line.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) bytes: &'a [u8],
    /// Bytes from one place to the next: 0 where all hold the same.
    pub(crate) stride: usize,
}

impl Source<'_> {
    /// The atom at a place; zeros where there is none.
    #[inline(always)]
    pub(super) fn atom(&self, place: usize) -> [u8; ATOM] {
        let bytes = self.bytes.get(place * self.stride..);
        let atom = bytes.and_then(<[u8]>::first_chunk::<ATOM>);
        atom.copied().unwrap_or_default()
    }

    /// The atoms of the first places, where they follow each other.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn atoms(&self, count: usize) -> Option<&[[u8; ATOM]]> {
        let atoms = self.bytes.as_chunks::<ATOM>().0;
        if self.stride == ATOM {
            atoms.get(..count)
        } else {
            None
        }
    }

    /// The same line from another place on.
    pub(super) fn from(&self, place: usize) -> Self {
        Self {
            bytes: self.bytes.get(place * self.stride..).unwrap_or_default(),
            ..*self
        }
    }
}

/// Makes `out` the atoms of two lines.
pub(super) fn pair_up(vectors: Vectors, lines: [Source<'_>; 2], out: &mut [Pairs]) {
    match vectors {
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2(host) => super::x86::pair_up(host, lines, out),
        _ => pair_up_portably(lines, out),
    }
}

/// The definition of [`pair_up`].
fn pair_up_portably([a, b]: [Source<'_>; 2], out: &mut [Pairs]) {
    for (place, out) in out.iter_mut().enumerate() {
        *out = Pairs::of(a.atom(place), b.atom(place));
    }
}

impl Pairs {
    /// Two atoms of int8.
    #[inline]
    pub(super) fn of(a: [u8; ATOM], b: [u8; ATOM]) -> Self {
        Self(std::array::from_fn(|c| {
            [a[c], b[c]].map(|byte| i16::from(byte as i8))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::dpu::out_cvt::tests::cvt;
    use super::super::super::dpu::steps::Steps;
    use super::super::super::precision::Precision;
    use super::super::tests::noise;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(test_support::cases(256))]

        #[test]
        fn vectors_sum_what_the_definition_says(
            pixels in prop_oneof![0usize..21, 60usize..140],
            step in 1usize..4,
            runs in prop::collection::vec(0usize..9, 0..4),
            singles in prop::collection::vec(0usize..20, 0..4),
            (offset, scale, shift) in (-99i32..99, 1u32..0x7fff, 12u32..24),
            bounds in prop_oneof![Just((-128i8, 127i8)), any::<(i8, i8)>()],
            wide: bool,
            seed: u32,
        ) {
            let mut next = noise(seed);
            let width = 20 + (pixels + BLOCK) * step;
            // Runs are of neighbouring pixels.
            let runs = if step == 1 { runs } else { Vec::new() };
            let places: Vec<Pairs> = (0..width)
                .map(|_| Pairs(std::array::from_fn(|_| [next() as i8, next() as i8].map(i16::from))))
                .collect();
            let mut weight = || Pairs(std::array::from_fn(|_| {
                [next(), next()].map(|w| if wide { w as i16 } else { i16::from(w as i8) })
            }));
            let weights = Weights {
                runs: runs.iter().map(|_| [weight(), weight(), weight()]).collect(),
                singles: singles.iter().map(|_| weight()).collect(),
            };
            let starts = Starts { runs, singles };
            let taps = Taps { places: &places, weights: &weights, starts: &starts, step };
            let (mut fast, mut want) = (vec![[7; ATOM]; pixels], vec![[8; ATOM]; pixels]);
            taps.sum(Vectors::detect(), &mut fast);
            taps.sum_portably(&mut want);
            prop_assert_eq!(fast, want);

            let int8 = cvt(Precision::Int8);
            let cvt = super::super::super::dpu::out_cvt::OutCvt {
                offset, scale: scale as i32, shift, ..int8
            };
            if let Some(steps) = Steps::new(&cvt) {
                let finish = Finish {
                    steps,
                    addends: std::array::from_fn(|_| next() as i32 >> 8),
                    least: bounds.0,
                    most: bounds.1,
                };
                let (mut fast, mut want) = (vec![[7; ATOM]; pixels], vec![[8; ATOM]; pixels]);
                taps.bytes(Vectors::detect(), &finish, &mut [[0; ATOM]; KEPT], &mut fast);
                taps.bytes_portably(&finish, &mut want);
                prop_assert_eq!(fast, want);
            }
        }

        #[test]
        fn vectors_pair_up_what_the_definition_says(
            places in 0usize..20,
            strides in prop::array::uniform2(prop_oneof![Just(0usize), Just(16), 16usize..70]),
            missing in 0usize..40,
            seed: u32,
        ) {
            let mut next = noise(seed);
            let lines = strides.map(|stride| {
                let len = places * stride + ATOM;
                let line: Vec<u8> = (0..len - missing.min(len)).map(|_| next() as u8).collect();
                (line, stride)
            });
            let lines = lines.each_ref().map(|(bytes, stride)| Source { bytes, stride: *stride });
            let mut fast = vec![Pairs([[7; 2]; ATOM]); places];
            let mut want = vec![Pairs([[8; 2]; ATOM]); places];
            pair_up(Vectors::detect(), lines, &mut fast);
            pair_up_portably(lines, &mut want);
            prop_assert_eq!(fast, want);
        }
    }
}
