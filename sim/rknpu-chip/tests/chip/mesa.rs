// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 convolutions as Mesa's Teflon delegate makes them: channels padded to
//! 16, kernels to an even number, results to 32 channels, and weights whose
//! last groups are small.

use families::CONV_RDMA;
use families::conv::{ConvProgram, Rdma};
use families::mesa::{LAYER, MesaLayer};
use proptest::prelude::*;

use super::board::Board;
use super::convolution::{Shape, Tensors};
use super::tensor::{Numbers, cube_index};

/// Difference of uint8 and int8 tensors.
const CENTRE: i64 = 0x80;

/// A layer with its tensors, as uint8.
#[derive(Clone, Debug)]
struct Network {
    layer: MesaLayer,
    /// Zero points of input, weights and output.
    zero: (i64, i64, i64),
    scale: u32,
    shift: u32,
    /// By channel, line and column.
    input: Vec<i64>,
    /// By kernel, channel and tap.
    weights: Vec<i64>,
    bias: Vec<i64>,
}

impl Network {
    fn weight(&self, n: usize, c: usize, tap: usize) -> i64 {
        let taps = (self.layer.kernel * self.layer.kernel) as usize;
        self.weights[(n * self.layer.channels as usize + c) * taps + tap]
    }

    /// All channels and taps of a kernel.
    fn taps(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let taps = (self.layer.kernel * self.layer.kernel) as usize;
        (0..self.layer.channels as usize).flat_map(move |c| (0..taps).map(move |tap| (c, tap)))
    }

    /// Weights as Mesa packs them; channels that do not exist are zero points.
    fn packed(&self) -> Vec<u8> {
        let kernels = self.layer.out.next_multiple_of(2) as usize;
        let channels = self.layer.padded().0 as usize;
        let mut out = Vec::new();
        for n0 in (0..kernels).step_by(32) {
            for c0 in (0..channels).step_by(32) {
                for tap in 0..(self.layer.kernel * self.layer.kernel) as usize {
                    for n in n0..kernels.min(n0 + 32) {
                        for c in c0..channels.min(c0 + 32) {
                            let value = if n >= self.layer.out as usize {
                                0
                            } else if c >= self.layer.channels as usize {
                                self.zero.1 - CENTRE
                            } else {
                                self.weight(n, c, tap) - CENTRE
                            };
                            out.push(value as i8 as u8);
                        }
                    }
                }
            }
        }
        out
    }

    /// The features: a cube of int8, or packed uint8 of one channel.
    fn features(&self) -> Vec<u8> {
        if self.layer.channels == 1 {
            return self.input.iter().map(|&v| v as u8).collect();
        }
        let pixels = (self.layer.width * self.layer.height.0) as usize;
        let mut cube = vec![0x5au8; self.layer.padded().0 as usize * pixels];
        for (i, value) in self.input.iter().enumerate() {
            let at = cube_index(16, pixels, i % pixels, i / pixels);
            cube[at] = (value - CENTRE) as i8 as u8;
        }
        cube
    }

    /// The bias buffer, without what padding and zero points add.
    fn biases(&self) -> Vec<u8> {
        let bias = |n: usize| {
            let Some(bias) = self.bias.get(n) else {
                return 0;
            };
            let weights = self
                .taps()
                .map(|(c, tap)| self.weight(n, c, tap) - self.zero.1);
            bias - weights.sum::<i64>() * (self.zero.0 - CENTRE)
        };
        (0..self.layer.padded().1 as usize)
            .flat_map(|n| (bias(n) as i32).to_le_bytes())
            .collect()
    }

    /// The layer as plain sums, with features without their zero point.
    fn tensors(&self) -> Tensors {
        let layer = &self.layer;
        let [width, height, channels, out] =
            [layer.width, layer.height.0, layer.channels, layer.out].map(|size| size as usize);
        let both = |size: u32| (size as usize, size as usize);
        Tensors {
            shape: Shape {
                stride: both(layer.stride),
                pad: both(layer.pad),
                far_pad: both(layer.pad),
                ..Shape::plain((width, height, channels), out, both(layer.kernel))
            },
            depthwise: false,
            input: self
                .input
                .iter()
                .map(|v| (v - self.zero.0) as f64)
                .collect(),
            weights: self.weights.iter().map(|&w| w as f64).collect(),
        }
    }

    /// One output, as uint8.
    fn expected(&self, tensors: &Tensors, n: usize, pixel: usize) -> i64 {
        let (sum, _) = tensors.sum(n, pixel, |_| 0.0, -self.zero.1 as f64);
        let sum = sum + self.bias[n] as f64;
        let scaled = sum * f64::from(self.scale) / f64::from(1u32 << self.shift);
        (scaled.round_ties_even() as i64 + self.zero.2).clamp(0, 255)
    }

    fn assert_right(&self) {
        let layer = &self.layer;
        let tensors = self.tensors();
        let len = tensors.shape.pixels() * layer.padded().1 as usize;
        let mut board = Board::strict(1 << 20);
        let conv = ConvProgram {
            pad_value: ((self.zero.0 - CENTRE) as u8 as u32) * 0x0101_0101,
            data_banks: 6,
            ow_op: (CENTRE - self.zero.1) as u32 & 0xffff,
            out_offset: (self.zero.2 - CENTRE) as u32,
            out_scale: self.scale,
            out_shift: self.shift,
            a: board.place(&self.features()),
            b: board.place(&self.packed()),
            c: board.reserve(len),
            rdma: Some(Rdma::bias(board.place(&self.biases()))),
            ..layer.conv()
        };
        board
            .run(&layer.words(&conv).finish(CONV_RDMA))
            .assert_clean();
        let out = board.bytes(conv.c, len);
        for (n, p) in tensors.outputs() {
            let got = i64::from(out[tensors.place_of(n, p, 1)] as i8) + CENTRE;
            let expected = self.expected(&tensors, n, p);
            assert_eq!(got, expected, "channel {n} pixel {p} of {layer:?}");
        }
    }
}

fn network(layer: MesaLayer) -> impl Strategy<Value = Network> {
    let zero = (0i64..256, 0i64..256, 0i64..256);
    (zero, 0x4000u32..0x8000, 20u32..28, any::<u64>()).prop_map(
        move |(zero, scale, shift, seed)| {
            let mut numbers = Numbers::new(seed);
            let mut ints = |len: u32, (low, high)| -> Vec<i64> {
                (0..len).map(|_| numbers.int(low, high)).collect()
            };
            let kernel = layer.channels * layer.kernel * layer.kernel;
            Network {
                layer,
                zero,
                scale,
                shift,
                input: ints(layer.channels * layer.width * layer.height.0, (0, 255)),
                weights: ints(layer.out * kernel, (0, 255)),
                bias: ints(layer.out, (-10_000, 10_000)),
            }
        },
    )
}

fn layers() -> impl Strategy<Value = MesaLayer> {
    let size = (3u32..9, 3u32..9);
    let window = (1u32..4, 1u32..3, 0u32..2);
    (size, 2u32..70, 1u32..70, window).prop_map(
        |((width, height), channels, out, (kernel, stride, pad))| MesaLayer {
            width,
            height: (height, height),
            channels,
            out,
            kernel,
            stride,
            pad: pad.min(kernel - 1),
            ..LAYER
        },
    )
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn a_layer_is_what_the_network_means(network in layers().prop_flat_map(network)) {
        network.assert_right();
    }

    #[test]
    fn an_image_of_one_channel(
        mut network in (layers(), 16u32..20, 4u32..9).prop_flat_map(|(layer, width, height)| {
            network(MesaLayer { width, height: (height, height), channels: 1, ..layer })
        }),
    ) {
        // The other channels of the padded sixteen hold no pixels.
        network.zero.0 = CENTRE;
        network.assert_right();
    }
}
