// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA, feature side: the cube in memory, by atoms.
//!
//! The address of an atom is one formula for every known program (group mode,
//! line mode, native, row-major and panel matrices); it was inferred from the
//! register streams of librocketnpu, mtx512, happyme531 and Mesa, all proven
//! on silicon:
//!
//! ```text
//! addr(y, x, c1) = base + 16 * ((y/G)*LINE_STRIDE + (y%G)*W + x + c1*(G*W + SURF_STRIDE))
//! G = 4 if GROUP_LINE_OFF = 0, else 1;  W = DMA_WIDTH;  SURF_STRIDE signed
//! ```

use std::ops::Range;

use super::Master;
use super::depthwise::taps::Source;
use super::dma::{self, Dma};
use super::precision::ATOM;
use super::trap::Stop;

/// Lines that one step of LINE_STRIDE covers in group mode.
pub(crate) const LINE_GROUP: usize = 4;

/// Bytes that are read at once where lines follow each other: they stay in a
/// first-level cache on their way to the pixels.
const RUN_BYTES: usize = 1 << 14;

/// The feature DMA as the registers describe it. Strides are in atoms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FeatureDma {
    pub(crate) base: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Atoms of one pixel.
    pub(crate) surfaces: usize,
    /// GROUP_LINE_OFF = 0.
    pub(crate) grouped: bool,
    pub(crate) line_stride: u32,
    pub(crate) surf_stride: i32,
}

impl FeatureDma {
    /// Atoms of the whole cube.
    pub(crate) fn atoms(&self) -> u64 {
        self.width as u64 * self.height as u64 * self.surfaces as u64
    }

    fn group(&self) -> i64 {
        if self.grouped { LINE_GROUP as i64 } else { 1 }
    }

    /// Distance between the same pixel of successive surfaces, atoms.
    fn surface_pitch(&self) -> i64 {
        self.group() * self.width as i64 + i64::from(self.surf_stride)
    }

    /// First atom of a line of the first surface, relative to the base.
    fn line(&self, y: usize) -> i64 {
        let y = y as i64;
        y / self.group() * i64::from(self.line_stride) + y % self.group() * self.width as i64
    }

    /// Byte address of an atom: the formula of this module.
    pub(crate) fn address(&self, y: usize, x: usize, c1: usize) -> i64 {
        i64::from(self.base)
            + ATOM as i64 * (self.line(y) + x as i64 + c1 as i64 * self.surface_pitch())
    }

    /// How many lines from `y` on lie one behind the other in a surface.
    fn contiguous_lines(&self, y: usize) -> usize {
        let mut end = y + 1;
        while end < self.height && self.line(end) == self.line(y) + ((end - y) * self.width) as i64
        {
            end += 1;
        }
        end - y
    }

    /// Whether all of the cube can be read.
    pub(crate) fn check(&self, dma: &Dma<'_>) -> Result<(), Stop> {
        let by_line = self.surface_pitch() == self.width as i64;
        let mut y = 0;
        while y < self.height {
            let lines = self.contiguous_lines(y);
            if by_line {
                let len = self.width * self.surfaces * ATOM;
                dma.check_read(Master::Feature, self.address(y, 0, 0), len)?;
                y += 1;
                continue;
            }
            for c1 in 0..self.surfaces {
                let at = self.address(y, 0, c1);
                dma.check_read(Master::Feature, at, self.width * lines * ATOM)?;
            }
            y += lines;
        }
        Ok(())
    }

    /// Reads lines of the cube, as atoms in the order (y, x, c1): the channels of a
    /// pixel lie together, as the MAC array takes them. It takes the place of
    /// `memory`, if there is enough.
    pub(crate) fn fetch(
        &self,
        dma: &Dma<'_>,
        lines: Range<usize>,
        memory: Vec<u8>,
    ) -> Result<FeatureCube, Stop> {
        let shape = (self.width, self.height, self.surfaces);
        let mut cube = FeatureCube::in_memory(memory, shape, lines)?;
        if self.atoms() == 0 {
            return Ok(cube);
        }
        if dma.literal() {
            self.fetch_literally(dma, &mut cube)?;
            return Ok(cube);
        }
        // Row-major matrices: a line holds all channels of its pixels.
        let by_line = self.surface_pitch() == self.width as i64;
        let mut run = Vec::new();
        let Range { start: mut y, end } = cube.lines();
        while y < end {
            if by_line {
                self.fetch_line(dma, y, &mut cube, &mut run)?;
                y += 1;
            } else {
                let most = (RUN_BYTES / (self.width * ATOM)).max(1);
                let lines = self.contiguous_lines(y).min(most).min(end - y);
                self.fetch_lines(dma, y, lines, &mut cube, &mut run)?;
                y += lines;
            }
        }
        Ok(cube)
    }

    /// Reads lines of the cube surface by surface, as they lie in memory.
    pub(crate) fn fetch_planes(
        &self,
        dma: &Dma<'_>,
        lines: Range<usize>,
        memory: Vec<u8>,
    ) -> Result<FeatureCube, Stop> {
        let shape = (self.width, self.height, self.surfaces);
        let mut cube = FeatureCube::in_memory(memory, shape, lines)?;
        cube.by_plane = true;
        if self.atoms() == 0 {
            return Ok(cube);
        }
        let Range { start: mut y, end } = cube.lines();
        while y < end {
            let lines = self.contiguous_lines(y).min(end - y);
            for c1 in 0..self.surfaces {
                let at = cube.plane_line(y, c1);
                let out = &mut cube.atoms[at..][..lines * self.width * ATOM];
                dma.read(Master::Feature, self.address(y, 0, c1), out)?;
            }
            y += lines;
        }
        Ok(cube)
    }

    /// One line whose surfaces follow each other: a single access.
    fn fetch_line(
        &self,
        dma: &Dma<'_>,
        y: usize,
        cube: &mut FeatureCube,
        run: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let at = self.address(y, 0, 0);
        if self.width == 1 {
            return dma.read(Master::Feature, at, cube.line_mut(y));
        }
        let run = dma::resized(run, self.width * self.surfaces * ATOM)?;
        dma.read(Master::Feature, at, run)?;
        for (c1, surface) in run.chunks_exact(self.width * ATOM).enumerate() {
            cube.scatter(y, c1, surface);
        }
        Ok(())
    }

    /// Several lines that lie together: one access a surface.
    fn fetch_lines(
        &self,
        dma: &Dma<'_>,
        y: usize,
        lines: usize,
        cube: &mut FeatureCube,
        run: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let run = dma::resized(run, self.width * lines * ATOM)?;
        for c1 in 0..self.surfaces {
            dma.read(Master::Feature, self.address(y, 0, c1), run)?;
            cube.scatter(y, c1, run);
        }
        Ok(())
    }

    /// Reads atom by atom: the reference for [`Self::fetch`].
    fn fetch_literally(&self, dma: &Dma<'_>, cube: &mut FeatureCube) -> Result<(), Stop> {
        for y in cube.lines() {
            for x in 0..self.width {
                for c1 in 0..self.surfaces {
                    let mut atom = [0; ATOM];
                    dma.read(Master::Feature, self.address(y, x, c1), &mut atom)?;
                    let at = (x * self.surfaces + c1) * ATOM;
                    cube.line_mut(y)[at..at + ATOM].copy_from_slice(&atom);
                }
            }
        }
        Ok(())
    }
}

/// Features on their way to the MAC array: atoms in the order (y, x, c1), or
/// (c1, y, x) in a cube by planes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeatureCube {
    pub(crate) width: usize,
    /// Lines of the whole cube.
    pub(crate) height: usize,
    surfaces: usize,
    /// The lines that are here.
    lines: Range<usize>,
    by_plane: bool,
    atoms: Vec<u8>,
}

/// Bytes of a line.
pub(crate) fn line_bytes(width: usize, surfaces: usize) -> usize {
    width * surfaces * ATOM
}

impl FeatureCube {
    /// A cube of zeros.
    #[cfg(test)]
    pub(crate) fn empty(width: usize, height: usize, surfaces: usize) -> Result<Self, Stop> {
        Self::in_memory(Vec::new(), (width, height, surfaces), 0..height)
    }

    /// Lines of a cube of this width, height and surfaces, of whatever
    /// `memory` holds, which is replaced by zeros if it is too small.
    pub(crate) fn in_memory(
        mut memory: Vec<u8>,
        (width, height, surfaces): (usize, usize, usize),
        lines: Range<usize>,
    ) -> Result<Self, Stop> {
        let len = lines.len() * line_bytes(width, surfaces);
        dma::resized(&mut memory, len)?;
        memory.truncate(len);
        Ok(Self {
            width,
            height,
            surfaces,
            lines,
            by_plane: false,
            atoms: memory,
        })
    }

    /// The atoms of all lines that are here.
    pub(crate) fn atoms_mut(&mut self) -> &mut [u8] {
        &mut self.atoms
    }

    /// The lines that are here.
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

    /// Bytes of a line.
    pub(crate) fn line_bytes(&self) -> usize {
        line_bytes(self.width, self.surfaces)
    }

    /// The atoms of line `y`, which is here.
    pub(crate) fn line(&self, y: usize) -> &[u8] {
        let bytes = self.line_bytes();
        &self.atoms[(y - self.lines.start) * bytes..][..bytes]
    }

    /// The atoms of line `y`, to be written.
    pub(crate) fn line_mut(&mut self, y: usize) -> &mut [u8] {
        let bytes = self.line_bytes();
        &mut self.atoms[(y - self.lines.start) * bytes..][..bytes]
    }

    /// All channels of the pixel (y, x).
    pub(crate) fn pixel(&self, y: usize, x: usize) -> &[u8] {
        let bytes = self.pixel_bytes();
        &self.line(y)[x * bytes..][..bytes]
    }

    /// The atoms of line `y`, which is here, that hold the channels from
    /// `channel` on; zeros where the features do not have them.
    pub(crate) fn source(&self, y: usize, channel: usize) -> Source<'_> {
        if channel + ATOM > self.pixel_bytes() {
            return Source {
                bytes: &[0; ATOM],
                stride: 0,
            };
        }
        if self.by_plane {
            let at = self.plane_line(y, channel / ATOM);
            return Source {
                bytes: &self.atoms[at..][..self.width * ATOM],
                stride: ATOM,
            };
        }
        Source {
            bytes: &self.line(y)[channel..],
            stride: self.pixel_bytes(),
        }
    }

    /// Where line `y`, which is here, begins in a plane.
    fn plane_line(&self, y: usize, c1: usize) -> usize {
        (c1 * self.lines.len() + y - self.lines.start) * self.width * ATOM
    }

    /// Makes `line` the atoms of line `y` in the order (x, c1).
    pub(crate) fn gather_line(&self, y: usize, line: &mut [u8]) {
        if !self.by_plane {
            line.copy_from_slice(self.line(y));
            return;
        }
        for c1 in 0..self.surfaces {
            let at = self.plane_line(y, c1);
            let plane = self.atoms[at..][..self.width * ATOM].as_chunks::<ATOM>().0;
            let targets = line[c1 * ATOM..].chunks_mut(self.surfaces * ATOM);
            for (target, atom) in targets.zip(plane) {
                target[..ATOM].copy_from_slice(atom);
            }
        }
    }

    /// The same features in the order (y, x, c1).
    pub(crate) fn by_pixel(self) -> Result<Self, Stop> {
        if !self.by_plane {
            return Ok(self);
        }
        let shape = (self.width, self.height, self.surfaces);
        let mut cube = Self::in_memory(Vec::new(), shape, self.lines())?;
        for y in self.lines() {
            self.gather_line(y, cube.line_mut(y));
        }
        Ok(cube)
    }

    /// Bytes of one pixel.
    pub(crate) fn pixel_bytes(&self) -> usize {
        self.surfaces * ATOM
    }

    /// Puts atoms of surface `c1`, from line `y` on, to their pixels.
    fn scatter(&mut self, y: usize, c1: usize, surface: &[u8]) {
        let y = y - self.lines.start;
        let start = (y * self.width * self.surfaces + c1) * ATOM;
        let stride = self.surfaces * ATOM;
        let targets = self.atoms[start..].chunks_mut(stride);
        for (target, atom) in targets.zip(surface.chunks_exact(ATOM)) {
            target[..ATOM].copy_from_slice(atom);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::dma::tests::Flat;
    use super::*;
    use proptest::prelude::*;

    /// Every atom of the memory holds its own number.
    fn numbered(atoms: usize) -> Flat {
        Flat::new((0..atoms).flat_map(|i| (i as u128).to_le_bytes()).collect())
    }

    #[test]
    fn a_matrix_of_one_row_has_the_pitch_of_its_signed_stride() {
        let dma = FeatureDma {
            base: 0,
            width: 1,
            height: 1,
            surfaces: 4,
            grouped: true,
            line_stride: 4,
            surf_stride: -3,
        };
        let addresses: Vec<i64> = (0..4).map(|c1| dma.address(0, 0, c1)).collect();
        assert_eq!(addresses, [0, 16, 32, 48]);
    }

    proptest! {
        #![proptest_config(test_support::cases(128))]

        #[test]
        fn whole_lines_equal_the_formula(
            width in 1usize..6,
            height in 1usize..10,
            surfaces in 1usize..5,
            grouped: bool,
            line in 0u32..30,
            pitch in prop_oneof![Just(None), (-20i32..40).prop_map(Some)],
            dense: bool,
        ) {
            let group = if grouped { 4 } else { 1 };
            let line_stride = if dense { (group * width) as u32 } else { line };
            let surf_stride = pitch.unwrap_or(width as i32 - (group * width) as i32);
            let dma = FeatureDma {
                base: 4096, width, height, surfaces, grouped, line_stride, surf_stride,
            };
            let bus = numbered(1024);
            let dma_port = Dma::new(&bus, 0);
            let lines = height / 3..height;
            let fast = dma.fetch(&dma_port, lines.clone(), vec![7; 99]).ok();
            let literal = dma.fetch(&dma_port.literally(true), lines, Vec::new()).ok();
            prop_assert_eq!(fast, literal);
            let lines = height / 3..height;
            let planes = dma.fetch_planes(&dma_port, lines.clone(), vec![7; 99]);
            let planes = planes.and_then(FeatureCube::by_pixel).ok();
            prop_assert_eq!(planes, dma.fetch(&dma_port, lines, Vec::new()).ok());
            let all = dma.fetch(&dma_port, 0..height, Vec::new());
            prop_assert_eq!(all.is_ok(), dma.check(&dma_port).is_ok());
        }
    }
}
