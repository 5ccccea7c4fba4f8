// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses of a cube's atoms.

use core::ops::Range;

use crate::chip::ATOM_BYTES;

/// A counter of lines or surfaces, whose steps come in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Number of steps.
    pub count: usize,
    /// Number of steps in a group.
    pub group: usize,
    /// Distance from step to step in a group, atoms.
    pub step: i64,
    /// Distance from group to group, atoms.
    pub group_step: i64,
}

impl Walk {
    /// `count` steps at equal distances.
    #[must_use]
    pub const fn plain(count: usize, step: i64) -> Self {
        Self {
            count,
            group: 1,
            step: 0,
            group_step: step,
        }
    }

    /// Distance of step `index` from step 0, atoms.
    #[must_use]
    pub const fn at(&self, index: usize) -> i64 {
        (index / self.group) as i64 * self.group_step + (index % self.group) as i64 * self.step
    }

    /// The smallest and the largest distance of a step from step 0; `None` without
    /// steps.
    fn ends(&self) -> Option<(i64, i64)> {
        let last = self.count.checked_sub(1)?;
        let last_group = last / self.group * self.group;
        // Both distances are constant, so the extremes are at the corners: of all
        // whole groups, and of the last group.
        let corners = [
            0,
            last.min(self.group - 1),
            last_group.saturating_sub(self.group),
            last_group.saturating_sub(1),
            last_group,
            last,
        ];
        let places = corners.map(|index| self.at(index));
        Some((places.into_iter().min()?, places.into_iter().max()?))
    }
}

/// A cube of pixels in memory, as one engine walks it. The engine touches every atom
/// of every pixel, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cube {
    /// Address of its first atom.
    pub base: u32,
    /// Pixels of a line, which are adjacent in memory.
    pub width: usize,
    /// Number and distance of the lines.
    pub lines: Walk,
    /// Number and distance of the atoms of a pixel.
    pub surfaces: Walk,
}

impl Cube {
    /// A cube of `size` (pixels of a line, lines, surfaces). Distances are in atoms.
    #[must_use]
    pub const fn plain(base: u32, size: [usize; 3], line: i64, surface: i64) -> Self {
        let [width, height, surfaces] = size;
        Self {
            base,
            width,
            lines: Walk::plain(height, line),
            surfaces: Walk::plain(surfaces, surface),
        }
    }

    /// Address of an atom.
    ///
    /// Strides and addresses have at most 28 bits of atoms and counts at most 16
    /// bits, so every sum stays far below 2^63.
    #[must_use]
    pub const fn address(&self, x: usize, y: usize, c1: usize) -> i64 {
        let atoms = x as i64 + self.lines.at(y) + self.surfaces.at(c1);
        self.base as i64 + ATOM_BYTES as i64 * atoms
    }

    /// Address of the atom of surface `c1` at a pixel, counted along the lines.
    #[must_use]
    pub const fn pixel_address(&self, pixel: usize, c1: usize) -> i64 {
        self.address(pixel % self.width, pixel / self.width, c1)
    }

    /// Splits `pixels` into runs that are contiguous in memory: one run if lines are
    /// adjacent, else one for each line. Lines must not be in groups.
    pub fn runs(&self, pixels: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
        let (width, dense) = (self.width, self.lines.group_step == self.width as i64);
        let Range { mut start, end } = pixels;
        core::iter::from_fn(move || {
            let first = start;
            start = if dense {
                end
            } else {
                end.min(first + width - first % width)
            };
            (first < end).then_some(first..start)
        })
    }

    /// Number of atoms of the cube.
    #[must_use]
    pub const fn atoms(&self) -> u64 {
        self.width as u64 * self.lines.count as u64 * self.surfaces.count as u64
    }

    /// The range from the first to the last byte that is touched; `None` for an empty
    /// cube.
    #[must_use]
    pub fn bounds(&self) -> Option<Range<i64>> {
        let across = self.width.checked_sub(1)? as i64;
        let ((top, bottom), (front, back)) = (self.lines.ends()?, self.surfaces.ends()?);
        let at = |atoms: i64| i64::from(self.base) + i64::from(ATOM_BYTES) * atoms;
        Some(at(top + front)..at(bottom + across + back + 1))
    }

    /// The pixel (x, y) whose atom of surface `c1` contains the byte `iova`. Lines
    /// must not be in groups.
    #[must_use]
    pub(crate) fn pixel(&self, iova: i64, c1: usize) -> Option<(usize, usize)> {
        let atoms = iova.checked_sub(self.address(0, 0, c1))?;
        let place = atoms.div_euclid(ATOM_BYTES.into());
        let line = self.lines.group_step;
        let (y, x) = (
            place.checked_div_euclid(line)?,
            place.checked_rem_euclid(line)?,
        );
        let (x, y) = (usize::try_from(x).ok()?, usize::try_from(y).ok()?);
        (x < self.width && y < self.lines.count).then_some((x, y))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn walk() -> impl Strategy<Value = Walk> {
        (0usize..10, 1usize..6, -40i64..40, -40i64..40).prop_map(
            |(count, group, step, group_step)| Walk {
                count,
                group,
                step,
                group_step,
            },
        )
    }

    proptest! {
        #![proptest_config(test_support::cases(512))]

        #[test]
        fn bounds_cover_every_atom_and_no_more(
            base in 0u32..0x1_0000,
            width in 0usize..6,
            lines in walk(),
            surfaces in walk(),
        ) {
            let cube = Cube { base: base * 16, width, lines, surfaces };
            let mut touched: Option<Range<i64>> = None;
            for c1 in 0..surfaces.count {
                for y in 0..lines.count {
                    for x in 0..width {
                        let at = cube.address(x, y, c1);
                        let so_far = touched.unwrap_or(at..at);
                        touched = Some(so_far.start.min(at)..so_far.end.max(at + 16));
                    }
                }
            }
            prop_assert_eq!(cube.bounds(), touched);
        }

        #[test]
        fn a_pixel_is_found_by_its_address(
            width in 1usize..6,
            height in 1usize..6,
            notch in 0i64..5,
            surfaces in walk(),
            byte in 0i64..16,
        ) {
            let lines = Walk::plain(height, width as i64 + notch);
            let cube = Cube { base: 0x1000, width, lines, surfaces };
            for c1 in 0..surfaces.count {
                for y in 0..height {
                    for x in 0..width {
                        let at = cube.address(x, y, c1) + byte;
                        prop_assert_eq!(cube.pixel(at, c1), Some((x, y)));
                    }
                }
            }
        }
    }
}
