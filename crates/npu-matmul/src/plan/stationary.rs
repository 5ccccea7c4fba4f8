// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which operand stays in CBUF from task to task, so that it is fetched once.
//!
//! A tile of A always fits, so where a job has several tiles of N it can stay for
//! all of them. A tile of B rarely fits: banks that hold it are banks that rows of
//! A do not have, and fewer rows are more tasks. So that is compared by modelled
//! time.

use rknpu_regcmd::timing::Machine;
use rknpu_regcmd::{ChipProfile, MatmulType, ProgramOptions};

use super::predict::task_work;
use super::step::{Stationary, TaskPlan};
use super::weights::{N_TILE_MAX, max_rows_in};
use super::{Plan, PlanOptions, even_tile, to_u32};
use crate::dtype::ROW_MULTIPLE;
use crate::emit;
use crate::layout;

/// Some tasks of the same tile of B.
struct Sweep {
    ty: MatmulType,
    program: ProgramOptions,
    rows: usize,
    k: usize,
    n: usize,
    tasks: usize,
    /// Bytes of a tile of A.
    a_bytes: usize,
    /// Bytes of a tile of B.
    b_bytes: usize,
}

impl Sweep {
    fn task(&self, index: u32) -> TaskPlan {
        TaskPlan {
            activation: 0,
            n: 0..self.n,
            m_padded: to_u32(self.rows),
            k_padded: to_u32(self.k),
            n_padded: to_u32(self.n),
            a: to_u32(self.a_bytes).saturating_mul(index),
            b: 0,
            c: 0,
        }
    }

    /// Whether the second task finds B in CBUF.
    fn keeps_weights(&self) -> bool {
        emit::reuse(self.ty, &self.task(1), &self.task(0), &self.program).weights
    }

    /// Whether a task with other weights of the same size finds A in CBUF.
    fn keeps_activations(&self) -> bool {
        let first = self.task(0);
        let other = TaskPlan {
            b: to_u32(self.b_bytes),
            ..first.clone()
        };
        emit::reuse(self.ty, &other, &first, &self.program).features
    }

    /// Modelled time on one core, kicks included.
    fn time_ps(&self, machine: &Machine) -> u64 {
        let (first, second) = (self.task(0), self.task(1));
        let time = |task, before| {
            task_work(self.ty, task, before, &self.program).map_or(u64::MAX, |work| {
                work.duration_ps(machine)
                    .saturating_add(machine.driver.kick_ps)
            })
        };
        let rest = (self.tasks as u64).saturating_sub(1);
        time(&first, None).saturating_add(time(&second, Some(&first)).saturating_mul(rest))
    }
}

impl Plan {
    /// This plan, with what stays in CBUF chosen; with fewer rows a tile where
    /// that lets B stay and takes less modelled time.
    pub(super) fn keeping_operands(self, options: &PlanOptions) -> Self {
        let plan = self.ordered();
        if options.row_tile.is_some() || plan.row_tiles_per_job == 1 {
            return plan;
        }
        let machine = &options.profile.machine;
        match plan.with_resident_weights(options) {
            Some(other) if other.sweep_ps(machine) < plan.sweep_ps(machine) => other,
            _ => plan,
        }
    }

    /// With the order of tasks that fetches least.
    pub(super) fn ordered(mut self) -> Self {
        let (n_tile, n_tiles) = self.n_tiles_per_job();
        let sweep = self.sweep(n_tile);
        let saved = |keeps, tasks, bytes| if keeps { tasks * bytes } else { 0 };
        let a_tasks = self.row_tiles_per_job * (n_tiles - 1);
        let a_saved = saved(sweep.keeps_activations(), a_tasks, sweep.a_bytes);
        let b_tasks = n_tiles * (self.row_tiles_per_job - 1);
        let b_saved = saved(sweep.keeps_weights(), b_tasks, sweep.b_bytes);
        self.stationary = if b_saved > a_saved {
            Stationary::Weights
        } else {
            Stationary::Activations
        };
        self
    }

    /// With so few rows a tile that all of B's K tile stays; `None` where it
    /// does not fit, or jobs would not.
    fn with_resident_weights(&self, options: &PlanOptions) -> Option<Self> {
        let chip = ChipProfile::RK3588;
        let (n_tile, n_tiles) = self.n_tiles_per_job();
        if n_tiles > 1 || n_tile > N_TILE_MAX {
            return None;
        }
        let k_tile = self.weights.k_tile;
        let bytes = layout::weight_bytes(self.weights.dtype, n_tile, k_tile);
        // One bank to spare, and one at least for A.
        let banks = to_u32(bytes)
            .div_ceil(chip.cbuf_bank_bytes)
            .checked_add(1)?;
        let data_banks = chip
            .cbuf_banks
            .checked_sub(banks)
            .filter(|&left| left > 0)?;
        let rows = max_rows_in(self.weights.dtype, k_tile, data_banks);
        if rows == 0 || rows >= self.row_tile {
            return None;
        }
        let mut plan = Self {
            row_tile: even_tile(self.m, rows, ROW_MULTIPLE),
            ..self.clone()
        };
        plan.fill_jobs(&options.limits).ok()?;
        Some(plan.ordered())
    }

    /// Channels of a tile of a job, and how many such tiles it has.
    fn n_tiles_per_job(&self) -> (usize, usize) {
        let channels = self.groups_per_job * self.weights.dtype.kernel_group();
        (channels.min(self.n_tile), channels.div_ceil(self.n_tile))
    }

    fn sweep(&self, n: usize) -> Sweep {
        let (dtype, k) = (self.weights.dtype, self.weights.k_tile);
        Sweep {
            ty: self.ty,
            program: self.program,
            rows: self.row_tile,
            k,
            n,
            tasks: self.row_tile_count(),
            a_bytes: layout::activation_bytes(dtype, self.row_tile, k),
            b_bytes: layout::weight_bytes(dtype, n, k),
        }
    }

    /// Modelled time of one tile of B with all rows, on one core.
    fn sweep_ps(&self, machine: &Machine) -> u64 {
        self.sweep(self.n_tiles_per_job().0).time_ps(machine)
    }
}
