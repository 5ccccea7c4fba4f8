// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librocket_npu.so`: the engine of [`npu_matmul`] for C, Python and all else that
//! calls C. `include/rocket_npu.h` is made from this file, `attention.rs` and `status.rs`;
//! `examples` has programs in C and one in Python.

mod attention;
mod memory;
mod status;

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use half::f16;
use npu_matmul::{Activations, Engine, Output, OutputRows, PackedWeights, WeightFormat, Weights};
use rocket_uapi::{DevicePool, Selector};

pub use attention::{RocketNpuAttention, rocket_npu_attend};
use memory::{matrix, matrix_mut, object, place};
use status::{CallError, I8_DEPTH_MAX, call, free};
pub use status::{RocketNpuStatus, rocket_npu_error};

/// A device and what computes on it.
#[derive(Debug)]
pub struct RocketNpuEngine {
    engine: Arc<Engine>,
    is_model: bool,
}

/// Weights in the device's memory.
#[derive(Debug)]
pub struct RocketNpuWeights {
    engine: Arc<Engine>,
    weights: Arc<PackedWeights>,
}

/// Weights and a number of rows, planned.
#[derive(Debug)]
pub struct RocketNpuProduct {
    engine: Arc<Engine>,
    weights: Arc<PackedWeights>,
    m: usize,
    output: Output,
}

/// Opens a device: the path of a node (`/dev/accel/accel0`), `model` for the software
/// model, or `auto` for the NPU, or the model where there is none. Null is what the
/// environment variable ROCKET_DEVICE says, else `auto`.
///
/// # Safety
/// `device` is null or a string that ends with a zero; `engine` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_open(
    device: *const c_char,
    engine: *mut *mut RocketNpuEngine,
) -> RocketNpuStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { place(engine, "engine") }?;
        let selector = if device.is_null() {
            Selector::from_env()
        } else {
            // SAFETY: a string by the caller's promise.
            let device = unsafe { CStr::from_ptr(device) };
            let device = device.to_str().map_err(|_| CallError::DeviceName)?;
            Selector::from(device.as_ref())
        };
        let device = npu_matmul::open_npu(&selector, false)?.device;
        let info = device.info();
        let cores = usize::try_from(info.cores).unwrap_or(1).max(1);
        let pool = DevicePool::open(&device, cores).map_err(CallError::Files)?;
        let opened = RocketNpuEngine {
            engine: Arc::new(Engine::open(pool)?),
            is_model: info.is_model,
        };
        *engine = Box::into_raw(Box::new(opened));
        Ok(())
    })
}

/// Whether it is the software model, which is much slower than a CPU. False of null.
///
/// # Safety
/// `engine` is null or an engine that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_is_model(engine: *const RocketNpuEngine) -> bool {
    // SAFETY: the caller's promise.
    unsafe { engine.as_ref() }.is_some_and(|engine| engine.is_model)
}

/// Closes an engine; null is none.
///
/// # Safety
/// `engine` is null, or an engine that is not closed and that no other call has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_close(engine: *mut RocketNpuEngine) {
    // SAFETY: made by `rocket_npu_open`, and the caller's no more.
    free((!engine.is_null()).then(|| unsafe { Box::from_raw(engine) }));
}

/// Packs weights into the device's memory.
///
/// # Safety
/// `engine` is null or an engine that is not closed; `weights` may be written.
unsafe fn load(
    engine: *const RocketNpuEngine,
    source: Result<Weights<'_>, CallError>,
    weights: *mut *mut RocketNpuWeights,
) -> Result<(), CallError> {
    // SAFETY: the caller's promise.
    let weights = unsafe { place(weights, "weights") }?;
    // SAFETY: the caller's promise.
    let engine = unsafe { object(engine, "engine") }?;
    let loaded = RocketNpuWeights {
        weights: Arc::new(engine.engine.load(source?)?),
        engine: Arc::clone(&engine.engine),
    };
    *weights = Box::into_raw(Box::new(loaded));
    Ok(())
}

/// Loads 8-bit integers, for products that are exact: k of up to 131,071, since sums
/// have 32 bits. `b` is n x k, and is not needed after the call.
///
/// # Safety
/// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_load_i8(
    engine: *const RocketNpuEngine,
    n: usize,
    k: usize,
    b: *const i8,
    weights: *mut *mut RocketNpuWeights,
) -> RocketNpuStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let b = unsafe { matrix(b, n, k, "b") };
        let source = b.and_then(|b| match k {
            0..=I8_DEPTH_MAX => Ok(Weights::i8(n, k, b)),
            _ => Err(CallError::TooDeep { k }),
        });
        // SAFETY: the caller's promise.
        unsafe { load(engine, source, weights) }
    })
}

/// Loads binary16 numbers, as their bits. `b` is n x k, and is not needed after the call.
///
/// # Safety
/// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_load_f16(
    engine: *const RocketNpuEngine,
    n: usize,
    k: usize,
    b: *const u16,
    weights: *mut *mut RocketNpuWeights,
) -> RocketNpuStatus {
    call(|| {
        // SAFETY: the caller's promise; a `f16` is a `u16` of any bits.
        let b = unsafe { matrix(b.cast::<f16>(), n, k, "b") };
        // SAFETY: the caller's promise.
        unsafe { load(engine, b.map(|b| Weights::f16(n, k, b)), weights) }
    })
}

/// Loads floats, which become 8-bit integers with a scale for each row, as the
/// activations will. `rotated` spreads outliers over a row, which loses less. `b` is
/// n x k, and is not needed after the call.
///
/// A row whose largest magnitude is below 127 * 2^-126 (1.5e-36) becomes zeros: its
/// scale would be no normal number. A rotation adds up a row: with numbers above
/// 3.4e38 / sqrt(k) it can overflow.
///
/// # Safety
/// `engine` is null or not closed; `b` has n * k elements; `weights` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_load_w8a8(
    engine: *const RocketNpuEngine,
    n: usize,
    k: usize,
    b: *const f32,
    rotated: bool,
    weights: *mut *mut RocketNpuWeights,
) -> RocketNpuStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let b = unsafe { matrix(b, n, k, "b") };
        let source = b.map(|b| match rotated {
            true => Weights::w8a8(n, k, b).rotated(),
            false => Weights::w8a8(n, k, b),
        });
        // SAFETY: the caller's promise.
        unsafe { load(engine, source, weights) }
    })
}

/// Frees weights; null is none.
///
/// # Safety
/// `weights` is null, or weights that are not freed and that no other call has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_free_weights(weights: *mut RocketNpuWeights) {
    // SAFETY: made by `load`, and the caller's no more.
    free((!weights.is_null()).then(|| unsafe { Box::from_raw(weights) }));
}

/// Plans products of m rows of activations with these weights.
///
/// # Safety
/// `weights` is null or not freed; `product` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_prepare(
    weights: *const RocketNpuWeights,
    m: usize,
    product: *mut *mut RocketNpuProduct,
) -> RocketNpuStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let product = unsafe { place(product, "product") }?;
        // SAFETY: the caller's promise.
        let RocketNpuWeights { engine, weights } = unsafe { object(weights, "weights") }?;
        let output = match weights.format() {
            WeightFormat::Int8 | WeightFormat::Int4 => Output::I32,
            WeightFormat::Fp16 | WeightFormat::Quantised(_) => Output::F32,
        };
        engine.prepare(weights, m, output)?;
        let prepared = RocketNpuProduct {
            engine: Arc::clone(engine),
            weights: Arc::clone(weights),
            m,
            output,
        };
        *product = Box::into_raw(Box::new(prepared));
        Ok(())
    })
}

/// Computes a product. `a` is of m x k elements, `c` of m x n, for a number of both.
///
/// # Safety
/// `product` is null or not freed; `a` and `c` have these elements, and nobody else
/// looks at `c`.
unsafe fn run<A: 'static, C: 'static>(
    product: *const RocketNpuProduct,
    a: *const A,
    c: *mut C,
) -> RocketNpuStatus
where
    for<'a> Activations<'a>: From<&'a [A]>,
    for<'a> OutputRows<'a>: From<&'a mut [C]>,
{
    call(|| {
        // SAFETY: the caller's promise.
        let product = unsafe { object(product, "product") }?;
        let (weights, m) = (&product.weights, product.m);
        // SAFETY: the caller's promise.
        let a = unsafe { matrix(a, m, weights.k(), "a") }?;
        // SAFETY: the caller's promise.
        let c = unsafe { matrix_mut(c, m, weights.n(), "c") }?;
        // Found among the weights' latest plans.
        let gemm = product.engine.prepare(weights, m, product.output)?;
        Ok(gemm.run(a, c)?)
    })
}

/// Multiplies 8-bit integers with weights of rocket_npu_load_i8(). `a` is m x k, `c` is
/// m x n: the exact sums.
///
/// # Safety
/// `product` is null or not freed; `a` has m * k elements, `c` m * n, and no other
/// thread looks at these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_run_i8(
    product: *const RocketNpuProduct,
    a: *const i8,
    c: *mut i32,
) -> RocketNpuStatus {
    // SAFETY: the caller's promise.
    unsafe { run(product, a, c) }
}

/// Multiplies binary16 numbers with weights of rocket_npu_load_f16(). `a` is m x k, `c`
/// is m x n.
///
/// # Safety
/// `product` is null or not freed; `a` has m * k elements, `c` m * n, and no other
/// thread looks at these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_run_f16(
    product: *const RocketNpuProduct,
    a: *const u16,
    c: *mut f32,
) -> RocketNpuStatus {
    // SAFETY: the caller's promise; a `f16` is a `u16` of any bits.
    unsafe { run(product, a.cast::<f16>(), c) }
}

/// Multiplies floats with weights of rocket_npu_load_w8a8(). `a` is m x k, `c` is m x n.
///
/// # Safety
/// `product` is null or not freed; `a` has m * k elements, `c` m * n, and no other
/// thread looks at these.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_run_f32(
    product: *const RocketNpuProduct,
    a: *const f32,
    c: *mut f32,
) -> RocketNpuStatus {
    // SAFETY: the caller's promise.
    unsafe { run(product, a, c) }
}

/// Frees a product; null is none.
///
/// # Safety
/// `product` is null, or a product that is not freed and that no other call has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_free_product(product: *mut RocketNpuProduct) {
    // SAFETY: made by `rocket_npu_prepare`, and the caller's no more.
    free((!product.is_null()).then(|| unsafe { Box::from_raw(product) }));
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// All of -128, whose sum would come out as -2^31.
    #[test]
    fn sums_that_leave_32_bits_are_refused() {
        let mut engine = ptr::null_mut();
        let mut weights = ptr::null_mut();
        let b = vec![i8::MIN; I8_DEPTH_MAX + 1];
        // SAFETY: a string, and a place that may be written.
        let opened = unsafe { rocket_npu_open(c"model".as_ptr(), &raw mut engine) };
        assert_eq!(opened, RocketNpuStatus::Ok);
        // SAFETY: an engine that is open, at least k elements, and a place that may be
        // written.
        let mut load =
            |k| unsafe { rocket_npu_load_i8(engine, 1, k, b.as_ptr(), &raw mut weights) };
        assert_eq!(load(b.len()), RocketNpuStatus::Invalid);
        // SAFETY: a NUL-terminated string that this thread keeps.
        let told = unsafe { CStr::from_ptr(rocket_npu_error()) };
        let told = told.to_str().unwrap();
        assert!(told.contains("131072") && told.contains("131071"), "{told}");
        assert_eq!(load(I8_DEPTH_MAX), RocketNpuStatus::Ok);
        // SAFETY: loaded just now, and used no more.
        unsafe { rocket_npu_free_weights(weights) };
        // SAFETY: opened above, and used no more.
        unsafe { rocket_npu_close(engine) };
    }
}
