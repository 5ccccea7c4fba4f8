// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of this library in a process, shared by all contexts and threads. It also stops panics
//! of functions that ggml calls.

use std::ffi::{CStr, CString, c_char};
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use npu_matmul::{Engine, SoftwareNpu};
use npu_offload::{ComputeType, OffloadRules};
use serde_json::json;

use crate::compute::fallback::Fallback;
use crate::compute::matmul::RowScratch;
use crate::decide::config::Config;
use crate::ggml::abi::{Device, Reg};
use crate::ggml::cpu::CpuBackend;
use crate::ggml::cpu_ops::CpuStream;
use crate::ggml::host::Host;
use crate::ggml::log::{LogLevel, NAME};
use crate::ggml::shared::{self, GgmlPtr};
use crate::ggml::stream::Stream;
use crate::report::observer::EngineObserver;
use crate::report::stats::Stats;
use crate::report::stats_file::StatsFile;
use crate::report::trace::Trace;
use crate::weights::budget::Budget;
use crate::weights::progress::Progress;
use crate::weights::verify::Verification;
use crate::weights::watched_buffers::{WatchedBuffers, WeightContext};

/// The state of this process's backend.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) host: Host,
    pub(crate) cpu: CpuBackend,
    /// The host's buffers from which weights were packed.
    pub(crate) weight_buffers: WatchedBuffers,
    pub(crate) budget: Arc<Budget>,
    pub(crate) progress: Mutex<Progress>,
    pub(crate) config: Config,
    pub(crate) rules: OffloadRules,
    pub(crate) name: &'static CStr,
    /// The device's description in `--list-devices`.
    pub(crate) description: CString,
    pub(crate) stats: Mutex<Stats>,
    /// The file that keeps the statistics, if the user wants one.
    pub(crate) stats_file: Option<StatsFile>,
    /// The software model behind the device, if it is one.
    pub(crate) model: Option<SoftwareNpu>,
    /// Observes the engine, if the user wants statistics or a trace.
    pub(crate) observer: Option<Arc<EngineObserver>>,
    pub(crate) verify: Verification,
    pub(crate) fallback: Fallback,
    pub(crate) row_scratch: RowScratch,
    /// `struct ggml_backend_reg` of this library.
    pub(crate) reg: GgmlPtr<Reg>,
    /// `struct ggml_backend_device` of our device.
    pub(crate) device: GgmlPtr<Device>,
    /// The process that made this. A child of fork has another number.
    pub(crate) process: u32,
    /// `None` once the process ends.
    pub(crate) engine: Mutex<Option<Arc<Engine>>>,
}

/// Why [`Runtime::on_cpu`] computed nothing.
pub(crate) const NO_CPU_BACKEND: &str =
    "cannot make a CPU backend: ggml has none, or memory is short";

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Returns the state of this process, if it serves the program. Only the first call runs `make`.
pub(crate) fn get_or_make(make: impl FnOnce() -> Option<Runtime>) -> Option<&'static Runtime> {
    RUNTIME.get_or_init(make).as_ref()
}

/// The state of this process; `None` before it is made.
pub(crate) fn get() -> Option<&'static Runtime> {
    RUNTIME.get()?.as_ref()
}

impl Runtime {
    pub(crate) fn log(&self, level: LogLevel, message: &str) {
        self.host.logger.write(level, message);
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        shared::lock(&self.stats)
    }

    /// The trace, if the user wants one.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.observer.as_ref()?.trace.as_ref()
    }

    /// Computes `nodes` nodes on the CPU backend of `stream`; `None` if it cannot be made
    /// ([`NO_CPU_BACKEND`]).
    pub(crate) fn on_cpu<T>(
        &self,
        stream: &Stream,
        nodes: usize,
        compute: impl FnOnce(&mut CpuStream) -> T,
    ) -> Option<T> {
        let began = Instant::now();
        let computed = stream.on_cpu(|| self.cpu.stream(), compute);
        if let Some(trace) = self.trace() {
            let span = (began, Instant::now());
            trace.slice("cpu", "CPU", span, json!({ "nodes": nodes }));
        }
        computed
    }

    pub(crate) fn weight_context(&self) -> WeightContext<'_> {
        WeightContext {
            host: &self.host,
            rules: &self.rules,
            budget: &self.budget,
            patterns: &self.config.tensors,
        }
    }

    /// Whether this process is a child, made by fork, of the one that opened the device; see
    /// [`crate::compute::forked`].
    pub(crate) fn is_forked(&self) -> bool {
        self.process != process::id()
    }

    /// The engine; `None` once the process ends.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        shared::lock(&self.engine).clone()
    }

    /// Whether the NPU may compute this precision: it has not computed it wrong so far.
    pub(crate) fn trusts(&self, precision: ComputeType) -> bool {
        let dtype = precision.format().dtype();
        self.engine().is_none_or(|engine| engine.is_usable(dtype))
    }
}

/// Runs `body` and stops a panic: unwinding must not reach C. Returns `None` after a panic.
///
/// A panic tears nothing that is used again: shared state is atomics, and locks whose contents are
/// replaced as a whole.
pub(crate) fn contain<T>(body: impl FnOnce() -> T) -> Option<T> {
    panic::catch_unwind(AssertUnwindSafe(body)).ok()
}

/// Runs the body of a function that ggml calls. A panic becomes a line in the
/// log and `fallback`.
pub(crate) fn guard<T>(
    entry: &'static str,
    fallback: T,
    body: impl FnOnce(&'static Runtime) -> T,
) -> T {
    let Some(runtime) = get() else {
        // ggml has none of our objects before `start::load` has succeeded.
        return fallback;
    };
    contain(|| body(runtime)).unwrap_or_else(|| {
        let line = format!("internal error in {entry}; please report it");
        contain(|| runtime.log(LogLevel::Error, &line));
        fallback
    })
}

/// The name of this process's device, for ggml.
pub(crate) fn own_name() -> *const c_char {
    guard("get_name", NAME.as_ptr(), |runtime| runtime.name.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_here() {
        assert_eq!(contain(|| 7), Some(7));
        assert_eq!(contain(|| -> i32 { panic!("a test of panics") }), None);
    }

    #[test]
    fn without_a_runtime_a_callback_returns_its_fallback() {
        assert_eq!(guard("a test", -1, |_| 0), -1);
    }
}
