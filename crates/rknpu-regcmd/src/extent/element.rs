// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of a completed task, and its elements.

use crate::chip::ATOM_BYTES;
use crate::precision::Precision;
use crate::task::Cube;

/// One byte of one element of a task's output cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrittenElement {
    /// Column of the cube.
    pub x: u32,
    /// Row of the cube.
    pub y: u32,
    /// Output channel.
    pub channel: u32,
    /// Number of the byte in the element.
    pub byte: u32,
    /// The element's type.
    pub ty: Precision,
}

/// An output whose geometry is not in doubt.
pub(super) struct Written {
    /// Its atoms. Each group of surfaces holds `group` channels.
    pub(super) cube: Cube,
    /// Width, height and channels.
    pub(super) size: [usize; 3],
    pub(super) group: usize,
    pub(super) precision: Precision,
}

impl Written {
    /// Address of the atom of the last channel, or of the last atom of its group that
    /// SIZE_E allows. Whether atoms of the group beyond it are written is not known.
    pub(super) fn last_atom(&self) -> i64 {
        let [width, height, last] = self.size.map(|size| size - 1);
        let atoms = self.cube.surfaces.group;
        let atom = (last % self.group / self.precision.per_atom()).min(atoms - 1);
        self.cube
            .address(width, height, last / self.group * atoms + atom)
    }

    pub(super) fn element(&self, iova: i64) -> Option<WrittenElement> {
        let Self {
            cube,
            group,
            precision: ty,
            ..
        } = *self;
        let bytes = i64::from(ty.bits() / 8);
        let byte = iova.rem_euclid(ATOM_BYTES.into());
        (0..cube.surfaces.count).find_map(|c1| {
            let (x, y) = cube.pixel(iova, c1)?;
            let in_group = c1 % cube.surfaces.group * ty.per_atom() + (byte / bytes) as usize;
            let channel = c1 / cube.surfaces.group * group + in_group;
            (in_group < group && channel < self.size[2]).then_some(WrittenElement {
                x: x as u32,
                y: y as u32,
                channel: channel as u32,
                byte: (byte % bytes) as u32,
                ty,
            })
        })
    }
}
