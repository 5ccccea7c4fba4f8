// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of this library in a process: made once, when ggml loads it, and
//! shared by all contexts and threads.

use std::ffi::{CStr, CString, c_char};
use std::io::Write as _;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use npu_matmul::Engine;
use npu_model::{Model, Selector};
use npu_offload::{ComputeType, OffloadRules};

use crate::abi::{Device, Reg};
use crate::budget::Budget;
use crate::config::Config;
use crate::cpu::CpuBackend;
use crate::describe::StartLine;
use crate::engine;
use crate::host::Host;
use crate::load::Progress;
use crate::load_error::LoadError;
use crate::log::{LogLevel, Logger};
use crate::mul_mat::RowScratch;
use crate::observer::EngineObserver;
use crate::shared::GgmlPtr;
use crate::stats::{DeviceCounts, ModelledTime, NpuTime, Stats};
use crate::symbols::SymbolScope;
use crate::tensor::TensorContext;
use crate::trace::{self, Trace, TraceFile};
use crate::types::FormatTable;
use crate::verify::Verification;
use crate::weight_buffers::WeightBuffers;
use crate::{device, names, reg};

/// The state of this process's backend.
#[derive(Debug)]
pub(crate) struct Runtime {
    /// The ggml that loaded us.
    pub(crate) host: Host,
    /// The host's number formats.
    pub(crate) types: FormatTable,
    /// The host's CPU backend.
    pub(crate) cpu: CpuBackend,
    /// The host's buffers of which weights were packed.
    pub(crate) weight_buffers: WeightBuffers,
    /// The memory that weights may take, and what they take of it.
    pub(crate) budget: Arc<Budget>,
    /// How far the packing of weights is, for users who wait.
    pub(crate) progress: Progress,
    /// The user's settings, from the environment.
    pub(crate) config: Config,
    /// What decides about each product.
    pub(crate) rules: OffloadRules,
    /// The device's name.
    pub(crate) name: &'static CStr,
    /// The device's description in `--list-devices`.
    pub(crate) description: CString,
    /// Counts for the table at exit.
    pub(crate) stats: Stats,
    /// The software that the device is, if it is.
    pub(crate) model: Option<Arc<Model>>,
    /// Looks on while the engine works, if the user wants to know.
    pub(crate) observer: Option<Arc<EngineObserver>>,
    /// Which products are computed again.
    pub(crate) verify: Verification,
    /// Memory for rows of later products.
    pub(crate) row_scratch: RowScratch,
    /// `struct ggml_backend_reg` of this library.
    pub(crate) reg: GgmlPtr<Reg>,
    /// `struct ggml_backend_device` of our device.
    pub(crate) device: GgmlPtr<Device>,
    /// `None` once the process ends.
    engine: Mutex<Option<Arc<Engine>>>,
}

static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// Sets everything up at the first call; `None`, after one line in the log, if
/// this library cannot serve the program.
pub(crate) fn load() -> Option<&'static Runtime> {
    let mut fresh = false;
    let runtime = RUNTIME.get_or_init(|| {
        fresh = true;
        contain(Runtime::new).unwrap_or_else(|| {
            Logger::new(SymbolScope::find().as_ref()).write(
                LogLevel::Error,
                "internal error while loading; please report it. The program goes on without the \
                 NPU.",
            );
            None
        })
    });
    if let Some(runtime) = runtime
        && fresh
    {
        contain(|| runtime.cpu.watch());
        // SAFETY: `at_exit` is an `extern "C" fn()`; should this library be
        // unloaded, the C library calls it before. If the table of handlers is
        // full it is just not called.
        unsafe { libc::atexit(at_exit) };
    }
    runtime.as_ref()
}

impl Runtime {
    fn new() -> Option<Self> {
        let place = SymbolScope::find();
        let logger = Logger::new(place.as_ref());
        let (config, complaints) = Config::from_env();
        // Before anything else is looked at, of which there could be something to say.
        let Some(device) = config.device.clone() else {
            let line = "the NPU is left alone, as GGML_ROCKET_DEVICE or ROCKET_DEVICE says";
            logger.write(LogLevel::Info, line);
            return None;
        };
        let runtime =
            place
                .ok_or(LoadError::NoGgml)
                .and_then(|place| match SymbolScope::copies() {
                    0 | 1 => Self::open(&place, config, complaints, &device),
                    copies => Err(LoadError::SeveralGgml { copies }),
                });
        match runtime {
            Ok(runtime) => Some(runtime),
            Err(error) => {
                logger.write(
                    LogLevel::Error,
                    &format!("{error}. The program goes on without the NPU."),
                );
                None
            }
        }
    }

    /// Serves the ggml of `place` with `device`. `complaints` about `config` are for the log.
    fn open(
        place: &SymbolScope,
        config: Config,
        complaints: Vec<String>,
        device: &Selector,
    ) -> Result<Self, LoadError> {
        let host = Host::new(place)?;
        let incomplete = || LoadError::Incomplete {
            version: host.version().to_owned(),
        };
        let types = FormatTable::find(place).ok_or_else(incomplete)?;
        let cpu = CpuBackend::find(place).ok_or_else(incomplete)?;
        let logger = host.logger();
        for complaint in complaints {
            logger.write(LogLevel::Warn, &complaint);
        }
        // Before the device, which is to record nothing that nobody can read.
        let output = config.trace.as_ref().and_then(|path| {
            let output = TraceFile::open(path);
            output
                .map_err(|error| logger.write(LogLevel::Warn, &trace::complaint(path, &error)))
                .ok()
        });
        let opened = engine::open(device, output.is_some(), config.threads)?;
        if let Some(complaint) = &opened.complaint {
            logger.write(LogLevel::Warn, complaint);
        }
        let name = names::name_of(opened.is_model);
        let megahertz = opened.target.megahertz();
        let machine = opened.target.options.profile.machine;
        let mut rules = OffloadRules::new(opened.target);
        rules.choice = config.precision;
        rules.min_rows = config.min_m;
        rules.attention = config.attention;
        let budget = || npu_offload::default_budget(Path::new("/")).unwrap_or(u64::MAX);
        let limit = config.memory.unwrap_or_else(budget);
        let start = StartLine {
            name: &name.to_string_lossy(),
            description: &opened.description,
            node: (!opened.is_model).then_some(&*opened.node),
            precision: config.precision.word(),
            limit,
            megahertz,
            is_calibrated: rules.is_calibrated,
        };
        // Software in place of an NPU is what most programs show without being
        // asked.
        let level = match opened.is_model {
            true => LogLevel::Warn,
            false => LogLevel::Info,
        };
        let ggml = host.version();
        logger.write(level, &format!("{start}; ggml {ggml}"));
        if host.has_backend(c"BLAS") {
            logger.write(
                LogLevel::Warn,
                "ggml's BLAS backend is loaded too; it comes first and takes the products that \
                 the NPU would compute. Remove it (Debian: libggml0-backend-blas)",
            );
        }
        let budget = Budget::new(opened.engine.memory_plan(limit), limit);
        let trace = output.and_then(|output| {
            let path = output.path().to_owned();
            let trace = Trace::begin(output, &opened.description, opened.is_model, logger);
            trace
                .map_err(|error| logger.write(LogLevel::Warn, &trace::complaint(&path, &error)))
                .ok()
        });
        let observed = config.stats || trace.is_some();
        let observer =
            observed.then(|| Arc::new(EngineObserver::new(opened.cores, machine, trace)));
        let engine = match &observer {
            Some(observer) => opened.engine.observed_by(Arc::clone(observer) as Arc<_>),
            None => opened.engine,
        };
        let reg = reg::new(host.layout().api_version());
        Ok(Self {
            reg: reg.into(),
            device: device::new(reg).into(),
            name,
            description: CString::new(opened.description.replace('\0', " ")).unwrap_or_default(),
            stats: Stats::default(),
            model: opened.model,
            observer,
            verify: Verification::new(config.verify),
            row_scratch: RowScratch::default(),
            engine: Mutex::new(Some(Arc::new(engine))),
            host,
            types,
            cpu,
            weight_buffers: WeightBuffers::default(),
            budget,
            progress: Progress::default(),
            rules,
            config,
        })
    }

    /// Writes one line to the program's log.
    pub(crate) fn log(&self, level: LogLevel, message: &str) {
        self.host.logger().write(level, message);
    }

    /// The trace, if the user wants one.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.observer.as_ref()?.trace()
    }

    /// What is needed to look at tensors.
    pub(crate) fn context(&self) -> TensorContext<'_> {
        TensorContext {
            host: &self.host,
            types: self.types,
        }
    }

    /// Says which weights may be on the NPU, if there is anything new about it.
    pub(crate) fn report_weights(&self) {
        if let Some(line) = self.budget.report(self.rules.is_calibrated) {
            self.log(LogLevel::Info, &line);
        }
    }

    /// The engine; `None` once the process ends.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        let engine = self.engine.lock();
        // The lock only guards a pointer, which a panic cannot tear.
        engine.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the NPU has not computed this precision wrong.
    pub(crate) fn trusts(&self, precision: ComputeType) -> bool {
        let dtype = precision.format().dtype();
        self.engine().is_none_or(|engine| engine.is_usable(dtype))
    }

    fn take_engine(&self) -> Option<Arc<Engine>> {
        let engine = self.engine.lock();
        engine.unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Prints the statistics and closes the device while the process still can:
/// the driver wants its descriptors closed some time after the last job, which
/// a plain exit would not heed.
extern "C" fn at_exit() {
    let Some(runtime) = RUNTIME.get().and_then(Option::as_ref) else {
        return;
    };
    contain(|| {
        let engine = runtime.take_engine();
        if runtime.config.stats {
            let counts = engine
                .as_deref()
                .map_or_else(DeviceCounts::default, engine::counts);
            let description = runtime.description.to_string_lossy();
            let npu = NpuTime {
                modelled: runtime.observer.as_ref().map(|observer| ModelledTime {
                    ps: observer.modelled_ps(),
                    clock_hz: observer.clock_hz(),
                }),
                is_measured: runtime.model.is_none(),
            };
            let weights = runtime.budget.most();
            let table = runtime.stats.table(&description, counts, weights, npu);
            let _ = std::io::stderr().write_all(table.as_bytes());
        }
        if let Some(trace) = runtime.trace() {
            trace.finish(|| {
                let timeline = runtime.model.as_ref().and_then(|model| model.timeline());
                let jobs = timeline.map(|timeline| timeline.to_chrome_job_events());
                jobs.unwrap_or_default()
            });
        }
        // Weights of models that nobody freed keep the device open until the
        // process is gone.
        if let Some(engine) = &engine {
            engine.settle();
        }
        drop(engine);
    });
}

/// Runs `body` and stops a panic: unwinding must not reach C. `None` if there
/// was one.
///
/// Nothing is torn by it that is used again: shared state is atomics, and
/// locks whose contents are replaced whole.
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
    let Some(runtime) = RUNTIME.get().and_then(Option::as_ref) else {
        // ggml has none of our objects before `load` has succeeded.
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
    guard("get_name", names::NAME.as_ptr(), |runtime| {
        runtime.name.as_ptr()
    })
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
    fn without_a_host_there_is_no_runtime() {
        assert!(load().is_none());
        assert_eq!(guard("a test", -1, |_| 0), -1);
    }
}
