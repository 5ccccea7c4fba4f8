# SPDX-License-Identifier: MIT OR Apache-2.0
"""A llama model that numpy trains, and how it becomes a file."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gguf_llama import EPSILON, HEAD_DIM, ROPE_BASE, finish, new_writer

# The highest that the learning rate is.
RATE = 3e-3


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, and the tokens of a sequence that it is trained on."""

    embedding: int
    feed_forward: int
    layers: int
    kv_heads: int
    length: int

    @property
    def heads(self) -> int:
        return self.embedding // HEAD_DIM


class Model:
    """A llama model whose gradients are written out. `biases` are added to the results of the
    matrices with these names; training leaves them as they are."""

    def __init__(
        self,
        random: np.random.Generator,
        vocabulary: int,
        shape: Shape,
        biases: Mapping[str, np.ndarray] = {},
    ):
        self.shape, self.biases = shape, biases
        width = shape.embedding

        def matrix(rows, columns, scale=1.0):
            values = random.standard_normal((rows, columns), dtype=np.float32)
            return values * np.float32(scale / np.sqrt(columns))

        keys = shape.kv_heads * HEAD_DIM
        self.weights = {
            "token_embd": matrix(vocabulary, width),
            "output": matrix(vocabulary, width),
        }
        self.weights["output_norm"] = np.ones(width, np.float32)
        for layer in range(shape.layers):
            block = f"blk.{layer}."
            for name, rows, columns, scale in [
                ("attn_q", width, width, 1.0),
                ("attn_k", keys, width, 1.0),
                ("attn_v", keys, width, 1.0),
                ("attn_output", width, width, 0.5),
                ("ffn_gate", shape.feed_forward, width, 1.0),
                ("ffn_up", shape.feed_forward, width, 1.0),
                ("ffn_down", width, shape.feed_forward, 0.5),
            ]:
                self.weights[block + name] = matrix(rows, columns, scale)
            for name in ["attn_norm", "ffn_norm"]:
                self.weights[block + name] = np.ones(width, np.float32)
        places = np.arange(shape.length)[:, None]
        angles = places * ROPE_BASE ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        self.cos, self.sin = (f(angles)[:, None].astype(np.float32) for f in (np.cos, np.sin))
        self.mask = np.triu(np.full((shape.length, shape.length), -np.inf, np.float32), 1)

    def rotate(self, x, sign):
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * self.cos - sign * odd * self.sin
        out[..., 1::2] = odd * self.cos + sign * even * self.sin
        return out

    def step(self, given, wanted, start: int = 0):
        """The mean loss of the tokens that are `wanted` from the place `start` on, and the
        gradients."""
        weights, gradients, model = self.weights, {}, self.shape

        def linear(name, x):
            def back(dy):
                flat = dy.reshape(-1, dy.shape[-1])
                gradients[name] = flat.T @ x.reshape(-1, x.shape[-1])
                return dy @ weights[name]

            y = x @ weights[name].T
            return y + self.biases[name] if name in self.biases else y, back

        def norm(name, x):
            inverse = 1.0 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(EPSILON))
            unit = x * inverse

            def back(dy):
                gradients[name] = (dy * unit).sum((0, 1))
                du = dy * weights[name]
                return inverse * (du - unit * (du * unit).mean(-1, keepdims=True))

            return unit * weights[name], back

        def attention(block, x):
            h, norm_back = norm(block + "attn_norm", x)
            (q, q_back), (k, k_back), (v, v_back) = (
                linear(block + n, h) for n in ("attn_q", "attn_k", "attn_v")
            )
            group = model.heads // model.kv_heads
            shape = (*x.shape[:2], model.kv_heads, HEAD_DIM)
            q = self.rotate(q.reshape(*x.shape[:2], model.heads, HEAD_DIM), 1).transpose(0, 2, 1, 3)
            k = np.repeat(self.rotate(k.reshape(shape), 1).transpose(0, 2, 1, 3), group, 1)
            v = np.repeat(v.reshape(shape).transpose(0, 2, 1, 3), group, 1)
            scale = np.float32(HEAD_DIM**-0.5)
            scores = q @ k.transpose(0, 1, 3, 2) * scale + self.mask
            part = np.exp(scores - scores.max(-1, keepdims=True))
            part /= part.sum(-1, keepdims=True)
            mixed = (part @ v).transpose(0, 2, 1, 3).reshape(x.shape)
            out, out_back = linear(block + "attn_output", mixed)

            def back(dy):
                dm = out_back(dy).reshape(*x.shape[:2], model.heads, HEAD_DIM).transpose(0, 2, 1, 3)
                dp = dm @ v.transpose(0, 1, 3, 2)
                ds = part * (dp - (dp * part).sum(-1, keepdims=True)) * scale
                heads = (x.shape[0], model.kv_heads, group, model.length, HEAD_DIM)
                dv = (part.transpose(0, 1, 3, 2) @ dm).reshape(heads).sum(2).transpose(0, 2, 1, 3)
                dk = (ds.transpose(0, 1, 3, 2) @ q).reshape(heads).sum(2).transpose(0, 2, 1, 3)
                dq = self.rotate((ds @ k).transpose(0, 2, 1, 3), -1).reshape(x.shape)
                dk = self.rotate(dk, -1).reshape(*x.shape[:2], -1)
                dh = q_back(dq) + k_back(dk) + v_back(dv.reshape(*x.shape[:2], -1))
                return dy + norm_back(dh)

            return x + out, back

        def feed_forward(block, x):
            h, norm_back = norm(block + "ffn_norm", x)
            (gate, gate_back), (up, up_back) = (
                linear(block + n, h) for n in ("ffn_gate", "ffn_up")
            )
            sigmoid = 1.0 / (1.0 + np.exp(-gate))
            out, out_back = linear(block + "ffn_down", gate * sigmoid * up)

            def back(dy):
                dm = out_back(dy)
                d_gate = dm * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))
                return dy + norm_back(gate_back(d_gate) + up_back(dm * gate * sigmoid))

            return x + out, back

        x = weights["token_embd"][given]
        backs = []
        for layer in range(model.layers):
            for part in (attention, feed_forward):
                x, back = part(f"blk.{layer}.", x)
                backs.append(back)
        h, norm_back = norm("output_norm", x)
        logits, output_back = linear("output", h)
        logits -= logits.max(-1, keepdims=True)
        likely = np.exp(logits)
        likely /= likely.sum(-1, keepdims=True)
        at = (*np.indices(wanted.shape), wanted)
        loss = -np.log(likely[at] + 1e-9)[:, start:].mean()
        likely[at] -= 1.0
        likely[:, :start] = 0.0
        dx = norm_back(output_back(likely / np.float32(wanted[:, start:].size)))
        for back in reversed(backs):
            dx = back(dx)
        gradients["token_embd"] = np.zeros_like(weights["token_embd"])
        np.add.at(gradients["token_embd"], given, dx)
        return loss, gradients


def train(model: Model, steps: int, batch: Callable[[], np.ndarray], *, start: int = 0) -> None:
    """Trains with Adam, each step on a `batch` of sequences a token longer than the model's."""
    first = {name: np.zeros_like(values) for name, values in model.weights.items()}
    second = {name: np.zeros_like(values) for name, values in model.weights.items()}
    for step in range(1, steps + 1):
        rows = batch()
        loss, gradients = model.step(rows[:, :-1], rows[:, 1:], start)
        now = RATE * min(1.0, step / 50) * 0.5 * (1.0 + np.cos(np.pi * step / steps)) + 1e-5
        for name, values in model.weights.items():
            gradient = gradients[name]
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.02 * (gradient * gradient - second[name])
            scale = np.sqrt(1.0 - 0.98**step) / (1.0 - 0.9**step)
            values -= np.float32(now * scale) * first[name] / (np.sqrt(second[name]) + 1e-8)
        if step % max(1, steps // 10) == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)


def save(path: Path, name: str, table: list, model: Model) -> None:
    """Writes the model in F16, biases in F32."""
    shape = model.shape
    sizes = dict(embedding=shape.embedding, feed_forward=shape.feed_forward)
    writer = new_writer(path, name, table, **sizes, layers=shape.layers, kv_heads=shape.kv_heads)
    for name, values in model.weights.items():
        kind = np.float32 if values.ndim == 1 else np.float16
        writer.add_tensor(f"{name}.weight", values.astype(kind))
    for name, values in model.biases.items():
        writer.add_tensor(f"{name}.bias", values.astype(np.float32))
    finish(writer)
