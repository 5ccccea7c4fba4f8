// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels, each over a whole buffer cut into the tiles of a product.

use half::f16;
use npu_kernels::dequantise::dequantise_row;
use npu_kernels::hadamard::Hadamard;
use npu_kernels::matrix::MatrixView;
use npu_kernels::pack::{
    Bytes, Encode, Halves, HighNibbles, LowNibbles, Quantised, RoundedHalves, pack,
};
use npu_kernels::unpack::{Destination, Mode, Partial, ROWS, unpack};
use rayon::prelude::*;

use super::BUFFER;

/// Inner dimension, and columns of results.
const K: usize = 4096;
/// Rows of an activation or output tile.
const TILE_ROWS: usize = 512;
/// The largest integer of a quantised row.
const LIMIT: f32 = 127.0;
/// Bytes of an activation's run.
const ATOM: usize = 16;

/// A kernel with its operands.
pub struct Kernel {
    pub name: &'static str,
    /// Bytes that one run reads and writes.
    pub bytes: usize,
    pub run: Box<dyn FnMut() + Send>,
}

/// All of them. Their memory is there from the first run on.
pub fn all() -> impl Iterator<Item = Kernel> {
    let makers: [fn() -> Kernel; 12] = [
        || packing::<32, Bytes>("pack int8 weights", 32, 1),
        || packing::<64, Halves>("pack f16 weights", 16, f16::ONE),
        || packing::<16, LowNibbles>("pack int4 weights", 64, 1),
        || packing::<ATOM, Bytes>("pack int8 activations", TILE_ROWS, 1),
        || packing::<ATOM, Halves>("pack f16 activations", TILE_ROWS, f16::ONE),
        || packing::<ATOM, RoundedHalves>("f32 to f16 and pack", TILE_ROWS, 1.5),
        quantising,
        splitting,
        || unpacking::<i32>("unpack int32, add", Mode::Add, false),
        || unpacking::<i16>("unpack int16 to int32", Mode::Store, false),
        || unpacking::<i32>("unpack int32, dequantise", Mode::Store, true),
        hadamard,
    ];
    makers.into_iter().map(|make| make())
}

/// Tiles of `rows` rows, as many as make the larger side a whole buffer.
fn packing<const RUN: usize, E: Encode<Host: 'static> + Default>(
    name: &'static str,
    rows: usize,
    element: E::Host,
) -> Kernel {
    let host = size_of::<E::Host>();
    let source = vec![element; BUFFER / host];
    let mut tiles = vec![0; source.len() * E::BITS / 8];
    Kernel {
        name,
        bytes: BUFFER + tiles.len(),
        run: Box::new(move || {
            tiles
                .par_chunks_mut(rows * K * E::BITS / 8)
                .zip(source.par_chunks(rows * K))
                .for_each(|(tile, source)| {
                    let matrix = MatrixView::new(source, rows, K).unwrap();
                    pack::<RUN, E>(&mut E::default(), matrix, rows, tile);
                });
        }),
    }
}

/// The largest magnitude of each row, its scale, and the packed integers.
fn quantising() -> Kernel {
    let source = floats();
    let mut tiles = vec![0; source.len()];
    Kernel {
        name: "absmax, quantise and pack",
        bytes: BUFFER + tiles.len(),
        run: Box::new(move || {
            tiles
                .par_chunks_mut(TILE_ROWS * K)
                .zip(source.par_chunks(TILE_ROWS * K))
                .for_each(|(tile, source)| quantise_tile(source, tile));
        }),
    }
}

fn quantise_tile(source: &[f32], tile: &mut [u8]) {
    let mut encode = Quantised {
        limit: LIMIT,
        scales: &mut [0.0; TILE_ROWS],
    };
    let matrix = MatrixView::new(source, TILE_ROWS, K).unwrap();
    pack::<ATOM, _>(&mut encode, matrix, TILE_ROWS, tile);
}

/// Both nibbles of 8-bit activations.
fn splitting() -> Kernel {
    let source = vec![100_i8; BUFFER];
    let mut high = vec![0; BUFFER / 2];
    let mut low = vec![0; BUFFER / 2];
    Kernel {
        name: "split into nibbles and pack",
        bytes: BUFFER + high.len() + low.len(),
        run: Box::new(move || {
            high.par_chunks_mut(TILE_ROWS * K / 2)
                .zip(low.par_chunks_mut(TILE_ROWS * K / 2))
                .zip(source.par_chunks(TILE_ROWS * K))
                .for_each(|((high, low), source)| {
                    let matrix = MatrixView::new(source, TILE_ROWS, K).unwrap();
                    pack::<ATOM, _>(&mut HighNibbles, matrix, TILE_ROWS, high);
                    pack::<ATOM, _>(&mut LowNibbles, matrix, TILE_ROWS, low);
                });
        }),
    }
}

/// Tiles of results to rows.
fn unpacking<T: Partial<Sum = i32>>(name: &'static str, mode: Mode, floats: bool) -> Kernel {
    let tiles = vec![1_u8; BUFFER / 4 * size_of::<T>()];
    let mut out = vec![0_i32; BUFFER / 4];
    let scales = vec![0.5_f32; K];
    let reads_sums = if mode == Mode::Add { BUFFER } else { 0 };
    Kernel {
        name,
        bytes: tiles.len() + reads_sums + BUFFER,
        run: Box::new(move || {
            out.par_chunks_mut(TILE_ROWS * K)
                .zip(tiles.par_chunks(TILE_ROWS * K * size_of::<T>()))
                .for_each(|(out, tile)| {
                    for (chunk, rows) in out.chunks_mut(ROWS * K).enumerate() {
                        let to = Destination {
                            rows: &mut *rows,
                            stride: K,
                            columns: 0..K,
                        };
                        unpack::<T>(
                            tile,
                            TILE_ROWS,
                            chunk * ROWS,
                            mode,
                            to,
                            |_, columns, part| {
                                if floats {
                                    dequantise_row(part, 0.25, &scales[columns]);
                                }
                            },
                        );
                    }
                });
        }),
    }
}

fn hadamard() -> Kernel {
    let mut rows = floats();
    let transform = Hadamard::new(K).unwrap();
    Kernel {
        name: "Hadamard, blocks of 4096",
        bytes: 2 * BUFFER,
        run: Box::new(move || {
            rows.par_chunks_mut(TILE_ROWS * K)
                .for_each(|rows| transform.transform(rows));
        }),
    }
}

/// A buffer of floats of like size.
fn floats() -> Vec<f32> {
    (0..BUFFER / 4)
        .map(|at| (at % 251) as f32 - 125.0)
        .collect()
}
