// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a descriptor names.

pub(crate) mod client_map;
pub(crate) mod device;
pub(crate) mod dma_buf;
pub(crate) mod drm_file;
pub(crate) mod drm_file_mmap;
pub(crate) mod release;
pub(crate) mod shared_file;
pub(crate) mod sw_sync;
pub(crate) mod sync_file;
