// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tells the user what was counted: after graphs, and when the process ends.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use npu_matmul::Engine;

use crate::compute::runtime::Runtime;
use crate::decide::config::StatsOutput;
use crate::ggml::log::LogLevel;
use crate::report::stats::{DeviceStats, Stats};

/// Renews the file of statistics, if the user wants one.
pub(crate) fn after_graph(runtime: &'static Runtime) {
    let Some(file) = &runtime.stats_file else {
        return;
    };
    let table = || {
        let engine = runtime.engine();
        table(runtime, engine.as_ref(), &runtime.stats())
    };
    file.renew(table, |line| runtime.log(LogLevel::Warn, line));
}

/// Prints or writes the table of the whole process. `engine` had its device.
pub(crate) fn at_exit(runtime: &Runtime, engine: Option<&Arc<Engine>>) {
    if runtime.config.stats == StatsOutput::Never {
        return;
    }
    // A thread that still computes may hold the lock.
    let Ok(stats) = runtime.stats.try_lock() else {
        return;
    };
    let table = table(runtime, engine, &stats);
    drop(stats);
    match &runtime.stats_file {
        Some(file) => {
            if let Err(error) = file.finish(&table) {
                runtime.log(LogLevel::Warn, &file.complaint(&error));
            }
        }
        None => drop(std::io::stderr().write_all(table.as_bytes())),
    }
}

fn table(runtime: &Runtime, engine: Option<&Arc<Engine>>, stats: &Stats) -> String {
    let Some(observer) = &runtime.observer else {
        return String::new();
    };
    let counts = engine.map(|engine| (engine.counters(), engine.times()));
    let (counters, times) = counts.unwrap_or_default();
    let device = DeviceStats {
        counters,
        times,
        modelled_ps: (observer.modelled_ps.each_ref()).map(|sum| sum.load(Ordering::Relaxed)),
        clock_hz: observer.machines[0].clock_hz,
        is_measured: runtime.model.is_none(),
    };
    let description = runtime.description.to_string_lossy();
    stats.table(&description, &device, runtime.budget.most())
}
