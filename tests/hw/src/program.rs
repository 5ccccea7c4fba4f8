// SPDX-License-Identifier: MIT OR Apache-2.0
//! A correct program, in a buffer object with all that it reads.

use rknpu_regcmd::{Binding, BufferId, ChipProfile, Iova, MatmulTask, TaskType, Word};
use rocket_uapi::{PAGE_BYTES, sys};

use crate::check::{Must, NotPassed, RowOutcome, ensure};
use crate::raw::{File, Map};
use crate::submit::{JobArgs, SubmitArgs, Task};

const PAGE: u32 = PAGE_BYTES as u32;

/// The pages of the object: both operands, room for the result, the program, and a
/// changed program.
const A: u32 = 0;
const B: u32 = PAGE;
const C: u32 = 2 * PAGE;
const PROGRAM: u32 = 3 * PAGE;
const CHANGED: u32 = 4 * PAGE;
const BYTES: u32 = 5 * PAGE;

/// Rows of A, columns of both, rows of B. All elements of a matrix are the same, so
/// no layout matters.
const M: u32 = 4;
const K: u32 = 32;
const N: u32 = 32;

/// Bytes of the result.
pub(crate) const RESULT: u32 = M * N * size_of::<i32>() as u32;

/// A matmul of two matrices, one of a value, one of ones.
#[derive(Debug)]
pub(crate) struct MatmulProgram {
    pub(crate) bo: sys::CreateBo,
    value: u8,
    map: Map,
    words: Vec<u64>,
}

impl MatmulProgram {
    /// The matmul of `value`, which writes [`RESULT`] bytes at the address `to`, or into
    /// its own object.
    pub(crate) fn new(file: &File, value: u8, to: Option<u32>) -> Result<Self, NotPassed> {
        let bo = file.create(BYTES).must("CREATE_BO")?;
        let map = file.map_shared(bo.offset, BYTES as usize);
        let [factors, result] = [0, 1].map(BufferId);
        let task = MatmulTask {
            ty: TaskType::Int8ToInt32,
            m: M,
            k: K,
            n: N,
            a: factors.at(A),
            b: factors.at(B),
            c: result.at(0),
        };
        let bind = |id, iova, len| Binding {
            id,
            iova: Iova(iova),
            len,
        };
        let bindings = [
            bind(factors, bo.dma_address as u32, C),
            bind(result, to.unwrap_or(bo.dma_address as u32 + C), RESULT),
        ];
        let program = task.program(&ChipProfile::RK3588).must("a program")?;
        let linked = program.link(&bindings).must("linking")?;
        let this = Self {
            bo,
            value,
            map: map.must("mmap")?,
            words: linked
                .words()
                .iter()
                .map(|word: &Word| word.bits())
                .collect(),
        };
        this.fill(A, M * K, value);
        this.fill(B, K * N, 1);
        this.write(PROGRAM, &this.words);
        file.fini(bo.handle, 0).must("FINI_BO")?;
        Ok(this)
    }

    fn fill(&self, at: u32, len: u32, value: u8) {
        (at..at + len).for_each(|at| self.map.set(at as usize, value));
    }

    fn write(&self, at: u32, words: &[u64]) {
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        for (place, byte) in (at as usize..).zip(bytes) {
            self.map.set(place, byte);
        }
    }

    pub(crate) fn task(&self) -> Task {
        Task {
            regcmd: self.bo.dma_address as u32 + PROGRAM,
            regcmd_count: self.words.len() as u32,
        }
    }

    /// A job that runs it, and lists an object as its output.
    pub(crate) fn job(&self, writes: u32) -> JobArgs {
        JobArgs::of(self.task(), writes)
    }

    /// Runs it as a job that writes its own object, and waits.
    pub(crate) fn run(&self, file: &File) -> RowOutcome {
        let handle = self.bo.handle;
        let submission = SubmitArgs::of(vec![self.job(handle)]);
        submission.submit(file).must("SUBMIT of a matmul")?;
        file.prep(handle, i64::MAX).must("PREP_BO of a matmul")
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// A task that runs these words, or as many as fit. It may hang, or write
    /// anywhere in the file's address space.
    pub(crate) fn changed(&self, words: &[u64]) -> Task {
        let words = &words[..words.len().min(PAGE_BYTES / size_of::<u64>())];
        self.write(CHANGED, words);
        Task {
            regcmd: self.bo.dma_address as u32 + CHANGED,
            regcmd_count: words.len() as u32,
        }
    }

    pub(crate) fn check_own(&self) -> RowOutcome {
        self.check(&self.map, C, RESULT)
    }

    /// Fails unless its result is in `len` bytes from `at` on.
    pub(crate) fn check(&self, map: &Map, at: u32, len: u32) -> RowOutcome {
        let element = (u32::from(self.value) * K).to_le_bytes();
        let mut bytes = (at as usize..).zip(element.into_iter().cycle().take(len as usize));
        let what = format!("the result of the matmul of {} is at {at}", self.value);
        ensure(&what, bytes.all(|(at, byte)| map.get(at) == byte))
    }
}
