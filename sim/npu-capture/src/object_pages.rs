// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a buffer object, as a recorder reads them.

use std::sync::OnceLock;

use rknpu_regcmd::Iova;
use rocket_uapi::{MappedMemory, PAGE_BYTES, sys, words};

use crate::delta::BoBytes;
use crate::recorder::BoView;

/// Function that maps an object for reading.
type Map<'a> = &'a dyn Fn(&sys::CreateBo) -> Option<Box<dyn MappedMemory>>;

pub(crate) struct ObjectPages<'a> {
    handle: u32,
    /// `None` for an object that the NPU cannot see, such as an imported one.
    bo: Option<&'a sys::CreateBo>,
    map: Map<'a>,
    /// Mapped at the first read, and unmapped with the job, since it keeps the
    /// object.
    memory: OnceLock<Option<Box<dyn MappedMemory>>>,
}

impl<'a> ObjectPages<'a> {
    pub(crate) fn new(handle: u32, bo: Option<&'a sys::CreateBo>, map: Map<'a>) -> Self {
        Self {
            handle,
            bo,
            map,
            memory: OnceLock::new(),
        }
    }

    pub(crate) fn view(&self) -> BoView<'_> {
        let len = |bo: &sys::CreateBo| u64::from(bo.size).next_multiple_of(PAGE_BYTES as u64);
        BoView {
            handle: self.handle,
            // `bo` is set only if the NPU can see the object.
            iova: self.bo.map(|bo| Iova(bo.dma_address as u32)),
            len: self.bo.map_or(0, len),
            bytes: self,
        }
    }
}

impl BoBytes for ObjectPages<'_> {
    fn read(&self, offset: u64, into: &mut [u8]) {
        let memory = self
            .memory
            .get_or_init(|| self.bo.and_then(|bo| (self.map)(bo)));
        let Some(memory) = memory else {
            into.fill(0);
            return;
        };
        let start = usize::try_from(offset).map_or(memory.len(), |at| at.min(memory.len()));
        let len = into.len().min(memory.len() - start);
        let (copied, beyond) = into.split_at_mut(len);
        // The program, other processes and the NPU may change the bytes meanwhile.
        // Loading words is allowed then, and works for read-only pages too.
        words::load(memory.words(), start, copied);
        beyond.fill(0);
    }
}
