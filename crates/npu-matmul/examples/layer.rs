// SPDX-License-Identifier: MIT OR Apache-2.0
//! Computes query, key and value of a layer: three matmuls with the same activations at once.
//!
//! ```text
//! cargo run --release -p npu-matmul --example layer
//! ```

use npu_matmul::quantise::Quantisation;
use npu_matmul::{Engine, Weights};

/// Sequences that are decoded together.
const M: usize = 8;
/// Gemma3-1B's hidden size, and its query's, key's and value's channels.
const K: usize = 1152;
const CHANNELS: [usize; 3] = [1024, 256, 256];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open(npu_matmul::open_pool(3)?)?;
    let x: Vec<f32> = (0..M * K).map(|i| (i % 17) as f32 - 8.0).collect();
    let mut weights = Vec::new();
    for n in CHANNELS {
        let rows = |channel: usize, row: &mut [f32]| {
            for (k, weight) in row.iter_mut().enumerate() {
                *weight = ((channel * 7 + k * 3) % 23) as f32 - 11.0;
            }
        };
        weights.push(engine.load(Weights::quantised_rows(n, K, Quantisation::W8A8, rows))?);
    }
    let mut gemms = Vec::new();
    for weights in &weights {
        gemms.push(engine.prepare(weights, M)?);
    }
    let mut results = CHANNELS.map(|n| vec![0.0_f32; M * n]);
    // Activations are quantised and packed once; one SUBMIT for each device.
    let calls = gemms.iter().zip(&mut results);
    engine.run(calls.map(|(gemm, c)| gemm.call(&x, c)))?;
    let counters = engine.counters();
    println!(
        "{} matmuls, {} jobs, {} SUBMITs",
        counters.calls, counters.jobs, counters.submits
    );
    Ok(())
}
