// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the first task of each kind on the CPU, on boards that were not calibrated.
//!
//! The check takes the bytes that the NPU read and computes some rows of the tile again. If they
//! differ, the call fails and the engine disables the most likely cause: first reuse of CBUF
//! contents, then form A of the programs, then the [kind](MatmulKind) of matmul.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use half::f16;
use rayon::prelude::*;
use rknpu_regcmd::{ChipProfile, Reuse, ReuseRule};

use crate::numbers::dtype::{CHANNEL_GROUP, Dtype};
use crate::numbers::layout::{Position, activation, output, tile_task, weight};
use crate::numbers::reference::tolerance;
use crate::numbers::sync::lock;
use crate::plan::emit;
use crate::plan::{JobPlan, PlanOptions, TaskPlan};

/// The kind of a task: tasks of one kind run the same program except for addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskKind {
    /// Precision of the operands.
    pub dtype: Dtype,
    /// Rows of the tile with data; the others are padding.
    pub rows: usize,
    /// All rows of the tile.
    pub m: u32,
    /// Depth (K) of the tile.
    pub k: u32,
    /// Output channels of the tile.
    pub n: u32,
    /// Operands that are not fetched because the previous task left them in CBUF.
    pub reuse: Reuse,
    /// Whether the features may get one CBUF bank more than they fill.
    pub spare_data_bank: bool,
}

impl TaskKind {
    fn of(job: &JobPlan, task: &TaskPlan, before: Option<&TaskPlan>) -> Self {
        Self {
            dtype: job.dtype,
            rows: job.band.rows.len(),
            m: task.m_padded,
            k: task.k_padded,
            n: task.n_padded,
            reuse: emit::reuse(job, task, before),
            spare_data_bank: job.program.spare_data_bank,
        }
    }

    /// The kind of matmul that such a task computes.
    #[must_use]
    pub fn matmul(&self) -> MatmulKind {
        let [m, k, n] = [self.m, self.k, self.n].map(|size| size as usize);
        MatmulKind::of(self.dtype, [m, k, n])
    }
}

/// What the engine stops using after a wrong result without another cause: matmuls of this precision,
/// with or without weights that stream through CBUF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulKind {
    /// Precision of the operands.
    pub dtype: Dtype,
    /// Whether CBUF cannot hold all weights of a tile, so that they stream through it.
    pub streams: bool,
}

impl MatmulKind {
    /// The kind of a tile of the size `[m, k, n]`.
    fn of(dtype: Dtype, [m, k, n]: [usize; 3]) -> Self {
        let streams = !tile_task(dtype, m, k, n).fits_cbuf(false, &ChipProfile::RK3588);
        Self { dtype, streams }
    }

    /// Matmuls of this precision whose weights stay in CBUF: if the NPU cannot compute these, it
    /// cannot compute any of the precision.
    #[must_use]
    pub const fn resident(dtype: Dtype) -> Self {
        Self {
            dtype,
            streams: false,
        }
    }
}

impl fmt::Display for MatmulKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} matmuls", self.dtype)?;
        f.write_str(if self.streams {
            " whose weights stream through CBUF"
        } else {
            ""
        })
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { m, k, n, .. } = self;
        write!(f, "{} of M = {m}, K = {k}, N = {n}", self.dtype)?;
        f.write_str(match (self.reuse.features, self.reuse.weights) {
            (false, false) => "",
            (true, false) => ", which reuses features",
            (false, true) => ", which reuses weights",
            (true, true) => ", which reuses features and weights",
        })
    }
}

/// The engine's response to a wrong result, for the rest of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// Tasks of this precision fetch both operands.
    NoReuse(Dtype),
    /// Matmuls of this kind return [`Error::Distrusted`](crate::Error).
    Refuse(MatmulKind),
}

impl Remedy {
    /// Whether the failed call may give a right result if it runs again.
    #[must_use]
    pub const fn may_run_again(self) -> bool {
        !matches!(self, Self::Refuse(_))
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReuse(dtype) => {
                write!(
                    f,
                    "{dtype} tasks fetch both operands from now on; run the call again"
                )
            }
            Self::Refuse(kind) => write!(
                f,
                "{kind} are refused until the program restarts, so the CPU must compute them, which \
                 is slower"
            ),
        }
    }
}

/// The first task of its kind has a result that differs from the CPU's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "the first task of its kind ({kind}) computed {got} instead of {expected} in row {row}, \
     column {column} of its tile: {remedy}; run `npu-probe first` to find the cause and write a \
     profile that avoids it"
)]
pub struct WrongResult {
    /// Kind of the task.
    pub kind: TaskKind,
    /// Row in the tile.
    pub row: usize,
    /// Column in the tile.
    pub column: usize,
    /// The NPU's result.
    pub got: f64,
    /// The CPU's result from the same bytes.
    pub expected: f64,
    /// The engine's response.
    pub remedy: Remedy,
}

/// Checks first tasks, and keeps what they showed.
#[derive(Debug)]
pub(crate) struct FirstRuns {
    /// Whether first tasks are checked.
    is_enabled: bool,
    found: Mutex<TaskFindings>,
}

/// Kinds of tasks that were right, and choices that were wrong.
#[derive(Debug)]
pub(crate) struct TaskFindings {
    /// The engine's options, without the choices that were wrong.
    pub(crate) options: Arc<PlanOptions>,
    right: HashSet<TaskKind>,
    /// Disabled kinds of matmuls.
    pub(crate) refused: Vec<MatmulKind>,
}

/// The buffers of a job that the NPU has read and written.
#[derive(Clone, Copy)]
pub(crate) struct TaskOperands<'a> {
    pub(crate) a: &'a [u8],
    pub(crate) b: &'a [u8],
    pub(crate) c: &'a [u8],
}

impl FirstRuns {
    /// Starts with no checked kinds and with `options`.
    pub(crate) fn new(is_enabled: bool, options: Arc<PlanOptions>) -> Self {
        Self {
            is_enabled,
            found: Mutex::new(TaskFindings {
                options,
                right: HashSet::new(),
                refused: Vec::new(),
            }),
        }
    }

    pub(crate) fn found(&self) -> MutexGuard<'_, TaskFindings> {
        lock(&self.found)
    }

    /// One task of each kind in the job that must still be checked.
    pub(crate) fn unchecked<'j>(&self, job: &'j JobPlan) -> Vec<(TaskKind, &'j TaskPlan)> {
        if !self.is_enabled {
            return Vec::new();
        }
        let mut seen = HashSet::new();
        let mut tasks: Vec<_> = emit::with_previous(job)
            .map(|(task, before)| (TaskKind::of(job, task, before), task))
            .filter(|(kind, _)| seen.insert(*kind))
            .collect();
        let found = self.found();
        tasks.retain(|(kind, _)| !found.right.contains(kind));
        tasks
    }

    /// A kind of matmul that the job needs and that is disabled, if there is one.
    pub(crate) fn refused_in(&self, job: &JobPlan) -> Option<MatmulKind> {
        let found = self.found();
        if found.refused.is_empty() {
            return None;
        }
        let sizes = |task: &TaskPlan| {
            [task.m_padded, task.k_padded, task.n_padded].map(|size| size as usize)
        };
        let mut kinds = job
            .tasks
            .iter()
            .map(|task| MatmulKind::of(job.dtype, sizes(task)));
        kinds.find(|kind| found.refused.contains(kind))
    }

    /// Compares tasks with the CPU's results. Kinds that are right are not checked again, unless
    /// their operands show nothing: all zeros, or not finite.
    ///
    /// # Errors
    /// The first wrong result; the likely cause is then disabled.
    pub(crate) fn check(
        &self,
        tasks: &[(TaskKind, &TaskPlan)],
        memory: TaskOperands<'_>,
    ) -> Result<(), WrongResult> {
        for (kind, task) in tasks {
            let wrong = match compare_tile(kind, task, memory) {
                TileResult::Right => {
                    self.found().right.insert(*kind);
                    continue;
                }
                TileResult::ShowsNothing => continue,
                TileResult::Wrong(wrong) => *wrong,
            };
            if self.found().apply(wrong.remedy) {
                tracing::error!(%wrong, "the NPU computed a wrong result");
            }
            return Err(wrong);
        }
        Ok(())
    }
}

/// Chooses the most likely cause: the one with the least evidence that it works.
fn remedy(kind: &TaskKind) -> Remedy {
    if kind.reuse.features || kind.reuse.weights {
        Remedy::NoReuse(kind.dtype)
    } else {
        Remedy::Refuse(kind.matmul())
    }
}

impl TaskFindings {
    /// Whether this changes anything: jobs that were in flight may be wrong, too.
    fn apply(&mut self, remedy: Remedy) -> bool {
        let mut choices = self.options.profile.choices.clone();
        match remedy {
            Remedy::NoReuse(dtype) => choices.reuse.of_mut(dtype).value = ReuseRule::Never,
            Remedy::Refuse(kind) => {
                let is_new = !self.refused.contains(&kind);
                if is_new {
                    self.refused.push(kind);
                }
                return is_new;
            }
        }
        let is_new = choices != self.options.profile.choices;
        if is_new {
            let options = Arc::make_mut(&mut self.options);
            Arc::make_mut(&mut options.profile).choices = choices;
        }
        is_new
    }
}

/// What the results of a tile show.
enum TileResult {
    Right,
    /// Right, but so would be a buffer of zeros, or anything.
    ShowsNothing,
    Wrong(Box<WrongResult>),
}

/// Looks for a wrong element in the first, middle and last two rows, in all columns.
fn compare_tile(kind: &TaskKind, task: &TaskPlan, memory: TaskOperands<'_>) -> TileResult {
    let dtype = kind.dtype;
    let (m, k, n) = (kind.m as usize, kind.k as usize, kind.n as usize);
    let a = &memory.a[task.a as usize..];
    let b = &memory.b[task.b as usize..];
    let c = &memory.c[task.c as usize..];

    let last = kind.rows.saturating_sub(1);
    let mut rows = vec![0, kind.rows / 2, last.saturating_sub(1), last];
    rows.sort_unstable();
    rows.dedup();
    let operand = |row| (0..k).map(move |k| operand(dtype, a, activation(dtype, m, row, k)));
    let rows: Vec<(usize, Vec<f64>)> = (rows.into_iter())
        .map(|row| (row, operand(row).collect()))
        .collect();
    let shows = AtomicBool::new(false);
    let wrong = (0..n).into_par_iter().find_map_first(|column| {
        let kernel = kernel(dtype, b, k, column);
        rows.iter().find_map(|(row, features)| {
            let products = features.iter().zip(&kernel).map(|(a, b)| a * b);
            // Integers are exact in f64: 2^14 * 2^14 is far below 2^53.
            let (sum, magnitudes) = products.fold((0.0, 0.0), |(v, s), p| (v + p, s + p.abs()));
            if sum != 0.0 && magnitudes.is_finite() {
                shows.store(true, Ordering::Relaxed);
            }
            let at = output(dtype, m, *row, column);
            let (got, is_right) = compare(dtype, &c[at..], sum, magnitudes);
            (!is_right).then(|| WrongResult {
                kind: *kind,
                row: *row,
                column,
                got,
                expected: sum,
                remedy: remedy(kind),
            })
        })
    });
    match wrong {
        Some(wrong) => TileResult::Wrong(Box::new(wrong)),
        None if shows.into_inner() => TileResult::Right,
        None => TileResult::ShowsNothing,
    }
}

/// All channels of a kernel, in order; the channels of a group are adjacent.
fn kernel(dtype: Dtype, b: &[u8], k: usize, n: usize) -> Vec<f64> {
    let bits = dtype.input_bits();
    let groups = (0..k).step_by(CHANNEL_GROUP);
    let group = |first| {
        let start = weight(dtype, k, n, first);
        (0..CHANNEL_GROUP).map(move |at| {
            let bit = start.bit as usize + at * bits;
            let position = Position {
                byte: start.byte + bit / 8,
                bit: (bit % 8) as u32,
            };
            operand(dtype, b, position)
        })
    };
    groups.flat_map(group).collect()
}

fn operand(dtype: Dtype, memory: &[u8], at: Position) -> f64 {
    let byte = memory[at.byte];
    match dtype {
        Dtype::Int8 => f64::from(byte as i8),
        // Shifts the nibble up, and back with its sign.
        Dtype::Int4 => f64::from(((byte >> at.bit) << 4) as i8 >> 4),
        Dtype::Fp16 => f16::from_le_bytes([byte, memory[at.byte + 1]]).to_f64(),
    }
}

/// Returns the result in memory and whether it is right: equal for integers, within [`tolerance`]
/// for floats. Operands that are not finite have no bound.
fn compare(dtype: Dtype, memory: &[u8], value: f64, magnitudes: f64) -> (f64, bool) {
    let word = || [memory[0], memory[1], memory[2], memory[3]];
    let exact = |got: f64| (got, got == value);
    match dtype {
        Dtype::Int8 => exact(i32::from_le_bytes(word()).into()),
        Dtype::Int4 => exact(i16::from_le_bytes([memory[0], memory[1]]).into()),
        Dtype::Fp16 => {
            let got = f64::from(f32::from_le_bytes(word()));
            let is_near = (got - value).abs() <= tolerance(value, magnitudes, 1);
            (got, is_near || !magnitudes.is_finite())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use test_support::assert_each_field_counts;

    use super::*;

    proptest! {
        #![proptest_config(test_support::cases(64))]

        #[test]
        fn kinds_differ_in_each_field(
            sizes in [[1..3_u32, 1..3, 1..3, 1..3], [1..3, 1..3, 1..3, 1..3]],
            flags in prop::array::uniform2(prop::array::uniform4(any::<bool>())),
        ) {
            let [one, other] = [0, 1].map(|at| {
                let [rows, m, k, n] = sizes[at];
                let [features, weights, is_float, spare_data_bank] = flags[at];
                TaskKind {
                    dtype: if is_float { Dtype::Fp16 } else { Dtype::Int8 },
                    rows: rows as usize,
                    m,
                    k,
                    n,
                    reuse: Reuse { features, weights },
                    spare_data_bank,
                }
            });
            assert_each_field_counts!(
                TaskKind { dtype, rows, m, k, n, reuse, spare_data_bank },
                one,
                other
            );
            let [one, other] = [one, other].map(|kind| MatmulKind {
                dtype: kind.dtype,
                streams: kind.spare_data_bank,
            });
            assert_each_field_counts!(MatmulKind { dtype, streams }, one, other);
        }
    }
}
