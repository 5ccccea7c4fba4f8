#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Write a small llama model with random weights, for tests.

Needs numpy and gguf (PyPI), no network. The same arguments give the same
file. The text that such a model writes means nothing, but it depends on every
weight; and because all that it can write is visible (see `pieces`), two texts
are equal only if each token is.
"""

import argparse
import string

import gguf
import numpy as np

# The byte that sentencepiece puts in place of a space.
SPACE = "\u2581"
HEAD_DIM = 64
# Experts that each token chooses, of a model with experts.
EXPERTS_USED = 2
# Of a model with outliers: how many times as large these channels are in each
# activation behind a norm, and how many times as small the weights that they
# meet. Language models have a few such channels, the same ones for each token,
# with weights that are not large (LLM.int8(), arXiv:2208.07339); by these
# factors three of 256 channels are a quarter of a sum's variance.
OUTLIER_ACTIVATION = 20.0
OUTLIER_WEIGHT = 0.25


def pieces(size):
    """The vocabulary: (text, score, type) for each of `size` tokens.

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
    wanted = size - len(table)
    if not 0 <= wanted <= len(pairs):
        raise SystemExit(f"the vocabulary must have {len(table)} to {len(table) + len(pairs)} tokens")
    table += [(text, -float(rank), kinds.NORMAL) for rank, text in enumerate(pairs[:wanted])]
    return table, first_visible


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the GGUF file to write")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--embedding", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--feed-forward", type=int, default=768)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--experts", type=int, default=0, help="feed-forward networks to choose two from")
    parser.add_argument("--outliers", type=int, default=0, help="channels with large activations")
    parser.add_argument("--tied", action="store_true", help="the token embedding is the output's weight too")
    parser.add_argument("--logits", type=float, default=1.0, help="standard deviation of the logits")
    args = parser.parse_args()
    if args.embedding % HEAD_DIM:
        parser.error(f"--embedding must be a multiple of {HEAD_DIM}")
    heads = args.embedding // HEAD_DIM
    if heads % args.kv_heads:
        parser.error(f"--kv-heads must divide the {heads} heads")
    if args.experts == 1 or args.experts < 0:
        parser.error("--experts must be 0, or at least 2")
    if not 0 <= args.outliers <= args.embedding:
        parser.error("--outliers must be a number of channels of the embedding")

    random = np.random.default_rng(args.seed)
    # Apart, so that all other weights are those of a model without outliers.
    outliers = np.random.default_rng([args.seed, 1]).permutation(args.embedding)[: args.outliers]
    writer = gguf.GGUFWriter(args.out, "llama")
    writer.add_name(f"tiny random llama, seed {args.seed}")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_context_length(args.context)
    writer.add_embedding_length(args.embedding)
    writer.add_feed_forward_length(args.feed_forward)
    writer.add_block_count(args.layers)
    writer.add_head_count(heads)
    writer.add_head_count_kv(args.kv_heads)
    if args.experts:
        writer.add_expert_count(args.experts)
        writer.add_expert_used_count(EXPERTS_USED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)

    table, first_visible = pieces(args.vocabulary)
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

    def matrix(name, rows, columns, experts=(), behind_norm=False):
        # Keeps the size of what it multiplies.
        shape = (*experts, rows, columns)
        values = random.standard_normal(shape, dtype=np.float32) / np.sqrt(columns)
        if behind_norm:
            values[..., outliers] *= OUTLIER_WEIGHT
        if name == "output.weight":
            values *= args.logits
            # Greedy text then never picks a token that prints as nothing.
            values[:first_visible] = 0.0
        writer.add_tensor(name, values.astype(np.float16))

    def norm(name, outliers=outliers):
        values = 1.0 + 0.1 * random.standard_normal(args.embedding, dtype=np.float32)
        values[outliers] *= OUTLIER_ACTIVATION
        writer.add_tensor(name, values.astype(np.float32))

    embedding = random.standard_normal((len(table), args.embedding), dtype=np.float32)
    if args.tied:
        # It multiplies what the last norm leaves, and has to be as large as
        # the output's weight for logits of the same size.
        embedding *= args.logits / np.sqrt(args.embedding)
        embedding[:first_visible] = 0.0
    writer.add_tensor("token_embd.weight", embedding.astype(np.float16))
    keys = args.kv_heads * HEAD_DIM
    for layer in range(args.layers):
        block = f"blk.{layer}"
        norm(f"{block}.attn_norm.weight")
        matrix(f"{block}.attn_q.weight", args.embedding, args.embedding, behind_norm=True)
        matrix(f"{block}.attn_k.weight", keys, args.embedding, behind_norm=True)
        matrix(f"{block}.attn_v.weight", keys, args.embedding, behind_norm=True)
        matrix(f"{block}.attn_output.weight", args.embedding, args.embedding)
        norm(f"{block}.ffn_norm.weight")
        if args.experts:
            router = random.standard_normal((args.experts, args.embedding), dtype=np.float32)
            router /= np.sqrt(args.embedding)
            router[:, outliers] *= OUTLIER_WEIGHT
            writer.add_tensor(f"{block}.ffn_gate_inp.weight", router)
            up = (args.feed_forward, args.embedding, (args.experts,))
            down = (args.embedding, args.feed_forward, (args.experts,))
            matrix(f"{block}.ffn_gate_exps.weight", *up, behind_norm=True)
            matrix(f"{block}.ffn_up_exps.weight", *up, behind_norm=True)
            matrix(f"{block}.ffn_down_exps.weight", *down)
            continue
        matrix(f"{block}.ffn_gate.weight", args.feed_forward, args.embedding, behind_norm=True)
        matrix(f"{block}.ffn_up.weight", args.feed_forward, args.embedding, behind_norm=True)
        matrix(f"{block}.ffn_down.weight", args.embedding, args.feed_forward)
    norm("output_norm.weight", outliers=outliers[:0] if args.tied else outliers)
    if not args.tied:
        matrix("output.weight", len(table), args.embedding, behind_norm=True)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
