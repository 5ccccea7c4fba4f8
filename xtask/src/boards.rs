// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of docs/rpc.md: models on several boards, by the offload rules, the timing model and a
//! simulation of how micro-batches pass through the boards.

use anyhow::Result;
use npu_matmul::memory::MemoryPlan;
use npu_offload::{Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget, WeightMatrix};
use rknpu_regcmd::timing::seconds;

use crate::generated::table;
use crate::offload;

const CLOCK_HZ: u64 = 600_000_000;
/// Tokens of the prompt, and of a micro-batch (`-ub`).
const PROMPT: usize = 2048;
const MICRO_BATCH: usize = 512;
/// Network speeds, bits per second.
const LINKS: [f64; 2] = [1e9, 2.5e9];
/// Round-trip time through a switch, seconds; assumed.
const ROUND_TRIP: f64 = 0.3e-3;
/// Bytes of `struct rpc_tensor`, which describes one tensor of a graph; and tensors of a layer:
/// nodes, views and weights.
const TENSOR_BYTES: usize = 296;
const LAYER_TENSORS: usize = 45;
/// Memory sizes of boards, and the part for the system and scratch, GiB.
const BOARDS_GIB: [u64; 3] = [8, 16, 32];
const RESERVE_GIB: u64 = 2;
const GIB: u64 = 1 << 30;
/// Bytes of an element: of activations and the mask, and of the cache.
const F32: usize = 4;
const F16: usize = 2;

/// Models by their published `config.json`.
const MODELS: [(&str, ModelShape); 4] = [
    (
        "Q8_0",
        model("Llama-3.1-8B", [32, 4096, 14_336, 32, 128_256]),
    ),
    ("Q8_0", model("Qwen3-14B", [40, 5120, 17_408, 40, 151_936])),
    ("Q4_K", model("Qwen3-32B", [64, 5120, 25_600, 64, 151_936])),
    (
        "Q4_K",
        model("Llama-3.3-70B", [80, 8192, 28_672, 64, 128_256]),
    ),
];
const BOARDS: [usize; 5] = [1, 2, 3, 4, 8];

/// A model with 8 KV heads of 128 elements, as all of these have.
const fn model(
    name: &'static str,
    [layers, hidden, feed_forward, heads, vocabulary]: [usize; 5],
) -> ModelShape {
    ModelShape {
        name,
        layers,
        hidden,
        feed_forward,
        heads,
        kv_heads: 8,
        head_dim: 128,
        vocabulary,
        window: None,
    }
}

/// Load of a board: for each micro-batch, seconds of computing and bytes received; bytes sent after
/// each micro-batch.
#[derive(Debug, Clone)]
struct BoardLoad {
    compute: Vec<f64>,
    received: Vec<f64>,
    sent: f64,
}

/// Seconds until the last board has computed the last micro-batch. Boards work on different
/// micro-batches at the same time. A connection handles one request at a time, so a board idles
/// while its answer travels. The last board sends no activations.
fn finish(boards: &[BoardLoad], link: f64) -> f64 {
    let transfer = |bytes: f64| bytes * 8.0 / link;
    let mut free = vec![0.0_f64; boards.len()];
    let batches = boards.first().map_or(0, |board| board.compute.len());
    for batch in 0..batches {
        // When the client has the activations for the next board.
        let mut here = 0.0;
        for (index, (board, free)) in boards.iter().zip(&mut free).enumerate() {
            let answer = if index + 1 == boards.len() {
                0.0
            } else {
                ROUND_TRIP + transfer(board.sent)
            };
            let computed = free.max(here) + transfer(board.received[batch]) + board.compute[batch];
            *free = computed + answer;
            here = *free;
        }
    }
    free.last().copied().unwrap_or(0.0)
}

/// A model divided over `boards` boards. Each board packs all weights of its layers for which the
/// NPU has addresses.
struct Split<'a> {
    shape: ModelShape,
    format: NumberFormat,
    rules: &'a OffloadRules,
    boards: usize,
}

impl Split<'_> {
    /// Layers of board `index`.
    fn layers(&self, index: usize) -> usize {
        let before = |index| index * self.shape.layers / self.boards;
        before(index + 1) - before(index)
    }

    /// Weights of board `index`: for each matrix first those packed for the NPU, then those without
    /// NPU addresses. Also the bytes of all weights in the file, and of the packed ones.
    fn weights(&self, index: usize) -> (Vec<WeightMatrix>, [u64; 2]) {
        let part = ModelShape {
            layers: self.layers(index),
            ..self.shape
        };
        let is_last = index + 1 == self.boards;
        let target = &self.rules.target;
        let mut memory = MemoryPlan::for_weights(target.fds, u64::MAX, &target.options);
        let (mut weights, mut bytes) = (Vec::new(), 0);
        for one in part.weights(self.format) {
            let WeightMatrix { size, format, .. } = one;
            // The client has the embedding table, as large as the output matrix.
            let copies = if one.is_output {
                u64::from(is_last) + u64::from(index == 0)
            } else {
                one.count as u64
            };
            bytes += format.bytes((size[0] * size[1]) as u64) * copies;
            if one.is_output {
                // A prompt needs the output for one row only, so it stays on the CPU.
                weights.extend(is_last.then_some(WeightMatrix {
                    is_placed: false,
                    ..one
                }));
                continue;
            }
            let precision = self.rules.decide(format, size).precision;
            let plan = target.weight_plan(precision, size);
            let placed = plan.map_or(0, |plan| {
                (0..one.count)
                    .take_while(|_| memory.add(&plan).is_ok())
                    .count()
            });
            for (count, is_placed) in [(placed, true), (one.count - placed, false)] {
                weights.push(WeightMatrix {
                    count,
                    is_placed,
                    ..one
                });
            }
        }
        (weights, [bytes, memory.total()])
    }

    /// The part of the model on board `index`.
    fn graph(&self, index: usize) -> Graph<'_> {
        let part = ModelShape {
            layers: self.layers(index),
            ..self.shape
        };
        Graph::of_weights(part, self.weights(index).0, self.rules)
    }

    /// Most bytes that a board needs: weights, packed weights, and the cache of the prompt.
    fn memory(&self) -> u64 {
        let heads = self.shape.kv_heads * self.shape.head_dim;
        let board = |index| {
            let [file, packed] = self.weights(index).1;
            let cache = 2 * heads * F16 * PROMPT * self.layers(index);
            file + packed + cache as u64
        };
        (0..self.boards).map(board).max().unwrap_or(0)
    }

    /// Bytes of the activations of this number of tokens.
    fn activations(&self, tokens: usize) -> f64 {
        (self.shape.hidden * F32 * tokens) as f64
    }

    /// Bytes that describe a board's graph to it.
    fn graph_bytes(&self, index: usize) -> f64 {
        (self.layers(index) * LAYER_TENSORS * TENSOR_BYTES) as f64
    }

    /// Number of boards behind the network. A single board is the client itself.
    fn far(&self) -> f64 {
        if self.boards > 1 {
            self.boards as f64
        } else {
            0.0
        }
    }

    fn prompt(&self) -> Vec<BoardLoad> {
        let batches = PROMPT / MICRO_BATCH;
        let load = |index: usize| {
            let graph = self.graph(index);
            let until: Vec<u64> = (0..=batches)
                .map(|batch| graph.prompt(batch * MICRO_BATCH).total())
                .collect();
            let is_far = self.far().min(1.0);
            let received = (1..=batches).map(|batch| {
                let mask = (batch * MICRO_BATCH * MICRO_BATCH * F32) as f64;
                is_far * (self.activations(MICRO_BATCH) + mask + self.graph_bytes(index))
            });
            BoardLoad {
                compute: until
                    .windows(2)
                    .map(|pair| seconds(pair[1] - pair[0]))
                    .collect(),
                received: received.collect(),
                sent: is_far * self.activations(MICRO_BATCH),
            }
        };
        (0..self.boards).map(load).collect()
    }

    /// Bytes that cross the network for the prompt: to all boards, and from all but the last.
    fn prompt_bytes(&self, boards: &[BoardLoad]) -> f64 {
        let received = boards.iter().flat_map(|board| &board.received);
        let others = boards.split_last().map_or(&[][..], |(_, others)| others);
        let sent = others
            .iter()
            .map(|board| board.sent * board.compute.len() as f64);
        received.sum::<f64>() + sent.sum::<f64>() + self.logits()
    }

    /// Bytes of a token's logits, if they cross the network.
    fn logits(&self) -> f64 {
        self.far().min(1.0) * (self.shape.vocabulary * F32) as f64
    }

    /// Seconds for a token after the prompt: all boards compute it, one after the other.
    fn token_compute(&self) -> f64 {
        let step = |index| seconds(self.graph(index).step(1, PROMPT).total());
        (0..self.boards).map(step).sum()
    }

    /// Bytes that cross the network for a token after the prompt.
    fn token_bytes(&self) -> f64 {
        let far = self.far();
        // Activations go to each board and come from each but the last, which sends logits. The
        // boards already have the graph.
        let passes = (2.0 * far - 1.0).max(0.0);
        let mask = far * (PROMPT * F32) as f64;
        passes * self.activations(1) + mask + self.logits()
    }
}

/// The smallest board with this much memory.
fn smallest(bytes: u64) -> String {
    let fits = |gib: &&u64| bytes + RESERVE_GIB * GIB <= **gib * GIB;
    let smallest = BOARDS_GIB.iter().find(fits);
    smallest.map_or_else(|| "none".to_owned(), |gib| format!("{gib} GiB"))
}

/// The table, as Markdown.
pub(crate) fn markdown() -> Result<String> {
    let rules = OffloadRules::new(PlanTarget::at_clock(CLOCK_HZ));
    let mut rows = Vec::new();
    for (name, shape) in MODELS {
        let format = offload::format(name)?;
        for boards in BOARDS {
            let split = Split {
                shape,
                format,
                rules: &rules,
                boards,
            };
            let memory = split.memory();
            let loads = split.prompt();
            let [slow, fast] = LINKS.map(|link| PROMPT as f64 / finish(&loads, link));
            let (compute, bytes) = (split.token_compute(), split.token_bytes());
            let token = |link| compute + split.far() * ROUND_TRIP + bytes * 8.0 / link;
            let [slow_token, fast_token] = LINKS.map(token);
            rows.push(format!(
                "{} {name} | {boards} | {:.1} GiB | {} | {slow:.1} | {fast:.1} | {:.0} MB | {:.2} | {:.2} | {:.0} kB",
                shape.name,
                memory as f64 / GIB as f64,
                smallest(memory),
                split.prompt_bytes(&loads) / 1e6,
                1.0 / slow_token,
                1.0 / fast_token,
                bytes / 1e3,
            ));
        }
    }
    let heads = "model | boards | memory of the largest part | fits in | prompt, tokens/s: 1 Gbit/s | 2.5 Gbit/s | sent | tokens/s after it: 1 Gbit/s | 2.5 Gbit/s | sent";
    Ok(table(heads, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Boards that compute for a second and send nothing.
    fn equal(boards: usize, batches: usize) -> Vec<BoardLoad> {
        let load = BoardLoad {
            compute: vec![1.0; batches],
            received: vec![0.0; batches],
            sent: 0.0,
        };
        vec![load; boards]
    }

    #[test]
    fn boards_work_at_the_same_time() {
        let seconds = |boards, batches| finish(&equal(boards, batches), f64::INFINITY).round();
        assert_eq!(seconds(1, 4), 4.0);
        // First each board gets its first micro-batch; then one micro-batch is done each second.
        assert_eq!(seconds(2, 4), 5.0);
        assert_eq!(seconds(4, 8), 11.0);
    }

    #[test]
    fn a_split_has_all_layers() {
        let rules = OffloadRules::new(PlanTarget::at_clock(CLOCK_HZ));
        let format = NumberFormat::named("Q8_0").unwrap();
        for boards in BOARDS {
            let shape = MODELS[0].1;
            let split = Split {
                shape,
                format,
                rules: &rules,
                boards,
            };
            let layers: usize = (0..boards).map(|index| split.layers(index)).sum();
            assert_eq!(layers, shape.layers);
        }
    }
}
