// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole device: each core has a file, a queue and a share of the columns.

use std::sync::Arc;
use std::time::Instant;

use npu_model::{Model, ModelOptions};
use rocket_uapi::{ByteLen, Deadline, RawBo, RawJob, RawTask, RocketFile};

use crate::chip::{filler, place, tiles};
use families::matmul::OperandTypes;

/// A matmul, split by columns into one job per core.
pub(crate) struct SplitMatmul {
    jobs: Vec<Share>,
    _model: Arc<Model>,
}

/// One file's part.
struct Share {
    file: RocketFile,
    reads: Vec<RawBo>,
    output: RawBo,
    tasks: Vec<RawTask>,
}

impl SplitMatmul {
    pub(crate) fn new(ty: OperandTypes, (m, k, n): (usize, usize, usize), cores: usize) -> Self {
        let model = Model::new(ModelOptions::default());
        let granule = ty.group as usize;
        let share = n.div_ceil(cores).next_multiple_of(granule);
        let jobs = (0..n)
            .step_by(share)
            .map(|first| {
                Share::new(
                    RocketFile::new(model.open()),
                    ty,
                    (m, k, n),
                    first..n.min(first + share),
                )
            })
            .collect();
        Self {
            jobs,
            _model: model,
        }
    }

    /// Submits all jobs, then waits for them.
    pub(crate) fn run(&mut self) {
        let since = Instant::now();
        for share in &self.jobs {
            let reads: Vec<_> = share.reads.iter().map(|bo| bo.handle).collect();
            let job = RawJob {
                tasks: &share.tasks,
                reads: &reads,
                writes: &[share.output.handle],
            };
            // SAFETY: the programs read and write within these BOs, which
            // live until the wait below and are not touched meanwhile.
            unsafe { share.file.submit(&[job]) }.unwrap();
        }
        for share in &self.jobs {
            share
                .file
                .prep_bo(share.output.handle, Deadline::FOREVER)
                .unwrap();
            let killed = share.file.was_killed(share.output.handle, since);
            assert_eq!(killed, Some(false));
        }
    }
}

impl Share {
    fn new(
        file: RocketFile,
        ty: OperandTypes,
        (m, k, n): (usize, usize, usize),
        columns: std::ops::Range<usize>,
    ) -> Self {
        let bo = |len: usize| file.create_bo(ByteLen::new(len).unwrap()).unwrap();
        let bytes = |elements: usize| ty.bytes(elements);
        let width = columns.len();
        let (a, b) = (bo(bytes(m * k)), bo(bytes(width * k)));
        let output = bo(m * width * ty.out_bytes());
        let at = (a.iova.0, b.iova.0, output.iova.0);
        let mut stream = Vec::new();
        let places = place(&mut stream, &tiles(ty, (m, k, n), columns, at));
        let commands = bo(stream.len().next_multiple_of(16));
        fill(&a, filler);
        fill(&b, |i| filler(i + bytes(m * k)));
        fill(&commands, |i| stream.get(i).copied().unwrap_or(0));
        let tasks = places
            .into_iter()
            .map(|(at, words)| RawTask {
                regcmd: rocket_uapi::Iova(commands.iova.0 + at),
                words,
            })
            .collect();
        Self {
            file,
            reads: vec![a, b, commands],
            output,
            tasks,
        }
    }
}

fn fill(bo: &RawBo, byte: impl Fn(usize) -> u8) {
    let base = bo.memory.as_ptr();
    for i in 0..bo.memory.len() {
        // SAFETY: `i` is within the mapping.
        let at = unsafe { base.add(i) };
        // SAFETY: the mapping is writable, and no job runs yet.
        unsafe { at.write(byte(i)) };
    }
}
