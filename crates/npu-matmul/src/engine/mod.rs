// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: NPU devices, and the plans and buffers kept for them.

pub(crate) mod activations;
mod cpu_pace;
pub(crate) mod packed;
pub(crate) mod weights;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use npu_kernels::nibble::first_outside;
use rocket_uapi::DevicePool;

use crate::device::buffers::Buffers;
use crate::device::counters::Counters;
use crate::device::memory::{MemoryPlan, MemoryShares};
use crate::device::times::{Section, SectionTimes, Stopwatch, Times};
use crate::engine::cpu_pace::CpuPace;
use crate::matrix::MatrixView;
use crate::numbers::cache::{KeptLimits, LruMap};
use crate::numbers::dtype::Dtype;
use crate::numbers::scratch::{Scratch, ScratchLimit};
use crate::numbers::sync::lock;
use crate::plan::attention::AttentionState;
use crate::plan::error::Error;
use crate::plan::first_run::{FirstRuns, MatmulKind};
use crate::plan::kept_plan::{KeptPlan, PlanKey, WeightPlanKey, next_id};
use crate::plan::observe::{Activity, Done, Observer};
use crate::plan::threads::{Threads, Workers};
use crate::plan::weight_format::WeightFormat;
use crate::plan::{PlanError, PlanOptions, WeightPlan};

/// Weight plans to keep: several times the number of different matrix sizes in a model, whose
/// layers share a few sizes.
const WEIGHT_PLANS_KEPT: usize = 64;

/// Matmul plans to keep. A model's matrices have few shapes, but experts get any number of rows.
const MATMULS_KEPT: usize = 512;

/// Multiplies matrices on a pool of NPU devices.
///
/// C = A x B^T. A is M x K, B is N x K (the weights, one row for each output channel) and C is M x
/// N; all are row major. M, N and K may be any number from 1. Several threads may use one engine at
/// the same time. While it waits for the NPU, the CPU computes INT8 jobs itself
/// ([`PlanOptions::cpu_jobs`]).
///
/// # Memory of a call
///
/// The engine keeps device buffers, programs and memory for quantised rows for the next call. A
/// matmul of a shape that ran before allocates none of these and starts no thread. Until its jobs
/// have ended, a call holds their descriptions on the heap, and in some cases more:
///
/// | matmul | bytes of heap |
/// |---|---|
/// | rows are rotated | 4 K in each thread |
/// | FP16 results, K split into tiles | 4 M x N: sums stay FP32 until the last K tile |
pub struct Engine {
    /// Its weights have this number: an engine rejects those of another one.
    pub(crate) id: u64,
    pub(crate) devices: Vec<Buffers>,
    pub(crate) options: PlanOptions,
    plans: LruMap<WeightPlanKey, Arc<WeightPlan>>,
    /// The latest matmul plans, for any weights.
    pub(crate) matmuls: LruMap<PlanKey, Arc<KeptPlan>>,
    pub(crate) first_runs: FirstRuns,
    pub(crate) observer: Arc<dyn Observer>,
    counters: Mutex<Counters>,
    /// Bytes of PREP_BO and FINI_BO when the engine was made.
    cache_traffic_before: [u64; 2],
    pub(crate) clock: SectionTimes,
    pub(crate) cpu_pace: CpuPace,
    pub(crate) workers: Workers,
    /// Memory for quantised rows, and for their scales.
    pub(crate) integers: Scratch<i8>,
    pub(crate) scales: Scratch<f32>,
    pub(crate) attention: AttentionState,
    scratch: Arc<ScratchLimit>,
    shares: MemoryShares,
}

impl Engine {
    /// Opens an engine on all devices of the pool, with the board's
    /// [`Profile`](crate::profile::Profile). Weights are split over the devices by output channel.
    /// If the board's profile cannot be used, a warning is logged.
    ///
    /// # Errors
    /// See [`Engine::with_options`].
    pub fn open(pool: DevicePool) -> Result<Self, Error> {
        let device = pool.devices().first().ok_or(PlanError::NoDevice)?;
        let (options, refused) = PlanOptions::for_device(&device.info());
        if let Some(error) = refused {
            tracing::warn!(%error, "the board profile is not usable; using built-in values");
        }
        Self::with_options(pool, options)
    }

    /// Opens an engine with options that override choices of its plans. They do not change results.
    ///
    /// # Errors
    /// [`PlanError::NoDevice`] if the pool is empty; [`Error::Device`] if a device has no memory
    /// for its guard page. Illegal sizes are reported when weights are loaded or multiplied.
    pub fn with_options(pool: DevicePool, options: PlanOptions) -> Result<Self, Error> {
        Self::with_memory(pool, options, MemoryShares::of(u64::MAX))
    }

    /// Like [`Engine::with_options`], with these shares of the machine's memory: what the engine
    /// keeps from call to call stays within them. The weights' share is the caller's to keep, with
    /// [`Engine::memory_plan`].
    ///
    /// # Errors
    /// See [`Engine::with_options`].
    pub fn with_memory(
        pool: DevicePool,
        mut options: PlanOptions,
        shares: MemoryShares,
    ) -> Result<Self, Error> {
        let choices = &options.profile.choices;
        let files = pool.devices().iter().enumerate();
        let count = files.len();
        let devices: Vec<_> = files
            .map(|(index, file)| {
                Buffers::new(file.clone(), count, choices, shares).map_err(Error::on_device(index))
            })
            .collect::<Result<_, _>>()?;
        // All are open files of the same device.
        let first = devices.first().ok_or(PlanError::NoDevice)?;
        let info = first.device.info();
        let profile = &options.profile;
        let allowed = profile.allows_unmeasured_tiles(&info);
        let is_checked = !allowed && !profile.is_calibrated();
        let is_checked = options.check_first.unwrap_or(is_checked);
        options.unmeasured_tiles.get_or_insert(allowed);
        options.cpu_jobs.get_or_insert(!info.is_model);
        let first_runs = FirstRuns::new(is_checked, Arc::new(options.clone()));
        // Matmuls and attention have half of the plans' share each.
        let plans = shares.plans() / 2;
        let matmuls = KeptLimits {
            count: MATMULS_KEPT,
            bytes: plans,
        };
        let scratch = ScratchLimit::new(shares.scratch());
        Ok(Self {
            id: next_id(),
            cache_traffic_before: cache_traffic(&devices),
            devices,
            options,
            plans: LruMap::new(WEIGHT_PLANS_KEPT),
            matmuls: LruMap::with_limits(matmuls, |plan| plan.bytes),
            first_runs,
            observer: Arc::new(()),
            counters: Mutex::default(),
            clock: SectionTimes::default(),
            cpu_pace: CpuPace::default(),
            workers: Workers::default(),
            integers: Scratch::within(&scratch),
            scales: Scratch::within(&scratch),
            attention: AttentionState::new(plans, &scratch),
            scratch,
            shares,
        })
    }

    /// Runs the CPU's share in separate threads from now on, also for weights that are loaded
    /// later. Without this, it runs in the caller's rayon pool: the installed one, or the global
    /// one.
    ///
    /// These threads also wait for jobs. If several threads call the engine at once, one call may
    /// wait for the jobs of another; to compute matmuls together, pass them to one [`Engine::run`].
    ///
    /// # Errors
    /// [`Error::Threads`] if the threads cannot be started; see
    /// [`ThreadsError`](crate::ThreadsError).
    pub fn with_threads(mut self, threads: Threads) -> Result<Self, Error> {
        self.workers = threads.start()?;
        Ok(self)
    }

    /// Waits until the driver has finished the last job; see [`rocket_uapi::Device::settle`].
    /// Dropping the engine and its weights also waits. Call this before a process exits without
    /// dropping them.
    pub fn settle(&self) {
        for buffers in &self.devices {
            buffers.device.settle();
        }
    }

    /// Reports what the engine does to `observer` from now on.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Returns the totals so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let [prep_bytes, fini_bytes] = cache_traffic(&self.devices);
        Counters {
            prep_bytes: prep_bytes.saturating_sub(self.cache_traffic_before[0]),
            fini_bytes: fini_bytes.saturating_sub(self.cache_traffic_before[1]),
            ..*self.totals()
        }
    }

    /// Returns the measured times so far.
    #[must_use]
    pub fn times(&self) -> Times {
        self.clock.snapshot()
    }

    /// Counts the time of this thread as the engine's until the stopwatch is dropped. For work of
    /// the caller on operands before a call, or on results after it.
    pub fn stopwatch(&self, section: Section) -> Stopwatch<'_> {
        self.clock.stopwatch(section)
    }

    /// Whether matmuls of this precision still run, at least those whose weights stay in CBUF. A
    /// wrong result may have disabled them; see [`Error::WrongResult`].
    #[must_use]
    pub fn is_usable(&self, dtype: Dtype) -> bool {
        let resident = MatmulKind::resident(dtype);
        !self.first_runs.found().refused.contains(&resident)
    }

    /// The options, without choices that gave wrong results.
    pub(crate) fn current_options(&self) -> Arc<PlanOptions> {
        Arc::clone(&self.first_runs.found().options)
    }

    /// An empty [`MemoryPlan`] for these devices and the engine's shares of their memory.
    #[must_use]
    pub fn memory_plan(&self) -> MemoryPlan {
        MemoryPlan::new(self.devices.len(), self.shares, &self.options)
    }

    /// A pool of vectors for work of the caller before and after calls, within the engine's share.
    #[must_use]
    pub fn scratch<T: Clone + Default>(&self) -> Scratch<T> {
        Scratch::within(&self.scratch)
    }

    pub(crate) fn plan_weights(
        &self,
        format: WeightFormat,
        n: usize,
        k: usize,
        options: &PlanOptions,
    ) -> Result<Arc<WeightPlan>, Error> {
        let max = format.deepest();
        if k > max {
            return Err(Error::TooDeep { k, max });
        }
        let question = WeightPlanKey {
            dtype: format.dtype(),
            n,
            k,
            devices: self.devices.len(),
            options: options.clone(),
        };
        let make = |question: &WeightPlanKey| question.plan().map(Arc::new);
        Ok(self.plans.get_or_make(question, make, drop)?)
    }

    /// The totals, without those that the devices count.
    pub(crate) fn totals(&self) -> MutexGuard<'_, Counters> {
        lock(&self.counters)
    }

    /// Reports work that began at `started` and has just ended to the observer. `token` is the
    /// observer's.
    pub(crate) fn done(
        &self,
        token: u64,
        device: Option<usize>,
        activity: Activity,
        started: Instant,
    ) {
        self.observer.done(&Done {
            token,
            device,
            activity,
            started,
            ended: Instant::now(),
        });
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("devices", &self.devices.len())
            .field("options", &self.options)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// Bytes that PREP_BO and FINI_BO processed.
fn cache_traffic(devices: &[Buffers]) -> [u64; 2] {
    devices.iter().fold([0; 2], |[prep, fini], buffers| {
        let traffic = buffers.device.cache_traffic();
        [prep + traffic.prep_bytes, fini + traffic.fini_bytes]
    })
}

/// A matrix view of an operand, if the operand has the right length.
pub(crate) fn matrix<'a, T>(
    operand: &'static str,
    data: &'a [T],
    rows: usize,
    columns: usize,
) -> Result<MatrixView<'a, T>, Error> {
    MatrixView::new(data, rows, columns).ok_or(Error::OperandLength {
        operand,
        rows,
        columns,
        actual: data.len(),
    })
}

/// Checks that each value fits in four bits.
pub(crate) fn check_int4(operand: &'static str, values: &[i8]) -> Result<(), Error> {
    match first_outside(values, -8, 7) {
        None => Ok(()),
        Some(index) => Err(Error::Int4Range {
            operand,
            index,
            value: values[index],
        }),
    }
}
