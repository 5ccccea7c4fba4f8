// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates the [`Runtime`] when ggml loads this library, and ends it with the process.

use std::ffi::CString;
use std::io;
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex};

use npu_matmul::SoftwareNpu;
use npu_matmul::memory::MemoryShares;
use npu_offload::{AvailableMemory, OffloadRules};
use rocket_uapi::Selector;

use crate::compute::fallback::Fallback;
use crate::compute::matmul::RowScratch;
use crate::compute::runtime::{self, Runtime, contain};
use crate::compute::statistics;
use crate::decide::config::{Config, StatsOutput};
use crate::entry::{buffer, device, engine, reg};
use crate::ggml::cpu::CpuBackend;
use crate::ggml::host::Host;
use crate::ggml::load_error::LoadError;
use crate::ggml::log::{LogLevel, Logger};
use crate::ggml::shared;
use crate::ggml::symbols::SymbolScope;
use crate::ggml::written_bytes::WrittenBytes;
use crate::report::describe;
use crate::report::observer::EngineObserver;
use crate::report::stats_file::StatsFile;
use crate::report::trace::{self, Trace, TraceFile};
use crate::weights::budget::Budget;
use crate::weights::verify::Verification;
use crate::weights::watched_buffers::WatchedBuffers;

/// Sets everything up at the first call. Returns `None`, after one line in the log, if this library
/// cannot serve the program.
pub(crate) fn load() -> Option<&'static Runtime> {
    let mut fresh = false;
    let runtime = runtime::get_or_make(|| {
        fresh = true;
        contain(new).unwrap_or_else(|| {
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
    runtime
}

/// Creates the state of a process that this library serves. Returns `None`, after one line in the
/// log, if it cannot.
fn new() -> Option<Runtime> {
    let place = SymbolScope::find();
    let logger = Logger::new(place.as_ref());
    let (config, complaints) = Config::from_env();
    // Before any other check, which could log something.
    let Some(device) = config.device.clone() else {
        let line = "the NPU is not used: GGML_ROCKET_DEVICE or ROCKET_DEVICE is `none` or `off`";
        logger.write(LogLevel::Info, line);
        return None;
    };
    let runtime = place
        .ok_or(LoadError::NoGgml)
        .and_then(|place| match SymbolScope::copies() {
            0 | 1 => open(&place, config, complaints, &device),
            copies => Err(LoadError::SeveralGgml(copies)),
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
) -> Result<Runtime, LoadError> {
    let mut host = Host::new(place)?;
    host.evidence = config.serve.then(WrittenBytes::default);
    let cpu = CpuBackend::find(place, buffer::HOOKS)
        .ok_or_else(|| LoadError::Incomplete(host.version.clone()))?;
    let logger = host.logger;
    for complaint in complaints {
        logger.write(LogLevel::Warn, &complaint);
    }
    // Before the device, which must not record anything that nobody can read.
    let warn = |path: &Path, error: io::Error| {
        logger.write(LogLevel::Warn, &trace::complaint(path, &error));
    };
    let output = config.trace.as_ref().and_then(|path| {
        let output = TraceFile::open(path);
        output.map_err(|error| warn(path, error)).ok()
    });
    let limit = config.memory.unwrap_or_else(|| {
        let memory = AvailableMemory::below(Path::new("/"));
        memory.map_or(u64::MAX, |memory| memory.default_budget())
    });
    let shares = MemoryShares::of(limit);
    let (timeline, cpu_jobs) = (output.is_some(), config.cpu_jobs);
    let opened = engine::open(device, timeline, config.threads, cpu_jobs, shares)?;
    if let Some(complaint) = &opened.complaint {
        logger.write(LogLevel::Warn, complaint);
    }
    let info = opened.info;
    let description = describe::description(&info, Path::new("/"));
    let profile = Arc::clone(&opened.target.options().profile);
    let mut rules = OffloadRules::new(opened.target);
    rules.choice = config.precision;
    rules.min_rows = config.min_m;
    rules.attention = config.attention;
    let start = describe::start_line(&info, &description, &rules, limit);
    // A warning for the software model, because most programs show warnings without being asked.
    let level = if info.is_model {
        LogLevel::Warn
    } else {
        LogLevel::Info
    };
    logger.write(level, &format!("{start}; ggml {}", host.version));
    if host.has_backend(c"BLAS") {
        logger.write(
            LogLevel::Warn,
            "ggml's BLAS backend is loaded too; it comes first and takes the matmuls that \
             the NPU would compute. Remove it (Debian: libggml0-backend-blas)",
        );
    }
    if let Some(gpu) = host.gpu_device(place) {
        let line = format!(
            "ggml's device {gpu} is there too: llama.cpp gives it all layers, and the NPU computes \
             nothing, unless `-ngl 0` leaves the layers to the CPU and the NPU"
        );
        logger.write(LogLevel::Warn, &line);
    }
    let budget = Budget::new(opened.engine.memory_plan(), limit);
    let trace = output.and_then(|output| {
        let path = output.path.clone();
        let trace = Trace::begin(output, &description, info.is_model, logger);
        trace.map_err(|error| warn(&path, error)).ok()
    });
    let observed = config.stats != StatsOutput::Never || trace.is_some();
    let observer = observed.then(|| Arc::new(EngineObserver::new(info.cores, &profile, trace)));
    let engine = match &observer {
        Some(observer) => opened.engine.observed_by(Arc::clone(observer) as Arc<_>),
        None => opened.engine,
    };
    let reg = reg::new(host.layout.api_version());
    Ok(Runtime {
        reg,
        device: device::new(reg),
        name: describe::name_of(info.is_model),
        description: CString::new(description.replace('\0', " ")).unwrap_or_default(),
        stats: Mutex::default(),
        stats_file: match &config.stats {
            StatsOutput::File(path) => Some(StatsFile::new(path.clone())),
            StatsOutput::Never | StatsOutput::AtExit => None,
        },
        model: opened.model,
        observer,
        verify: Verification::new(config.verify),
        fallback: Fallback::new(config.fallback),
        row_scratch: RowScratch::new(&engine),
        process: process::id(),
        engine: Mutex::new(Some(Arc::new(engine))),
        host,
        cpu,
        weight_buffers: WatchedBuffers::default(),
        budget,
        progress: Mutex::default(),
        rules,
        config,
    })
}

/// Prints or writes the statistics and closes the device while the process still can: the driver requires
/// some time between the last job and the close of its descriptors, which a plain exit does not
/// observe.
extern "C" fn at_exit() {
    // The device is the parent's, whose counts these are.
    let Some(runtime) = runtime::get().filter(|runtime| !runtime.is_forked()) else {
        return;
    };
    contain(|| {
        runtime.fallback.finish();
        let engine = shared::lock(&runtime.engine).take();
        statistics::at_exit(runtime, engine.as_ref());
        if let Some(trace) = runtime.trace() {
            trace.finish(|| {
                let model = runtime.model.as_ref();
                model.map_or_else(Vec::new, SoftwareNpu::job_events)
            });
        }
        // Weights of models that nobody freed keep the device open until the process is gone.
        if let Some(engine) = &engine {
            engine.settle();
        }
        drop(engine);
    });
}
