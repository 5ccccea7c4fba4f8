// SPDX-License-Identifier: MIT OR Apache-2.0
//! A product whose operands are written and read where the NPU has them.
//!
//! ```text
//! cargo run --release -p npu-matmul --example zero_copy
//! ```

use npu_matmul::{Engine, StageOptions, Weights};

const M: usize = 16;
const N: usize = 64;
const K: usize = 128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::open(npu_model::discover_or_model(3)?)?;
    let b: Vec<i8> = (0..N * K).map(|i| (i % 7) as i8 - 3).collect();
    let weights = engine.load(Weights::i8(N, K, &b))?;
    let mut product = engine.stage(&weights, M, StageOptions::default())?;
    // A is all ones.
    for index in 0..product.activation_buffers().len() {
        let tiles = product.activation_buffers()[index].tiles.clone();
        let mut memory = product.activations_mut(index)?;
        for tile in &tiles {
            for row in tile.rows.clone() {
                for column in tile.columns.clone() {
                    if let Some(at) = tile.position(row, column) {
                        memory[at.byte] = 1;
                    }
                }
            }
        }
        memory.finish()?;
    }
    product.run()?;
    for (index, buffer) in product.result_buffers().iter().enumerate() {
        let memory = product.results(index)?;
        let tile = &buffer.tiles[0];
        let (row, column) = (tile.rows.start, tile.columns.start);
        if let Some(at) = tile.position(row, column) {
            let bytes = memory[at.byte..at.byte + 4].try_into()?;
            println!("C[{row}, {column}] = {}", i32::from_le_bytes(bytes));
        }
    }
    Ok(())
}
