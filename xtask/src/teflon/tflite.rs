// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes a network as a TensorFlow Lite file.
//!
//! The few tables of the format that are needed, by their field numbers in
//! its published schema (version 3).

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};

use super::network::{ImageShape, Network, NetworkLayer, Quantisation};

/// What a model has behind its first four bytes.
pub(super) const IDENTIFIER: &str = "TFL3";

/// Version of the schema.
const SCHEMA: i32 = 3;

/// `TensorType`.
const INT32: i8 = 2;
const UINT8: i8 = 3;

/// `BuiltinOperator` and `BuiltinOptions` of a convolution and of a depthwise one.
const OPERATORS: [(i8, i8); 2] = [(3, 1), (4, 2)];

/// `Padding`: as much as makes the output as large as the input.
const SAME: i8 = 0;

/// `ActivationFunctionType`: none is 0.
const RELU: i8 = 1;

type Table = WIPOffset<TableFinishedWIPOffset>;

/// The value of a field.
enum Field<'a> {
    Byte(i8),
    Int(i32),
    Ints(&'a [i32]),
    Longs(&'a [i64]),
    Floats(&'a [f32]),
    Bytes(&'a [u8]),
    Table(Table),
    Tables(&'a [Table]),
}
use Field::{Byte, Bytes, Floats, Int, Ints, Longs, Tables};

/// Writes a table of fields with their numbers.
fn table(out: &mut FlatBufferBuilder<'_>, fields: &[(VOffsetT, Field<'_>)]) -> Table {
    // What a table refers to comes before it.
    let places: Vec<_> = fields
        .iter()
        .map(|(_, field)| match field {
            Byte(_) | Int(_) => None,
            Ints(items) => Some(out.create_vector(items).as_union_value()),
            Longs(items) => Some(out.create_vector(items).as_union_value()),
            Floats(items) => Some(out.create_vector(items).as_union_value()),
            Bytes(items) => Some(out.create_vector(items).as_union_value()),
            Field::Table(table) => Some(table.as_union_value()),
            Tables(items) => Some(out.create_vector(items).as_union_value()),
        })
        .collect();
    let start = out.start_table();
    for ((number, field), place) in fields.iter().zip(places) {
        // A vtable starts with two lengths.
        let slot = (2 + number) * size_of::<VOffsetT>() as VOffsetT;
        match (field, place) {
            (Byte(value), _) => out.push_slot_always(slot, *value),
            (Int(value), _) => out.push_slot_always(slot, *value),
            (_, place) => place
                .into_iter()
                .for_each(|at| out.push_slot_always(slot, at)),
        }
    }
    out.end_table(start)
}

/// Collects the parts of the one subgraph.
struct Writer<'a> {
    out: FlatBufferBuilder<'a>,
    tensors: Vec<Table>,
    buffers: Vec<Table>,
}

impl Writer<'_> {
    /// A tensor; without `data` it is computed. Returns its index.
    fn tensor(&mut self, kind: i8, shape: &[i32], of: (f32, i64), data: Option<&[u8]>) -> i32 {
        let out = &mut self.out;
        let buffer = data.map_or(0, |data| {
            self.buffers.push(table(out, &[(0, Bytes(data))]));
            self.buffers.len() as i32 - 1
        });
        let quantisation = table(out, &[(2, Floats(&[of.0])), (3, Longs(&[of.1]))]);
        let fields = [
            (0, Ints(shape)),
            (1, Byte(kind)),
            (2, Int(buffer)),
            (4, Field::Table(quantisation)),
        ];
        self.tensors.push(table(out, &fields));
        self.tensors.len() as i32 - 1
    }

    /// The input or output of a layer.
    fn activation(&mut self, shape: ImageShape, quantisation: Quantisation) -> i32 {
        let [height, width, channels] = shape;
        let quantisation = (quantisation.scale, quantisation.zero_point.into());
        self.tensor(UINT8, &[1, height, width, channels], quantisation, None)
    }

    /// A layer that reads tensor `from`, of `depth` channels; returns operator and output.
    fn layer(&mut self, layer: &NetworkLayer, from: i32, input: (i32, f32)) -> (Table, i32) {
        let (depth, scale) = input;
        let Quantisation {
            scale: weight,
            zero_point,
        } = layer.weight_quantisation;
        let outputs = layer.shape[2];
        let [first, last] = if layer.depthwise {
            [1, outputs]
        } else {
            [outputs, depth]
        };
        let shape = [first, layer.size, layer.size, last];
        let weights = self.tensor(
            UINT8,
            &shape,
            (weight, zero_point.into()),
            Some(&layer.weights),
        );
        let biases: Vec<u8> = layer
            .biases
            .iter()
            .flat_map(|bias| bias.to_le_bytes())
            .collect();
        let biases = self.tensor(INT32, &[outputs], (scale * weight, 0), Some(&biases));
        let to = self.activation(layer.shape, layer.quantisation);

        let activation = Byte(if layer.relu { RELU } else { 0 });
        let mut options = vec![
            (0, Byte(SAME)),
            (1, Int(layer.stride)),
            (2, Int(layer.stride)),
        ];
        if layer.depthwise {
            // One output channel for each input channel.
            options.extend([(3, Int(1)), (4, activation)]);
        } else {
            options.push((3, activation));
        }
        let code = usize::from(layer.depthwise);
        let options = table(&mut self.out, &options);
        let fields = [
            (0, Int(code as i32)),
            (1, Ints(&[from, weights, biases])),
            (2, Ints(&[to])),
            (3, Byte(OPERATORS[code].1)),
            (4, Field::Table(options)),
        ];
        (table(&mut self.out, &fields), to)
    }
}

/// The network as the bytes of a .tflite file.
pub(super) fn write(network: &Network) -> Vec<u8> {
    let mut out = FlatBufferBuilder::new();
    // Buffer 0 is that of tensors without data.
    let buffers = vec![table(&mut out, &[])];
    let mut w = Writer {
        out,
        tensors: Vec::new(),
        buffers,
    };
    let input = w.activation(network.input, network.input_quantisation);
    let mut last = (input, (network.input[2], network.input_quantisation.scale));
    let mut operators = Vec::new();
    for layer in &network.layers {
        let (operator, to) = w.layer(layer, last.0, last.1);
        operators.push(operator);
        last = (to, (layer.shape[2], layer.quantisation.scale));
    }
    let subgraph = [
        (0, Tables(&w.tensors)),
        (1, Ints(&[input])),
        (2, Ints(&[last.0])),
        (3, Tables(&operators)),
    ];
    let subgraph = table(&mut w.out, &subgraph);
    let codes = OPERATORS.map(|(code, _)| {
        let fields = [(0, Byte(code)), (2, Int(1)), (3, Int(code.into()))];
        table(&mut w.out, &fields)
    });
    let model = [
        (0, Int(SCHEMA)),
        (1, Tables(&codes)),
        (2, Tables(&[subgraph])),
        (4, Tables(&w.buffers)),
    ];
    let model = table(&mut w.out, &model);
    w.out.finish(model, Some(IDENTIFIER));
    w.out.finished_data().to_vec()
}
