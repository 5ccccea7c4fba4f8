// SPDX-License-Identifier: MIT OR Apache-2.0
//! A product whose operands are written and read where the NPU has them.
//!
//! ```text
//! cargo run --release -p npu-matmul --example zero_copy
//! ```

use npu_matmul::{Engine, Weights};

const M: usize = 16;
const N: usize = 64;
const K: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open(npu_model::discover_or_model(3)?)?;
    let b: Vec<i8> = (0..N * K).map(|i| (i % 7) as i8 - 3).collect();
    let weights = engine.load(Weights::i8(N, K, &b))?;
    let mut product = engine.stage(&weights, M)?;
    // A is all ones.
    for index in 0..product.activation_buffers().len() {
        let tiles = product.activation_buffers()[index].regions.clone();
        let mut memory = product.activations_mut(index)?;
        for tile in &tiles {
            for row in tile.rows.clone() {
                for channel in tile.channels.clone() {
                    if let Some(at) = tile.position(row, channel) {
                        memory[at.byte] = 1;
                    }
                }
            }
        }
        memory.finish()?;
    }
    product.multiply()?;
    for (index, buffer) in product.result_buffers().iter().enumerate() {
        let memory = product.results(index)?;
        let tile = &buffer.regions[0];
        let (row, channel) = (tile.rows.start, tile.channels.start);
        if let Some(at) = tile.offset(row, channel) {
            let bytes = memory[at..at + 4].try_into()?;
            println!("C[{row}, {channel}] = {}", i32::from_le_bytes(bytes));
        }
    }
    Ok(())
}
