// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the speed of matmuls, for `npu-probe bench`. This file has the report: measurements and
//! their conditions.

mod measure;

use std::borrow::Cow;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use npu_matmul::{Profile, Threads};
use rknpu_regcmd::timing::Machine;
use serde::{Deserialize, Serialize};

use crate::base::flags::planning::HERTZ_PER_MHZ;
use crate::base::table::MIB;
use crate::doctor::SystemRoot;
use crate::matmul::report::{DeviceReport, time_of};

pub(crate) use measure::{MeasuredMatmul, Measurement};

/// Conditions of the measurements, apart from the matmul.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct MeasuringConditions {
    pub(crate) version: Cow<'static, str>,
    /// Cargo's profile of this program; speed is measured with `dist`.
    pub(crate) build: Cow<'static, str>,
    pub(crate) device: DeviceReport,
    /// The device whose wall time the figures give: the NPU or the software
    /// model.
    pub(crate) time_of: Cow<'static, str>,
    /// Name of the board's profile, used for plans, bounds and modelled times.
    pub(crate) profile: String,
    /// The NPU clock of that profile.
    pub(crate) clock_mhz: u64,
    /// The whole profile behind modelled times and bounds.
    pub(crate) machine: Machine,
    pub(crate) fds: usize,
    /// CPU threads of the matmul engine, if the user set them.
    pub(crate) threads: Option<String>,
    /// Why an existing profile is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) profile_refused: Option<String>,
    /// Name and number of the host's processors.
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// The host's load average over the minute before the measurements.
    pub(crate) load_average: Option<f64>,
}

/// Cargo's profile of this program.
pub(crate) const BUILD: &str = env!("BUILD_PROFILE");
/// Cargo's profile of the packages.
const SPEED_BUILD: &str = "dist";

impl MeasuringConditions {
    pub(crate) fn read(
        device: DeviceReport,
        profile: &Profile,
        profile_refused: Option<String>,
        fds: usize,
        threads: Option<Threads>,
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").into(),
            build: BUILD.into(),
            time_of: time_of(device.is_model),
            device,
            profile: profile.name.to_string(),
            clock_mhz: profile.machine.clock_hz / HERTZ_PER_MHZ,
            machine: profile.machine,
            fds,
            threads: threads.map(|threads| threads.to_string()),
            profile_refused,
            cpu: cpu(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            load_average: load_average(),
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = self.device.text();
        let load = self
            .load_average
            .map_or_else(|| "unknown".to_owned(), |load| load.to_string());
        let _ = writeln!(text, "host       {} x {}, load {load}", self.cpus, self.cpu);
        let _ = writeln!(
            text,
            "profile    {}: {} MHz for bounds and modelled times; {} file descriptor(s)",
            self.profile, self.clock_mhz, self.fds
        );
        let threads = self.threads.as_deref().unwrap_or("one for each CPU");
        let _ = writeln!(text, "threads    {threads}");
        let _ = writeln!(text, "wall time  of {}", self.time_of);
        if BUILD != SPEED_BUILD {
            let _ = writeln!(
                text,
                "build      {BUILD}: speed is measured with `--profile {SPEED_BUILD}`"
            );
        }
        if let Some(reason) = &self.profile_refused {
            let _ = writeln!(text, "           {reason}");
        }
        text
    }
}

/// The name of the first processor, from the kernel.
fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = ["model name", "CPU part"].into_iter().find_map(|key| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        let (_, value) = line.split_once(':')?;
        Some(match key {
            "CPU part" => format!("Arm part {}", value.trim()),
            _ => value.trim().to_owned(),
        })
    });
    name.unwrap_or_else(|| "unknown".to_owned())
}

fn load_average() -> Option<f64> {
    let line = SystemRoot::new(Path::new("/"), false).line("proc/loadavg")?;
    line.split_whitespace().next()?.parse().ok()
}

/// All measurements of one run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct BenchReport {
    pub(crate) conditions: MeasuringConditions,
    pub(crate) measurements: Vec<Measurement>,
}

impl Measurement {
    pub(crate) fn text(&self) -> String {
        let Self { dtype, shape, .. } = self;
        let mut text = format!(
            "\n{dtype} {shape}: {} matmuls; {}\n",
            self.matmuls, self.plan
        );
        let rate = self.gops.map_or_else(
            || "no job ran".to_owned(),
            |gops| format!("{gops:.1} GOP/s"),
        );
        let _ = writeln!(
            text,
            "  wall     {:.3} ms ({:.3} to {:.3}), {rate}; CPU {:.3} ms",
            self.wall_ms.median, self.wall_ms.best, self.wall_ms.worst, self.cpu_ms
        );
        if let Some(share) = self.share_of_bound {
            let _ = writeln!(text, "  reached  {:.0} % of the bound", share * 100.0);
        }
        text + &format!(
            concat!(
                "  modelled {:.3} ms, {:.1} GOP/s, {:.0} % of the bound ({:.3} ms, {} alone)\n",
                "  each     {} SUBMITs, {} tasks, {:.2} MiB to the device, {:.2} MiB from it\n",
                "  caches   {:.2} MiB by PREP_BO and FINI_BO, {:.2} times the minimum\n",
                "  weights  {:.2} MiB, loaded in {:.3} ms\n",
                "  failures {}\n",
            ),
            self.modelled_npu_ms,
            self.modelled_gops,
            self.modelled_share_of_bound * 100.0,
            self.bound_ms,
            self.bound_by,
            self.submits,
            self.tasks,
            self.bytes_to_device / MIB,
            self.bytes_from_device / MIB,
            self.cache_bytes / MIB,
            self.cache_bytes / self.cache_bytes_needed.max(1) as f64,
            self.bytes_of_weights as f64 / MIB,
            self.load_ms,
            self.failed_jobs.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matmuls_that_did_not_run_have_no_rate() {
        let measured = |gops| Measurement {
            gops,
            ..Measurement::default()
        };
        let text = measured(None).text();
        assert!(text.contains("0.000), no job ran; CPU"), "{text}");
        let text = measured(Some(12.0)).text();
        assert!(text.contains("12.0 GOP/s; CPU") && !text.contains("no job ran"));
        assert!(serde_json::to_value(measured(None)).unwrap()["gops"].is_null());
    }
}
