// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has the buffers of a staged product.

use std::mem;

use rocket_uapi::{Bo, DmaBuf, FrozenBo};

/// A buffer of activations.
#[derive(Debug)]
pub(super) enum ActivationMemory {
    /// Nobody reads it.
    Open(Bo),
    /// As jobs read it.
    Frozen(FrozenBo),
    /// Others have it too.
    Shared(DmaBuf),
    /// Only while it changes from one to the other.
    Moving,
}

/// What a caller cannot have.
pub(super) enum Unavailable {
    /// Others have it too.
    Exported,
    /// A job has it.
    Lost,
}

impl ActivationMemory {
    /// The buffer, to be written.
    pub(super) fn open(&mut self) -> Result<&mut Bo, Unavailable> {
        *self = match mem::replace(self, Self::Moving) {
            Self::Frozen(bo) => bo.thaw().map_or_else(Self::Frozen, Self::Open),
            other => other,
        };
        match self {
            Self::Open(bo) => Ok(bo),
            Self::Shared(_) => Err(Unavailable::Exported),
            Self::Frozen(_) | Self::Moving => Err(Unavailable::Lost),
        }
    }

    /// As jobs read it.
    pub(super) fn freeze(&mut self) {
        *self = match mem::replace(self, Self::Moving) {
            Self::Open(bo) => Self::Frozen(bo.freeze()),
            other => other,
        };
    }

    /// Others get it too, from now on.
    pub(super) fn export(&mut self) -> Result<DmaBuf, Option<rocket_uapi::Error>> {
        if let Self::Shared(dma_buf) = self {
            return Ok(dma_buf.clone());
        }
        if self.open().is_err() {
            return Err(None);
        }
        let Self::Open(bo) = mem::replace(self, Self::Moving) else {
            return Err(None);
        };
        match bo.export() {
            Ok(dma_buf) => {
                *self = Self::Shared(dma_buf.clone());
                Ok(dma_buf)
            }
            Err((error, bo)) => {
                *self = Self::Open(bo);
                Err(Some(error))
            }
        }
    }

    /// The buffer itself, if it is only ours.
    pub(super) fn into_own(mut self) -> Option<Bo> {
        self.open().is_ok().then_some(())?;
        match self {
            Self::Open(bo) => Some(bo),
            _ => None,
        }
    }
}

/// A buffer of results.
#[derive(Debug)]
pub(super) struct ResultMemory {
    /// The buffer, if others have it too.
    pub(super) shared: Option<DmaBuf>,
    /// The buffer, if it is only ours. None if a job keeps it.
    pub(super) owned: Option<Bo>,
}

impl ResultMemory {
    /// What a job gives back. One that has not ended keeps all.
    pub(super) fn take_back(&mut self, writes: Vec<Bo>) {
        self.owned = writes.into_iter().next();
    }

    /// The buffer, to be read.
    pub(super) fn open(&self) -> Result<&Bo, Unavailable> {
        match (&self.shared, &self.owned) {
            (Some(_), _) => Err(Unavailable::Exported),
            (None, Some(bo)) => Ok(bo),
            (None, None) => Err(Unavailable::Lost),
        }
    }
}
