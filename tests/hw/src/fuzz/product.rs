// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that is right, in a buffer object with all that it reaches.

use rknpu_regcmd::{Binding, BufferId, ChipProfile, Iova, MatmulTask, MatmulType, Word};
use rocket_uapi::{PAGE_BYTES, sys};

use crate::check::{Must, Outcome, Reason};
use crate::raw::{File, Map};
use crate::submit::{Job, Submission, Task};

const PAGE: u32 = PAGE_BYTES as u32;

/// Where the program begins, behind the three matrices.
const PROGRAM: u32 = 3 * PAGE;

/// A product of zeros, and room for one of its programs that was changed.
#[derive(Debug)]
pub(super) struct Product {
    pub(super) bo: sys::CreateBo,
    map: Map,
    words: Vec<u64>,
}

impl Product {
    pub(super) fn new(file: &File) -> Result<Self, Reason> {
        let bo = file.create(5 * PAGE).must("CREATE_BO")?;
        let map = file.map_shared(bo.offset, 5 * PAGE as usize);
        let buffer = BufferId(0);
        let task = MatmulTask {
            ty: MatmulType::Int8ToInt32,
            m: 4,
            k: 32,
            n: 32,
            a: buffer.at(0),
            b: buffer.at(PAGE),
            c: buffer.at(2 * PAGE),
        };
        let binding = Binding {
            id: buffer,
            iova: Iova(bo.dma_address as u32),
            len: PROGRAM,
        };
        let program = task.program(&ChipProfile::RK3588).must("a program")?;
        let linked = program.link(&[binding]).must("linking")?;
        let product = Self {
            bo,
            map: map.must("mmap")?,
            words: linked
                .words()
                .iter()
                .map(|word: &Word| word.bits())
                .collect(),
        };
        product.write(PROGRAM, &product.words);
        Ok(product)
    }

    fn write(&self, at: u32, words: &[u64]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        for (place, byte) in (at as usize..).zip(bytes) {
            self.map.set(place, byte);
        }
    }

    /// A task that runs it.
    pub(super) fn task(&self) -> Task {
        Task {
            regcmd: self.bo.dma_address as u32 + PROGRAM,
            regcmd_count: self.words.len() as u32,
        }
    }

    /// A task that runs it after `change`, which may hang or write anywhere in the
    /// file's address space.
    pub(super) fn changed(&self, change: impl FnOnce(&mut [u64])) -> Task {
        let mut words = self.words.clone();
        change(&mut words);
        self.write(PROGRAM + PAGE, &words);
        Task {
            regcmd: self.bo.dma_address as u32 + PROGRAM + PAGE,
            ..self.task()
        }
    }

    /// Runs it and waits, behind all jobs that the file has submitted before.
    pub(super) fn run(&self, file: &File) -> Outcome {
        let job = Job {
            tasks: vec![self.task()],
            writes: vec![self.bo.handle],
            ..Job::default()
        };
        let submission = Submission::of(vec![job]);
        submission.submit(file).must("SUBMIT of a product")?;
        let waited = file.prep(self.bo.handle, i64::MAX);
        waited.map(drop).must("PREP_BO of a product")
    }
}
