// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only public capture of silicon output: a depthwise int8 convolution,
//! compared byte for byte.
//!
//! `data/depthwise-64x8x8.txt` has bias, weights, outputs and their source.

use super::board::Board;
use families::conv::{ConvProgram, Rdma, captured_depthwise};

const CAPTURE: &str = include_str!("data/depthwise-64x8x8.txt");
const CHANNELS: usize = 64;
const SIDE: usize = 8;
pub(crate) const BYTES: usize = CHANNELS * SIDE * SIDE;

struct Channel {
    bias: i32,
    weights: [i8; 9],
    /// By row class and column class: first, inner, last.
    outputs: [i8; 9],
}

fn capture() -> Vec<Channel> {
    CAPTURE
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .enumerate()
        .map(|(number, line)| {
            let values: Vec<i32> = line
                .split_whitespace()
                .map(|word| word.parse().unwrap())
                .collect();
            assert_eq!((values[0] as usize, values.len()), (number, 20));
            let nine = |at: usize| std::array::from_fn(|i| i8::try_from(values[at + i]).unwrap());
            Channel {
                bias: values[1],
                weights: nine(2),
                outputs: nine(11),
            }
        })
        .collect()
}

/// Border class of a coordinate.
fn class(at: usize) -> usize {
    match at {
        0 => 0,
        at if at == SIDE - 1 => 2,
        _ => 1,
    }
}

/// The captured program with its operands in place.
pub(crate) fn captured(board: &mut Board) -> ConvProgram {
    let channels = capture();
    assert_eq!(channels.len(), CHANNELS);
    let weights: Vec<u8> = (0..9)
        .flat_map(|tap| channels.iter().map(move |c| c.weights[tap] as u8))
        .collect();
    let bias: Vec<u8> = channels.iter().flat_map(|c| c.bias.to_le_bytes()).collect();
    ConvProgram {
        a: board.place(&vec![0x80; BYTES]),
        b: board.place(&weights),
        c: board.reserve(BYTES),
        rdma: Some(Rdma::bias(board.place(&bias))),
        ..captured_depthwise()
    }
}

#[test]
fn the_captured_depthwise_run_comes_out_to_the_byte() {
    let mut board = Board::strict(1 << 20);
    let conv = captured(&mut board);
    let outcome = board.run(&conv.task());
    assert!(outcome.completed());
    // The captured program writes the pad byte once.
    assert_eq!(outcome.traps(), ["T50-pad-pattern"]);

    let out = board.bytes(conv.c, BYTES);
    let mut wrong = Vec::new();
    for (c, channel) in capture().iter().enumerate() {
        for y in 0..SIDE {
            for x in 0..SIDE {
                let got = out[((c / 16) * SIDE * SIDE + y * SIDE + x) * 16 + c % 16] as i8;
                let expected = channel.outputs[class(y) * 3 + class(x)];
                if got != expected {
                    wrong.push((c, y, x, got, expected));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {BYTES}: {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(8)]
    );
}

/// The bare sums of the captured weights under the upper left window, without
/// the correction of the weights.
pub(crate) fn direct_sums() -> Vec<i32> {
    capture()
        .iter()
        .enumerate()
        .map(|(c, channel)| {
            let taps = channel.weights.iter().enumerate().map(|(tap, &weight)| {
                let inside = tap / 3 > 0 && tap % 3 > 0;
                let pad = if c < 32 && c % 2 == 1 { 0 } else { 126 };
                let value = if inside { -128 } else { pad };
                value * i32::from(weight)
            });
            channel.bias + taps.sum::<i32>()
        })
        .collect()
}
