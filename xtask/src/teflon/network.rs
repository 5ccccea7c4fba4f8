// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small quantised networks: what the delegate's convolutions and depthwise
//! convolutions meet in a MobileNet, with random numbers.
//!
//! Two things that the delegate's `rocket` driver (Mesa 26.2) does are kept in
//! mind. What it pads with fills even and odd channels alike only for the zero
//! points 0 and 128; with others a NPU gets the edges wrong. And it adds tensors
//! for a list of scales, those of one network, and nothing for others: so there
//! are no additions here.

use fastrand::Rng;

/// Height, width, channels.
pub(super) type ImageShape = [i32; 3];

/// uint8 with one scale and one zero point.
#[derive(Debug, Clone, Copy)]
pub(super) struct Quantisation {
    pub(super) scale: f32,
    pub(super) zero_point: u8,
}

/// A convolution and its output.
#[derive(Debug, Clone)]
pub(super) struct NetworkLayer {
    /// Whether each channel has one filter of its own.
    pub(super) depthwise: bool,
    /// Height and width of a filter, elements.
    pub(super) size: i32,
    pub(super) stride: i32,
    pub(super) relu: bool,
    /// `[output channels][size][size][input channels]`, depthwise `[1][size][size][channels]`.
    pub(super) weights: Vec<u8>,
    pub(super) weight_quantisation: Quantisation,
    /// Biases in units of input scale times weight scale.
    pub(super) biases: Vec<i32>,
    pub(super) shape: ImageShape,
    pub(super) quantisation: Quantisation,
}

/// Layers in a chain.
#[derive(Debug, Clone)]
pub(super) struct Network {
    pub(super) name: &'static str,
    pub(super) input: ImageShape,
    pub(super) input_quantisation: Quantisation,
    pub(super) layers: Vec<NetworkLayer>,
    /// A trap of the hardware that the delegate falls into: the model must say
    /// so, and nothing can be said about the outputs.
    pub(super) trap: Option<&'static str>,
}

/// Standard deviation of a byte that takes all values alike.
const UNIFORM_BYTE: f32 = 73.9;

/// Standard deviation that an output of random operands should have, in units
/// of its scale: most of it fits 8 bits, some of it saturates.
const OUTPUT_SPREAD: f32 = 50.0;

/// The middle of uint8.
const MIDDLE: u8 = 128;

impl Network {
    fn new(name: &'static str, input: ImageShape) -> Self {
        Self {
            name,
            input,
            input_quantisation: Quantisation {
                scale: 1.0 / 128.0,
                zero_point: MIDDLE,
            },
            layers: Vec::new(),
            trap: None,
        }
    }

    /// The same for an input of another zero point.
    fn zero_point(mut self, zero_point: u8, trap: &'static str) -> Self {
        self.input_quantisation.zero_point = zero_point;
        self.trap = Some(trap);
        self
    }

    /// Shape and quantisation of what the next layer reads.
    fn last(&self) -> (ImageShape, Quantisation) {
        self.layers
            .last()
            .map_or((self.input, self.input_quantisation), |layer| {
                (layer.shape, layer.quantisation)
            })
    }

    /// Adds a layer of random weights, with a quantisation that suits its outputs.
    fn layer(mut self, rng: &mut Rng, [size, stride]: [i32; 2], outputs: Option<i32>) -> Self {
        let relu = rng.bool();
        let ([height, width, channels], input) = self.last();
        let (depthwise, depth, outputs) = match outputs {
            Some(outputs) => (false, channels, outputs),
            None => (true, 1, channels),
        };
        let taps = size * size * depth;
        let weight_quantisation = Quantisation {
            scale: 1.0 / 256.0,
            zero_point: rng.u8(110..146),
        };
        let unit = input.scale * weight_quantisation.scale;
        let spread = (taps as f32).sqrt() * UNIFORM_BYTE * UNIFORM_BYTE;
        self.layers.push(NetworkLayer {
            depthwise,
            size,
            stride,
            relu,
            weights: (0..taps * outputs).map(|_| rng.u8(..)).collect(),
            weight_quantisation,
            biases: (0..outputs).map(|_| rng.i32(-9000..9000)).collect(),
            // With as much padding as "same" asks for.
            shape: [
                (height + stride - 1) / stride,
                (width + stride - 1) / stride,
                outputs,
            ],
            quantisation: Quantisation {
                scale: unit * spread / OUTPUT_SPREAD,
                zero_point: if relu { 0 } else { MIDDLE },
            },
        });
        self
    }

    fn convolution(self, rng: &mut Rng, size: i32, stride: i32, outputs: i32) -> Self {
        self.layer(rng, [size, stride], Some(outputs))
    }

    fn depthwise(self, rng: &mut Rng, size: i32, stride: i32) -> Self {
        self.layer(rng, [size, stride], None)
    }
}

/// The networks that are run.
pub(super) fn all(seed: u64) -> Vec<Network> {
    let rng = &mut Rng::with_seed(seed);
    vec![
        Network::new("pointwise", [20, 20, 32]).convolution(rng, 1, 1, 64),
        Network::new("spatial", [40, 40, 16]).convolution(rng, 3, 1, 32),
        Network::new("strided", [56, 56, 32]).convolution(rng, 3, 2, 48),
        Network::new("deep", [10, 10, 512]).convolution(rng, 1, 1, 512),
        Network::new("tiles", [112, 112, 32]).convolution(rng, 3, 1, 64),
        Network::new("depthwise", [56, 56, 64]).depthwise(rng, 3, 1),
        Network::new("depthwise-strided", [56, 56, 64]).depthwise(rng, 3, 2),
        Network::new("image", [64, 64, 3]).convolution(rng, 3, 2, 32),
        Network::new("mobile", [64, 64, 3])
            .convolution(rng, 3, 2, 32)
            .depthwise(rng, 3, 1)
            .convolution(rng, 1, 1, 64)
            .depthwise(rng, 3, 2)
            .convolution(rng, 1, 1, 128)
            .depthwise(rng, 3, 1)
            .convolution(rng, 1, 1, 128),
        Network::new("odd-padding", [28, 28, 32])
            .zero_point(100, "T50-pad-pattern")
            .convolution(rng, 3, 1, 32),
    ]
}
