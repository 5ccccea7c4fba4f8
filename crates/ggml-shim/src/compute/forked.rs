// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes in a child that a program makes with fork (Python's `multiprocessing`).
//!
//! The threads of the parent do not exist in the child, and both have the same open device. So the
//! child leaves the device, the engine and everything packed for it alone: it neither uses nor
//! frees them. All operations are the CPU's. Its backend is made anew for each graph and computes
//! on a new thread, because OpenMP's threads belong to the thread that computed in the parent.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::compute::runtime::{NO_CPU_BACKEND, Runtime};
use crate::ggml::abi::{Graph, status};
use crate::ggml::log::LogLevel;
use crate::ggml::shared::GgmlPtr;
use crate::ggml::stream::Stream;

/// Computes a graph on the CPU; returns a value of [`status`].
///
/// # Safety
/// The graph is live, its nodes and their operands are allocated, and until this returns nobody
/// else accesses their data, except to read operands.
pub(crate) unsafe fn compute(runtime: &Runtime, stream: &Stream, graph: *mut Graph) -> c_int {
    report(runtime);
    let Some(graph) = GgmlPtr::new(graph) else {
        return status::FAILED;
    };
    let compute = || {
        let mut cpu = runtime.cpu.stream()?;
        stream.apply_to(&cpu);
        // SAFETY: the CPU computes what it supports: our device takes nothing else. The rest by the
        // caller's promise; the caller waits for this thread.
        Some(unsafe { cpu.compute_graph(graph.get()) })
    };
    let computed = thread::scope(|scope| {
        let thread = thread::Builder::new().name("rocket-forked".to_owned());
        let thread = thread.spawn_scoped(scope, compute);
        thread.map(|thread| thread.join().ok().flatten())
    });
    let (status, line) = match computed {
        Ok(Some(status)) => return status,
        Ok(None) => (status::ALLOC_FAILED, NO_CPU_BACKEND.to_owned()),
        Err(error) => (status::FAILED, format!("cannot start a thread: {error}")),
    };
    runtime.log(LogLevel::Error, &line);
    status
}

/// Logs once what this process is.
pub(crate) fn report(runtime: &Runtime) {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        let line = "this process was forked after its parent opened the NPU: the CPU computes \
                    everything here. To use the NPU, load the model after the fork, or start the \
                    process anew (Python: the start method `spawn`)";
        runtime.log(LogLevel::Warn, line);
    }
}
