# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small image encoder with random weights, as llama.cpp's llama-mtmd-cli takes it beside a language
model (LLaVA's kind: a vision transformer and a projector of two layers), and an image."""

from pathlib import Path

import gguf
import numpy as np

IMAGE, PATCH, CHANNELS = 112, 14, 3
EMBEDDING, FEED_FORWARD, LAYERS, HEADS = 256, 512, 2, 4
PATCHES = (IMAGE // PATCH) ** 2
# Matmuls with stored weights that an image takes: six of each layer but the last, whose result LLaVA
# does not take, and the projector's.
MATMULS = 6 * (LAYERS - 1) + 2
# Of the same layers.
ATTENTION = LAYERS - 1


def write(path: Path, width: int = 256) -> None:
    """Writes one whose results are `width` wide, as the language model's activations."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_clip_has_vision_encoder(True)
    writer.add_bool("clip.has_llava_projector", True)
    writer.add_clip_projector_type("mlp")
    writer.add_vision_use_gelu(True)
    writer.add_vision_image_size(IMAGE)
    writer.add_vision_patch_size(PATCH)
    writer.add_vision_embedding_length(EMBEDDING)
    writer.add_vision_feed_forward_length(FEED_FORWARD)
    writer.add_vision_block_count(LAYERS)
    writer.add_vision_head_count(HEADS)
    writer.add_vision_projection_dim(width)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_image_mean([0.5] * CHANNELS)
    writer.add_vision_image_std([0.5] * CHANNELS)

    def add(name: str, *shape: int, kind: type = np.float16) -> None:
        # Keeps the size of what it multiplies.
        values = random.standard_normal(shape, dtype=np.float32)
        values /= np.sqrt(np.prod(shape[1:]))
        writer.add_tensor(name, values.astype(kind))

    def linear(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", rows, columns)
        writer.add_tensor(f"{name}.bias", np.zeros(rows, np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(EMBEDDING, np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(EMBEDDING, np.float32))

    add("v.class_embd", EMBEDDING, kind=np.float32)
    add("v.patch_embd.weight", EMBEDDING, CHANNELS, PATCH, PATCH)
    add("v.position_embd.weight", PATCHES + 1, EMBEDDING)
    norm("v.pre_ln")
    for block in (f"v.blk.{layer}." for layer in range(LAYERS)):
        norm(block + "ln1")
        for part in ["attn_q", "attn_k", "attn_v", "attn_out"]:
            linear(block + part, EMBEDDING, EMBEDDING)
        norm(block + "ln2")
        linear(block + "ffn_up", FEED_FORWARD, EMBEDDING)
        linear(block + "ffn_down", EMBEDDING, FEED_FORWARD)
    linear("mm.0", width, EMBEDDING)
    linear("mm.2", width, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_image(path: Path) -> None:
    """Writes an image of colour gradients, as PPM."""
    y, x = np.mgrid[0:IMAGE, 0:IMAGE]
    pixels = np.stack([x, y, (x * y) % 256], axis=-1).astype(np.uint8)
    path.write_bytes(b"P6 %d %d 255\n" % (IMAGE, IMAGE) + pixels.tobytes())
