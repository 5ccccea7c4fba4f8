// SPDX-License-Identifier: MIT OR Apache-2.0
//! The feature fetch of CNA.
//!
//! Where an atom lies (E-feature-address):
//!
//! ```text
//! addr(y, x, c1) = base + 16 * ((y/G)*LINE_STRIDE + (y%G)*W + x + c1*(G*W + SURF_STRIDE))
//! G = 4, or 1 with GROUP_LINE_OFF;  W = width;  SURF_STRIDE signed
//! ```

use super::cube::{Cube, Walk};
use super::registers::ReadRegisters;
use crate::chip::ChipProfile;
use crate::precision::Precision;
use crate::regs::cna;

/// ARGB_IN of packed pixels with one channel; each further one adds 1, up to four.
const ARGB_FIRST: u32 = 8;

/// The features that CNA fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureFetch {
    /// FEATURE_DATA_ADDR.
    pub base: u32,
    /// Width, height and channels of the cube that is fetched.
    pub fetched: [usize; 3],
    /// Width, height and channels of the cube that the window moves over; nearly all
    /// programs write them equal to `fetched` (E-narrow-image).
    pub window: [usize; 3],
    /// The type of the elements.
    pub precision: Precision,
    /// Channels of a packed pixel; `None` if not packed (ARGB_IN).
    pub packed: Option<usize>,
    /// Lines are fetched in groups of four.
    pub grouped: bool,
    /// LINE_STRIDE, atoms.
    pub line_stride: u32,
    /// SURF_STRIDE, atoms.
    pub surf_stride: i32,
}

impl FeatureFetch {
    pub(crate) fn decode(regs: &impl ReadRegisters) -> Self {
        let con1 = regs.get::<cna::ConvCon1>();
        let (fetch, fetch1) = (
            regs.get::<cna::FcDataSize0>(),
            regs.get::<cna::FcDataSize1>(),
        );
        let (size, size1) = (regs.get::<cna::DataSize0>(), regs.get::<cna::DataSize1>());
        let packed = con1.argb_in().checked_sub(ARGB_FIRST);
        Self {
            base: regs.get::<cna::FeatureDataAddr>().feature_base_addr(),
            fetched: [fetch.dma_width(), fetch.dma_height(), fetch1.dma_channel()]
                .map(|size| size as usize),
            window: [
                size.datain_width(),
                size.datain_height(),
                size1.datain_channel(),
            ]
            .map(|size| size as usize),
            precision: Precision::from_code(con1.in_precision()),
            packed: packed.map(|more| more as usize % 4 + 1),
            grouped: con1.group_line_off() == 0,
            line_stride: regs.get::<cna::DmaCon1>().line_stride(),
            surf_stride: regs.get::<cna::DmaCon2>().surf_stride(),
        }
    }

    /// The cube that is fetched; `None` if pixels are packed.
    #[must_use]
    pub fn cube(&self) -> Option<Cube> {
        self.packed.is_none().then(|| self.atoms(self.fetched))
    }

    /// The atoms of a cube of this size.
    #[must_use]
    pub fn atoms(&self, [width, height, channels]: [usize; 3]) -> Cube {
        let group = if self.grouped {
            ChipProfile::RK3588.line_group as usize
        } else {
            1
        };
        let pitch = (group * width) as i64 + i64::from(self.surf_stride);
        Cube {
            base: self.base,
            width,
            lines: Walk {
                count: height,
                group,
                step: width as i64,
                group_step: self.line_stride.into(),
            },
            surfaces: Walk::plain(channels.div_ceil(self.precision.per_atom()), pitch),
        }
    }
}
