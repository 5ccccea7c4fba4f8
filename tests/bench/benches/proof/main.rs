// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs to know that a job ran: for the host, a look at the job's page
//! against taking its fence; on the device, in modelled time, the witness.
//!
//! `cargo bench -p npu-bench --bench proof`. The driver is the model's, in this
//! process: a kernel's calls take other times, and a board's caches too.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

#[path = "../speed/host.rs"]
mod host;

use std::hint::black_box;
use std::os::fd::AsFd;
use std::time::Duration;

use criterion::Criterion;
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::{Binding, BufferId, ChipProfile, MatmulTask, MatmulType};
use rocket_uapi::{
    Bo, BufferAccess, ByteLen, Deadline, Device, Job, JobBuilder, PAGE_BYTES, ProgramBo, RawJob,
    RawTask,
};

fn main() {
    println!("{}, the model's driver", host::conditions());
    let mut criterion = Criterion::default().configure_from_args();
    host_cost(&mut criterion);
    criterion.final_summary();
    for (what, m, k, n) in [("smallest", 4, 32, 16), ("large", 256, 384, 256)] {
        for programs in [1, 8, 63] {
            let [without, with] = [false, true].map(|shares| modelled(m, k, n, programs, shares));
            println!(
                "modelled, {programs} {what} tasks {m}x{k}x{n} fp16: {without:.1?}, with the \
                 witness {with:.1?}, ratio {:.3}",
                with.as_secs_f64() / without.as_secs_f64()
            );
        }
    }
}

/// A page that a job wrote, and what there is to ask of it.
fn host_cost(criterion: &mut Criterion) {
    let backend = Model::new(ModelOptions::default()).open();
    let page = || backend.create_bo(ByteLen::new(PAGE_BYTES).unwrap());
    let (program, page) = (page().unwrap(), page().unwrap());
    let job = RawJob {
        // Words that start nothing: the job is killed, and its page idle.
        tasks: &[RawTask {
            regcmd: program.iova,
            words: 8,
        }],
        reads: &[program.handle],
        writes: &[page.handle],
    };
    // SAFETY: no program runs, and nobody has a slice of either page.
    #[allow(unsafe_code)]
    unsafe { backend.submit(&[job]) }.unwrap();
    backend.prep_bo(page.handle, Deadline::FOREVER).unwrap();
    let files = backend.shared_files().unwrap();
    let mut group = criterion.benchmark_group("proof of a job");
    group.bench_function("fence: export, sync_file, two states, close", |b| {
        b.iter(|| {
            let dma_buf = backend.export_bo(page.handle).unwrap();
            let fence = files.export_sync_file(dma_buf.as_fd(), BufferAccess::Read);
            drop(dma_buf);
            let fence = fence.unwrap();
            let states = [(); 2].map(|()| files.info(fence.as_fd()).unwrap().status());
            black_box(states)
        });
    });
    group.bench_function("look: PREP_BO", |b| {
        b.iter(|| black_box(backend.prep_bo(page.handle, Deadline::NOW)));
    });
    group.finish();
}

/// Modelled time of a job of so many equal products. A job that shares a buffer
/// carries the witness from the start.
fn modelled(m: u32, k: u32, n: u32, programs: usize, shares: bool) -> Duration {
    let model = Model::new(ModelOptions {
        timeline: true,
        ..ModelOptions::default()
    });
    let device = model.open_device();
    let [a, b, c] = [0, 1, 2].map(BufferId);
    let task = MatmulTask {
        ty: MatmulType::Fp16ToFp32,
        m,
        k,
        n,
        a: a.at(0),
        b: b.at(0),
        c: c.at(0),
    };
    let alloc = |bytes: u64| device.alloc(ByteLen::new(bytes as usize).unwrap()).unwrap();
    let bos = [task.a_bytes(), task.b_bytes(), task.c_bytes()].map(alloc);
    let bind = |(id, bo): (BufferId, &Bo)| Binding {
        id,
        iova: bo.iova(),
        len: bo.len() as u32,
    };
    let bindings: Vec<_> = [a, b, c].into_iter().zip(&bos).map(bind).collect();
    let program = task.program(&ChipProfile::RK3588).unwrap();
    let linked = program.link(&bindings).unwrap();
    let program = ProgramBo::new(&device, &[linked]).unwrap();
    let [a, b, c] = bos;
    let builder = Job::builder(&device)
        .reads_owned(a)
        .reads_owned(b)
        .writes(c);
    let add = |builder: JobBuilder, _| builder.task(&program, 0);
    let builder = (0..programs).fold(builder, add);
    let builder = match shares {
        false => builder,
        true => builder.writes_shared(shared(&device)),
    };
    let pending = device.submit(vec![builder.build().unwrap()]).unwrap();
    for job in pending {
        job.wait(Deadline::FOREVER).unwrap();
    }
    let timeline = model.timeline().unwrap();
    let (record, time) = timeline.jobs().next().unwrap();
    assert_eq!(record.tasks.len(), programs + usize::from(shares));
    Duration::from_nanos((time.end_ps - time.start_ps) / 1000)
}

fn shared(device: &Device) -> rocket_uapi::DmaBuf {
    let page = device.alloc(ByteLen::new(PAGE_BYTES).unwrap()).unwrap();
    page.export().map_err(|(error, _)| error).unwrap()
}
