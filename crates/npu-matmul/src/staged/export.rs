// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that others get.

use rocket_uapi::DmaBuf;

use super::{ACTIVATION, RESULT, Staged, no_such, unavailable};
use crate::error::Error;

impl Staged<'_> {
    /// Exports a buffer of activations as a dma-buf. From now on it is read and
    /// written by the dma-buf's functions, and
    /// [`Staged::activations_mut`] refuses it; products wait for the fences that
    /// are added to it. See [`DmaBuf`] for how long to keep it. Calling this
    /// again gives the same one.
    ///
    /// # Errors
    /// [`StagedError`](crate::StagedError); the driver refuses, or no file descriptor is left.
    pub fn export_activations(&mut self, index: usize) -> Result<DmaBuf, Error> {
        let (count, buffer) = (self.activations.len(), self.activations.get(index));
        let device = buffer
            .ok_or_else(|| no_such(ACTIVATION, index, count))?
            .device;
        self.activation_memory[index]
            .export()
            .map_err(|error| match error {
                Some(error) => Error::on_device(device)(error),
                None => self.lost(ACTIVATION, index),
            })
    }

    /// Exports a buffer of results as a dma-buf. From now on it is read by the
    /// dma-buf's functions, and [`Staged::results`] refuses it; products wait for
    /// the fences that are added to it, and those who wait for its fences wait
    /// for products. See [`DmaBuf`] for how long to keep it. Calling this again
    /// gives the same one.
    ///
    /// # Errors
    /// [`StagedError`](crate::StagedError); the driver refuses, or no file descriptor is left.
    pub fn export_results(&mut self, index: usize) -> Result<DmaBuf, Error> {
        let count = self.results.len();
        let memory = self.result_memory.get(index);
        let memory = memory.ok_or_else(|| no_such(RESULT, index, count))?;
        if let Some(dma_buf) = &memory.shared {
            return Ok(dma_buf.clone());
        }
        memory.open().map_err(|e| unavailable(e, RESULT, index))?;
        let on = self.on(self.results[index].device);
        let memory = &mut self.result_memory[index];
        let Some(own) = memory.owned.take() else {
            return Err(self.lost(RESULT, index));
        };
        match own.export() {
            Ok(dma_buf) => {
                memory.shared = Some(dma_buf.clone());
                Ok(dma_buf)
            }
            Err((error, own)) => {
                memory.owned = Some(own);
                Err(on.failed()(error))
            }
        }
    }
}
