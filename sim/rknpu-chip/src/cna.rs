// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA, feature side: reads the feature cube, atom by atom, from the addresses
//! of [`FeatureFetch`](rknpu_regcmd::task::FeatureFetch).

use std::ops::Range;

use rknpu_regcmd::DmaEngine;
use rknpu_regcmd::task::Cube;

use super::dma::{self, Dma};
use super::precision::ATOM;
use super::trap::Stop;

/// Bytes of one read of consecutive lines: they stay in a first-level cache
/// until they are sorted by pixels.
const RUN_BYTES: usize = 1 << 14;

/// Shape of a cube in CBUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CubeShape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Atoms of a pixel.
    pub(crate) surfaces: usize,
}

impl CubeShape {
    /// Shape of a cube of atoms.
    pub(crate) fn of(source: &Cube) -> Self {
        Self {
            width: source.width,
            height: source.lines.count,
            surfaces: source.surfaces.count,
        }
    }

    pub(crate) fn line_bytes(&self) -> usize {
        self.width * self.surfaces * ATOM
    }
}

/// Whether a line holds all channels of its pixels, as in a row-major matrix.
fn is_by_line(source: &Cube) -> bool {
    source.surfaces.group_step == source.width as i64
}

/// Number of lines from `y` on that are contiguous in a surface.
fn contiguous_lines(source: &Cube, y: usize) -> usize {
    let Cube { width, lines, .. } = *source;
    let mut end = y + 1;
    while end < lines.count && lines.at(end) == lines.at(y) + ((end - y) * width) as i64 {
        end += 1;
    }
    end - y
}

/// Numbers of lines and surfaces that one access from line `y` on covers: all
/// surfaces of a line, or lines of a surface. Neither is 0.
fn access(source: &Cube, y: usize) -> (usize, usize) {
    if is_by_line(source) {
        (1, source.surfaces.count.max(1))
    } else {
        (contiguous_lines(source, y), 1)
    }
}

/// Checks that all of the cube can be read.
pub(crate) fn check(source: &Cube, dma: &Dma<'_>) -> Result<(), Stop> {
    let mut y = 0;
    while y < source.lines.count {
        let (lines, together) = access(source, y);
        let bytes = source.width * lines * together * ATOM;
        for first in (0..source.surfaces.count).step_by(together) {
            dma.check_read(DmaEngine::Feature, source.address(0, y, first), bytes)?;
        }
        y += lines;
    }
    Ok(())
}

/// Reads lines of the cube, as atoms in the order (y, x, c1): the channels of a
/// pixel lie together, as the MAC array takes them. The result reuses `memory`
/// if that is large enough.
pub(crate) fn fetch(
    source: &Cube,
    dma: &Dma<'_>,
    lines: Range<usize>,
    memory: Vec<u8>,
) -> Result<FeatureCube, Stop> {
    let mut cube = FeatureCube::in_memory(memory, CubeShape::of(source), lines)?;
    if source.atoms() == 0 {
        return Ok(cube);
    }
    let most = (RUN_BYTES / (source.width * ATOM)).max(1);
    let mut run = Vec::new();
    let surfaces = source.surfaces.count;
    let Range { start: mut y, end } = cube.lines();
    while y < end {
        let (lines, together) = access(source, y);
        let lines = lines.min(most).min(end - y);
        if together == surfaces && source.width == 1 && lines == 1 {
            dma.read(
                DmaEngine::Feature,
                source.address(0, y, 0),
                cube.line_mut(y),
            )?;
        } else {
            let bytes = source.width * lines * ATOM;
            let run = dma::resized(&mut run, bytes * together)?;
            for first in (0..surfaces).step_by(together) {
                dma.read(DmaEngine::Feature, source.address(0, y, first), run)?;
                for (c1, surface) in (first..).zip(run.chunks_exact(bytes)) {
                    cube.scatter(y, c1, surface);
                }
            }
        }
        y += lines;
    }
    Ok(cube)
}

/// Features on their way to the MAC array: atoms in the order (y, x, c1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeatureCube {
    /// Shape of the whole cube.
    pub(crate) shape: CubeShape,
    /// The lines that are here.
    lines: Range<usize>,
    atoms: Vec<u8>,
}

impl FeatureCube {
    /// Lines of a cube of this shape. They hold what `memory` holds, or zeros
    /// if that is too small.
    pub(crate) fn in_memory(
        mut memory: Vec<u8>,
        shape: CubeShape,
        lines: Range<usize>,
    ) -> Result<Self, Stop> {
        let len = lines.len() * shape.line_bytes();
        dma::resized(&mut memory, len)?;
        memory.truncate(len);
        Ok(Self {
            shape,
            lines,
            atoms: memory,
        })
    }

    /// The atoms of all lines that are here.
    pub(crate) fn atoms_mut(&mut self) -> &mut [u8] {
        &mut self.atoms
    }

    pub(crate) fn lines(&self) -> Range<usize> {
        self.lines.clone()
    }

    /// Whether all of these lines are here.
    pub(crate) fn holds(&self, lines: &Range<usize>) -> bool {
        lines.is_empty() || self.lines.start <= lines.start && lines.end <= self.lines.end
    }

    /// The memory of the atoms, for another cube.
    pub(crate) fn into_memory(self) -> Vec<u8> {
        self.atoms
    }

    pub(crate) fn line_bytes(&self) -> usize {
        self.shape.line_bytes()
    }

    /// The atoms of line `y`, which must be here.
    pub(crate) fn line(&self, y: usize) -> &[u8] {
        let bytes = self.line_bytes();
        &self.atoms[(y - self.lines.start) * bytes..][..bytes]
    }

    pub(crate) fn line_mut(&mut self, y: usize) -> &mut [u8] {
        let bytes = self.line_bytes();
        &mut self.atoms[(y - self.lines.start) * bytes..][..bytes]
    }

    /// All channels of the pixel (y, x).
    pub(crate) fn pixel(&self, y: usize, x: usize) -> &[u8] {
        let bytes = self.pixel_bytes();
        &self.line(y)[x * bytes..][..bytes]
    }

    pub(crate) fn pixel_bytes(&self) -> usize {
        self.shape.surfaces * ATOM
    }

    /// Copies atoms of surface `c1`, from line `y` on, to their pixels.
    fn scatter(&mut self, y: usize, c1: usize, surface: &[u8]) {
        let y = y - self.lines.start;
        let start = (y * self.shape.width * self.shape.surfaces + c1) * ATOM;
        let stride = self.shape.surfaces * ATOM;
        let targets = self.atoms[start..].chunks_mut(stride);
        for (target, atom) in targets.zip(surface.chunks_exact(ATOM)) {
            target[..ATOM].copy_from_slice(atom);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dma::tests::port;
    use super::*;
    use proptest::prelude::*;
    use rknpu_regcmd::task::Walk;

    /// Memory in which every atom holds its index.
    fn numbered(atoms: usize) -> Vec<u8> {
        let bytes = (0..atoms).flat_map(|i| (i as u128).to_le_bytes());
        bytes.collect()
    }

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn every_atom_comes_from_its_address(
            width in 1usize..6,
            height in 1usize..10,
            surfaces in 0usize..5,
            grouped: bool,
            line in 0i64..30,
            pitch in prop_oneof![Just(None), (-20i64..40).prop_map(Some)],
            dense: bool,
            // Far from the ends of memory, and close to its end.
            base in prop_oneof![Just(256u32), 930u32..1024],
        ) {
            let group = if grouped { 4 } else { 1 };
            let dense_step = (group * width) as i64;
            let line_step = if dense { dense_step } else { line };
            let surface_step = pitch.map_or(width as i64, |pitch| dense_step + pitch);
            let source = Cube {
                base: 16 * base,
                width,
                lines: Walk { count: height, group, step: width as i64, group_step: line_step },
                surfaces: Walk::plain(surfaces, surface_step),
            };
            let mut memory = numbered(1024);
            let dma = port(&mut memory, 0);
            let mut faults = false;
            let fetched = fetch(&source, &dma, height / 3..height, vec![7; 99]).ok();
            for y in height / 3..height {
                for (x, c1) in (0..width).flat_map(|x| (0..surfaces).map(move |c1| (x, c1))) {
                    let number = source.address(x, y, c1) / ATOM as i64;
                    faults |= !(0..1024).contains(&number);
                    if let Some(cube) = &fetched {
                        let atom = &cube.pixel(y, x)[c1 * ATOM..][..ATOM];
                        prop_assert_eq!(atom, (number as u128).to_le_bytes());
                    }
                }
            }
            prop_assert_eq!(fetched.is_none(), faults);
            let all = fetch(&source, &dma, 0..height, Vec::new());
            prop_assert_eq!(all.is_ok(), check(&source, &dma).is_ok());
        }
    }
}
