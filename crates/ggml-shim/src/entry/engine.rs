// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the device, and the engine on it.

use npu_matmul::memory::MemoryShares;
use npu_matmul::plan::PlanOptions;
use npu_matmul::{Engine, OpenedNpu, SoftwareNpu, Threads, open_npu};
use npu_offload::PlanTarget;
use rocket_uapi::{Device, DeviceInfo, DevicePool, Selector};

use crate::ggml::load_error::LoadError;

/// The opened device and the engine on it.
#[derive(Debug)]
pub(crate) struct OpenedEngine {
    pub(crate) engine: Engine,
    pub(crate) target: PlanTarget,
    pub(crate) info: DeviceInfo,
    /// The software model behind it, if it is one.
    pub(crate) model: Option<SoftwareNpu>,
    /// What is wrong with the board's profile, if there is one.
    pub(crate) complaint: Option<String>,
}

/// Opens the device that `selector` names, with the model behind it if it is one. `auto` is only
/// the kernel's device: a program that computes on its CPU must not become slower because this
/// library is there.
fn device(selector: &Selector, timeline: bool) -> Result<OpenedNpu, LoadError> {
    if *selector == Selector::Auto {
        let device = Device::discover().map_err(LoadError::NoNpu)?;
        return Ok(OpenedNpu {
            device,
            software: None,
        });
    }
    open_npu(selector, timeline)
        .map_err(|error| LoadError::Device(format!("device {selector}: {error}")))
}

/// Opens the device that `selector` names, with one descriptor per NPU core that its profile
/// allows: the driver schedules the jobs of one descriptor on one core. With `timeline` a model
/// records its jobs. `threads`, if given, do the engine's work, within `shares` of the memory.
/// `cpu_jobs` is an option of the plans. Plans follow the board's profile and not the kernel's
/// current clock: an idle NPU is slow, and the same model must get the same plans.
pub(crate) fn open(
    selector: &Selector,
    timeline: bool,
    threads: Option<Threads>,
    cpu_jobs: Option<bool>,
    shares: MemoryShares,
) -> Result<OpenedEngine, LoadError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        LoadError::Device(format!("{what} {selector}: {error}"))
    };
    let OpenedNpu { device, software } = device(selector, timeline)?;
    let info = device.info();
    let (mut options, refused) = PlanOptions::for_device(&info);
    options.cpu_jobs = cpu_jobs;
    let files = options.files(&info);
    let pool = DevicePool::open(&device, files).map_err(|error| failed("device", &error))?;
    let complaint = refused.map(|error| {
        let profile = &options.profile.name;
        format!("{error}; using the profile \"{profile}\" instead")
    });
    let target = PlanTarget::new(files, options);
    let engine = Engine::with_memory(pool, target.options().clone(), shares);
    let engine = match threads {
        None => engine,
        Some(threads) => engine.and_then(|engine| engine.with_threads(threads)),
    };
    let engine = engine.map_err(|error| failed("cannot start the engine on device", &error))?;
    Ok(OpenedEngine {
        engine,
        target,
        info,
        model: software,
        complaint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_never_the_software_model() {
        let shares = MemoryShares::of(u64::MAX);
        match open(&Selector::Auto, false, None, None, shares) {
            Ok(opened) => assert!(!opened.info.is_model && opened.model.is_none()),
            Err(error) => {
                assert!(matches!(error, LoadError::NoNpu(_)), "{error}");
                let line = error.to_string();
                assert!(line.starts_with("no usable NPU: /dev/accel"), "{line}");
                assert!(line.contains("GGML_ROCKET_DEVICE=model"), "{line}");
                assert!(!line.contains('\n'), "{line}");
            }
        }
    }
}
