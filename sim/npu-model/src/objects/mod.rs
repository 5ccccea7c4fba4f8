// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a handle names, and what hangs on it.

pub(crate) mod fence;
pub(crate) mod gem;
pub(crate) mod health;
pub(crate) mod iommu;
pub(crate) mod iova;
pub(crate) mod life;
#[allow(unsafe_code)]
pub(crate) mod mapping;
pub(crate) mod resv;
