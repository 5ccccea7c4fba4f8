// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few operations between matmuls that the NPU does not compute: ggml's own CPU backend
//! computes them for us.
//!
//! llama.cpp rotates queries by their position before it asks for values and keys. If the CPU had
//! that operation, ggml would hand over the query's matmul alone. So our device takes the
//! operation, and a CPU backend of our own computes it in the same thread.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use crate::ggml::abi::{AbortCallback, Backend, Device, Graph, Tensor, status};
use crate::ggml::shared::GgmlPtr;
use crate::ggml::symbols::{SymbolScope, function};

/// Most nodes of one graph.
const NODES: usize = 64;

/// `struct ggml_init_params`.
#[repr(C)]
struct ContextParams {
    mem_size: usize,
    mem_buffer: *mut c_void,
    no_alloc: bool,
}

/// `ggml_backend_set_n_threads_t` of ggml-backend.h.
pub(crate) type SetThreads = unsafe extern "C" fn(*mut Backend, c_int);
/// `ggml_backend_set_abort_callback_t` of ggml-backend.h.
pub(crate) type SetAbort = unsafe extern "C" fn(*mut Backend, Option<AbortCallback>, *mut c_void);

/// `struct ggml_context`, opaque here.
type Context = c_void;

/// ggml's functions to compute on its CPU backend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuOps {
    dev_init: unsafe extern "C" fn(*mut Device, *const c_char) -> *mut Backend,
    /// Whether a device computes an operation, as ggml asks.
    pub(crate) dev_supports: unsafe extern "C" fn(*mut Device, *const Tensor) -> bool,
    free: unsafe extern "C" fn(*mut Backend),
    compute: unsafe extern "C" fn(*mut Backend, *mut Graph) -> c_int,
    init: unsafe extern "C" fn(ContextParams) -> *mut Context,
    free_context: unsafe extern "C" fn(*mut Context),
    overhead: unsafe extern "C" fn(usize, bool) -> usize,
    new_graph: unsafe extern "C" fn(*mut Context, usize, bool) -> *mut Graph,
    clear: unsafe extern "C" fn(*mut Graph),
    add: unsafe extern "C" fn(*mut Graph, *mut Tensor),
}

impl CpuOps {
    /// Finds the functions; `None` if one is missing.
    pub(crate) fn find(place: &SymbolScope) -> Option<Self> {
        Some(Self {
            dev_init: function!(place, c"ggml_backend_dev_init")?,
            dev_supports: function!(place, c"ggml_backend_dev_supports_op")?,
            free: function!(place, c"ggml_backend_free")?,
            compute: function!(place, c"ggml_backend_graph_compute")?,
            init: function!(place, c"ggml_init")?,
            free_context: function!(place, c"ggml_free")?,
            overhead: function!(place, c"ggml_graph_overhead_custom")?,
            new_graph: function!(place, c"ggml_new_graph_custom")?,
            clear: function!(place, c"ggml_graph_clear")?,
            add: function!(place, c"ggml_graph_add_node")?,
        })
    }

    /// Creates a backend of the CPU's `device` for one stream, with its setters; `None` if there is
    /// no memory for it.
    pub(crate) fn stream(
        self,
        device: GgmlPtr<Device>,
        set_threads: Option<SetThreads>,
        set_abort: Option<SetAbort>,
    ) -> Option<CpuStream> {
        // SAFETY: a device lives for ever; null parameters are its defaults.
        let backend = NonNull::new(unsafe { (self.dev_init)(device.get(), ptr::null()) })?;
        let mut stream = CpuStream {
            ops: self,
            backend,
            set_threads,
            set_abort,
            context: ptr::null_mut(),
            graph: ptr::null_mut(),
        };
        // SAFETY: only computes a number.
        let mem_size = unsafe { (self.overhead)(NODES, false) };
        let params = ContextParams {
            mem_size,
            mem_buffer: ptr::null_mut(),
            no_alloc: true,
        };
        // SAFETY: ggml allocates the memory itself; dropping `stream` frees what was made so far.
        stream.context = unsafe { (self.init)(params) };
        if stream.context.is_null() {
            return None;
        }
        // SAFETY: a live context with room for one such graph, by `overhead`.
        stream.graph = unsafe { (self.new_graph)(stream.context, NODES, false) };
        (!stream.graph.is_null()).then_some(stream)
    }
}

/// A CPU backend, and a graph for it.
#[derive(Debug)]
pub(crate) struct CpuStream {
    ops: CpuOps,
    backend: NonNull<Backend>,
    set_threads: Option<SetThreads>,
    set_abort: Option<SetAbort>,
    context: *mut Context,
    graph: *mut Graph,
}

// SAFETY: its objects belong to no thread; ggml requires that one thread at a time uses them, which
// `&mut` ensures.
unsafe impl Send for CpuStream {}

impl CpuStream {
    /// Sets the number of threads from the next graph on.
    pub(crate) fn set_threads(&self, threads: c_int) {
        if let Some(set_threads) = self.set_threads {
            // SAFETY: our live backend of the CPU, to which the function belongs.
            unsafe { set_threads(self.backend.as_ptr(), threads) };
        }
    }

    /// Sets the callback that decides from the next graph on whether to stop; `None` removes it.
    ///
    /// # Safety
    /// `callback` may be called with `data`, from any thread, while graphs are computed, until
    /// another is set.
    pub(crate) unsafe fn set_abort(&self, callback: Option<AbortCallback>, data: *mut c_void) {
        if let Some(set_abort) = self.set_abort {
            // SAFETY: our live backend of the CPU, to which the function belongs; the rest by the
            // caller's promise.
            unsafe { set_abort(self.backend.as_ptr(), callback, data) };
        }
    }

    /// Computes a whole graph of the host.
    ///
    /// # Safety
    /// As [`Self::compute`], for its nodes.
    pub(crate) unsafe fn compute_graph(&mut self, graph: *mut Graph) -> c_int {
        // SAFETY: a live backend of ours; the graph by the caller's promise.
        unsafe { (self.ops.compute)(self.backend.as_ptr(), graph) }
    }

    /// Computes `nodes` in their order. Returns a value of [`status`].
    ///
    /// # Safety
    /// `nodes` are live tensors of the host, allocated like their operands; the CPU computes their
    /// operations; nobody else writes what they read or accesses what they write.
    pub(crate) unsafe fn compute(&mut self, nodes: &[*mut Tensor]) -> c_int {
        for nodes in nodes.chunks(NODES) {
            // SAFETY: our live graph.
            unsafe { (self.ops.clear)(self.graph) };
            for node in nodes {
                // SAFETY: the graph has room for NODES; the node is live by the caller's promise.
                unsafe { (self.ops.add)(self.graph, *node) };
            }
            // SAFETY: both are live and ours; data by the caller's promise.
            let status = unsafe { (self.ops.compute)(self.backend.as_ptr(), self.graph) };
            if status != status::SUCCESS {
                return status;
            }
        }
        status::SUCCESS
    }
}

impl Drop for CpuStream {
    fn drop(&mut self) {
        // SAFETY: made by `CpuOps::stream`, and not used again; ggml takes null.
        unsafe { (self.ops.free_context)(self.context) };
        // SAFETY: as above.
        unsafe { (self.ops.free)(self.backend.as_ptr()) };
    }
}
