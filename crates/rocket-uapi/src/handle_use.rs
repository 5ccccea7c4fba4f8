// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reference counts of a file's handles.
//!
//! If a file already has a handle of a dma-buf, PRIME import returns that handle without a
//! second reference, so one close closes it for all users. Therefore this module counts the
//! uses of handles, and closes and forgets a handle in one step. Otherwise a number could
//! be closed under a live buffer and given to another.

use std::collections::{BTreeMap, BTreeSet};

use crate::units::Handle;

/// The handles of a file that are in use.
#[derive(Debug, Default)]
pub(crate) struct HandleUse {
    /// Made by CREATE_BO.
    pub(crate) own: BTreeSet<Handle>,
    /// Imported handles, with the number of uses of each.
    pub(crate) imported: BTreeMap<Handle, usize>,
}
