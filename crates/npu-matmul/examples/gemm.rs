// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a matmul in three precisions and compares their memory and accuracy.
//!
//! ```text
//! cargo run --release -p npu-matmul --example gemm
//! ```

use half::f16;
use npu_matmul::quantise::nmse;
use npu_matmul::{Engine, Weights};

const M: usize = 64;
const N: usize = 512;
const K: usize = 1024;

/// Numbers of -1 to 1 from a linear congruential generator (Knuth's MMIX constants).
fn numbers(len: usize, mut state: u64) -> Vec<f32> {
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open(npu_matmul::open_pool(3)?)?;
    let (a, b) = (numbers(M * K, 1), numbers(N * K, 2));
    let exact: Vec<f64> = a
        .chunks(K)
        .flat_map(|a| b.chunks(K).map(move |b| (a, b)))
        .map(|(a, b)| {
            a.iter()
                .zip(b)
                .map(|(a, b)| f64::from(*a) * f64::from(*b))
                .sum()
        })
        .collect();
    let halves = |x: &[f32]| -> Vec<f16> { x.iter().copied().map(f16::from_f32).collect() };
    let (a16, b16) = (halves(&a), halves(&b));
    for (name, weights) in [
        ("fp16", Weights::f16(N, K, &b16)),
        ("w8a8", Weights::w8a8(N, K, &b)),
        ("w8a8, rotated", Weights::w8a8(N, K, &b).rotated()),
    ] {
        let weights = engine.load(weights)?;
        let gemm = engine.prepare(&weights, M)?;
        let mut c = vec![0.0_f32; M * N];
        match name {
            "fp16" => gemm.run(&a16, &mut c)?,
            _ => gemm.run(&a, &mut c)?,
        }
        let c: Vec<f64> = c.into_iter().map(f64::from).collect();
        println!(
            "{name:14} {:4} KiB on the devices, error {:.1e}; {}",
            weights.device_bytes() >> 10,
            nmse(&exact, &c),
            gemm.plan()
        );
    }
    Ok(())
}
