// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host whose CPU has two extra buffer types, which want weights of different
//! types.

use std::cell::RefCell;

use super::*;
use crate::abi::type_id;
use crate::types::tests::Q8_0;

/// Addresses that stand for objects of the host.
const DEVICE: usize = 0x1000;
const PLAIN: usize = 0x2000;
const FIRST: usize = 0x2100;
const SECOND: usize = 0x2200;
/// What the buffers of a type are aligned to, and where the next one begins.
const ALIGNMENT: usize = 64;
const BASE: usize = 0x10_0010;

/// Calls that the fake host got, for comparison.
#[derive(Default)]
struct Seen {
    /// Buffer types and sizes; a buffer's address is its number from 1.
    buffers: Vec<(usize, usize)>,
    weights: Vec<usize>,
    freed: Vec<usize>,
    /// Buffers and addresses of tensors.
    tensors: Vec<(usize, usize)>,
    out_of_memory: bool,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
}

fn seen<T>(look: impl FnOnce(&mut Seen) -> T) -> T {
    SEEN.with_borrow_mut(look)
}

fn object<T>(address: usize) -> GgmlPtr<T> {
    GgmlPtr::new(ptr::without_provenance_mut(address)).unwrap()
}

unsafe extern "C" fn cpu_buffer_type() -> *mut BufferType {
    ptr::without_provenance_mut(PLAIN)
}

unsafe extern "C" fn alloc(buffer_type: *mut BufferType, size: usize) -> *mut Buffer {
    seen(|seen| {
        if seen.out_of_memory {
            return ptr::null_mut();
        }
        seen.buffers.push((buffer_type.addr(), size));
        ptr::without_provenance_mut(seen.buffers.len())
    })
}

unsafe extern "C" fn alignment(_: *mut BufferType) -> usize {
    ALIGNMENT
}

/// The second type wants more memory for the same tensor.
unsafe extern "C" fn alloc_size(buffer_type: *mut BufferType, _: *const Tensor) -> usize {
    if buffer_type.addr() == SECOND {
        300
    } else {
        200
    }
}

unsafe extern "C" fn get_base(_: *mut Buffer) -> *mut c_void {
    ptr::without_provenance_mut(BASE)
}

unsafe extern "C" fn set_usage(buffer: *mut Buffer, usage: c_int) {
    assert_eq!(usage, crate::abi::usage::WEIGHTS);
    seen(|seen| seen.weights.push(buffer.addr()));
}

unsafe extern "C" fn free(buffer: *mut Buffer) {
    seen(|seen| seen.freed.push(buffer.addr()));
}

unsafe extern "C" fn tensor_alloc(
    buffer: *mut Buffer,
    tensor: *mut Tensor,
    address: *mut c_void,
) -> c_int {
    // SAFETY: the tests pass live tensors.
    let tensor = unsafe { &mut *tensor };
    // As the host asserts.
    assert!(tensor.buffer.is_null() && tensor.data.is_null());
    tensor.buffer = buffer;
    tensor.data = address;
    seen(|seen| seen.tensors.push((buffer.addr(), address.addr())));
    0
}

/// Q8_0 weights suit the second type alone, F16 both, and F32 none.
unsafe extern "C" fn supports_op(device: *mut Device, product: *const Tensor) -> bool {
    assert_eq!(device.addr(), DEVICE);
    // SAFETY: the tests ask about live tensors.
    let product = unsafe { &*product };
    // SAFETY: as above.
    let weights = unsafe { &*product.src[0] };
    match weights.buffer.addr() {
        FIRST => weights.type_id == type_id::F16,
        SECOND => [type_id::F16, Q8_0].contains(&weights.type_id),
        other => panic!("asked about a buffer {other:#x}"),
    }
}

unsafe extern "C" fn device_reg(_: *mut Device) -> *mut Reg {
    ptr::null_mut()
}

unsafe extern "C" fn proc_address(_: *mut Reg, _: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

fn cpu() -> CpuBackend {
    let extra = |address| Extra {
        buffer_type: object(address),
        // The same address tells which one was asked about.
        empty: object(address),
    };
    CpuBackend {
        cpu_buffer_type,
        alloc,
        alignment,
        alloc_size,
        get_base,
        set_usage,
        free,
        tensor_alloc,
        supports_op,
        device_reg,
        proc_address,
        extras: OnceLock::from((object(DEVICE), vec![extra(FIRST), extra(SECOND)])),
        chosen: OnceLock::new(),
        answers: Mutex::default(),
    }
}

fn asks(cpu: &CpuBackend, weights: &mut Tensor) -> bool {
    let mut product = tensor(type_id::F32);
    product.src[0] = weights;
    // SAFETY: both are live.
    unsafe { cpu.rearranges(&product) }
}

fn tensor(type_id: u32) -> Tensor {
    crate::tensor::tests::tensor(type_id, [32, 8, 1, 1])
}

fn is(buffer_type: usize) -> *const BufferType {
    ptr::without_provenance(buffer_type)
}

#[test]
fn each_type_of_weights_goes_where_the_cpu_wants_it() {
    let cpu = cpu();
    let (mut f16, mut q8_0) = (tensor(type_id::F16), tensor(Q8_0));
    let mut f32 = tensor(type_id::F32);
    assert!(!cpu.is_chosen(is(FIRST)));
    assert!(!asks(&cpu, &mut f32));
    assert!(asks(&cpu, &mut f16) && asks(&cpu, &mut q8_0));
    // Buffers are of the first type that was asked for.
    assert_eq!(cpu.target().addr(), FIRST);
    assert!(cpu.is_chosen(is(FIRST)) && cpu.is_chosen(is(SECOND)));
    assert!(!cpu.is_chosen(is(PLAIN)));
    assert!(cpu.other_type(&f16).is_none());
    assert_eq!(cpu.other_type(&q8_0).unwrap().get().addr(), SECOND);
    // Nobody has asked about these.
    assert!(cpu.other_type(&f32).is_none());
    let other = Tensor {
        ne: [64, 8, 1, 1],
        ..tensor(Q8_0)
    };
    assert!(cpu.other_type(&other).is_none());
}

#[test]
fn a_tensor_moves_into_a_buffer_of_its_own() {
    let cpu = cpu();
    let mut q8_0 = tensor(Q8_0);
    q8_0.buffer = ptr::without_provenance_mut(77);
    q8_0.data = ptr::without_provenance_mut(78);
    // SAFETY: a live tensor that nobody else knows.
    let moved = unsafe { cpu.relocate(&mut q8_0, object(SECOND)) };
    let (buffer, status) = moved.unwrap();
    assert_eq!((buffer.get().addr(), status), (1, 0));
    let start = BASE.next_multiple_of(ALIGNMENT);
    assert_eq!((q8_0.buffer.addr(), q8_0.data.addr()), (1, start));
    let size = seen(|seen| {
        assert_eq!(seen.tensors, [(1, start)]);
        assert_eq!(seen.weights, [1]);
        let (buffer_type, size) = seen.buffers[0];
        assert_eq!(buffer_type, SECOND);
        size
    });
    assert!(start - BASE + 300 <= size);
    // SAFETY: not used again.
    unsafe { cpu.free(buffer.get()) };
    assert_eq!(seen(|seen| seen.freed.clone()), [1]);
}

#[test]
fn without_memory_a_tensor_stays_where_it_is() {
    let cpu = cpu();
    seen(|seen| seen.out_of_memory = true);
    let mut q8_0 = tensor(Q8_0);
    q8_0.data = ptr::without_provenance_mut(78);
    // SAFETY: a live tensor that nobody else knows.
    let moved = unsafe { cpu.relocate(&mut q8_0, object(SECOND)) };
    assert!(moved.is_none());
    assert_eq!(q8_0.data.addr(), 78);
}

#[test]
fn answers_are_bounded() {
    let cpu = cpu();
    for k in 0..i64::try_from(ANSWERS).unwrap() + 10 {
        let mut weights = Tensor {
            ne: [k, 8, 1, 1],
            ..tensor(Q8_0)
        };
        assert!(asks(&cpu, &mut weights));
    }
    assert!(cpu.answers().len() <= ANSWERS);
}
