# SPDX-License-Identifier: MIT OR Apache-2.0
"""Train a small llama model in some minutes, on the licences that each Debian has (but for
Apache's, with which the checks read models). What random weights cannot show is how much a model
with learnt ones loses by rounding."""

from pathlib import Path

import numpy as np

from gguf_llama import EPSILON, HEAD_DIM, ROPE_BASE, SPACE, finish, new_writer, pieces

LICENCES = Path("/usr/share/common-licenses")
TEXTS = [
    "GPL-1",
    "GPL-2",
    "GPL-3",
    "LGPL-2",
    "LGPL-2.1",
    "LGPL-3",
    "GFDL-1.2",
    "GFDL-1.3",
    "MPL-2.0",
]
EMBEDDING, FEED_FORWARD, LAYERS, HEADS, KV_HEADS = 256, 512, 2, 4, 2
STEPS = 5000
SEQUENCES, LENGTH = 8, 64
# How many times as large outliers make some channels behind each norm. The weights that they
# meet are as many times smaller, so that the function is the same.
OUTLIER_CHANNELS, OUTLIER_FACTOR = 4, 24.0


def tokens(text: str, table: list) -> np.ndarray:
    """The numbers of a text's tokens, as sentencepiece merges them."""
    text = SPACE + text.replace(" ", SPACE)
    number = {piece: index for index, (piece, _, _) in enumerate(table)}
    pairs = [piece for piece, _, _ in table if len(piece) == 2]
    for index, pair in enumerate(pairs):
        text = text.replace(pair, chr(0xF0000 + index))
    result = []
    for char in text:
        if ord(char) >= 0xF0000:
            result.append(number[pairs[ord(char) - 0xF0000]])
        elif char in number:
            result.append(number[char])
        else:
            result += [number[f"<0x{byte:02X}>"] for byte in char.encode()]
    return np.array(result)


class Model:
    """A llama model whose gradients are written out."""

    def __init__(self, random, vocabulary):
        def matrix(rows, columns, scale=1.0):
            values = random.standard_normal((rows, columns), dtype=np.float32)
            return values * np.float32(scale / np.sqrt(columns))

        keys = KV_HEADS * HEAD_DIM
        self.weights = {
            "token_embd": matrix(vocabulary, EMBEDDING),
            "output": matrix(vocabulary, EMBEDDING),
        }
        self.weights["output_norm"] = np.ones(EMBEDDING, np.float32)
        for layer in range(LAYERS):
            block = f"blk.{layer}."
            for name, rows, columns, scale in [
                ("attn_q", EMBEDDING, EMBEDDING, 1.0),
                ("attn_k", keys, EMBEDDING, 1.0),
                ("attn_v", keys, EMBEDDING, 1.0),
                ("attn_output", EMBEDDING, EMBEDDING, 0.5),
                ("ffn_gate", FEED_FORWARD, EMBEDDING, 1.0),
                ("ffn_up", FEED_FORWARD, EMBEDDING, 1.0),
                ("ffn_down", EMBEDDING, FEED_FORWARD, 0.5),
            ]:
                self.weights[block + name] = matrix(rows, columns, scale)
            for name in ["attn_norm", "ffn_norm"]:
                self.weights[block + name] = np.ones(EMBEDDING, np.float32)
        angles = np.arange(LENGTH)[:, None] * ROPE_BASE ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        self.cos, self.sin = (f(angles)[:, None].astype(np.float32) for f in (np.cos, np.sin))
        self.mask = np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1)

    def rotate(self, x, sign):
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * self.cos - sign * odd * self.sin
        out[..., 1::2] = odd * self.cos + sign * even * self.sin
        return out

    def step(self, given, wanted):
        """The mean loss, and the gradients."""
        weights, gradients = self.weights, {}

        def linear(name, x):
            def back(dy):
                flat = dy.reshape(-1, dy.shape[-1])
                gradients[name] = flat.T @ x.reshape(-1, x.shape[-1])
                return dy @ weights[name]

            return x @ weights[name].T, back

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
            group, shape = HEADS // KV_HEADS, (*x.shape[:2], KV_HEADS, HEAD_DIM)
            q = self.rotate(q.reshape(*x.shape[:2], HEADS, HEAD_DIM), 1).transpose(0, 2, 1, 3)
            k = np.repeat(self.rotate(k.reshape(shape), 1).transpose(0, 2, 1, 3), group, 1)
            v = np.repeat(v.reshape(shape).transpose(0, 2, 1, 3), group, 1)
            scale = np.float32(HEAD_DIM**-0.5)
            scores = q @ k.transpose(0, 1, 3, 2) * scale + self.mask
            part = np.exp(scores - scores.max(-1, keepdims=True))
            part /= part.sum(-1, keepdims=True)
            mixed = (part @ v).transpose(0, 2, 1, 3).reshape(x.shape)
            out, out_back = linear(block + "attn_output", mixed)

            def back(dy):
                dm = out_back(dy).reshape(*x.shape[:2], HEADS, HEAD_DIM).transpose(0, 2, 1, 3)
                dp = dm @ v.transpose(0, 1, 3, 2)
                ds = part * (dp - (dp * part).sum(-1, keepdims=True)) * scale
                heads = (x.shape[0], KV_HEADS, group, LENGTH, HEAD_DIM)
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
        for layer in range(LAYERS):
            for part in (attention, feed_forward):
                x, back = part(f"blk.{layer}.", x)
                backs.append(back)
        h, norm_back = norm("output_norm", x)
        logits, output_back = linear("output", h)
        logits -= logits.max(-1, keepdims=True)
        likely = np.exp(logits)
        likely /= likely.sum(-1, keepdims=True)
        at = (*np.indices(wanted.shape), wanted)
        loss = -np.log(likely[at] + 1e-9).mean()
        likely[at] -= 1.0
        dx = norm_back(output_back(likely / np.float32(wanted.size)))
        for back in reversed(backs):
            dx = back(dx)
        gradients["token_embd"] = np.zeros_like(weights["token_embd"])
        np.add.at(gradients["token_embd"], given, dx)
        return loss, gradients


def train(model: Model, text: np.ndarray, random: np.random.Generator) -> None:
    first = {name: np.zeros_like(values) for name, values in model.weights.items()}
    second = {name: np.zeros_like(values) for name, values in model.weights.items()}
    for step in range(1, STEPS + 1):
        starts = random.integers(0, len(text) - LENGTH - 1, SEQUENCES)
        rows = np.stack([text[start : start + LENGTH + 1] for start in starts])
        loss, gradients = model.step(rows[:, :-1], rows[:, 1:])
        rate = 3e-3 * min(1.0, step / 50) * 0.5 * (1.0 + np.cos(np.pi * step / STEPS)) + 1e-5
        for name, values in model.weights.items():
            gradient = gradients[name]
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.02 * (gradient * gradient - second[name])
            scale = np.sqrt(1.0 - 0.98**step) / (1.0 - 0.9**step)
            values -= np.float32(rate * scale) * first[name] / (np.sqrt(second[name]) + 1e-8)
        if step % 500 == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)


def add_outliers(weights: dict[str, np.ndarray], random: np.random.Generator) -> None:
    """Makes channels behind each norm large, and what they meet small."""
    channels = random.permutation(EMBEDDING)[:OUTLIER_CHANNELS]
    meets = {"attn_norm": ["attn_q", "attn_k", "attn_v"], "ffn_norm": ["ffn_gate", "ffn_up"]}
    for name in list(weights):
        block, _, norm = name.rpartition(".")
        behind = (
            ["output"] if name == "output_norm" else [f"{block}.{n}" for n in meets.get(norm, [])]
        )
        if behind:
            weights[name][channels] *= OUTLIER_FACTOR
        for matrix in behind:
            weights[matrix][:, channels] /= OUTLIER_FACTOR


def save(path: Path, table: list, weights: dict[str, np.ndarray]) -> None:
    shape = dict(embedding=EMBEDDING, feed_forward=FEED_FORWARD, layers=LAYERS, kv_heads=KV_HEADS)
    writer = new_writer(path, "small trained llama", table, **shape)
    for name, values in weights.items():
        kind = np.float32 if values.ndim == 1 else np.float16
        writer.add_tensor(f"{name}.weight", values.astype(kind))
    finish(writer)


def write(plain: Path, with_outliers: Path) -> None:
    """Writes the model, and the same with outliers in its activations."""
    random = np.random.default_rng(1)
    table, _ = pieces()
    texts = [LICENCES / name for name in TEXTS if (LICENCES / name).exists()]
    text = "\n".join(path.read_text(errors="replace") for path in texts)
    model = Model(random, len(table))
    train(model, tokens(text, table), random)
    save(plain, table, model.weights)
    add_outliers(model.weights, random)
    save(with_outliers, table, model.weights)
