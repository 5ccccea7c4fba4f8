# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the small llama models of the tests have in common: vocabulary and metadata."""

import string
from pathlib import Path

import gguf

# The character that sentencepiece puts in place of a space.
SPACE = "\u2581"
HEAD_DIM = 64
EPSILON = 1e-5
ROPE_BASE = 10000.0
CONTEXT = 2048
VOCABULARY = 512
# Experts that each token chooses, of a model with experts.
EXPERTS_USED = 2


def pieces() -> tuple[list[tuple[str, float, int]], int]:
    """The vocabulary, (text, score, type) for each token, and the first visible token.

    Control tokens, one token per byte (so that any text can be read), then
    visible pieces: single characters and pairs of them. A pair's score is
    above every character's, so that the tokenizer prefers it.
    """
    kinds = gguf.TokenType
    table = [
        ("<unk>", 0.0, kinds.UNKNOWN),
        ("<s>", 0.0, kinds.CONTROL),
        ("</s>", 0.0, kinds.CONTROL),
    ]
    table += [(f"<0x{byte:02X}>", 0.0, kinds.BYTE) for byte in range(256)]
    first_visible = len(table)
    characters = [SPACE] + [chr(code) for code in range(33, 127)]
    table += [(text, -1000.0 - rank, kinds.NORMAL) for rank, text in enumerate(characters)]
    pairs = [SPACE + letter for letter in string.ascii_lowercase]
    pairs += [first + second for first in "etaoinshr" for second in string.ascii_lowercase]
    wanted = VOCABULARY - len(table)
    table += [(text, -float(rank), kinds.NORMAL) for rank, text in enumerate(pairs[:wanted])]
    return table, first_visible


def new_writer(
    path: Path,
    name: str,
    table: list,
    *,
    embedding: int,
    feed_forward: int,
    layers: int,
    kv_heads: int,
    experts: int = 0,
    file_type: int = gguf.LlamaFileType.MOSTLY_F16,
) -> gguf.GGUFWriter:
    """A file of a llama model, most of its weights in F16 if not said otherwise; the caller adds its
    tensors."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_file_type(file_type)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(embedding)
    writer.add_feed_forward_length(feed_forward)
    writer.add_block_count(layers)
    writer.add_head_count(embedding // HEAD_DIM)
    writer.add_head_count_kv(kv_heads)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(EXPERTS_USED)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_vocab_size(len(table))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _, _ in table])
    writer.add_token_scores([score for _, score, _ in table])
    writer.add_token_types([int(kind) for _, _, kind in table])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    return writer


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes what was added, and closes the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
