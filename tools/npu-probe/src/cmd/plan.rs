// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe bench --plan`: the tiling and predicted time of a matmul.

use std::num::NonZeroUsize;

use npu_matmul::plan::{INT4_K_TILE_MAX, WeightPlan};
use npu_matmul::profile::CostSide;
use npu_matmul::{Dtype, Plan, PlanError, PlanOptions};
use rknpu_regcmd::timing::seconds;
use rknpu_regcmd::{BufferId, ChipProfile, DmaEngine, MatmulTask};
use rocket_uapi::DeviceInfo;
use serde_json::{Value, json};

use crate::base::exit::{Failure, Verdict};
use crate::base::flags::planning::HERTZ_PER_MHZ;
use crate::base::flags::{BenchFlags, OperandDtypes};
use crate::base::output;
use crate::base::shape::MatmulShape;
use crate::base::table::mib;

/// Default number of file descriptors of a plan: one per core.
const DEFAULT_FDS: usize = 3;

/// Prints the plans of all shapes and precisions; runs nothing.
pub(super) fn run(args: &BenchFlags) -> Result<Verdict, Failure> {
    for shape in &args.shapes {
        shape.check_plannable()?;
    }
    let info = super::open(&args.device)?.device.info();
    let mut plans = Vec::new();
    for &shape in &args.shapes {
        for &dtype in args.dtypes() {
            let planned = plan(args, &info, shape, dtype);
            let (report, text) = planned.map_err(|error| Failure::Usage(error.into()))?;
            args.report.say(&text)?;
            plans.push(report);
        }
    }
    if args.report.json {
        output::print_json(&json!({ "plans": plans }))?;
    }
    Ok(Verdict::Pass)
}

/// One plan and its prediction, as JSON and as text.
fn plan(
    args: &BenchFlags,
    info: &DeviceInfo,
    shape: MatmulShape,
    operands: OperandDtypes,
) -> Result<(Value, String), PlanError> {
    let MatmulShape { m, k, n } = shape;
    let dtype = operands.dtype();
    let (options, refused) = args.machine.as_npu().options(info);
    let cores = options.profile.choices.cores.value;
    let fds = (args.fds).map_or(DEFAULT_FDS.min(cores), NonZeroUsize::get);
    let options = PlanOptions {
        batch_rows: m,
        ..options
    };
    let weights = WeightPlan::new(dtype, n, k, fds, &options)?;
    let plan = Plan::new(&weights, m, &options)?;
    let profile = &options.profile;
    let clock_mhz = profile.machine.clock_hz / HERTZ_PER_MHZ;
    let cpu_cores = profile.host.cores;
    let (chosen, times) = prediction(&plan, m, &options);
    let report = json!({
        "m": m,
        "k": k,
        "n": n,
        "dtype": operands,
        "profile": profile.name,
        "unmeasured_tiles": options.unmeasured_tiles,
        "clock_mhz": clock_mhz,
        // Why an existing profile is not used.
        "profile_refused": refused,
        "fds": fds,
        "cpu_cores": cpu_cores,
        "weights_bytes": weights.device_bytes(),
        "chosen": chosen,
    });
    let int4 = match operands {
        OperandDtypes::Int4 => format!(
            "K tiles of {INT4_K_TILE_MAX} at most, safe for any int4 weights; loaded weights may \
             allow deeper ones\n"
        ),
        _ => String::new(),
    };
    let refused = refused.map(|reason| reason + "\n").unwrap_or_default();
    let tiles = match options.unmeasured_tiles {
        Some(true) => "all legal tiles",
        _ => "tiles as a board uses them; --unmeasured plans with all legal ones",
    };
    let text = format!(
        "{operands} {shape} at {clock_mhz} MHz, {fds} file descriptor(s); {cpu_cores} CPU cores \
         pack and unpack; all times are modelled\n{int4}profile: {}; {tiles}\n{refused}{times}\n\
         weights  {:.2} MiB\n",
        profile.name,
        mib(weights.device_bytes()),
    );
    Ok((report, text))
}

/// The predicted time of a plan for `m` rows.
fn prediction(plan: &Plan, m: usize, options: &PlanOptions) -> (Value, String) {
    let weights = &plan.weights;
    let prediction = plan.predict(&options.profile.machine);
    let (parts, bytes) = (&prediction.parts, &prediction.work.bytes);
    let call = plan.call(options);
    let ms = |ps: u64| seconds(ps) * 1e3;
    let [likely_ms, shortest_ms] =
        [CostSide::Likely, CostSide::Upper].map(|side| ms(plan.call(&options.on(side)).call_ps));
    let bound_ps = prediction.bound_ps();
    let call_over_bound = seconds(call.call_ps) / seconds(bound_ps.max(1));
    let operations = 2.0 * m as f64 * weights.k as f64 * weights.n as f64;
    let gops = operations / seconds(prediction.npu_ps.max(1)) / 1e9;
    let tile @ [depth, rows, channels] = [weights.k_tile, plan.row_tile, plan.n_tile];
    let banks = banks(weights.dtype, tile);
    let waits_for = call.waits_for();
    let moved = [DmaEngine::Feature, DmaEngine::Weight, DmaEngine::DpuWrite];
    let [a, b, c] = moved.map(|engine| bytes.of(engine));
    let report = json!({
        "plan": plan.to_string(),
        "k_tiles": weights.k_tile_count(),
        "tile": tile,
        "banks": banks,
        "tasks": prediction.tasks,
        "jobs": prediction.jobs,
        "bytes_features": a,
        "bytes_weights": b,
        "bytes_outputs": c,
        "bytes_commands": prediction.work.command_bytes,
        "bytes_packed": prediction.packed_bytes,
        "bytes_read": prediction.read_bytes,
        "partial_sums": prediction.partial_sums,
        // The whole call: packing, the NPU and unpacking, overlapped. Likely and shortest times take
        // both sides of the costs that sources disagree on; all others take those of planning.
        "likely_call_ms": likely_ms,
        "shortest_call_ms": shortest_ms,
        "modelled_call_ms": ms(call.call_ps),
        "modelled_npu_ms": ms(prediction.npu_ps),
        "modelled_pack_ms": ms(call.pack_ps),
        "modelled_unpack_ms": ms(call.unpack_ps),
        // Jobs that the CPU computes in place of the NPU. All other values of the NPU are those of
        // all jobs.
        "modelled_computed_ms": ms(call.computed_ps),
        "modelled_dram_ms": ms(call.memory_ps),
        "overlapped": call.overlapped(),
        "waits_for": waits_for.to_string(),
        "call_over_bound": call_over_bound,
        "bound_ms": ms(bound_ps),
        "bound_by": prediction.bound_by().to_string(),
        "over_bound": prediction.over_bound(),
        "modelled_gops": gops,
        "modelled_macs_ms": ms(parts.computing_ps),
        "modelled_memory_ms": ms(parts.memory_ps),
        "modelled_edges_ms": ms(parts.edges_ps),
        "modelled_driver_ms": ms(prediction.driver_ps),
    });
    let banks = banks.map(|[data, weights]| {
        format!("  CBUF     {data} banks of features, {weights} of weights\n")
    });
    let computed = match call.computed_ps {
        0 => String::new(),
        ps => format!("; computes jobs that wait in {:.3} ms", ms(ps)),
    };
    let text = format!(
        "\ntiling   {} K tile(s): tiles of {rows} rows, K {depth}, up to {channels} channels\n{}  \
         likely   {likely_ms:.3} ms a call; {shortest_ms:.3} ms at the least. By the costs of planning:\n  \
         bound    {:.3} ms: {} alone on the NPU\n  \
         call     {:.3} ms, {call_over_bound:.2} times the bound: waits for the {waits_for}; {:.0} % \
         of the shorter of CPU and NPU time is hidden\n  \
         NPU      {:.3} ms for all jobs, {:.2} times the bound; {gops:.0} GOP/s\n  \
         of that  {:.3} ms MACs, {:.3} ms memory beyond them, {:.3} ms first and last bytes of \
         tasks, {:.3} ms driver\n  \
         CPU      packs {:.1} MiB in {:.3} ms; reads {:.1} MiB in {:.3} ms, adds {} of the \
         elements{computed}\n  \
         traffic  A {:.1}, B {:.1}, C {:.1}, programs {:.2} MiB; {:.3} ms of memory time, the CPU's \
         included; {} tasks in {} jobs\n",
        weights.k_tile_count(),
        banks.unwrap_or_default(),
        ms(bound_ps),
        prediction.bound_by(),
        ms(call.call_ps),
        100.0 * call.overlapped(),
        ms(prediction.npu_ps),
        prediction.over_bound(),
        ms(parts.computing_ps),
        ms(parts.memory_ps),
        ms(parts.edges_ps),
        ms(prediction.driver_ps),
        mib(prediction.packed_bytes),
        ms(call.pack_ps),
        mib(prediction.read_bytes),
        ms(call.unpack_ps),
        prediction.partial_sums,
        mib(a),
        mib(b),
        mib(c),
        mib(prediction.work.command_bytes),
        ms(call.memory_ps),
        prediction.tasks,
        prediction.jobs,
    );
    (report, text)
}

/// CBUF banks that a tile gives to features and to weights.
fn banks(dtype: Dtype, [k, m, n]: [usize; 3]) -> Option<[u32; 2]> {
    let nowhere = BufferId(0).at(0);
    let task = MatmulTask {
        ty: dtype.matmul_type(),
        m: u32::try_from(m).ok()?,
        k: u32::try_from(k).ok()?,
        n: u32::try_from(n).ok()?,
        a: nowhere,
        b: nowhere,
        c: nowhere,
    };
    let split = task.check(&ChipProfile::RK3588).ok()?;
    Some([split.data_banks, split.weight_banks])
}
