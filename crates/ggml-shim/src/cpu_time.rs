// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long the host's own CPU backend takes for a product, measured: with the
//! kernels that it would use, which depend on the machine, on the type of the
//! weights and on the order in which they lie.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use crate::abi::{
    Arena, Backend, Buffer, BufferType, Device, Graph, Tensor, status, type_id, usage,
};
use crate::symbols::{SymbolScope, function};
use crate::types::NumberFormat;

/// Rows that are measured: as many as the question is about, so that the CPU
/// uses the kernels for several rows at once.
const ROWS: usize = 16;
/// Size of the weights: a layer of a small model. They do not fit into the second
/// cache, and a product takes about a millisecond.
const SIZE: [usize; 2] = [1024, 2048];
/// Products, of which the fastest counts: the others were interrupted.
const RUNS: usize = 8;

/// `struct ggml_init_params`, passed by value.
#[repr(C)]
struct ArenaParams {
    size: usize,
    memory: *mut c_void,
    /// Whether tensors get no memory from it.
    without_data: bool,
}

type Init = unsafe extern "C" fn(ArenaParams) -> *mut Arena;
type Free = unsafe extern "C" fn(*mut Arena);
type Overhead = unsafe extern "C" fn() -> usize;
type NewTensor = unsafe extern "C" fn(*mut Arena, c_int, i64, i64) -> *mut Tensor;
type MulMat = unsafe extern "C" fn(*mut Arena, *mut Tensor, *mut Tensor) -> *mut Tensor;
type NewGraph = unsafe extern "C" fn(*mut Arena) -> *mut Graph;
type Expand = unsafe extern "C" fn(*mut Graph, *mut Tensor);
type Alloc = unsafe extern "C" fn(*mut Arena, *mut BufferType) -> *mut Buffer;
type SetUsage = unsafe extern "C" fn(*mut Buffer, c_int);
type FreeBuffer = unsafe extern "C" fn(*mut Buffer);
type Bytes = unsafe extern "C" fn(*const Tensor) -> usize;
type Set = unsafe extern "C" fn(*mut Tensor, *const c_void, usize, usize);
type InitBackend = unsafe extern "C" fn(*mut Device, *const c_char) -> *mut Backend;
type Compute = unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int;
type FreeBackend = unsafe extern "C" fn(*mut Backend);

/// The functions of ggml with which its users compute, as ggml.h, ggml-alloc.h
/// and ggml-backend.h declare them, alike from 0.9.1 to 0.27.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProductTimer {
    init: Init,
    free: Free,
    tensor_overhead: Overhead,
    graph_overhead: Overhead,
    new_tensor: NewTensor,
    mul_mat: MulMat,
    new_graph: NewGraph,
    expand: Expand,
    alloc: Alloc,
    set_usage: SetUsage,
    free_buffer: FreeBuffer,
    bytes: Bytes,
    set: Set,
    init_backend: InitBackend,
    compute: Compute,
    free_backend: FreeBackend,
}

/// Where a product is measured: objects of the host, which live for ever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimingPlace {
    /// The host's CPU device.
    pub(crate) device: *mut Device,
    /// Type of the buffer that the weights lie in.
    pub(crate) weights: *mut BufferType,
    /// Type of buffers in plain memory.
    pub(crate) plain: *mut BufferType,
}

impl ProductTimer {
    /// Finds the functions; `None` if one is missing.
    pub(crate) fn find(place: &SymbolScope) -> Option<Self> {
        Some(Self {
            init: function!(place, c"ggml_init", Init)?,
            free: function!(place, c"ggml_free", Free)?,
            tensor_overhead: function!(place, c"ggml_tensor_overhead", Overhead)?,
            graph_overhead: function!(place, c"ggml_graph_overhead", Overhead)?,
            new_tensor: function!(place, c"ggml_new_tensor_2d", NewTensor)?,
            mul_mat: function!(place, c"ggml_mul_mat", MulMat)?,
            new_graph: function!(place, c"ggml_new_graph", NewGraph)?,
            expand: function!(place, c"ggml_build_forward_expand", Expand)?,
            alloc: function!(place, c"ggml_backend_alloc_ctx_tensors_from_buft", Alloc)?,
            set_usage: function!(place, c"ggml_backend_buffer_set_usage", SetUsage)?,
            free_buffer: function!(place, c"ggml_backend_buffer_free", FreeBuffer)?,
            bytes: function!(place, c"ggml_nbytes", Bytes)?,
            set: function!(place, c"ggml_backend_tensor_set", Set)?,
            init_backend: function!(place, c"ggml_backend_dev_init", InitBackend)?,
            compute: function!(place, c"ggml_backend_graph_compute", Compute)?,
            free_backend: function!(place, c"ggml_backend_free", FreeBackend)?,
        })
    }

    /// What the CPU takes for a multiply-add with weights of this format, in
    /// femtoseconds, with as many threads as its backend has by default. `None`
    /// if the host refuses any part of it.
    ///
    /// # Safety
    /// The objects are the host's, `format` is one of its formats, the buffer
    /// type of the weights takes them, and the CPU multiplies them from there.
    pub(crate) unsafe fn mac_fs(&self, format: NumberFormat, place: TimingPlace) -> Option<u64> {
        let [n, k] = SIZE;
        // SAFETY: the caller's promise.
        let took = unsafe { self.measure(format, place) }?;
        let macs = (ROWS * n * k) as u128;
        let fs = took.as_nanos() * 1_000_000 / macs;
        u64::try_from(fs).ok()
    }

    /// # Safety
    /// As [`ProductTimer::mac_fs`].
    unsafe fn measure(&self, format: NumberFormat, place: TimingPlace) -> Option<Duration> {
        let stored = Owned::arena(self)?;
        let computed = Owned::arena(self)?;
        let [n, k] = SIZE.map(|size| i64::try_from(size).unwrap_or(0));
        let rows = i64::try_from(ROWS).unwrap_or(0);
        let [weights_id, floats] = [format.id, type_id::F32].map(c_int::try_from);
        // Rows that are no whole blocks would make ggml abort.
        format.row_bytes(SIZE[1])?;
        // SAFETY: a live arena with room for this tensor, and a type of the host.
        let weights = unsafe { (self.new_tensor)(stored.get(), weights_id.ok()?, k, n) };
        // SAFETY: as above.
        let activations = unsafe { (self.new_tensor)(computed.get(), floats.ok()?, k, rows) };
        if weights.is_null() || activations.is_null() {
            return None;
        }
        // SAFETY: live tensors with the same K.
        let product = unsafe { (self.mul_mat)(computed.get(), weights, activations) };
        // SAFETY: a live arena with room for a graph.
        let graph = unsafe { (self.new_graph)(computed.get()) };
        if product.is_null() || graph.is_null() {
            return None;
        }
        // SAFETY: a graph and a tensor of live arenas.
        unsafe { (self.expand)(graph, product) };

        let stored_buffer = Owned::buffer(self, &stored, place.weights)?;
        // SAFETY: a live buffer.
        unsafe { (self.set_usage)(stored_buffer.get(), usage::WEIGHTS) };
        let _computed_buffer = Owned::buffer(self, &computed, place.plain)?;
        for tensor in [weights, activations] {
            // SAFETY: a live tensor.
            let bytes = unsafe { (self.bytes)(tensor) };
            let zeros = vec![0_u8; bytes];
            // SAFETY: an allocated tensor of so many bytes; all formats have a
            // meaning for zeros.
            unsafe { (self.set)(tensor, zeros.as_ptr().cast(), 0, bytes) };
        }
        let backend = Owned::backend(self, place.device)?;
        let mut fastest = None;
        for _ in 0..RUNS {
            let started = Instant::now();
            // SAFETY: a live backend of the CPU, a graph whose tensors are
            // allocated in buffers that it reads.
            let outcome = unsafe { (self.compute)(backend.get(), graph) };
            let took = started.elapsed();
            if outcome != status::SUCCESS {
                return None;
            }
            fastest = Some(fastest.map_or(took, |fastest: Duration| fastest.min(took)));
        }
        fastest
    }
}

/// An object of ggml that goes when this does: in the reverse order of making,
/// as ggml wants it.
struct Owned<T> {
    object: *mut T,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    fn new(object: *mut T, free: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        (!object.is_null()).then_some(Self { object, free })
    }

    fn get(&self) -> *mut T {
        self.object
    }
}

impl Owned<Arena> {
    /// Makes an arena for two tensors and a graph, without their data.
    fn arena(timer: &ProductTimer) -> Option<Self> {
        // SAFETY: takes nothing, returns a constant.
        let tensors = 4 * unsafe { (timer.tensor_overhead)() };
        // SAFETY: as above.
        let graph = unsafe { (timer.graph_overhead)() };
        let params = ArenaParams {
            size: tensors.checked_add(graph)?,
            memory: ptr::null_mut(),
            without_data: true,
        };
        // SAFETY: ggml allocates the memory itself.
        Self::new(unsafe { (timer.init)(params) }, timer.free)
    }
}

impl Owned<Buffer> {
    /// Memory for all tensors of `arena`.
    fn buffer(
        timer: &ProductTimer,
        arena: &Owned<Arena>,
        buffer_type: *mut BufferType,
    ) -> Option<Self> {
        // SAFETY: a live arena, and a buffer type of the host by the promise of
        // `mac_fs`.
        let buffer = unsafe { (timer.alloc)(arena.get(), buffer_type) };
        Self::new(buffer, timer.free_buffer)
    }
}

impl Owned<Backend> {
    fn backend(timer: &ProductTimer, device: *mut Device) -> Option<Self> {
        // SAFETY: a device of the host; null asks for nothing special.
        let backend = unsafe { (timer.init_backend)(device, ptr::null()) };
        Self::new(backend, timer.free_backend)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by the function that belongs to this one, freed once.
        unsafe { (self.free)(self.object) };
    }
}
