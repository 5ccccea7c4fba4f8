// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backend object (ggml's word for a stream) and its callbacks.
//!
//! ggml makes one per context and may compute on several at once. All share the engine of
//! [`crate::compute::runtime`].

use std::ffi::{c_char, c_int};

use crate::compute::forked;
use crate::compute::graph;
use crate::compute::runtime::{guard, own_name};
use crate::compute::serve;
use crate::compute::statistics;
use crate::ggml::abi::{Backend, Graph, status};
use crate::ggml::layout::{self, BackendCallbacks};
use crate::ggml::tensor_ref::TensorRef;

/// Identifies our backends. It is a random number, like each backend's GUID.
static GUID: [u8; 16] = [
    0x1d, 0x8e, 0x52, 0x07, 0xa3, 0x4c, 0x4b, 0x9f, 0x86, 0x30, 0xe7, 0x75, 0x0c, 0xd2, 0x61, 0xfa,
];

pub(crate) const CALLBACKS: BackendCallbacks = BackendCallbacks {
    guid: &GUID,
    name,
    free,
    graph_compute,
};

unsafe extern "C" fn name(_backend: *mut Backend) -> *const c_char {
    own_name()
}

unsafe extern "C" fn free(backend: *mut Backend) {
    guard("free", (), |runtime| {
        // A child of fork would wait for threads of the parent.
        if !backend.is_null() && !runtime.is_forked() {
            // SAFETY: ggml frees a backend that `init_backend` made, once.
            unsafe { layout::free_backend(backend) };
        }
    });
}

unsafe extern "C" fn graph_compute(backend: *mut Backend, graph: *mut Graph) -> c_int {
    guard("graph_compute", status::FAILED, |runtime| {
        // SAFETY: ggml passes a live backend of ours, and waits.
        let Some(stream) = (unsafe { layout::stream(backend) }) else {
            return status::FAILED;
        };
        if runtime.is_forked() {
            // SAFETY: the graph is live; its nodes are allocated, and nobody else accesses their
            // data while ggml waits, except to read operands.
            return unsafe { forked::compute(runtime, stream, graph) };
        }
        // SAFETY: ggml passes a live graph and waits for the result.
        let nodes = unsafe { runtime.host.nodes(graph) };
        let nodes: Vec<_> = nodes
            .into_iter()
            // SAFETY: a node of that graph, which is live with all that its nodes lead to.
            .filter_map(|node| unsafe { TensorRef::new(&runtime.host, node) })
            .collect();
        let status = if let Some(evidence) = &runtime.host.evidence {
            // SAFETY: as above.
            unsafe { serve::compute(runtime, stream, evidence, (graph, &nodes)) }
        } else {
            // SAFETY: as above.
            unsafe { graph::compute(runtime, stream, &nodes) }
        };
        statistics::after_graph(runtime);
        status
    })
}
