// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicted times of transformer matmuls: the tables of README.md, docs/speed.md and
//! docs/matmul-figures.md.

use anyhow::{Result, ensure};
use npu_matmul::plan::WeightPlan;
use npu_matmul::{Dtype, Plan, PlanOptions};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;

/// File descriptors: one for each core.
pub(crate) const FDS: usize = 3;

/// llama.cpp's default batch.
const ROWS: usize = 512;

/// Clocks, MHz: mainline's, and that of most published figures.
pub(crate) const CLOCKS: [u64; 2] = [200, 600];

/// Plan options of a board at a clock in MHz: default, and after calibration found all tiles and
/// all reuse of CBUF right.
pub(crate) const BOARDS: [fn(u64) -> PlanOptions; 2] = [
    |mhz| PlanOptions::uncalibrated(mhz * 1_000_000),
    |mhz| PlanOptions::calibrated(mhz * 1_000_000),
];

/// Most bytes of cache maintenance, as a multiple of the bytes that need it.
const CACHE_BYTES_MAX: f64 = 1.5;

/// Matmuls of a layer of each model, by the models' published configurations: K and N. For the last
/// model others published times with resident weights (E-time-resident): their INT8 was slower than
/// their FP16.
#[rustfmt::skip]
const MATMULS: [(&str, &str, usize, usize); 14] = [
    ("Gemma-3-1B", "query", 1152, 1024),
    ("Gemma-3-1B", "key, value", 1152, 256),
    ("Gemma-3-1B", "gate, up", 1152, 6912),
    ("Gemma-3-1B", "down", 6912, 1152),
    ("Llama-3.2-3B", "query, output", 3072, 3072),
    ("Llama-3.2-3B", "key, value", 3072, 1024),
    ("Llama-3.2-3B", "gate, up", 3072, 8192),
    ("Llama-3.2-3B", "down", 8192, 3072),
    ("Llama-3.1-8B", "query, output", 4096, 4096),
    ("Llama-3.1-8B", "key, value", 4096, 1024),
    ("Llama-3.1-8B", "gate, up", 4096, 14336),
    ("Llama-3.1-8B", "down", 14336, 4096),
    ("Gemma-4-12B", "query", 3840, 4096),
    ("Gemma-4-12B", "down", 15360, 3840),
];

/// Matmuls in the table of expected speeds: the largest of these models.
const EXPECTED: [(&str, &str); 2] = [("Llama-3.2-3B", "gate, up"), ("Llama-3.1-8B", "gate, up")];

/// Times of INT8 and FP16 calls with default tiles, and the ratio after calibration, for
/// docs/matmul-figures.md.
pub(crate) fn int8_against_fp16() -> Result<String> {
    let row = |(model, what, k, n)| {
        let mut row = format!("{model} {what} | {k} | {n}");
        for clock in CLOCKS {
            for dtype in [Dtype::Int8, Dtype::Fp16] {
                let [default, calibrated] = BOARDS.map(|board| call_ms(dtype, k, n, board(clock)));
                let (default, calibrated) = (default?, calibrated?);
                row += &format!(" | {default:.2} ms | {:.2}", calibrated / default);
            }
        }
        Ok(row)
    };
    let rows = MATMULS.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    let heads = CLOCKS.map(|mhz| {
        let of = |dtype| format!(" | {dtype}, {mhz} MHz | calibrated");
        of("INT8") + &of("FP16")
    });
    Ok(table(&format!("matmul | K | N{}", heads.concat()), rows))
}

/// The table of expected speeds in README and docs/speed.md.
pub(crate) fn expected() -> Result<String> {
    let mut rows = Vec::new();
    let told = MATMULS
        .into_iter()
        .filter(|(model, what, ..)| EXPECTED.contains(&(model, what)));
    for (model, what, k, n) in told {
        for (dtype, name) in [(Dtype::Fp16, "FP16"), (Dtype::Int8, "INT8")] {
            let mut row = format!("{ROWS} x {k} x {n} ({model}, {what}) | {name}");
            for board in BOARDS {
                for clock in CLOCKS {
                    row += &format!(" | {:.1} ms", call_ms(dtype, k, n, board(clock))?);
                }
            }
            rows.push(row);
        }
    }
    Ok(table(
        &format!("modelled | precision{}", board_heads()),
        rows,
    ))
}

/// Column heads for each of [`BOARDS`] at each of [`CLOCKS`].
pub(crate) fn board_heads() -> String {
    let heads = ["", ", calibrated"].map(|board| CLOCKS.map(|mhz| format!(" | {mhz} MHz{board}")));
    heads.concat().concat()
}

/// The modelled time of a whole call.
fn call_ms(dtype: Dtype, k: usize, n: usize, board: PlanOptions) -> Result<f64> {
    let options = PlanOptions {
        batch_rows: ROWS,
        ..board
    };
    let weights = WeightPlan::new(dtype, n, k, FDS, &options)?;
    let plan = Plan::new(&weights, ROWS, &options)?;
    let [needed, passed] = plan.cache_bytes(&options.profile.choices);
    let passed = passed as f64 / needed.max(1) as f64;
    ensure!(
        passed <= CACHE_BYTES_MAX,
        "a plan for {ROWS} x {k} x {n} passes {passed:.2} times the necessary bytes through \
         PREP_BO and FINI_BO"
    );
    Ok(seconds(plan.call(&options).call_ps) * 1e3)
}
