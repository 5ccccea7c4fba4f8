// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librocket_npu.so`: the engine of [`npu_matmul`] for C, Python and other languages that can call
//! C. `include/rocket_npu.h` is generated from this file, `attention.rs` and `status.rs`.
//! `examples` has programs in C and Python.

mod attention;
mod memory;
mod status;

use std::ffi::{CStr, c_char};
use std::sync::Arc;

use half::f16;
use npu_matmul::{Activations, Engine, Outputs, PackedWeights, PlanOptions, Weights};
use rocket_uapi::{DevicePool, Selector};

pub use attention::{RocketNpuAttention, rocket_npu_attend};
use memory::{array, array_mut, object, place};
use status::{CallError, call, free};
pub use status::{RocketNpuStatus, rocket_npu_error};

/// An open device with its engine.
#[derive(Debug)]
pub struct RocketNpuEngine {
    engine: Arc<Engine>,
    is_model: bool,
}

/// Weights in device memory.
#[derive(Debug)]
pub struct RocketNpuWeights {
    engine: Arc<Engine>,
    weights: Arc<PackedWeights>,
}

/// A planned matmul: weights with a number of rows.
#[derive(Debug)]
pub struct RocketNpuMatmul {
    engine: Arc<Engine>,
    weights: Arc<PackedWeights>,
    m: usize,
}

/// Opens a device: the path of a node (`/dev/accel/accel0`), `model` for the software model, or
/// `auto` for the NPU if there is one and the model otherwise. If null, the environment variable
/// ROCKET_DEVICE is used, else `auto`.
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
        let files = PlanOptions::for_device(&info).0.files(&info);
        let pool = DevicePool::open(&device, files).map_err(CallError::Files)?;
        let opened = RocketNpuEngine {
            engine: Arc::new(Engine::open(pool)?),
            is_model: info.is_model,
        };
        *engine = Box::into_raw(Box::new(opened));
        Ok(())
    })
}

/// Whether the device is the software model, which is much slower than a CPU. False for null.
///
/// # Safety
/// `engine` is null or an engine that is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_is_model(engine: *const RocketNpuEngine) -> bool {
    // SAFETY: the caller's promise.
    unsafe { engine.as_ref() }.is_some_and(|engine| engine.is_model)
}

/// Closes an engine; does nothing for null.
///
/// # Safety
/// `engine` is null, or an engine that is not closed and that no other call uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_close(engine: *mut RocketNpuEngine) {
    // SAFETY: made by `rocket_npu_open`; the caller gives it up.
    free((!engine.is_null()).then(|| unsafe { Box::from_raw(engine) }));
}

/// Packs weights into device memory.
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

/// Loads 8-bit integers for exact matmuls. k is at most 131,071, because sums have 32 bits. `b` is
/// n x k; it is not needed after the call.
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
        let b = unsafe { array(b, n.checked_mul(k), "b") };
        // SAFETY: the caller's promise.
        unsafe { load(engine, b.map(|b| Weights::i8(n, k, b)), weights) }
    })
}

/// Loads binary16 numbers, as their bits. `b` is n x k; it is not needed after the call.
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
        let b = unsafe { array(b.cast::<f16>(), n.checked_mul(k), "b") };
        // SAFETY: the caller's promise.
        unsafe { load(engine, b.map(|b| Weights::f16(n, k, b)), weights) }
    })
}

/// Loads floats and quantises them to 8-bit integers with a scale for each row, as the activations
/// will be. `rotated` spreads outliers over a row, which is more accurate. `b` is n x k; it is not
/// needed after the call.
///
/// A row whose largest magnitude is below 127 * 2^-126 (1.5e-36) becomes zeros, because its scale
/// would be subnormal. A rotation adds up numbers of a row: it may overflow if they exceed
/// 3.4e38 / sqrt(k).
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
        let b = unsafe { array(b, n.checked_mul(k), "b") };
        let source = b.map(|b| {
            if rotated {
                Weights::w8a8(n, k, b).rotated()
            } else {
                Weights::w8a8(n, k, b)
            }
        });
        // SAFETY: the caller's promise.
        unsafe { load(engine, source, weights) }
    })
}

/// Frees weights; does nothing for null.
///
/// # Safety
/// `weights` is null, or weights that are not freed and that no other call uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_free_weights(weights: *mut RocketNpuWeights) {
    // SAFETY: made by `load`; the caller gives it up.
    free((!weights.is_null()).then(|| unsafe { Box::from_raw(weights) }));
}

/// Plans a matmul of m rows of activations with these weights.
///
/// # Safety
/// `weights` is null or not freed; `matmul` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_prepare(
    weights: *const RocketNpuWeights,
    m: usize,
    matmul: *mut *mut RocketNpuMatmul,
) -> RocketNpuStatus {
    call(|| {
        // SAFETY: the caller's promise.
        let matmul = unsafe { place(matmul, "matmul") }?;
        // SAFETY: the caller's promise.
        let RocketNpuWeights { engine, weights } = unsafe { object(weights, "weights") }?;
        engine.prepare(weights, m)?;
        let prepared = RocketNpuMatmul {
            engine: Arc::clone(engine),
            weights: Arc::clone(weights),
            m,
        };
        *matmul = Box::into_raw(Box::new(prepared));
        Ok(())
    })
}

/// Runs a matmul. `a` has m x k elements, `c` has m x n.
///
/// # Safety
/// `matmul` is null or not freed; `a` and `c` have these elements. Nobody else changes `a` or
/// accesses `c`.
unsafe fn run<A: 'static, C: 'static>(
    matmul: *const RocketNpuMatmul,
    a: *const A,
    c: *mut C,
) -> RocketNpuStatus
where
    for<'a> Activations<'a>: From<&'a [A]>,
    for<'a> Outputs<'a>: From<&'a mut [C]>,
{
    call(|| {
        // SAFETY: the caller's promise.
        let matmul = unsafe { object(matmul, "matmul") }?;
        let (weights, m) = (&matmul.weights, matmul.m);
        // SAFETY: the caller's promise.
        let a = unsafe { array(a, m.checked_mul(weights.k()), "a") }?;
        // SAFETY: the caller's promise.
        let c = unsafe { array_mut(c, m.checked_mul(weights.n()), "c") }?;
        // Usually in the cache of plans.
        let gemm = matmul.engine.prepare(weights, m)?;
        Ok(gemm.run(a, c)?)
    })
}

/// Multiplies 8-bit integers by weights of rocket_npu_load_i8(). `a` is m x k; `c`, m x n, gets the
/// exact sums.
///
/// # Safety
/// `matmul` is null or not freed; `a` has m * k elements, `c` m * n. No other thread accesses `c`
/// or changes `a` during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_run_i8(
    matmul: *const RocketNpuMatmul,
    a: *const i8,
    c: *mut i32,
) -> RocketNpuStatus {
    // SAFETY: the caller's promise.
    unsafe { run(matmul, a, c) }
}

/// Multiplies binary16 numbers by weights of rocket_npu_load_f16(). `a` is m x k, `c` is m x n.
///
/// # Safety
/// `matmul` is null or not freed; `a` has m * k elements, `c` m * n. No other thread accesses `c`
/// or changes `a` during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_run_f16(
    matmul: *const RocketNpuMatmul,
    a: *const u16,
    c: *mut f32,
) -> RocketNpuStatus {
    // SAFETY: the caller's promise; a `f16` is a `u16` of any bits.
    unsafe { run(matmul, a.cast::<f16>(), c) }
}

/// Multiplies floats by weights of rocket_npu_load_w8a8(). `a` is m x k, `c` is m x n.
///
/// # Safety
/// `matmul` is null or not freed; `a` has m * k elements, `c` m * n. No other thread accesses `c`
/// or changes `a` during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_run_f32(
    matmul: *const RocketNpuMatmul,
    a: *const f32,
    c: *mut f32,
) -> RocketNpuStatus {
    // SAFETY: the caller's promise.
    unsafe { run(matmul, a, c) }
}

/// Frees a planned matmul; does nothing for null.
///
/// # Safety
/// `matmul` is null, or a planned matmul that is not freed and that no other call uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocket_npu_free_matmul(matmul: *mut RocketNpuMatmul) {
    // SAFETY: made by `rocket_npu_prepare`; the caller gives it up.
    free((!matmul.is_null()).then(|| unsafe { Box::from_raw(matmul) }));
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    /// With all values -128 the sum would wrap to -2^31.
    #[test]
    fn sums_that_leave_32_bits_are_refused() {
        let mut engine = ptr::null_mut();
        let mut weights = ptr::null_mut();
        let deepest = i32::MAX as usize / (128 * 128);
        let b = vec![i8::MIN; deepest + 1];
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
        assert_eq!(load(deepest), RocketNpuStatus::Ok);
        // SAFETY: loaded above and not used afterwards.
        unsafe { rocket_npu_free_weights(weights) };
        // SAFETY: opened above and not used afterwards.
        unsafe { rocket_npu_close(engine) };
    }
}
