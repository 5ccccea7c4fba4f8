// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicts the time of a prompt or a step of several sequences, on the NPU and the CPU.

use npu_matmul::attention::AttentionShape;
use npu_matmul::predict::CallTime;
use npu_matmul::profile::CostSide;

use crate::decide::cpu::{CpuSpeed, ps};
use crate::decide::format::NumberFormat;
use crate::decide::precision::ComputeType;
use crate::decide::rows::MOST_ROWS;
use crate::decide::rules::OffloadRules;
use crate::predict::models::{LayerPart, ModelShape, WeightMatrix};

/// Time of each part of a graph, picoseconds. The parts run one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GraphTime {
    /// Matmuls on the NPU, with the CPU's share of them, which overlaps.
    pub offloaded: u64,
    /// Matmuls on the CPU.
    pub matmuls: u64,
    /// Attention on the NPU, with the CPU's share of it, which overlaps.
    pub offloaded_attention: u64,
    /// Attention on the CPU.
    pub attention: u64,
    /// Norms, positions, activations, sums: on the CPU.
    pub other: u64,
    /// Of the parts on the NPU: kicks of tasks and starts of jobs.
    pub driver: u64,
    /// Of the parts on the NPU: work of the CPU while no core computes.
    pub uncovered: u64,
}

impl GraphTime {
    /// Sum of all parts.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let matmuls = self.offloaded.saturating_add(self.matmuls);
        let attention = self.offloaded_attention.saturating_add(self.attention);
        matmuls.saturating_add(attention).saturating_add(self.other)
    }

    /// The cores' time for moving and multiplying.
    #[must_use]
    pub const fn npu_work(&self) -> u64 {
        let calls = self.offloaded.saturating_add(self.offloaded_attention);
        calls.saturating_sub(self.driver.saturating_add(self.uncovered))
    }

    /// Tokens per second, if `tokens` tokens take this time.
    #[must_use]
    pub fn tokens_per_second(&self, tokens: usize) -> f64 {
        tokens as f64 * 1e12 / self.total().max(1) as f64
    }

    /// Returns the largest part and its name.
    #[must_use]
    pub fn largest(&self) -> (u64, &'static str) {
        // Of equal parts, the last.
        let parts = [
            (self.offloaded_attention, "attention on the NPU"),
            (self.attention, "attention on the CPU"),
            (self.other, "norms, positions and activations"),
            (self.matmuls, "matmuls on the CPU"),
            (self.offloaded, "matmuls on the NPU"),
        ];
        let largest = parts.into_iter().max_by_key(|(ps, _)| *ps);
        largest.unwrap_or_default()
    }

    fn add(&mut self, other: Self) {
        self.offloaded = self.offloaded.saturating_add(other.offloaded);
        self.matmuls = self.matmuls.saturating_add(other.matmuls);
        self.offloaded_attention =
            (self.offloaded_attention).saturating_add(other.offloaded_attention);
        self.attention = self.attention.saturating_add(other.attention);
        self.other = self.other.saturating_add(other.other);
        self.driver = self.driver.saturating_add(other.driver);
        self.uncovered = self.uncovered.saturating_add(other.uncovered);
    }

    /// Counts the causes of the time of `count` calls, and returns the time.
    fn add_calls(&mut self, call: CallTime, count: usize) -> u64 {
        let all = |ps: u64| ps.saturating_mul(count as u64);
        self.driver = self.driver.saturating_add(all(call.driver_ps));
        self.uncovered = self.uncovered.saturating_add(all(call.uncovered_ps()));
        all(call.call_ps)
    }
}

/// A model, and the rules that decide about its matmuls.
#[derive(Debug, Clone)]
pub struct Graph<'a> {
    /// Layers, channels and heads of the model.
    pub shape: ModelShape,
    /// The model's weight matrices.
    pub weights: Vec<WeightMatrix>,
    /// The rules; `None` for the CPU alone.
    pub rules: Option<&'a OffloadRules>,
    /// Speed of the CPU.
    pub cpu: CpuSpeed,
    /// The end of the range that is predicted. What is offloaded does not depend on it.
    pub side: CostSide,
}

impl<'a> Graph<'a> {
    /// Creates the graph of a model with all weights in one format.
    #[must_use]
    pub fn new(shape: ModelShape, format: NumberFormat, rules: &'a OffloadRules) -> Self {
        Self::of_weights(shape, shape.weights(format), rules)
    }

    /// Creates the graph of a model with these weights.
    #[must_use]
    pub fn of_weights(
        shape: ModelShape,
        weights: Vec<WeightMatrix>,
        rules: &'a OffloadRules,
    ) -> Self {
        Self {
            shape,
            weights,
            rules: Some(rules),
            cpu: rules.cpu,
            side: CostSide::Likely,
        }
    }

    /// Returns the same graph with the upper bound of its speed.
    #[must_use]
    pub fn upper_bound(&self) -> Self {
        Self {
            side: CostSide::Upper,
            ..self.clone()
        }
    }

    /// Returns the same graph for the CPU alone.
    #[must_use]
    pub fn on_cpu(&self) -> Self {
        Self {
            rules: None,
            ..self.clone()
        }
    }

    /// Predicts a prompt of `tokens` tokens of one sequence, in batches of 512 like llama.cpp's.
    /// The NPU was idle before, so its first job pays the resume.
    #[must_use]
    pub fn prompt(&self, tokens: usize) -> GraphTime {
        let mut sum = GraphTime::default();
        let mut from = 0;
        while from < tokens {
            let to = tokens.min(from + MOST_ROWS);
            let batch = self.batch(to - from, 1);
            sum.add(batch);
            // ggml's scheduler gives attention to the device of the matmuls beside it.
            let rules = self.rules.filter(|_| batch.offloaded > 0);
            sum.add(self.attention(from, to, rules));
            from = to;
        }
        if let Some(rules) = self.rules.filter(|_| sum.offloaded > 0) {
            let resume_ps = rules.target.on(self.side).resume_ps();
            sum.offloaded = sum.offloaded.saturating_add(resume_ps);
        }
        sum
    }

    /// Predicts one token of each of `sequences` sequences, after `context` tokens of each.
    #[must_use]
    pub fn step(&self, sequences: usize, context: usize) -> GraphTime {
        let macs = self.shape.attention_macs(context, context + 1);
        let mut time = self.batch(sequences, sequences);
        time.attention = ps(macs * sequences as u64, self.cpu.attention_on(self.side));
        time
    }

    /// Predicts attention of the tokens `from..to` of a prompt, by these rules.
    fn attention(&self, from: usize, to: usize, rules: Option<&OffloadRules>) -> GraphTime {
        let offloaded = rules.and_then(|rules| {
            let target = rules.target.on(self.side);
            let mut time = GraphTime::default();
            for (layers, window) in self.shape.layers_by_window() {
                let batch = AttentionShape {
                    window: Some(window),
                    ..self.shape.attention(to - from, to)
                };
                if to - from < rules.fewest_attention_rows(batch)? {
                    return None;
                }
                let ps = time.add_calls(target.attention(&batch)?, layers);
                time.offloaded_attention = time.offloaded_attention.saturating_add(ps);
            }
            Some(time)
        });
        offloaded.unwrap_or_else(|| {
            let macs = self.shape.attention_macs(from, to);
            GraphTime {
                attention: ps(macs, self.cpu.attention_on(self.side)),
                ..GraphTime::default()
            }
        })
    }

    /// Predicts `rows` tokens without attention. `outputs` of them need the output matrix.
    fn batch(&self, rows: usize, outputs: usize) -> GraphTime {
        let mut time = GraphTime {
            other: ps(self.shape.other_bytes() * rows as u64, self.cpu.bytes),
            ..GraphTime::default()
        };
        let mut offloaded = Vec::new();
        for weights in &self.weights {
            let rows = if weights.is_output { outputs } else { rows };
            match self.offloaded_as(weights, rows) {
                Some(precision) => offloaded.push((weights, precision)),
                None => {
                    let one_ps = self.cpu.matmul_ps(weights.format, weights.size, rows);
                    let all_ps = one_ps.saturating_mul(weights.count as u64);
                    time.matmuls = time.matmuls.saturating_add(all_ps);
                }
            }
        }
        if let Some(rules) = self.rules {
            let calls = calls(&offloaded, self.shape.layers);
            let target = rules.target.on(self.side);
            for call in &calls {
                let rows = if call.is_output { outputs } else { rows };
                let predicted = target.matmuls(&call.weights, rows).unwrap_or_default();
                let ps = time.add_calls(predicted, call.count);
                time.offloaded = time.offloaded.saturating_add(ps);
            }
        }
        time
    }

    /// The precision of `rows` rows on the NPU; `None` if they stay on the CPU.
    fn offloaded_as(&self, weights: &WeightMatrix, rows: usize) -> Option<ComputeType> {
        let rules = self.rules.filter(|_| weights.is_placed)?;
        let WeightMatrix { format, size, .. } = *weights;
        let precision = rules.decide(format, size).precision;
        // Weights without a plan stay on the CPU.
        let planned = rules.target.weight_plan(precision, size);
        (planned.is_some() && rules.is_worth(format, size, rows, rows)).then_some(precision)
    }
}

/// Matmuls that are computed together, and how often.
struct OffloadedCall {
    weights: Vec<(ComputeType, [usize; 2])>,
    count: usize,
    is_output: bool,
}

/// The calls of these weights. Those of the same part of a layer are one call, as far as each of
/// the `layers` layers has the same number of them.
fn calls(offloaded: &[(&WeightMatrix, ComputeType)], layers: usize) -> Vec<OffloadedCall> {
    let mut calls = Vec::new();
    let call = |weights, count, is_output| OffloadedCall {
        weights,
        count,
        is_output,
    };
    for part in [LayerPart::AttentionInput, LayerPart::FeedForwardInput] {
        // Weights of one size and precision count together, whatever their format.
        let mut counts: Vec<((ComputeType, [usize; 2]), usize)> = Vec::new();
        for (weights, precision) in offloaded.iter().filter(|(one, _)| one.part == part) {
            let of = (*precision, weights.size);
            match counts.iter_mut().find(|(known, _)| *known == of) {
                Some((_, count)) => *count += weights.count,
                None => counts.push((of, weights.count)),
            }
        }
        let mut together = Vec::new();
        for (of, count) in counts {
            let each = count / layers.max(1);
            together.extend(std::iter::repeat_n(of, each));
            calls.push(call(vec![of], count - each * layers, false));
        }
        calls.push(call(together, layers, false));
    }
    for (weights, precision) in offloaded {
        if weights.part == LayerPart::Other {
            let alone = vec![(*precision, weights.size)];
            calls.push(call(alone, weights.count, weights.is_output));
        }
    }
    calls.retain(|call| call.count > 0 && !call.weights.is_empty());
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::rules::tests::{format, rules};

    /// The model whose published rates the CPU's speed comes from (E-llm-cpu).
    const MINISTRAL3_8B: ModelShape = ModelShape {
        name: "Ministral-3-8B",
        layers: 34,
        hidden: 4096,
        feed_forward: 14336,
        heads: 32,
        kv_heads: 8,
        head_dim: 128,
        vocabulary: 131_072,
        window: None,
    };

    #[test]
    fn the_cpu_alone_is_as_fast_as_was_published() {
        let rules = rules(600);
        let published = [
            (MINISTRAL3_8B, "F16", 512, 7.2),
            (MINISTRAL3_8B, "Q8_0", 512, 6.9),
            (MINISTRAL3_8B, "Q4_K", 512, 6.5),
            (MINISTRAL3_8B, "F16", 2048, 6.8),
            (MINISTRAL3_8B, "Q8_0", 2048, 6.4),
            (MINISTRAL3_8B, "Q4_K", 2048, 6.0),
            // With an NPU 61.8 and 45.5 tokens/s, which is 3.4 and 2.6 times the CPU's rate.
            (ModelShape::LLAMA32_3B, "F16", 512, 61.8 / 3.4),
            (ModelShape::LLAMA32_3B, "F16", 2048, 45.5 / 2.6),
        ];
        for (shape, name, tokens, expected) in published {
            let graph = Graph::new(shape, format(name), &rules).on_cpu();
            let seen = graph.prompt(tokens).tokens_per_second(tokens);
            let off = (seen / expected - 1.0).abs();
            assert!(off < 0.1, "{} {name} {tokens}: {seen:.2}", shape.name);
        }
        // Token generation.
        for (name, expected) in [("F16", 1.43), ("Q8_0", 2.47)] {
            let graph = Graph::new(MINISTRAL3_8B, format(name), &rules).on_cpu();
            let seen = graph.step(1, 0).tokens_per_second(1);
            assert!((seen / expected - 1.0).abs() < 0.15, "{name}: {seen:.2}");
        }
    }

    #[test]
    fn a_prompt_is_faster() {
        let rules = rules(600);
        for shape in ModelShape::ALL {
            let graph = Graph::new(shape, format("Q8_0"), &rules);
            let (npu, cpu) = (graph.prompt(512), graph.on_cpu().prompt(512));
            assert!(npu.total() < cpu.total(), "{}", shape.name);
            assert_eq!(cpu.offloaded_attention, 0);
        }
    }

    #[test]
    fn long_prompts_gain_most_from_attention() {
        let rules = rules(1000);
        let graph = Graph::new(ModelShape::LLAMA32_1B, format("Q8_0"), &rules);
        assert_eq!(graph.prompt(128).largest().1, "matmuls on the NPU");
        let mut on_cpu = OffloadRules::new(rules.target.clone());
        on_cpu.attention = crate::AttentionChoice::Never;
        let without = Graph::new(ModelShape::LLAMA32_1B, format("Q8_0"), &on_cpu);
        assert_eq!(without.prompt(8192).largest().1, "attention on the CPU");
        assert!(2 * graph.prompt(8192).total() < without.prompt(8192).total());
        // Most layers see only the last 512 tokens.
        let window = Graph::new(ModelShape::GEMMA3_1B, format("Q8_0"), &rules);
        let all = ModelShape {
            window: None,
            ..ModelShape::GEMMA3_1B
        };
        let all = Graph::new(all, format("Q8_0"), &rules);
        let attention = |graph: &Graph<'_>| {
            let time = graph.prompt(8192);
            time.attention + time.offloaded_attention
        };
        assert!(2 * attention(&window) < attention(&all));
        assert_eq!(window.prompt(512), all.prompt(512));
    }

    /// Values in two formats, as in Q4_K_M files, are computed with queries and keys as well.
    #[test]
    fn matrices_of_a_layer_are_one_call_whatever_their_formats() {
        let rules = rules(600);
        let shape = ModelShape::LLAMA32_1B;
        let whole = Graph::new(shape, format("Q4_K"), &rules);
        let mut weights = shape.weights(format("Q4_K"));
        let keys = weights[1];
        assert_eq!(keys.count, 2 * shape.layers);
        weights[1].count -= shape.layers / 2;
        weights.push(WeightMatrix {
            format: format("Q6_K"),
            count: shape.layers / 2,
            ..keys
        });
        let split = Graph::of_weights(shape, weights.clone(), &rules);
        assert_eq!(split.prompt(512).offloaded, whole.prompt(512).offloaded);
        for weights in &mut weights {
            weights.part = LayerPart::Other;
        }
        let alone = Graph::of_weights(shape, weights, &rules);
        assert!(alone.prompt(512).offloaded > whole.prompt(512).offloaded);
    }

    #[test]
    fn attention_is_the_same_however_it_is_cut() {
        let shape = ModelShape::GEMMA3_1B;
        let whole = shape.attention_macs(0, 1500);
        let parts = shape.attention_macs(0, 700) + shape.attention_macs(700, 1500);
        assert_eq!(whole, parts);
    }

    #[test]
    fn weights_without_memory_stay_on_the_cpu() {
        let rules = rules(600);
        let mut graph = Graph::new(ModelShape::LLAMA32_1B, format("Q8_0"), &rules);
        for weights in &mut graph.weights {
            weights.is_placed = false;
        }
        assert_eq!(graph.prompt(512), graph.on_cpu().prompt(512));
    }
}
