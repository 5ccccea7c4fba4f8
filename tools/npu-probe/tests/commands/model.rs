// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe model` on generated files: heads with holes for data. `BLESS=1` accepts the
//! printed output as expected.

use std::fs::{self, File};
use std::path::Path;

use crate::common::{command, compare, ends, fails, fails_with, has, json, text};
use npu_offload::{Graph, ModelShape, NumberFormat, OffloadRules, PlanTarget, WeightMatrix};
use serde_json::Value;

const F16: u32 = 1;
const Q8_0: u32 = 8;

/// A GGUF file under construction.
#[derive(Clone, Default)]
struct Gguf {
    values: Vec<u8>,
    value_count: u64,
    tensors: Vec<(String, Vec<usize>, u32)>,
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Gguf {
    fn text(mut self, key: &str, text: &str) -> Self {
        let value = [string(key), 8_u32.to_le_bytes().to_vec(), string(text)];
        self.values.extend(value.concat());
        self.value_count += 1;
        self
    }

    fn number(mut self, key: &str, number: usize) -> Self {
        let value = [4, number as u32].map(u32::to_le_bytes).concat();
        self.values.extend([string(key), value].concat());
        self.value_count += 1;
        self
    }

    fn tensor(mut self, name: &str, dimensions: &[usize], type_id: u32) -> Self {
        let tensor = (name.to_owned(), dimensions.to_vec(), type_id);
        self.tensors.push(tensor);
        self
    }

    /// A llama of two layers, with tied embeddings.
    fn llama(type_id: u32) -> Self {
        Self::with_kv_heads(2, type_id)
    }

    /// The same with `kv_heads` of its four heads for keys and values.
    fn with_kv_heads(kv_heads: usize, type_id: u32) -> Self {
        let shape = ModelShape {
            layers: 2,
            hidden: 256,
            feed_forward: 512,
            heads: 4,
            kv_heads,
            head_dim: 64,
            vocabulary: 1024,
            ..ModelShape::LLAMA32_1B
        };
        Self::of(shape, type_id).number("llama.context_length", 2048)
    }

    /// A llama of this shape.
    fn of(shape: ModelShape, type_id: u32) -> Self {
        let (hidden, wide) = (shape.hidden, shape.feed_forward);
        let [queries, keys] = [shape.heads, shape.kv_heads].map(|heads| heads * shape.head_dim);
        let mut file = Self::default()
            .text("general.architecture", "llama")
            .number("llama.block_count", shape.layers)
            .number("llama.embedding_length", hidden)
            .number("llama.feed_forward_length", wide)
            .number("llama.attention.head_count", shape.heads)
            .number("llama.attention.head_count_kv", shape.kv_heads)
            .tensor("token_embd.weight", &[hidden, shape.vocabulary], type_id);
        for layer in 0..shape.layers {
            for (name, k, n) in [
                ("attn_q", hidden, queries),
                ("attn_k", hidden, keys),
                ("attn_v", hidden, keys),
                ("attn_output", queries, hidden),
                ("ffn_gate", hidden, wide),
                ("ffn_up", hidden, wide),
                ("ffn_down", wide, hidden),
            ] {
                file = file.tensor(&format!("blk.{layer}.{name}.weight"), &[k, n], type_id);
            }
            file = file.tensor(&format!("blk.{layer}.attn_norm.weight"), &[hidden], 0);
        }
        file
    }

    /// The head, and the length of the whole file.
    fn head(&self) -> (Vec<u8>, u64) {
        let mut head = b"GGUF\x03\0\0\0".to_vec();
        let counts = [self.tensors.len() as u64, self.value_count];
        head.extend(counts.map(u64::to_le_bytes).concat());
        head.extend(&self.values);
        let mut offset = 0_u64;
        for (name, dimensions, type_id) in &self.tensors {
            head.extend(string(name));
            head.extend((dimensions.len() as u32).to_le_bytes());
            let sizes = dimensions.iter().map(|size| *size as u64);
            head.extend(sizes.flat_map(u64::to_le_bytes));
            head.extend(type_id.to_le_bytes());
            head.extend(offset.to_le_bytes());
            let elements = dimensions.iter().product::<usize>() as u64;
            let format = NumberFormat::of_ggml(*type_id);
            let bytes = format.map_or(0, |(_, format)| format.bytes(elements));
            offset += bytes.next_multiple_of(32);
        }
        let bytes = (head.len() as u64).next_multiple_of(32) + offset;
        (head, bytes)
    }

    fn write(&self, path: &Path) {
        let (head, bytes) = self.head();
        fs::write(path, head).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(bytes).unwrap();
    }
}

/// Runs `model` on this file.
fn on<T>(file: &Gguf, options: &str, run: impl Fn(&str) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    file.write(&path);
    run(&format!("model {} {options}", path.display()))
}

/// The error for a file without a usable model.
fn refusal(path: &Path) -> String {
    let (out, err) = fails(&format!("model {}", path.display()), 2);
    assert_eq!(out, "");
    err
}

#[test]
fn a_small_llama_is_told_in_whole() {
    let said = on(&Gguf::llama(Q8_0), "--mem 64M", text);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/llama-q8_0.txt");
    compare(Path::new(golden), &said);
}

/// The table of docs/speed.md uses the same graphs.
#[test]
fn a_file_is_as_fast_as_the_model_that_it_has() {
    let shape = ModelShape::LLAMA32_1B;
    let report = on(&Gguf::of(shape, Q8_0), "--mem 4G", json);
    let rules = OffloadRules::new(PlanTarget::at_clock(200_000_000));
    let (_, format) = NumberFormat::of_ggml(Q8_0).unwrap();
    let graph = Graph::new(shape, format, &rules);
    let bytes = |one: WeightMatrix| {
        let precision = rules.decide(one.format, one.size).precision;
        let bytes = rules.target.packed_bytes(precision, one.size).unwrap();
        bytes * one.count as u64
    };
    let bytes: u64 = shape.weights(format).into_iter().map(bytes).sum();
    assert_eq!(report["packed_bytes"], bytes);
    let prompts = &report["speed"]["prompts"];
    for (row, tokens) in [128, 512, 2048, 8192].into_iter().enumerate() {
        let (npu, cpu) = (graph.prompt(tokens), graph.on_cpu().prompt(tokens));
        let expected = [npu, cpu].map(|time| time.tokens_per_second(tokens));
        let row = &prompts[row];
        let likely = |rates: &Value| rates["likely"].as_f64().unwrap();
        let seen = [&row["npu"][0], &row["cpu_alone"]].map(likely);
        for (seen, expected) in seen.into_iter().zip(expected) {
            // JSON may lose the last digit of a number.
            assert!((seen / expected - 1.0).abs() < 1e-12, "{tokens}");
        }
    }
    let expected = graph.step(32, 512).tokens_per_second(32);
    let seen = &report["speed"]["parallel"][5]["npu"][0]["likely"];
    assert!((seen.as_f64().unwrap() / expected - 1.0).abs() < 1e-12);
}

#[test]
fn f16_is_computed_in_fp16_and_takes_twice_the_memory() {
    // With narrower matrices the CPU is faster in F16.
    let wide = ModelShape {
        layers: 1,
        feed_forward: 2048,
        kv_heads: 32,
        vocabulary: 2048,
        ..ModelShape::LLAMA32_1B
    };
    let [half, eight] = [F16, Q8_0].map(|type_id| {
        let file = Gguf::of(wide, type_id).number("llama.context_length", 2048);
        on(&file, "--mem 256M --clock 400", json)
    });
    assert_eq!(half["weights"][0]["computed_in"], "fp16");
    assert_eq!(eight["weights"][0]["computed_in"], "int8-hadamard");
    let bytes = |report: &Value| report["packed_bytes"].as_u64().unwrap();
    assert_eq!(bytes(&half), 2 * bytes(&eight));
    let clocks = serde_json::json!([200, 400, 600, 1000]);
    assert_eq!(half["speed"]["clocks_mhz"], clocks);
    assert!(half["calibrated_on"].is_null() && half["fits"] == true);
    // 8192 tokens exceed the model's context length.
    assert_eq!(half["speed"]["prompts"].as_array().unwrap().len(), 3);
}

#[test]
fn a_profile_of_the_model_is_no_calibrated_board() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    text(&format!("calibrate --profile {}", file.display()));
    let with = |line: &str| ends(command(line).env("ROCKET_PROFILE", &file), 0).0;
    let said = on(&Gguf::llama(Q8_0), "", with);
    has(
        &said,
        &["times    modelled: `calibrate` ran on the software model, not on a board;"],
    );
    assert!(!said.contains("calibrated"), "{said}");
}

#[test]
fn weights_without_memory_are_as_fast_as_on_the_cpu() {
    let model = Gguf::llama(Q8_0);
    let report = on(&model, "--mem 0", json);
    assert_eq!(report["fits"], false);
    assert_eq!(report["packed_bytes"], 0);
    for row in report["speed"]["prompts"].as_array().unwrap() {
        assert_eq!(row["npu"][2], row["cpu_alone"], "{row}");
    }
    let said = on(&model, "--mem 400K", text);
    has(&said, &["fits     no, only 0.1 MiB of packed weights; "]);
    // The order of the file, but the output's weight last.
    assert!(said.find("blk.*.attn_q.weight") < said.find("token_embd.weight"));
    fails_with("model file --mem much", 2, &["expected a number of bytes"]);
}

#[test]
fn an_output_of_its_own_leaves_embeddings_to_be_looked_up() {
    let model = Gguf::llama(Q8_0).tensor("output.weight", &[256, 1024], Q8_0);
    let said = on(&model, "--mem 64M", text);
    has(&said, &["output.weight"]);
    assert!(!said.contains("token_embd"), "{said}");
}

#[test]
fn unmodelled_parts_are_named_and_the_rest_is_predicted() {
    let llama = || Gguf::llama(Q8_0);
    let of = |architecture| Gguf::default().text("general.architecture", architecture);
    for (model, row, why) in [
        (
            llama().tensor("blk.0.odd.weight", &[256, 64], 99),
            "CPU: type",
            "type 99 is unknown",
        ),
        (
            llama().tensor("blk.0.ffn_up_exps.weight", &[256, 512, 8], Q8_0),
            "512 x 256 x 8",
            "graphs with experts are not modelled",
        ),
        (
            of("rwkv9").tensor("blk.0.w.weight", &[256, 64], F16),
            "64 x 256",
            "the attention of architecture `rwkv9` is not modelled",
        ),
        (of("qwen3"), "", "the file lacks `qwen3.embedding_length`"),
        (
            llama().number("llama.attention.key_length", 1 << 20),
            "",
            "4 heads of 1048576 channels are not possible",
        ),
    ] {
        let said = on(&model, "--mem 64M", text);
        has(&said, &[row]);
        let expected = format!("speed of the whole graph: unknown, {why}\n");
        assert!(said.ends_with(&expected), "{said}");
    }
}

/// Tests of the reader cut a file at each other byte.
#[test]
fn a_file_that_was_cut_short_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let model = Gguf::llama(Q8_0);
    model.write(&path);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(model.head().1 - 32).unwrap();
    has(&refusal(&path), &["the download is incomplete"]);
}

#[test]
fn a_split_model_is_read_from_any_part_if_all_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let part = |index| folder.path().join(format!("m-{index:05}-of-00002.gguf"));
    let whole = Gguf::llama(Q8_0);
    let mut first = whole.clone().number("split.count", 2);
    let mut second = Gguf::default().number("split.count", 2);
    second.tensors = first.tensors.split_off(5);
    first.write(&part(1));
    let missing = "missing in the same folder: m-00002-of-00002.gguf";
    has(&refusal(&part(1)), &[missing]);
    second.write(&part(2));
    let [one, two] =
        [1, 2].map(|index| json(&format!("model {} --mem 64M", part(index).display())));
    assert_eq!(one, two);
    assert_eq!(one["files"], 2);
    let alone = on(&whole, "--mem 64M", json);
    assert_eq!(one["weights"], alone["weights"]);
    for name in ["renamed.gguf", "m-00001-of-00001.gguf"] {
        let renamed = folder.path().join(name);
        fs::copy(part(1), &renamed).unwrap();
        has(&refusal(&renamed), &["-00001-of-00002.gguf"]);
    }
}

#[test]
fn files_that_cannot_be_planned_are_refused() {
    let of = |key, value| {
        let file = Gguf::default().text(key, value);
        file.tensor("blk.0.attn_q.weight", &[256, 16], F16)
    };
    // Like real adapters, some name the architecture of their model.
    let named = |kind| of("general.type", kind).text("general.architecture", "llama");
    for (file, kind) in [
        (named("adapter"), "an adapter (LoRA)"),
        (named("imatrix"), "an importance matrix"),
        (
            of("general.architecture", "controlvector"),
            "a control vector",
        ),
    ] {
        let (_, err) = on(&file, "", |line| fails(line, 2));
        has(&err, &[&format!("the file is {kind}, not a model")]);
    }
    // These would take hours.
    let many = (2..300).fold(Gguf::default(), |file, n| file.tensor("a", &[32, n], Q8_0));
    let (_, err) = on(&many, "", |line| fails(line, 2));
    has(&err, &["298 sizes of weights"]);
}
