// SPDX-License-Identifier: MIT OR Apache-2.0
//! One plan of a matmul, and its prediction.

use npu_matmul::{Dtype, Plan, PlanOptions};
use rknpu_regcmd::timing::seconds;
use rknpu_regcmd::{ChipProfile, DmaEngine, MatmulError};
use serde::Serialize;

use crate::table::mib;

/// A plan and its predicted time.
#[derive(Debug, Serialize)]
pub(super) struct PlanReport {
    plan: String,
    k_tiles: usize,
    /// Depth, rows and channels of the largest tile.
    tile: [usize; 3],
    /// Banks of CBUF for features and for weights.
    banks: Option<[u32; 2]>,
    tasks: u64,
    jobs: u64,
    bytes_features: u64,
    bytes_weights: u64,
    bytes_outputs: u64,
    bytes_commands: u64,
    bytes_packed: u64,
    bytes_read: u64,
    partial_sums: u64,
    /// The whole call: packing, the NPU and unpacking, overlapped.
    modelled_call_ms: f64,
    modelled_npu_ms: f64,
    modelled_pack_ms: f64,
    modelled_unpack_ms: f64,
    /// DRAM time for the bytes of CPU and NPU together.
    modelled_dram_ms: f64,
    /// The hidden share of the shorter time, CPU or NPU.
    overlapped: f64,
    /// The bottleneck of the call: CPU, NPU, or the shared memory.
    waits_for: String,
    call_over_bound: f64,
    bound_ms: f64,
    bound_by: String,
    over_bound: f64,
    modelled_gops: f64,
    /// Parts of the predicted time of the busiest file descriptor.
    modelled_macs_ms: f64,
    modelled_memory_ms: f64,
    modelled_edges_ms: f64,
    modelled_driver_ms: f64,
}

impl PlanReport {
    /// Predicts the time of a plan for a matmul of `m` rows.
    pub(super) fn new(plan: &Plan, m: usize, options: &PlanOptions) -> Self {
        let weights = &plan.weights;
        let prediction = plan.predict(&options.profile.machine);
        let (parts, bytes) = (&prediction.parts, &prediction.work.bytes);
        let call = plan.call(options);
        let bound_ps = prediction.bound_ps();
        let ms = |ps: u64| seconds(ps) * 1e3;
        let operations = 2.0 * m as f64 * weights.k as f64 * weights.n as f64;
        let tile = [weights.k_tile, plan.row_tile, plan.n_tile];
        Self {
            plan: plan.to_string(),
            k_tiles: weights.k_tile_count(),
            tile,
            banks: banks(weights.dtype, tile).ok(),
            tasks: prediction.tasks,
            jobs: prediction.jobs,
            bytes_features: bytes.of(DmaEngine::Feature),
            bytes_weights: bytes.of(DmaEngine::Weight),
            bytes_outputs: bytes.of(DmaEngine::DpuWrite),
            bytes_commands: prediction.work.command_bytes,
            bytes_packed: prediction.packed_bytes,
            bytes_read: prediction.read_bytes,
            partial_sums: prediction.partial_sums,
            modelled_call_ms: ms(call.call_ps),
            modelled_npu_ms: ms(prediction.npu_ps),
            modelled_pack_ms: ms(call.pack_ps),
            modelled_unpack_ms: ms(call.unpack_ps),
            modelled_dram_ms: ms(call.memory_ps),
            overlapped: call.overlapped(),
            waits_for: call.waits_for().to_string(),
            call_over_bound: seconds(call.call_ps) / seconds(bound_ps.max(1)),
            bound_ms: ms(bound_ps),
            bound_by: prediction.bound_by().to_string(),
            over_bound: prediction.over_bound(),
            modelled_gops: operations / seconds(prediction.npu_ps.max(1)) / 1e9,
            modelled_macs_ms: ms(parts.computing_ps),
            modelled_memory_ms: ms(parts.memory_ps),
            modelled_edges_ms: ms(parts.edges_ps),
            modelled_driver_ms: ms(prediction.driver_ps),
        }
    }

    pub(super) fn text(&self) -> String {
        let [depth, rows, channels] = self.tile;
        let banks = self.banks.map(|[data, weights]| {
            format!("  CBUF     {data} banks of features, {weights} of weights\n")
        });
        let npu = format!(
            concat!(
                "  bound    {:.3} ms: {} alone on the NPU\n",
                "  call     {:.3} ms, {:.2} times the bound: waits for the {}; {:.0} % of the shorter ",
                "of CPU and NPU time is hidden\n",
                "  NPU      {:.3} ms, {:.2} times the bound; {:.0} GOP/s\n",
                "  of that  {:.3} ms MACs, {:.3} ms memory beyond them, {:.3} ms first and last bytes ",
                "of tasks, {:.3} ms driver\n",
            ),
            self.bound_ms,
            self.bound_by,
            self.modelled_call_ms,
            self.call_over_bound,
            self.waits_for,
            100.0 * self.overlapped,
            self.modelled_npu_ms,
            self.over_bound,
            self.modelled_gops,
            self.modelled_macs_ms,
            self.modelled_memory_ms,
            self.modelled_edges_ms,
            self.modelled_driver_ms
        );
        let bytes = format!(
            concat!(
                "  CPU      packs {:.1} MiB in {:.3} ms; reads {:.1} MiB in {:.3} ms, adds {} of the ",
                "elements\n",
                "  traffic  A {:.1}, B {:.1}, C {:.1}, programs {:.2} MiB; {:.3} ms of memory time, ",
                "the CPU's included; {} tasks in {} jobs\n",
            ),
            mib(self.bytes_packed),
            self.modelled_pack_ms,
            mib(self.bytes_read),
            self.modelled_unpack_ms,
            self.partial_sums,
            mib(self.bytes_features),
            mib(self.bytes_weights),
            mib(self.bytes_outputs),
            mib(self.bytes_commands),
            self.modelled_dram_ms,
            self.tasks,
            self.jobs
        );
        format!(
            "\ntiling   {} K tile(s): tiles of {rows} rows, K {depth}, up to {channels} channels\n\
             {}{npu}{bytes}",
            self.k_tiles,
            banks.unwrap_or_default()
        )
    }
}

/// CBUF banks that a tile gives to features and to weights.
fn banks(dtype: Dtype, [k, m, n]: [usize; 3]) -> Result<[u32; 2], MatmulError> {
    let size = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let nowhere = rknpu_regcmd::BufferId(0).at(0);
    let split = rknpu_regcmd::MatmulTask {
        ty: dtype.matmul_type(),
        m: size(m),
        k: size(k),
        n: size(n),
        a: nowhere,
        b: nowhere,
        c: nowhere,
    }
    .check(&ChipProfile::RK3588)?;
    Ok([split.data_banks, split.weight_banks])
}
