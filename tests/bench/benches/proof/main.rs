// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the cost of proving that a job ran: on the host, a look at the job's page
//! or its fence; on the device, in modelled time, the witness.
//!
//! `cargo bench -p npu-bench --bench proof`. The driver is the model's, in this
//! process; a kernel's calls and a board's caches take other times.

#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Duration;

use criterion::Criterion;
use families::flying::Flying;
use npu_bench::host;
use npu_model::{Model, ModelOptions};
use rknpu_regcmd::timing::{Machine, ScheduledJob, TaskWork, schedule};
use rknpu_regcmd::{Binding, BufferId, ChipProfile, MatmulForm, MatmulTask, TaskType, Word, tasks};
use rocket_uapi::{
    Bo, ByteLen, Deadline, Job, JobBuilder, PAGE_BYTES, ProgramBo, RawJob, prep_bo, sys,
    write_fence,
};

fn main() {
    println!("{}, the model's driver", host::conditions());
    let mut criterion = Criterion::default().configure_from_args();
    host_cost(&mut criterion);
    criterion.final_summary();
    for (what, work) in witnesses() {
        println!("modelled, {what} as witness: {:.1?}", added(work));
    }
    for (what, m, k, n) in [("smallest", 4, 32, 16), ("large", 256, 384, 256)] {
        for programs in [1, 8, 63] {
            let [without, with] = modelled(m, k, n, programs);
            println!(
                "modelled, {programs} {what} tasks {m}x{k}x{n} fp16: {without:.1?}, with the \
                 witness {with:.1?}, ratio {:.3}",
                with.as_secs_f64() / without.as_secs_f64()
            );
        }
    }
}

/// The smallest tasks that could end a job.
fn witnesses() -> [(&'static str, TaskWork); 3] {
    let a = smallest().program_in(MatmulForm::A, &ChipProfile::RK3588);
    let a = a.unwrap();
    let b = rocket_uapi::witness_program(TaskType::Fp16ToFp32).unwrap();
    let flying = Flying::fp16(1, 0x1082_02c0, (0, 0x100, 0x200)).program();
    [
        ("an FP16 matmul in form A", work(a.words())),
        ("an FP16 matmul in form B, which is in use", work(b.words())),
        ("a flying FP16 addition", work(&flying)),
    ]
}

fn work(words: &[Word]) -> TaskWork {
    let task = tasks(words).next().unwrap();
    let work = TaskWork::of(&task.regs, task.enable).unwrap();
    work.fetching(words.len() as u64)
}

/// Modelled time that a task adds to a job.
fn added(work: TaskWork) -> Duration {
    let own = self::work(smallest().program(&ChipProfile::RK3588).unwrap().words());
    let [without, with] = [vec![own], vec![own, work]].map(scheduled);
    with - without
}

/// Modelled time of a job.
fn scheduled(tasks: Vec<TaskWork>) -> Duration {
    let job = ScheduledJob {
        tasks,
        ..ScheduledJob::default()
    };
    let timeline = schedule(&[job], &Machine::RK3588).unwrap();
    Duration::from_nanos(timeline.end_ps / 1000)
}

fn smallest() -> MatmulTask {
    matmul(4, 32, 16)
}

fn matmul(m: u32, k: u32, n: u32) -> MatmulTask {
    let [a, b, c] = [0, 1, 2].map(|id| BufferId(id).at(0));
    MatmulTask {
        ty: TaskType::Fp16ToFp32,
        m,
        k,
        n,
        a,
        b,
        c,
    }
}

/// Measures both checks of a page that a job wrote.
fn host_cost(criterion: &mut Criterion) {
    let device = Model::new(ModelOptions::default()).open_device();
    let page = || device.alloc(ByteLen::new(PAGE_BYTES).unwrap());
    let (program, page) = (page().unwrap(), page().unwrap());
    let job = RawJob {
        // Words that start nothing: the driver kills the job, and the page becomes
        // idle.
        tasks: &[sys::Task {
            regcmd: program.iova().0,
            regcmd_count: 8,
        }],
        reads: &[program.handle()],
        writes: &[page.handle()],
    };
    // SAFETY: no program runs, and nobody has a slice of either page.
    #[allow(unsafe_code)]
    unsafe { device.submit_raw(&[job]) }.unwrap();
    // SAFETY: the file waits for the page and takes its fence; nobody has a slice of it.
    #[allow(unsafe_code)]
    let (file, page) = (unsafe { device.raw_file() }, page.handle().into());
    prep_bo(file, page, Deadline::FOREVER).unwrap();
    let mut group = criterion.benchmark_group("proof of a job");
    group.bench_function("fence: export, sync_file, two states, close", |b| {
        b.iter(|| {
            let fence = write_fence(file, page).unwrap();
            black_box([(); 2].map(|()| fence.status().unwrap()))
        });
    });
    group.bench_function("look: PREP_BO", |b| {
        b.iter(|| black_box(prep_bo(file, page, Deadline::NOW)));
    });
    group.finish();
}

/// Modelled time of a job of `programs` equal matmuls, without and with its witness,
/// from the model's record.
fn modelled(m: u32, k: u32, n: u32, programs: usize) -> [Duration; 2] {
    let model = Model::new(ModelOptions {
        timeline: true,
        ..ModelOptions::default()
    });
    let device = model.open_device();
    let task = matmul(m, k, n);
    let alloc = |bytes: u64| device.alloc(ByteLen::new(bytes as usize).unwrap()).unwrap();
    let bos = [task.a_bytes(), task.b_bytes(), task.c_bytes()].map(alloc);
    let bind = |(id, bo): (u32, &Bo)| Binding {
        id: BufferId(id),
        iova: bo.iova(),
        len: bo.len() as u32,
    };
    let bindings: Vec<_> = (0..).zip(&bos).map(bind).collect();
    let program = task.program(&ChipProfile::RK3588).unwrap();
    let linked = program.link(&bindings).unwrap();
    let program = ProgramBo::new(&device, &[linked]).unwrap();
    let [a, b, c] = bos;
    let builder = Job::builder(&device)
        .reads_owned(a)
        .reads_owned(b)
        .writes(c);
    let add = |builder: JobBuilder, _| builder.task(&program, 0);
    let job = (0..programs).fold(builder, add).build().unwrap();
    for job in device.submit(vec![job]).unwrap() {
        job.wait(Deadline::FOREVER).unwrap();
    }
    let timeline = model.timeline().unwrap();
    let (record, _) = timeline.jobs().next().unwrap();
    assert_eq!(record.tasks.len(), programs + 1);
    [&record.tasks[..programs], &record.tasks[..]].map(|tasks| scheduled(tasks.to_vec()))
}
