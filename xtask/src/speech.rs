// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicted times of whisper's encoder: a table of docs/speech-and-pictures.md.

use anyhow::{Context, Result};
use npu_matmul::attention::AttentionBatch;
use npu_offload::{NumberFormat, OffloadRules};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;
use crate::offload::{self, MEGAHERTZ};

const FILES: [&str; 2] = ["F16", "Q8_0"];

/// Positions of 30 seconds of sound, and the number of keys that whisper.cpp pads them to.
const POSITIONS: usize = 1500;
const KEYS: usize = POSITIONS.next_multiple_of(256);
/// Spectrum bands, time steps, and the width of both convolutions.
const BANDS: usize = 80;
const STEPS: usize = 2 * POSITIONS;
const KERNEL: usize = 3;
const HEAD: usize = 64;

/// A model with its published dimensions. Its decoder has as many layers as its encoder.
struct SpeechModel {
    name: &'static str,
    layers: usize,
    channels: usize,
}

const MODELS: [SpeechModel; 3] = [
    SpeechModel {
        name: "tiny",
        layers: 4,
        channels: 384,
    },
    SpeechModel {
        name: "base",
        layers: 6,
        channels: 512,
    },
    SpeechModel {
        name: "small",
        layers: 12,
        channels: 768,
    },
];

impl SpeechModel {
    /// Matmuls of all layers with stored weights: number, N and K. The last are the keys and values
    /// that the decoder reads.
    fn matmuls(&self) -> [(usize, [usize; 2]); 4] {
        let (layers, channels) = (self.layers, self.channels);
        [
            (4 * layers, [channels, channels]),
            (layers, [4 * channels, channels]),
            (layers, [channels, 4 * channels]),
            (2 * layers, [channels, channels]),
        ]
    }

    /// CPU seconds of both convolutions.
    fn convolutions(&self, rules: &OffloadRules) -> f64 {
        let first = STEPS * BANDS * KERNEL * self.channels;
        let second = POSITIONS * self.channels * KERNEL * self.channels;
        (first + second) as f64 / rules.cpu.float as f64
    }

    /// Seconds on the CPU alone.
    fn on_cpu(&self, format: NumberFormat, rules: &OffloadRules) -> f64 {
        let matmul =
            |(count, size)| count as f64 * seconds(rules.cpu.matmul_ps(format, size, POSITIONS));
        let matmuls: f64 = self.matmuls().into_iter().map(matmul).sum();
        let macs = 2 * self.layers * POSITIONS * KEYS * self.channels;
        matmuls + macs as f64 / rules.cpu.attention as f64 + self.convolutions(rules)
    }

    /// Seconds with the NPU, which computes all matmuls and attention.
    fn on_npu(&self, format: NumberFormat, rules: &OffloadRules) -> Result<f64> {
        let mut sum = self.convolutions(rules);
        for (count, size) in self.matmuls() {
            let precision = rules.decide(format, size).precision;
            let cost = rules.target.matmul(precision, size, POSITIONS);
            sum += count as f64 * seconds(cost.context("a matmul without a plan")?.call_ps);
        }
        let heads = self.channels / HEAD;
        let attention = rules.target.attention(&AttentionBatch {
            heads,
            kv_heads: heads,
            rows: POSITIONS,
            keys: KEYS,
            head_dim: HEAD,
            value_dim: HEAD,
            window: None,
        });
        let attention = attention.context("attention without a plan")?;
        Ok(sum + self.layers as f64 * seconds(attention.call_ps))
    }
}

/// Modelled milliseconds of the encoder, by model, file and clock.
pub(crate) fn encoder() -> Result<String> {
    let rules = MEGAHERTZ.map(offload::rules);
    let mut rows = Vec::new();
    for model in MODELS {
        for name in FILES {
            let format = offload::format(name)?;
            let cpu = model.on_cpu(format, &rules[0]);
            let mut row = format!("{} | {name} | {:.0} ms", model.name, 1e3 * cpu);
            for rules in &rules {
                row += &format!(" | {:.0} ms", 1e3 * model.on_npu(format, rules)?);
            }
            rows.push(row);
        }
    }
    let clocks = MEGAHERTZ.map(|mhz| format!(" | {mhz} MHz")).concat();
    Ok(table(&format!("modelled | file | CPU alone{clocks}"), rows))
}
