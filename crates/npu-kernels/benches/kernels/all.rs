// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernels; each processes a whole buffer, divided into the tiles of a matmul.
use half::f16;
use npu_kernels::hadamard::Hadamard;
use npu_kernels::half::{all_finite, to_f16};
use npu_kernels::matrix::MatrixView;
use npu_kernels::multiply::{KernelGroups, multiply};
use npu_kernels::pack::{Bytes, Encode, Halves, LowNibbles, pack};
use npu_kernels::quantise::{largest_magnitude, quantise_row};
use npu_kernels::softmax::{
    self, Atom, Bias, ReadMode, ScoreRows, bias_row, cut_row, largest, read_scores,
};
use npu_kernels::transpose::pack_columns;
use npu_kernels::unpack::{
    Destination, Mode, Partial, ROWS, Scales, TileRows, unpack, unpack_dequantised,
};
use rayon::prelude::*;

/// Inner dimension, and columns of results.
const K: usize = 4096;
/// Bytes of a run of activations.
const ATOM: usize = 16;
/// Bytes of the larger side of each kernel: whole tiles, also of 64 x 4096 bytes,
/// the largest tile of weights.
pub(crate) const BUFFER: usize = 64 << 20;
/// Rows of an activation or output tile.
const TILE_ROWS: usize = 512;

/// A kernel with its operands.
pub(crate) struct Kernel {
    /// The operation and its element types.
    pub(crate) name: &'static str,
    /// Bytes that one run reads and writes.
    pub(crate) bytes: usize,
    /// Runs it once, on the threads of the installed rayon pool.
    pub(crate) run: Box<dyn FnMut() + Send>,
}

/// All kernels. Their memory is resident after the first run.
pub(crate) fn all() -> impl Iterator<Item = Kernel> {
    let makers: [fn() -> Kernel; 21] = [
        || packing::<32, Bytes>("pack int8 weights", 32, 1),
        || packing::<64, Halves>("pack f16 weights", 16, f16::ONE),
        || packing::<16, LowNibbles>("pack int4 weights", 64, 1),
        || packing::<ATOM, Bytes>("pack int8 activations", TILE_ROWS, 1),
        || packing::<ATOM, Halves>("pack f16 activations", TILE_ROWS, f16::ONE),
        rounding,
        absmax,
        quantising,
        || unpacking::<i32>("unpack int32, add", Mode::Add, false),
        || unpacking::<i16>("unpack int16 to int32", Mode::Store, false),
        || unpacking::<i32>("unpack int32, dequantise", Mode::Store, true),
        hadamard,
        || reading("softmax: read scores", ReadMode::Store),
        || reading("softmax: add scores of parts", ReadMode::Add),
        maxima,
        exponentials,
        || masking("softmax: cut keys off", cut_row),
        || {
            masking("softmax: cap, add a mask", |scores, mask| {
                let bias = Bias {
                    softcap: 50.0,
                    slope: 0.5,
                };
                bias_row(scores, Some(mask), bias);
            })
        },
        transposing,
        finiteness,
        multiplying,
    ];
    makers.into_iter().map(move |make| make())
}

/// Converts each `from` elements of `source` to `to` elements of `out`.
fn converting<A: Send + Sync + 'static, B: Send + 'static>(
    name: &'static str,
    (source, from): (Vec<A>, usize),
    (mut out, to): (Vec<B>, usize),
    convert: impl Fn(&[A], &mut [B]) + Send + Sync + 'static,
) -> Kernel {
    Kernel {
        name,
        bytes: size_of_val(&source[..]) + size_of_val(&out[..]),
        run: Box::new(move || {
            out.par_chunks_mut(to)
                .zip(source.par_chunks(from))
                .for_each(|(out, source)| convert(source, out));
        }),
    }
}

/// Packs tiles of `rows` rows; the larger side fills the buffer.
fn packing<const RUN: usize, E: Encode<Host: 'static>>(
    name: &'static str,
    rows: usize,
    element: E::Host,
) -> Kernel {
    let source = vec![element; BUFFER / size_of::<E::Host>()];
    let tiles = vec![0; source.len() * E::BITS / 8];
    let tile = rows * K * E::BITS / 8;
    converting(
        name,
        (source, rows * K),
        (tiles, tile),
        move |source, tile| {
            let matrix = MatrixView::new(source, rows, K).unwrap();
            pack::<RUN, E>(matrix, rows, tile);
        },
    )
}

/// Finds the largest magnitude of each row.
fn absmax() -> Kernel {
    let source = floats();
    let mut largest = vec![0; source.len() / K];
    Kernel {
        name: "absmax of rows",
        bytes: BUFFER,
        run: Box::new(move || {
            largest
                .par_chunks_mut(TILE_ROWS)
                .zip(source.par_chunks(TILE_ROWS * K))
                .for_each(|(largest, source)| {
                    for (largest, row) in largest.iter_mut().zip(source.chunks(K)) {
                        *largest = largest_magnitude(row);
                    }
                });
            std::hint::black_box(&largest);
        }),
    }
}

/// Rounds floats to binary16.
fn rounding() -> Kernel {
    let source = floats();
    let halves = vec![0; source.len() * 2];
    converting("f32 to f16", (source, K), (halves, 2 * K), to_f16)
}

/// Quantises each row to integers with a scale.
fn quantising() -> Kernel {
    let source = floats();
    let integers = vec![0; source.len()];
    converting(
        "absmax and quantise",
        (source, K),
        (integers, K),
        |row, out| {
            quantise_row(row, out);
        },
    )
}

/// Unpacks tiles of results to rows.
fn unpacking<T: Partial<Sum = i32>>(name: &'static str, mode: Mode, floats: bool) -> Kernel {
    let tile_rows = TILE_ROWS;
    let mut out = vec![0_i32; BUFFER / 4];
    let tiles = vec![1_u8; out.len() * size_of::<T>()];
    let scales = vec![0.5_f32; K];
    let row_scales = vec![0.25_f32; ROWS];
    let reads_sums = if mode == Mode::Add { BUFFER } else { 0 };
    Kernel {
        name,
        bytes: tiles.len() + reads_sums + BUFFER,
        run: Box::new(move || {
            let scales = Scales {
                rows: &row_scales,
                columns: &scales,
            };
            out.par_chunks_mut(tile_rows * K)
                .zip(tiles.par_chunks(tile_rows * K * size_of::<T>()))
                .for_each(|(out, tile)| {
                    for (chunk, rows) in out.chunks_mut(ROWS * K).enumerate() {
                        let to = Destination {
                            rows: &mut *rows,
                            stride: K,
                            columns: 0..K,
                        };
                        let tile = TileRows {
                            bytes: tile,
                            rows: tile_rows,
                            first: chunk * ROWS,
                        };
                        if floats {
                            unpack_dequantised::<T>(tile, mode, scales, to);
                        } else {
                            unpack::<T>(tile, mode, to);
                        }
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

/// Reads tiles of scores into rows.
fn reading(name: &'static str, mode: ReadMode) -> Kernel {
    let rows = TILE_ROWS;
    let tiles = vec![Atom::default(); BUFFER / size_of::<Atom>()];
    let factors = vec![0.5; rows];
    let passes = match mode {
        ReadMode::Store => 2,
        ReadMode::Add => 3,
    };
    let kernel = converting(
        name,
        (tiles, rows * K / 4),
        (floats(), rows * K),
        move |surfaces, to| {
            let from = ScoreRows {
                surfaces,
                rows,
                first: 0,
            };
            read_scores(from, mode, &factors, to, K);
        },
    );
    Kernel {
        bytes: passes * BUFFER,
        ..kernel
    }
}

/// Finds the largest score of each row.
fn maxima() -> Kernel {
    let scores = floats();
    Kernel {
        name: "softmax: largest score",
        bytes: BUFFER,
        run: Box::new(move || {
            let rows = scores.par_chunks(K);
            rows.for_each(|row| {
                std::hint::black_box(largest(row));
            });
        }),
    }
}

/// Converts scores to probabilities.
fn exponentials() -> Kernel {
    let rows = TILE_ROWS;
    let tiles = vec![Atom::default(); BUFFER / 2 / size_of::<Atom>()];
    let maxima = vec![125.0; rows];
    converting(
        "softmax: exponentials to f16",
        (floats(), rows * K),
        (tiles, rows * K / 8),
        move |scores, tile| {
            let mut surfaces: Vec<_> = tile.chunks_mut(rows).collect();
            softmax::exponentials(scores, K, &maxima, &mut surfaces);
        },
    )
}

/// Masks rows of scores, in blocks of keys.
fn masking(name: &'static str, mask_row: fn(&mut [f32], &[f16])) -> Kernel {
    /// Keys per block, about as many as in attention.
    const KEYS: usize = 512;
    let mut scores = floats();
    let pattern = (0..scores.len()).map(|at| match at % 3 {
        0 => f16::NEG_INFINITY,
        _ => f16::ZERO,
    });
    let masks: Vec<_> = pattern.collect();
    Kernel {
        name,
        bytes: 2 * BUFFER + size_of_val(&masks[..]),
        run: Box::new(move || {
            let blocks = scores.par_chunks_mut(KEYS).zip(masks.par_chunks(KEYS));
            blocks.for_each(|(scores, mask)| mask_row(scores, mask));
        }),
    }
}

/// Packs the columns of a matrix as weights.
fn transposing() -> Kernel {
    let (source, tiles) = (vec![f16::ONE; BUFFER / 2], vec![0; BUFFER]);
    let name = "pack f16 columns as weights";
    converting(
        name,
        (source, 32 * K),
        (tiles, 32 * K * 2),
        |source, tile| {
            pack_columns(MatrixView::new(source, 32, K).unwrap(), 32, tile);
        },
    )
}

/// Checks whether each vector of keys or values is finite.
fn finiteness() -> Kernel {
    /// Elements of a vector.
    const DIM: usize = 128;
    let source = vec![f16::ONE; BUFFER / 2];
    Kernel {
        name: "f16 vectors: all finite",
        bytes: BUFFER,
        run: Box::new(move || {
            let parts = source.par_chunks(32 * K);
            let finite = parts.all(|part| part.chunks(DIM).all(all_finite));
            std::hint::black_box(finite);
        }),
    }
}

/// Multiplies 16 rows by weights, 128 channels at a time: 16 multiply-adds for each byte of weights.
fn multiplying() -> Kernel {
    let (rows, channels) = (16, 128);
    let a = vec![1; rows * K];
    let weights = vec![1; BUFFER];
    let sums = vec![0; BUFFER / K * rows];
    converting(
        "multiply 16 rows by int8 weights",
        (weights, channels * K),
        (sums, channels * rows),
        move |weights, tile| {
            let a = MatrixView::new(&a, rows, K).unwrap();
            let b = KernelGroups { weights, depth: K };
            multiply(a, b, Mode::Store, tile);
        },
    )
}

/// A buffer of floats.
fn floats() -> Vec<f32> {
    (0..BUFFER / 4)
        .map(|at| (at % 251) as f32 - 125.0)
        .collect()
}
