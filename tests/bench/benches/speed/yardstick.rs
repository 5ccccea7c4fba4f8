// SPDX-License-Identifier: MIT OR Apache-2.0
//! Yardsticks: matmuls of crates.io, and memcpy.
//!
//! `gemm` (f32, f16), `rten-gemm` (u8 x i8, f32) and `matrixmultiply` (f32, one
//! thread) multiply unpacked row-major matrices.

use criterion::Criterion;
use gemm::{Parallelism, f16};
use rayon::{ThreadPool, ThreadPoolBuilder};
use rten_gemm::{GemmExecutor, GemmInputA, GemmInputB, GemmOptions};
use rten_tensor::Matrix;

use crate::Best;

/// Rows, inner dimension, columns.
type Shape = (usize, usize, usize);

/// Yardsticks of an int8 matmul.
pub(crate) fn int8(c: &mut Criterion, best: &Best, group: &str, shape: Shape, threads: usize) {
    let pool = pool(threads);
    let (m, k, n) = shape;
    let mut operands = None;
    let executor = GemmExecutor::<u8, i8, i32>::new();
    best.bench(c, group, "rten-gemm int8", || {
        let (a, b, out) = operands
            .get_or_insert_with(|| (vec![3u8; m * k], vec![-5i8; k * n], vec![0i32; m * n]));
        pool.install(|| rten_int8(&executor, shape, out, a, b));
    });
    float(c, best, group, shape, threads);
}

/// Yardsticks of an fp16 matmul.
pub(crate) fn fp16(c: &mut Criterion, best: &Best, group: &str, shape: Shape, threads: usize) {
    let pool = pool(threads);
    let (m, k, n) = shape;
    let (a, b) = (vec![f16::ONE; m * k], vec![f16::ONE; k * n]);
    let mut out = vec![f16::ZERO; m * n];
    best.bench(c, group, "gemm f16", || {
        pool.install(|| gemm(shape, &mut out, &a, &b, f16::ONE, threads));
    });
    float(c, best, group, shape, threads);
}

fn float(c: &mut Criterion, best: &Best, group: &str, shape: Shape, threads: usize) {
    let pool = pool(threads);
    let (m, k, n) = shape;
    let (a, b) = (vec![1f32; m * k], vec![0.5f32; k * n]);
    let mut out = vec![0f32; m * n];
    best.bench(c, group, "gemm f32", || {
        pool.install(|| gemm(shape, &mut out, &a, &b, 1.0, threads));
    });
    let executor = GemmExecutor::<f32>::new();
    best.bench(c, group, "rten-gemm f32", || {
        pool.install(|| {
            let a = GemmInputA::Unpacked(Matrix::from_data([m, k], &a[..]));
            let b = GemmInputB::Unpacked(Matrix::from_data([k, n], &b[..]));
            let options = GemmOptions::default();
            executor.gemm(&mut out, a, b, options).unwrap();
        });
    });
    if threads == 1 {
        best.bench(c, group, "matrixmultiply f32", || {
            let row = |width: usize| (width as isize, 1);
            let ((ra, ca), (rb, cb)) = (row(k), row(n));
            // SAFETY: the vectors hold m*k, k*n and m*n elements, row-major,
            // and `out` is not borrowed elsewhere.
            unsafe {
                matrixmultiply::sgemm(
                    m,
                    k,
                    n,
                    1.0,
                    a.as_ptr(),
                    ra,
                    ca,
                    b.as_ptr(),
                    rb,
                    cb,
                    0.0,
                    out.as_mut_ptr(),
                    rb,
                    cb,
                );
            }
        });
    }
}

/// im2col of 56x56x64 int8 pixels (channels last, the cheapest order), and the
/// matmul with 64 kernels.
pub(crate) fn convolution(c: &mut Criterion, best: &Best, group: &str) {
    const SIDE: usize = 56;
    const CHANNELS: usize = 64;
    let pool = pool(1);
    let image = vec![3u8; SIDE * SIDE * CHANNELS];
    let shape = (SIDE * SIDE, 9 * CHANNELS, CHANNELS);
    let mut rows = vec![0u8; shape.0 * shape.1];
    let weights = vec![-5i8; shape.1 * shape.2];
    let mut out = vec![0i32; shape.0 * shape.2];
    let executor = GemmExecutor::<u8, i8, i32>::new();
    best.bench(c, group, "im2col and rten-gemm int8", || {
        for (pixel, row) in rows.chunks_exact_mut(shape.1).enumerate() {
            let (y, x) = (pixel / SIDE, pixel % SIDE);
            for (tap, target) in row.chunks_exact_mut(CHANNELS).enumerate() {
                let (iy, ix) = ((y + tap / 3).wrapping_sub(1), (x + tap % 3).wrapping_sub(1));
                if iy < SIDE && ix < SIDE {
                    target.copy_from_slice(&image[(iy * SIDE + ix) * CHANNELS..][..CHANNELS]);
                } else {
                    target.fill(0);
                }
            }
        }
        pool.install(|| rten_int8(&executor, shape, &mut out, &rows, &weights));
    });
}

/// Copies `len` bytes, in turns between `copies` pairs of places. With one pair
/// both places stay in a core's caches.
pub(crate) fn memcpy(c: &mut Criterion, best: &Best, group: &str, len: usize, copies: usize) {
    let source = vec![1u8; len * copies];
    let mut target = vec![0u8; len * copies];
    let mut copy = 0;
    best.bench(c, group, "memcpy", || {
        let place = copy * len..(copy + 1) * len;
        std::hint::black_box(&mut target[place.clone()])
            .copy_from_slice(std::hint::black_box(&source[place]));
        copy = (copy + 1) % copies;
    });
}

fn rten_int8(
    executor: &GemmExecutor<u8, i8, i32>,
    (m, k, n): Shape,
    out: &mut [i32],
    a: &[u8],
    b: &[i8],
) {
    let a = GemmInputA::Unpacked(Matrix::from_data([m, k], a));
    let b = GemmInputB::Unpacked(Matrix::from_data([k, n], b));
    executor.gemm(out, a, b, GemmOptions::default()).unwrap();
}

fn gemm<T: Copy + 'static>(
    (m, k, n): Shape,
    out: &mut [T],
    a: &[T],
    b: &[T],
    one: T,
    threads: usize,
) {
    let parallelism = match threads {
        1 => Parallelism::None,
        threads => Parallelism::Rayon(threads),
    };
    assert!(out.len() == m * n && a.len() == m * k && b.len() == k * n);
    let row = |width: usize| width as isize;
    // SAFETY: the slices hold as many elements as asserted, row-major. Only
    // this function borrows `out` for writing, and gemm does not read it
    // (read_dst).
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            row(n),
            false,
            a.as_ptr(),
            1,
            row(k),
            b.as_ptr(),
            1,
            row(n),
            one,
            one,
            false,
            false,
            false,
            parallelism,
        );
    }
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
}
