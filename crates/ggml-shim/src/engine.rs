// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device, and the engine on it.

use std::path::Path;
use std::sync::Arc;

use half::f16;
use npu_matmul::plan::PlanOptions;
use npu_matmul::quantise::Quantisation;
use npu_matmul::{
    Activations, Engine, Error, Output, PackedWeights, Section, Stopwatch, Threads, Weights,
};
use npu_model::{Model, ModelOptions, Selector};
use npu_offload::PlanTarget;
use rocket_uapi::{Device, DevicePool};

use crate::describe;
use crate::host::LoadError;
use crate::mul_mat::{ActivationRows, MatrixMultiplier, MatrixProduct};
use crate::stats::DeviceCounts;

/// The opened device and the engine on it.
#[derive(Debug)]
pub(crate) struct OpenedEngine {
    /// Multiplies matrices on the device.
    pub(crate) engine: Engine,
    /// The machine that products are planned for.
    pub(crate) target: PlanTarget,
    /// The device's description in `--list-devices`.
    pub(crate) description: String,
    /// Its node; the model has a name of its own in place of one.
    pub(crate) node: String,
    /// Whether it is the software model.
    pub(crate) is_model: bool,
    /// The model behind it, if it is one.
    pub(crate) model: Option<Arc<Model>>,
    /// The device's NPU cores.
    pub(crate) cores: u32,
    /// What is wrong with the board's profile, if there is one.
    pub(crate) complaint: Option<String>,
}

/// The device that `selector` names, and the model behind it if it is one. `auto`
/// is the kernel's device and nothing else: a program that computes on its CPU
/// must not become slower because a library is there.
fn device(selector: &Selector, timeline: bool) -> Result<(Device, Option<Arc<Model>>), LoadError> {
    if *selector == Selector::Auto {
        let device = Device::discover().map_err(LoadError::NoNpu)?;
        return Ok((device, None));
    }
    let adjust = |options: &mut ModelOptions| options.timeline |= timeline;
    let opened = npu_model::open_with(selector, adjust);
    let opened =
        opened.map_err(|error| LoadError::Device(format!("device {selector}: {error}")))?;
    Ok((opened.device, opened.model))
}

/// Opens the device that `selector` names, with one descriptor per NPU core:
/// the driver schedules the jobs of one descriptor on one core. With `timeline`
/// a model records its jobs. `threads`, if there are any, do the engine's work.
/// Plans are by the board's profile, not by what the kernel says of the clock now: an
/// idle NPU is slow, and the same model is to get the same plans.
pub(crate) fn open(
    selector: &Selector,
    timeline: bool,
    threads: Option<Threads>,
) -> Result<OpenedEngine, LoadError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        LoadError::Device(format!("{what} {selector}: {error}"))
    };
    let (device, model) = device(selector, timeline)?;
    let info = device.info();
    let root = Path::new("/");
    let cores = usize::try_from(info.cores).unwrap_or(1).max(1);
    let pool = DevicePool::open(&device, cores).map_err(|error| failed("device", &error))?;
    let (options, refused) = PlanOptions::for_device(&info);
    let complaint = refused.map(|error| {
        let profile = &options.profile.name;
        format!("{error}; planning for {profile}")
    });
    let target = PlanTarget::new(cores, options);
    let engine = Engine::with_options(pool, target.options.clone());
    let engine = match threads {
        None => engine,
        Some(threads) => engine.and_then(|engine| engine.with_threads(threads)),
    };
    let engine = engine.map_err(|error| failed("engine on device", &error))?;
    Ok(OpenedEngine {
        engine,
        target,
        description: describe::description(&info, root),
        node: info.name,
        is_model: info.is_model,
        cores: info.cores,
        model,
        complaint,
    })
}

/// What the engine counted so far.
pub(crate) fn counts(engine: &Engine) -> DeviceCounts {
    let counters = engine.counters();
    DeviceCounts {
        submits: counters.submits,
        jobs: counters.jobs,
        tasks: counters.tasks,
        bytes_to_device: counters.bytes_to_device,
        bytes_from_device: counters.bytes_from_device,
        times: engine.times(),
    }
}

impl MatrixMultiplier for Engine {
    type Weights = PackedWeights;
    type Error = Error;

    fn stopwatch(&self, section: Section) -> Option<Stopwatch<'_>> {
        Some(Engine::stopwatch(self, section))
    }

    fn load_f16(&self, n: usize, k: usize, weights: &[f16]) -> Result<PackedWeights, Error> {
        self.load(Weights::f16(n, k, weights))
    }

    fn load_quantised(
        &self,
        n: usize,
        k: usize,
        to: Quantisation,
        fill: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<PackedWeights, Error> {
        self.load(Weights::quantised_rows(n, k, to, fill))
    }

    fn multiply(&self, parts: Vec<MatrixProduct<'_, PackedWeights>>) -> Result<(), Error> {
        let mut gemms = Vec::with_capacity(parts.len());
        for part in &parts {
            gemms.push(self.prepare(part.weights, part.rows, Output::F32)?);
        }
        self.run(gemms.iter().zip(parts).map(|(gemm, part)| {
            let a: Activations<'_> = match part.activations {
                ActivationRows::Halves(halves) => halves.into(),
                ActivationRows::Floats(floats) => floats.as_ref().into(),
            };
            gemm.call(a, part.out)
        }))
    }
}

#[cfg(test)]
mod tests {
    use npu_offload::ComputeType;

    use super::*;

    const EXPERTS: usize = 8;
    const ROWS: usize = 5;
    const N: usize = 64;
    const K: usize = 128;

    /// Some numbers between -1 and 1, others for each `seed`.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let number = |index: usize| f32::from(i16::try_from(index * 37 % 61).unwrap()) / 30.5 - 1.0;
        (0..count).map(|index| number(index + 7 * seed)).collect()
    }

    fn activations(precision: ComputeType, seed: usize) -> ActivationRows<'static> {
        let floats = numbers(ROWS * K, seed);
        match precision {
            ComputeType::Fp16 => {
                ActivationRows::Halves(floats.iter().map(|x| f16::from_f32(*x)).collect())
            }
            _ => ActivationRows::Floats(floats.into()),
        }
    }

    fn weights(engine: &Engine, precision: ComputeType, seed: usize) -> PackedWeights {
        let floats = numbers(N * K, 100 + seed);
        let loaded = match precision.quantisation() {
            None => {
                let halves: Vec<f16> = floats.iter().map(|x| f16::from_f32(*x)).collect();
                MatrixMultiplier::load_f16(engine, N, K, &halves)
            }
            Some(to) => MatrixMultiplier::load_quantised(engine, N, K, to, |row, out| {
                out.copy_from_slice(&floats[row * K..][..K]);
            }),
        };
        loaded.unwrap()
    }

    #[test]
    fn auto_is_never_the_software_model() {
        match open(&Selector::Auto, false, None) {
            Ok(opened) => assert!(!opened.is_model && opened.model.is_none()),
            Err(error) => {
                assert!(matches!(error, LoadError::NoNpu(_)), "{error}");
                let line = error.to_string();
                assert!(line.starts_with("no usable NPU: /dev/accel"), "{line}");
                assert!(line.contains("GGML_ROCKET_DEVICE=model"), "{line}");
                assert!(!line.contains('\n'), "{line}");
            }
        }
    }

    #[test]
    fn experts_share_submits_and_are_as_they_are_alone() {
        let opened = open(&Selector::Model, false, None).unwrap();
        let engine = &opened.engine;
        for precision in ComputeType::ALL {
            let weights: Vec<_> = (0..EXPERTS)
                .map(|seed| weights(engine, precision, seed))
                .collect();
            let activations: Vec<_> = (0..EXPERTS)
                .map(|seed| activations(precision, seed))
                .collect();
            let multiply = |all: std::ops::Range<usize>, out: &mut [Vec<f32>]| {
                let before = engine.counters();
                let parts = weights[all.clone()].iter().zip(&activations[all]).zip(out);
                let parts = parts.map(|((weights, activations), out)| MatrixProduct {
                    weights,
                    rows: ROWS,
                    activations,
                    out,
                });
                engine.multiply(parts.collect()).unwrap();
                let after = engine.counters();
                assert!(after.jobs > before.jobs);
                after.submits - before.submits
            };
            let mut alone = vec![vec![0.0; ROWS * N]; EXPERTS];
            for (expert, out) in alone.chunks_mut(1).enumerate() {
                multiply(expert..expert + 1, out);
            }
            let mut together = vec![vec![f32::NAN; ROWS * N]; EXPERTS];
            let submits = multiply(0..EXPERTS, &mut together);
            assert_eq!(together, alone, "{precision:?}");
            // One for each file descriptor.
            assert!(
                submits <= u64::from(opened.cores),
                "{precision:?}: {submits} submits"
            );
        }
    }
}
