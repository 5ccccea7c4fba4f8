// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a network as a TensorFlow Lite file.
//!
//! The few tables of the format that are needed, by their field numbers in
//! its published schema (version 3).

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};

use super::network::{ConvFilters, ImageShape, LayerOperator, Network, Quantisation};

/// Version of the schema.
const SCHEMA: u32 = 3;
const IDENTIFIER: &str = "TFL3";

/// `TensorType`.
const INT32: i8 = 2;
const UINT8: i8 = 3;

/// `BuiltinOperator`, the index into the operator codes, and `BuiltinOptions`.
const OPERATORS: [(i8, u8); 2] = [(3, 1), (4, 2)];
const CONV_2D: usize = 0;
const DEPTHWISE_CONV_2D: usize = 1;

/// `Padding`: as much as makes the output as large as the input.
const SAME: i8 = 0;

/// `ActivationFunctionType`.
const NONE: i8 = 0;
const RELU: i8 = 1;

type Table = WIPOffset<TableFinishedWIPOffset>;

/// Where field `number` of a table is in its vtable: behind two lengths.
fn slot(number: VOffsetT) -> VOffsetT {
    const BYTES: VOffsetT = size_of::<VOffsetT>() as VOffsetT;
    (2 + number) * BYTES
}

/// Collects the parts of the one subgraph.
struct Writer<'a> {
    out: FlatBufferBuilder<'a>,
    tensors: Vec<Table>,
    buffers: Vec<Table>,
}

impl Writer<'_> {
    /// A tensor; without `data` it is computed.
    fn tensor(
        &mut self,
        kind: i8,
        shape: &[i32],
        quantisation: (f32, i64),
        data: Option<&[u8]>,
    ) -> i32 {
        let buffer = data.map_or(0, |data| {
            let data = self.out.create_vector(data);
            let table = self.out.start_table();
            self.out.push_slot_always(slot(0), data);
            self.buffers.push(self.out.end_table(table));
            self.buffers.len() as u32 - 1
        });
        let shape = self.out.create_vector(shape);
        let name = self.out.create_string(&format!("t{}", self.tensors.len()));
        let scale = self.out.create_vector(&[quantisation.0]);
        let zero_point = self.out.create_vector(&[quantisation.1]);
        let table = self.out.start_table();
        self.out.push_slot_always(slot(2), scale);
        self.out.push_slot_always(slot(3), zero_point);
        let quantisation = self.out.end_table(table);
        let table = self.out.start_table();
        self.out.push_slot_always(slot(0), shape);
        self.out.push_slot_always(slot(1), kind);
        self.out.push_slot_always(slot(2), buffer);
        self.out.push_slot_always(slot(3), name);
        self.out.push_slot_always(slot(4), quantisation);
        self.tensors.push(self.out.end_table(table));
        self.tensors.len() as i32 - 1
    }

    /// The input or output of a layer.
    fn activation(&mut self, shape: ImageShape, quantisation: Quantisation) -> i32 {
        let [height, width, channels] = shape;
        let Quantisation { scale, zero_point } = quantisation;
        self.tensor(
            UINT8,
            &[1, height, width, channels],
            (scale, zero_point.into()),
            None,
        )
    }

    /// The weights and the biases of a layer that reads `input`.
    fn kernels(&mut self, kernels: &ConvFilters, shape: [i32; 4], input: Quantisation) -> [i32; 2] {
        let Quantisation { scale, zero_point } = kernels.quantisation;
        let weights = self.tensor(
            UINT8,
            &shape,
            (scale, zero_point.into()),
            Some(&kernels.weights),
        );
        let biases: Vec<u8> = kernels
            .biases
            .iter()
            .flat_map(|bias| bias.to_le_bytes())
            .collect();
        let biases = self.tensor(
            INT32,
            &[kernels.biases.len() as i32],
            (input.scale * scale, 0),
            Some(&biases),
        );
        [weights, biases]
    }

    /// `Conv2DOptions` or `DepthwiseConv2DOptions`.
    fn options(&mut self, code: usize, stride: i32, relu: bool) -> Table {
        let activation = if relu { RELU } else { NONE };
        let table = self.out.start_table();
        self.out.push_slot_always(slot(0), SAME);
        self.out.push_slot_always(slot(1), stride);
        self.out.push_slot_always(slot(2), stride);
        if code == DEPTHWISE_CONV_2D {
            // One output channel for each input channel.
            self.out.push_slot_always(slot(3), 1i32);
            self.out.push_slot_always(slot(4), activation);
        } else {
            self.out.push_slot_always(slot(3), activation);
        }
        self.out.end_table(table)
    }

    fn operator(&mut self, code: usize, inputs: &[i32], output: i32, options: Table) -> Table {
        let inputs = self.out.create_vector(inputs);
        let outputs = self.out.create_vector(&[output]);
        let table = self.out.start_table();
        self.out.push_slot_always(slot(0), code as u32);
        self.out.push_slot_always(slot(1), inputs);
        self.out.push_slot_always(slot(2), outputs);
        self.out.push_slot_always(slot(3), OPERATORS[code].1);
        self.out.push_slot_always(slot(4), options);
        self.out.end_table(table)
    }
}

/// The network as the bytes of a .tflite file.
pub(super) fn write(network: &Network) -> Vec<u8> {
    let mut w = Writer {
        out: FlatBufferBuilder::new(),
        tensors: Vec::new(),
        buffers: Vec::new(),
    };
    // Buffer 0 is that of tensors without data.
    let table = w.out.start_table();
    let none = w.out.end_table(table);
    w.buffers.push(none);

    let input = w.activation(network.input, network.input_quantisation);
    let mut last = (input, network.input[2], network.input_quantisation);
    let mut operators = Vec::new();
    for layer in &network.layers {
        let (from, depth, quantisation) = last;
        let output = layer.shape[2];
        let (kernels, code, shape) = match &layer.kind {
            LayerOperator::Convolution(kernels) => {
                let shape = [output, kernels.size, kernels.size, depth];
                (kernels, CONV_2D, shape)
            }
            LayerOperator::Depthwise(kernels) => {
                let shape = [1, kernels.size, kernels.size, output];
                (kernels, DEPTHWISE_CONV_2D, shape)
            }
        };
        let [weights, biases] = w.kernels(kernels, shape, quantisation);
        let to = w.activation(layer.shape, layer.quantisation);
        let options = w.options(code, kernels.stride, layer.relu);
        operators.push(w.operator(code, &[from, weights, biases], to, options));
        last = (to, output, layer.quantisation);
    }
    finish(w, input, last.0, &operators)
}

/// The tables around the parts.
fn finish(mut w: Writer<'_>, input: i32, output: i32, operators: &[Table]) -> Vec<u8> {
    let tensors = w.out.create_vector(&w.tensors);
    let inputs = w.out.create_vector(&[input]);
    let outputs = w.out.create_vector(&[output]);
    let operators = w.out.create_vector(operators);
    let table = w.out.start_table();
    w.out.push_slot_always(slot(0), tensors);
    w.out.push_slot_always(slot(1), inputs);
    w.out.push_slot_always(slot(2), outputs);
    w.out.push_slot_always(slot(3), operators);
    let subgraph = w.out.end_table(table);
    let subgraphs = w.out.create_vector(&[subgraph]);
    let codes: Vec<Table> = OPERATORS
        .iter()
        .map(|&(code, _)| {
            let table = w.out.start_table();
            w.out.push_slot_always(slot(0), code);
            w.out.push_slot_always(slot(2), 1i32);
            w.out.push_slot_always(slot(3), i32::from(code));
            w.out.end_table(table)
        })
        .collect();
    let codes = w.out.create_vector(&codes);
    let buffers = w.out.create_vector(&w.buffers);
    let table = w.out.start_table();
    w.out.push_slot_always(slot(0), SCHEMA);
    w.out.push_slot_always(slot(1), codes);
    w.out.push_slot_always(slot(2), subgraphs);
    w.out.push_slot_always(slot(4), buffers);
    let model = w.out.end_table(table);
    w.out.finish(model, Some(IDENTIFIER));
    w.out.finished_data().to_vec()
}
