# SPDX-License-Identifier: MIT OR Apache-2.0
"""Small quantised networks with random numbers: what the delegate's convolutions and depthwise
convolutions meet in a MobileNet, as TensorFlow Lite files.

Two things that the delegate's `rocket` driver (Mesa 26.2) does are kept in mind. What it pads with
fills even and odd channels alike only for the zero points 0 and 128; with others an NPU gets the
edges wrong. And it adds tensors for a list of scales, those of one network, and nothing for others:
so there are no additions here.
"""

from math import sqrt

import flatbuffers
import numpy as np
import tflite
from tflite import (
    ActivationFunctionType,
    BuiltinOperator,
    BuiltinOptions,
    Padding,
    TensorType,
)

# What a file has behind its first four bytes, and the version of the schema.
IDENTIFIER, SCHEMA = b"TFL3", 3
# The layers: edge of the filters, stride, and output channels (depthwise: None). Height, width and
# channels of the input come first.
NETWORKS = {
    "pointwise": ([20, 20, 32], [(1, 1, 64)]),
    "spatial": ([40, 40, 16], [(3, 1, 32)]),
    "strided": ([56, 56, 32], [(3, 2, 48)]),
    "deep": ([10, 10, 512], [(1, 1, 512)]),
    "tiles": ([112, 112, 32], [(3, 1, 64)]),
    "depthwise": ([56, 56, 64], [(3, 1, None)]),
    "depthwise-strided": ([56, 56, 64], [(3, 2, None)]),
    "image": ([64, 64, 3], [(3, 2, 32)]),
    "mobile": (
        [64, 64, 3],
        [(3, 2, 32), (3, 1, None), (1, 1, 64), (3, 2, None)]
        + [(1, 1, 128), (3, 1, None), (1, 1, 128)],
    ),
    "odd-padding": ([28, 28, 32], [(3, 1, 32)]),
}
# The middle of uint8, the zero point of inputs, but for the network that is to meet a trap of the
# hardware by another: the model must name it, and nothing can be said about the outputs.
MIDDLE = 128
ODD_ZERO_POINT = {"odd-padding": 100}
TRAPS = {"odd-padding": "T50-pad-pattern"}
# Standard deviations: of a byte that takes all values alike, and of an output, in units of its
# scale: most of it fits 8 bits, some of it saturates.
UNIFORM_BYTE, OUTPUT_SPREAD = 73.9, 50.0

# A scale and a zero point.
Quantisation = tuple[float, int]


class Writer:
    """Collects the parts of the one subgraph of a file."""

    def __init__(self, random: np.random.Generator):
        self.random = random
        self.builder = flatbuffers.Builder()
        # Buffer 0 is that of tensors without data.
        self.buffers = [self.table("Buffer")]
        self.tensors, self.operators = [], []

    def table(self, kind: str, **fields: object) -> int:
        """Writes a table of the schema, with what it refers to before it."""
        fields = {name: self._value(value) for name, value in fields.items()}
        getattr(tflite, f"{kind}Start")(self.builder)
        for name, value in fields.items():
            getattr(tflite, f"{kind}Add{name}")(self.builder, value)
        return getattr(tflite, f"{kind}End")(self.builder)

    def _value(self, value: object) -> int:
        if isinstance(value, np.ndarray):
            return self.builder.CreateNumpyVector(value)
        if isinstance(value, list):
            self.builder.StartVector(4, len(value), 4)
            for table in reversed(value):
                self.builder.PrependUOffsetTRelative(table)
            return self.builder.EndVector()
        return value

    def tensor(self, shape: list[int], of: Quantisation, data: np.ndarray | None = None) -> int:
        """A tensor of bytes, or of 32 bits if its data is; without data it is computed."""
        buffer = 0
        if data is not None:
            self.buffers.append(self.table("Buffer", Data=data.reshape(-1).view(np.uint8)))
            buffer = len(self.buffers) - 1
        wide = data is not None and data.dtype == np.int32
        scale, zero_point = np.array([of[0]], np.float32), np.array([of[1]], np.int64)
        self.tensors.append(
            self.table(
                "Tensor",
                Shape=np.array(shape, np.int32),
                Type=TensorType.INT32 if wide else TensorType.UINT8,
                Buffer=buffer,
                Quantization=self.table(
                    "QuantizationParameters", Scale=scale, ZeroPoint=zero_point
                ),
            )
        )
        return len(self.tensors) - 1

    def layer(
        self,
        source: int,
        shape: list[int],
        scale: float,
        size: int,
        stride: int,
        outputs: int | None,
    ) -> tuple[int, list[int], float]:
        """A layer that reads the tensor `source` of `shape` and `scale`; returns the same of its
        output. Its weights are random, and the scale of its output suits them."""
        random, (height, width, channels) = self.random, shape
        depthwise, relu = outputs is None, bool(random.integers(2))
        outputs = outputs or channels
        filters = [1, size, size, channels] if depthwise else [outputs, size, size, channels]
        weights = random.integers(256, size=filters, dtype=np.uint8)
        weight_scale = 1 / 256
        weight_tensor = self.tensor(filters, (weight_scale, random.integers(110, 146)), weights)
        unit = scale * weight_scale
        biases = random.integers(-9000, 9000, outputs, dtype=np.int32)
        bias_tensor = self.tensor([outputs], (unit, 0), biases)
        taps = size * size * (1 if depthwise else channels)
        # As large as "same" padding makes it.
        shape = [-(-height // stride), -(-width // stride), outputs]
        scale = unit * sqrt(taps) * UNIFORM_BYTE**2 / OUTPUT_SPREAD
        output = self.tensor([1, *shape], (scale, 0 if relu else MIDDLE))

        options = dict(Padding=Padding.SAME, StrideW=stride, StrideH=stride)
        activation = ActivationFunctionType.RELU if relu else ActivationFunctionType.NONE
        options |= dict(FusedActivationFunction=activation)
        kind = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        # One output channel for each input channel.
        options |= dict(DepthMultiplier=1) if depthwise else {}
        operator = dict(
            OpcodeIndex=int(depthwise),
            Inputs=np.array([source, weight_tensor, bias_tensor], np.int32),
            Outputs=np.array([output], np.int32),
            BuiltinOptionsType=getattr(BuiltinOptions, kind),
            BuiltinOptions=self.table(kind, **options),
        )
        self.operators.append(self.table("Operator", **operator))
        return output, shape, scale


def write(name: str, seed: int) -> bytes:
    """The network as the bytes of a .tflite file."""
    writer = Writer(np.random.default_rng(seed))
    shape, layers = NETWORKS[name]
    scale = 1 / 128
    first = last = writer.tensor([1, *shape], (scale, ODD_ZERO_POINT.get(name, MIDDLE)))
    for layer in layers:
        last, shape, scale = writer.layer(last, shape, scale, *layer)
    subgraph = writer.table(
        "SubGraph",
        Tensors=writer.tensors,
        Inputs=np.array([first], np.int32),
        Outputs=np.array([last], np.int32),
        Operators=writer.operators,
    )
    codes = [BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D]
    model = dict(
        Version=SCHEMA,
        OperatorCodes=[
            writer.table("OperatorCode", DeprecatedBuiltinCode=code, Version=1, BuiltinCode=code)
            for code in codes
        ],
        Subgraphs=[subgraph],
        Buffers=writer.buffers,
    )
    writer.builder.Finish(writer.table("Model", **model), IDENTIFIER)
    return bytes(writer.builder.Output())
