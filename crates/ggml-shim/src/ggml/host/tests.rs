// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small fake host for the tests of other modules.

use std::ffi::c_int;
use std::ptr;
use std::sync::LazyLock;

use super::*;
use crate::ggml::types::tests::fake_types;

/// A buffer of the host below.
#[repr(C)]
pub(crate) struct FakeBuffer {
    pub(crate) buffer_type: *mut BufferType,
    pub(crate) usage: c_int,
    pub(crate) size: usize,
}

/// Its address stands for the one buffer type that is not plain memory.
pub(crate) static REARRANGED: [u8; 1] = [0];

pub(crate) static FAKE_HOST: LazyLock<Host> = LazyLock::new(fake_host);

/// A host with operations numbered by hand, buffers as above, no graphs, and a log on stderr.
fn fake_host() -> Host {
    unsafe extern "C" fn buffer_type(buffer: *mut Buffer) -> *mut BufferType {
        // SAFETY: the tests pass addresses of a FakeBuffer.
        unsafe { (*buffer.cast::<FakeBuffer>()).buffer_type }
    }
    unsafe extern "C" fn usage(buffer: *mut Buffer) -> c_int {
        // SAFETY: as above.
        unsafe { (*buffer.cast::<FakeBuffer>()).usage }
    }
    unsafe extern "C" fn size(buffer: *mut Buffer) -> usize {
        // SAFETY: as above.
        unsafe { (*buffer.cast::<FakeBuffer>()).size }
    }
    unsafe extern "C" fn is_host(buffer_type: *mut BufferType) -> bool {
        !ptr::eq(buffer_type.cast_const(), REARRANGED.as_ptr().cast())
    }
    unsafe extern "C" fn no_nodes(_: *mut Graph) -> c_int {
        0
    }
    unsafe extern "C" fn no_node(_: *mut Graph, _: c_int) -> *mut Tensor {
        ptr::null_mut()
    }
    Host {
        layout: TableLayout::V0_26,
        ops: OpIds {
            none: 0,
            mul_mat: 29,
            mul_mat_id: 30,
            flash_attn: 70,
            rope: 50,
            rms_norm: 24,
            elementwise: [2, 7],
            views: [35, 36, 37, 38],
        },
        version: "fake".to_owned(),
        marks_computed_nodes: true,
        logger: Logger::new(None),
        evidence: None,
        types: fake_types(),
        buffer_get_type: buffer_type,
        buffer_get_usage: usage,
        buffer_get_size: size,
        buft_is_host: is_host,
        graph_n_nodes: no_nodes,
        graph_node: no_node,
    }
}
