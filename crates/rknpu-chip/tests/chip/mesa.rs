// SPDX-License-Identifier: MIT OR Apache-2.0
//! int8 convolutions as Mesa's Teflon delegate asks for them: channels padded
//! to 16, kernels to an even number, results to 32 channels, and weights whose
//! last groups are small.

use proptest::prelude::*;
use rknpu_regcmd::regs::{cna, core, dpu};

use super::board::Board;
use super::programs::{Conv, MatType, Rdma, Words};
use super::tensor::Numbers;

/// What uint8 tensors are shifted by to become int8.
const CENTRE: i64 = 0x80;

#[derive(Clone, Debug)]
struct Layer {
    size: (usize, usize),
    channels: usize,
    kernels: usize,
    kernel: usize,
    stride: usize,
    pad: usize,
    /// Zero points of input, weights and output, as uint8.
    zero: (i64, i64, i64),
    scale: u32,
    shift: u32,
}

impl Layer {
    fn padded(&self) -> usize {
        self.channels.max(16).next_multiple_of(16)
    }

    fn written(&self) -> usize {
        self.kernels.max(32).next_multiple_of(32)
    }

    fn output(&self) -> (usize, usize) {
        let one = |size: usize| (size + 2 * self.pad - self.kernel) / self.stride + 1;
        (one(self.size.0), one(self.size.1))
    }

    /// Weights as Mesa packs them; channels that do not exist are zero points.
    fn pack(&self, weight: impl Fn(usize, usize, usize, usize) -> i64) -> Vec<u8> {
        let kernels = self.kernels.next_multiple_of(2);
        let mut out = Vec::new();
        for n0 in (0..kernels).step_by(32) {
            for c0 in (0..self.padded()).step_by(32) {
                for ky in 0..self.kernel {
                    for kx in 0..self.kernel {
                        for n in n0..kernels.min(n0 + 32) {
                            for c in c0..self.padded().min(c0 + 32) {
                                let value = if n >= self.kernels {
                                    0
                                } else if c >= self.channels {
                                    self.zero.1 - CENTRE
                                } else {
                                    weight(n, c, ky, kx) - CENTRE
                                };
                                out.push(value as i8 as u8);
                            }
                        }
                    }
                }
            }
        }
        out
    }

    fn conv(&self, at: (u32, u32, u32), bias: u32, weight_bytes: usize) -> Conv {
        let (iw, ih) = (self.size.0 as u32, self.size.1 as u32);
        let (ow, oh) = self.output();
        let (ow, oh) = (ow as u32, oh as u32);
        let mut conv = MatType::Int8Int32.matmul(4, 32, 32, at);
        let taps = (self.kernel * self.kernel) as u32;
        conv.po = 0;
        conv.input = (iw, ih, self.padded() as u32);
        conv.output = (ow, oh, self.written() as u32);
        conv.kernel = (self.kernel as u32, self.kernel as u32);
        conv.kernels = self.kernels.next_multiple_of(2) as u32;
        conv.kernel_bytes = taps * self.padded() as u32;
        conv.weight_bytes = weight_bytes as u32;
        conv.stride = (self.stride as u32, self.stride as u32);
        conv.pad = (self.pad as u32, self.pad as u32);
        conv.pad_value = ((self.zero.0 - CENTRE) as u8 as u32) * 0x0101_0101;
        conv.grains = 50 + self.stride as u32 + 1;
        conv.entries = (iw * 2 * self.channels.div_ceil(16) as u32).div_ceil(8);
        conv.data_banks = 6;
        conv.line_stride = 4 * iw;
        conv.surf_stride = iw as i32 * (ih as i32 - 4);
        conv.qd = 1;
        conv.bs_cfg = 0x20150;
        conv.od_bypass = 0;
        conv.ow_op = (CENTRE - self.zero.1) as u32 & 0xffff;
        conv.size_e = 1;
        conv.writer = (ow, oh, ow * oh, 0, 2 * ow * oh);
        conv.out_offset = (self.zero.2 - CENTRE) as u32;
        conv.out_scale = self.scale;
        conv.out_shift = self.shift;
        conv.rdma = Some(Rdma {
            brdma: 2,
            bias,
            ..Rdma::default()
        });
        conv
    }

    /// One output, from uint8 tensors.
    fn expected(
        &self,
        (n, oy, ox): (usize, usize, usize),
        bias: i64,
        input: impl Fn(usize, usize, usize) -> i64,
        weight: impl Fn(usize, usize, usize, usize) -> i64,
    ) -> i64 {
        let mut sum = bias;
        for c in 0..self.channels {
            for ky in 0..self.kernel {
                for kx in 0..self.kernel {
                    let y = (oy * self.stride + ky).wrapping_sub(self.pad);
                    let x = (ox * self.stride + kx).wrapping_sub(self.pad);
                    if y < self.size.1 && x < self.size.0 {
                        sum +=
                            (input(c, y, x) - self.zero.0) * (weight(n, c, ky, kx) - self.zero.1);
                    }
                }
            }
        }
        let scaled = sum as f64 * f64::from(self.scale) / f64::from(1u32 << self.shift);
        let y = scaled.round_ties_even() as i64 + self.zero.2;
        y.clamp(0, 255)
    }

    /// The bias buffer: what padding and zero points add is taken off.
    fn bias(&self, bias: &[i64], weight: impl Fn(usize, usize, usize, usize) -> i64) -> Vec<u8> {
        (0..self.written())
            .flat_map(|n| {
                let mut value = bias.get(n).copied().unwrap_or(0);
                if n < self.kernels {
                    for c in 0..self.channels {
                        for ky in 0..self.kernel {
                            for kx in 0..self.kernel {
                                let w = weight(n, c, ky, kx) - self.zero.1;
                                value -= w * (self.zero.0 - CENTRE);
                            }
                        }
                    }
                }
                (value as i32).to_le_bytes()
            })
            .collect()
    }
}

fn layers() -> impl Strategy<Value = Layer> {
    (
        (3usize..9, 3usize..9),
        2usize..70,
        1usize..70,
        1usize..4,
        1usize..3,
        0usize..2,
        (0i64..256, 0i64..256, 0i64..256),
        0x4000u32..0x8000,
        20u32..28,
    )
        .prop_map(
            |(size, channels, kernels, kernel, stride, pad, zero, scale, shift)| Layer {
                size,
                channels,
                kernels,
                kernel,
                stride,
                pad: pad.min(kernel - 1),
                zero,
                scale,
                shift,
            },
        )
}

/// Random uint8 tensors of a layer.
struct Tensors {
    input: Vec<i64>,
    weights: Vec<i64>,
    bias: Vec<i64>,
}

impl Tensors {
    fn new(layer: &Layer, seed: u64) -> Self {
        let mut numbers = Numbers::new(seed);
        let mut bytes = |len: usize| (0..len).map(|_| numbers.int(0, 255)).collect::<Vec<_>>();
        let input = bytes(layer.channels * layer.size.0 * layer.size.1);
        let weights = bytes(layer.kernels * layer.channels * layer.kernel * layer.kernel);
        let bias = (0..layer.kernels)
            .map(|_| numbers.int(-10_000, 10_000))
            .collect();
        Self {
            input,
            weights,
            bias,
        }
    }
}

fn run(layer: &Layer, seed: u64, image: bool) {
    let tensors = Tensors::new(layer, seed);
    let (iw, ih) = layer.size;
    let k = layer.kernel;
    let input = |c: usize, y: usize, x: usize| tensors.input[(c * ih + y) * iw + x];
    let weight = |n: usize, c: usize, ky: usize, kx: usize| {
        tensors.weights[((n * layer.channels + c) * k + ky) * k + kx]
    };
    let packed = layer.pack(weight);
    let bytes: Vec<u8> = if image {
        tensors.input.iter().map(|&v| v as u8).collect()
    } else {
        let mut cube = vec![0x5au8; layer.padded() * iw * ih];
        for c in 0..layer.channels {
            for y in 0..ih {
                for x in 0..iw {
                    let at = ((c / 16) * iw * ih + y * iw + x) * 16 + c % 16;
                    cube[at] = (input(c, y, x) - CENTRE) as i8 as u8;
                }
            }
        }
        cube
    };
    let (ow, oh) = layer.output();
    let len = ow * oh * layer.written();
    let mut board = Board::strict(1 << 20);
    let at = (
        board.place(&bytes),
        board.place(&packed),
        board.reserve(len),
    );
    let bias = board.place(&layer.bias(&tensors.bias, weight));
    let conv = layer.conv(at, bias, packed.len());
    let mut words = conv.words();
    words
        .patch::<cna::DataSize1>((layer.channels as u32 - 1) << 16 | layer.padded() as u32)
        .patch::<dpu::DataCubeChannel>(
            (layer.kernels as u32 - 1) << 16 | (layer.written() as u32 - 1),
        )
        .patch::<core::DataoutSize1>(layer.written() as u32 - 1);
    if image {
        single_channel(&mut words, iw as u32, ih as u32);
    }
    board.run(&words.finish(0x1d)).assert_clean();
    let out = board.bytes(at.2, len);
    for n in 0..layer.kernels {
        for oy in 0..oh {
            for ox in 0..ow {
                let expected = layer.expected((n, oy, ox), tensors.bias[n], input, weight);
                let at = ((n / 16) * ow * oh + oy * ow + ox) * 16 + n % 16;
                let got = i64::from(out[at] as i8) + CENTRE;
                assert_eq!(got, expected, "channel {n} at ({oy}, {ox}) of {layer:?}");
            }
        }
    }
}

/// Mesa's registers for an image of one channel: packed pixels, converted
/// from uint8 on the way in.
fn single_channel(words: &mut Words, width: u32, height: u32) {
    let line = width.max(16);
    words
        .patch::<cna::ConvCon1>(0x6000_8000)
        .patch::<cna::CbufCon1>(width * height)
        .patch::<cna::CvtCon0>(0x038e_38e0)
        .patch::<cna::CvtCon1>(16384 << 16 | 65408)
        .patch::<cna::CvtCon2>(16384 << 16 | 65408)
        .patch::<cna::CvtCon3>(16384 << 16 | 65408)
        .patch::<cna::CvtCon4>(16384 << 16 | 65408)
        .patch::<cna::CvtCon5>(0xffff)
        .patch::<cna::DmaCon1>(line)
        .patch::<cna::DmaCon2>((line * (height - 1)) & 0x0fff_ffff);
}

proptest! {
    #![proptest_config(test_support::cases(24))]

    #[test]
    fn a_layer_is_what_the_network_means(layer in layers(), seed: u64) {
        run(&layer, seed, false);
    }

    #[test]
    fn an_image_of_one_channel(layer in layers(), size in (16usize..20, 4usize..9), seed: u64) {
        // Other channels of the padded sixteen hold no pixels.
        let layer = Layer { channels: 1, size, zero: (128, layer.zero.1, layer.zero.2), ..layer };
        run(&layer, seed, true);
    }
}
