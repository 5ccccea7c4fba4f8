// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who uses which handle of a file.
//!
//! PRIME import gives a handle that the file has already, without a second
//! reference: closing it once closes it for all. So the file's handles are
//! counted here, and a handle is closed and forgotten in one step. Else a
//! number could be closed under a live buffer and given to another one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::units::Handle;

/// The handles of a file that are in use.
#[derive(Debug, Default)]
pub(crate) struct HandleUse(Mutex<Uses>);

#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Made by CREATE_BO.
    pub(crate) own: BTreeSet<Handle>,
    /// Imported, and how many there are of each.
    pub(crate) imported: BTreeMap<Handle, usize>,
}

impl HandleUse {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Uses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
