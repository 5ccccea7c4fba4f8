// SPDX-License-Identifier: MIT OR Apache-2.0
//! The whole device: each core has a file, a queue and a share of the columns.

use std::sync::Arc;
use std::time::Instant;

use npu_model::{Model, ModelOptions};
use rocket_uapi::{Bo, ByteLen, Deadline, Device, RawJob, prep_bo, sys};

use crate::chip::{filler, place, tiles};
use families::matmul::OperandTypes;

/// A matmul, split by columns into one job per core.
pub(crate) struct SplitMatmul {
    jobs: Vec<Share>,
    _model: Arc<Model>,
}

/// One file's part.
struct Share {
    device: Device,
    reads: Vec<Bo>,
    output: Bo,
    tasks: Vec<sys::Task>,
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
                    model.open_device(),
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
            let reads: Vec<_> = share.reads.iter().map(Bo::handle).collect();
            let job = RawJob {
                tasks: &share.tasks,
                reads: &reads,
                writes: &[share.output.handle()],
            };
            // SAFETY: the programs read and write within these BOs, which
            // live until the wait below and are not touched meanwhile.
            unsafe { share.device.submit_raw(&[job]) }.unwrap();
        }
        for share in &self.jobs {
            // SAFETY: the file only waits.
            let file = unsafe { share.device.raw_file() };
            let output = share.output.handle().into();
            prep_bo(file, output, Deadline::FOREVER).unwrap();
            let killed = file.was_killed(output, since);
            assert_eq!(killed, Some(false));
        }
    }
}

impl Share {
    fn new(
        device: Device,
        ty: OperandTypes,
        (m, k, n): (usize, usize, usize),
        columns: std::ops::Range<usize>,
    ) -> Self {
        let bo = |len: usize| device.alloc(ByteLen::new(len).unwrap()).unwrap();
        let bytes = |elements: usize| ty.bytes(elements);
        let width = columns.len();
        let (mut a, mut b) = (bo(bytes(m * k)), bo(bytes(width * k)));
        let output = bo(m * width * ty.out_bytes());
        let at = (a.iova().0, b.iova().0, output.iova().0);
        let mut stream = Vec::new();
        let places = place(&mut stream, &tiles(ty, (m, k, n), columns, at));
        let mut commands = bo(stream.len().next_multiple_of(16));
        fill(&mut a, filler);
        fill(&mut b, |i| filler(i + bytes(m * k)));
        fill(&mut commands, |i| stream.get(i).copied().unwrap_or(0));
        let tasks = places
            .into_iter()
            .map(|(at, words)| sys::Task {
                regcmd: commands.iova().0 + at,
                regcmd_count: words,
            })
            .collect();
        Self {
            device,
            reads: vec![a, b, commands],
            output,
            tasks,
        }
    }
}

fn fill(bo: &mut Bo, byte: impl Fn(usize) -> u8) {
    let mut bytes = bo.write(Deadline::FOREVER).unwrap();
    for (i, to) in bytes.iter_mut().enumerate() {
        *to = byte(i);
    }
}
