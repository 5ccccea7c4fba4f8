// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file with room for a program and the operands of a matmul.

use npu_model::Model;
use rknpu_regcmd::{Binding, BufferId, ChipProfile, MatmulTask, TaskType};
use rocket_uapi::{Bo, ByteLen, Deadline, Device, Handle, RawJob, prep_bo, sys};

/// Bytes of the buffer objects: enough for the matmuls here.
const BO_BYTES: usize = 256 << 10;

pub struct File {
    pub device: Device,
    pub program: Bo,
    pub operands: [Bo; 3],
}

impl File {
    pub fn open(model: &Model) -> Self {
        let device = model.open_device();
        let bo = || device.alloc(ByteLen::new(BO_BYTES).unwrap()).unwrap();
        let (program, operands) = (bo(), [bo(), bo(), bo()]);
        Self {
            device,
            program,
            operands,
        }
    }

    /// Writes the program of a matmul of 64 x 128 and 128 x 64, and returns its length
    /// in words. No job may be in flight.
    pub fn write_program(&mut self) -> usize {
        let [a, b, c] = [0, 1, 2].map(|id| BufferId(id).at(0));
        let task = MatmulTask {
            ty: TaskType::Int8ToInt32,
            m: 64,
            k: 128,
            n: 64,
            a,
            b,
            c,
        };
        let bindings = [0, 1, 2].map(|index: u32| Binding {
            id: BufferId(index),
            iova: self.operands[index as usize].iova(),
            len: BO_BYTES as u32,
        });
        let program = task.program(&ChipProfile::RK3588).unwrap();
        let program = program.link(&bindings).unwrap();
        let words = program.words();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.bits().to_le_bytes()).collect();
        let mut memory = self.program.write(Deadline::FOREVER).unwrap();
        memory[..bytes.len()].copy_from_slice(&bytes);
        words.len()
    }

    /// The object of the result.
    pub fn out(&self) -> Handle {
        self.operands[2].handle()
    }

    /// Submits a job with a task of each of these lengths in words, which lists
    /// `reads` too.
    pub fn submit(&self, words: &[usize], reads: &[Handle]) {
        let task = |&words: &usize| sys::Task {
            regcmd: self.program.iova().0,
            regcmd_count: words as u32,
        };
        let job = RawJob {
            tasks: &words.iter().map(task).collect::<Vec<_>>(),
            reads: &[&[self.program.handle()], reads].concat(),
            writes: &[self.out()],
        };
        // SAFETY: no slice of these buffers exists while the job runs.
        unsafe { self.device.submit_raw(&[job]) }.unwrap();
    }

    pub fn wait(&self) {
        // SAFETY: the file only waits.
        let raw = unsafe { self.device.raw_file() };
        prep_bo(raw, self.out().into(), Deadline::FOREVER).unwrap();
    }
}
