// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ggml that loaded this library: its functions, its version, its numbers.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::{Buffer, BufferType, Graph, Reg, Tensor};
use crate::layout::api3;
use crate::layout::{Layout, Probes};
use crate::log::Logger;
use crate::symbols::{Place, function};

/// `GGML_OP_COUNT` of ggml 0.9.1, the smallest of all supported versions:
/// `ggml_op_name` reads a table of at least this length.
const SMALLEST_OP_COUNT: c_int = 90;

/// Why this library does not serve the program that loaded it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// The process has no ggml that can be found.
    #[error(
        "no ggml found in this process: the program must load ggml as shared libraries \
         (libggml-base); one with ggml linked in statically cannot use this backend"
    )]
    NoGgml,
    /// More than one ggml.
    #[error(
        "{copies} copies of ggml in this process, and no way to tell which of them loads this \
         backend; use one that shares its ggml"
    )]
    SeveralGgml {
        /// How many.
        copies: usize,
    },
    /// A ggml of another layout.
    #[error(
        "ggml {version} lays out its backend interface like the versions {speaks}; this backend \
         speaks that of 0.26 and later. Use a llama.cpp that comes with one of those"
    )]
    Layout {
        /// What `ggml_version` says.
        version: String,
        /// The versions with that layout.
        speaks: &'static str,
    },
    /// A function is missing.
    #[error("ggml {version} lacks a function of its backend interface that this backend calls")]
    Incomplete {
        /// What `ggml_version` says.
        version: String,
    },
    /// The operation that all is about has no number.
    #[error("ggml {version} knows no operation named {name}; this backend needs it")]
    NoSuchOp {
        /// What `ggml_version` says.
        version: String,
        /// ggml's name of the operation.
        name: &'static str,
    },
    /// No device, or a device that could not be set up.
    #[error("{0}")]
    Device(String),
}

/// Newest ggml with which `cargo xtask llama` was seen to pass.
const NEWEST_TRIED: (u32, u32) = (0, 27);

fn is_newer_than_tried(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor) > NEWEST_TRIED,
        _ => true,
    }
}

/// Numbers of the operations that matter, which differ between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpIds {
    /// A tensor that is no operation's result.
    pub(crate) none: u32,
    /// The matrix product.
    pub(crate) mul_mat: u32,
    /// Operations that only describe data that lies elsewhere: RESHAPE, VIEW,
    /// PERMUTE, TRANSPOSE.
    pub(crate) views: [u32; 4],
}

/// The functions of ggml that are called here, as ggml.h, ggml-backend.h and
/// ggml-impl.h of 0.26 and 0.27 declare them.
mod c {
    use super::*;

    pub(super) type Version = unsafe extern "C" fn() -> *const c_char;
    pub(super) type OpName = unsafe extern "C" fn(c_int) -> *const c_char;
    pub(super) type BufferInit = unsafe extern "C" fn(
        *mut BufferType,
        api3::BufferInterface,
        *mut c_void,
        usize,
    ) -> *mut Buffer;
    pub(super) type BufferGetType = unsafe extern "C" fn(*mut Buffer) -> *mut BufferType;
    pub(super) type BufferGetUsage = unsafe extern "C" fn(*mut Buffer) -> c_int;
    pub(super) type BufferGetSize = unsafe extern "C" fn(*mut Buffer) -> usize;
    pub(super) type BuftIsHost = unsafe extern "C" fn(*mut BufferType) -> bool;
    pub(super) type GraphNodeCount = unsafe extern "C" fn(*mut Graph) -> c_int;
    pub(super) type RegByName = unsafe extern "C" fn(*const c_char) -> *mut Reg;
    pub(super) type GraphNode = unsafe extern "C" fn(*mut Graph, c_int) -> *mut Tensor;
}

/// The functions of the loaded ggml.
#[derive(Debug)]
pub(crate) struct Host {
    layout: Layout,
    ops: OpIds,
    version: String,
    logger: Logger,
    buffer_init: c::BufferInit,
    buffer_get_type: c::BufferGetType,
    buffer_get_usage: c::BufferGetUsage,
    buffer_get_size: c::BufferGetSize,
    buft_is_host: c::BuftIsHost,
    graph_n_nodes: c::GraphNodeCount,
    graph_node: c::GraphNode,
}

impl Host {
    /// Checks that the ggml of this process is one we speak.
    pub(crate) fn new(place: &Place) -> Result<Self, LoadError> {
        let version = match function!(place, c"ggml_version", c::Version) {
            // SAFETY: takes no arguments and returns a string literal.
            Some(version) => text(unsafe { version() }),
            None => "of unknown version".to_owned(),
        };
        let layout = Layout::detect(
            Probes {
                tensor_set_2d: place.symbol(c"ggml_backend_tensor_set_2d").is_some(),
                alloc_buffer_n: place.symbol(c"ggml_backend_buft_alloc_buffer_n").is_some(),
            },
            &version,
        )?;
        let op_name = function!(place, c"ggml_op_name", c::OpName);
        let incomplete = || LoadError::Incomplete {
            version: version.clone(),
        };
        let ops = find_ops(op_name.ok_or_else(incomplete)?, &version)?;
        let find = || {
            Some(Self {
                layout,
                ops,
                version: version.clone(),
                logger: Logger::new(Some(place)),
                buffer_init: function!(place, c"ggml_backend_buffer_init", c::BufferInit)?,
                buffer_get_type: function!(
                    place,
                    c"ggml_backend_buffer_get_type",
                    c::BufferGetType
                )?,
                buffer_get_usage: function!(
                    place,
                    c"ggml_backend_buffer_get_usage",
                    c::BufferGetUsage
                )?,
                buffer_get_size: function!(
                    place,
                    c"ggml_backend_buffer_get_size",
                    c::BufferGetSize
                )?,
                buft_is_host: function!(place, c"ggml_backend_buft_is_host", c::BuftIsHost)?,
                graph_n_nodes: function!(place, c"ggml_graph_n_nodes", c::GraphNodeCount)?,
                graph_node: function!(place, c"ggml_graph_node", c::GraphNode)?,
            })
        };
        find().ok_or_else(incomplete)
    }

    /// Whether ggml has loaded the backend `name` before us. It says so in
    /// libggml, not in libggml-base like everything else; a host without that
    /// function is taken to have loaded nothing.
    pub(crate) fn has_backend(&self, name: &CStr) -> bool {
        let function = Place::candidates()
            .iter()
            .find_map(|place| function!(place, c"ggml_backend_reg_by_name", c::RegByName));
        // SAFETY: reads the list of registered backends, which exists because
        // it is just loading us; the name is NUL-terminated.
        function.is_some_and(|by_name| !unsafe { by_name(name.as_ptr()) }.is_null())
    }

    /// The layout of its callback tables.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Its numbers of operations.
    pub(crate) fn ops(&self) -> OpIds {
        self.ops
    }

    /// What `ggml_version` says.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Whether nobody has tried this backend with this ggml. Its tables have
    /// once grown slots without a new API number, and may again.
    pub(crate) fn is_newer_than_tried(&self) -> bool {
        is_newer_than_tried(&self.version)
    }

    /// The program's log.
    pub(crate) fn logger(&self) -> Logger {
        self.logger
    }

    /// `ggml_backend_buffer_init`: only stores what it is given.
    pub(crate) fn buffer_init(
        &self,
        buffer_type: *mut BufferType,
        interface: api3::BufferInterface,
        context: *mut c_void,
        size: usize,
    ) -> *mut Buffer {
        // SAFETY: the function copies its arguments into a new object and
        // dereferences none of them; the interface has the host's layout,
        // because `find` accepts no other.
        unsafe { (self.buffer_init)(buffer_type, interface, context, size) }
    }

    /// The type of a buffer.
    ///
    /// # Safety
    /// `buffer` is a live buffer of this host.
    pub(crate) unsafe fn buffer_type(&self, buffer: *mut Buffer) -> *mut BufferType {
        // SAFETY: reads a field of the buffer, live by the caller's promise.
        unsafe { (self.buffer_get_type)(buffer) }
    }

    /// The usage of a buffer, see [`crate::abi::usage`].
    ///
    /// # Safety
    /// `buffer` is a live buffer of this host.
    pub(crate) unsafe fn buffer_usage(&self, buffer: *mut Buffer) -> c_int {
        // SAFETY: reads a field of the buffer, live by the caller's promise.
        unsafe { (self.buffer_get_usage)(buffer) }
    }

    /// The size of a buffer in bytes.
    ///
    /// # Safety
    /// `buffer` is a live buffer of this host.
    pub(crate) unsafe fn buffer_size(&self, buffer: *mut Buffer) -> usize {
        // SAFETY: reads a field of the buffer, live by the caller's promise.
        unsafe { (self.buffer_get_size)(buffer) }
    }

    /// Whether the CPU can read buffers of this type in place.
    ///
    /// # Safety
    /// `buffer_type` is a live buffer type of this host.
    pub(crate) unsafe fn is_host(&self, buffer_type: *mut BufferType) -> bool {
        // SAFETY: calls the type's own callback, live by the caller's promise.
        unsafe { (self.buft_is_host)(buffer_type) }
    }

    /// The nodes of a graph, in the order of execution.
    ///
    /// # Safety
    /// `graph` is a live graph of this host, and nobody changes it meanwhile.
    pub(crate) unsafe fn nodes(&self, graph: *mut Graph) -> Vec<*const Tensor> {
        // SAFETY: reads a field of the graph, live by the caller's promise.
        let count = unsafe { (self.graph_n_nodes)(graph) };
        (0..count)
            // SAFETY: 0 <= index < n_nodes, so the table holds a node there.
            .map(|index| unsafe { (self.graph_node)(graph, index) }.cast_const())
            .collect()
    }
}

/// Numbers the operations by their names.
fn find_ops(op_name: c::OpName, version: &str) -> Result<OpIds, LoadError> {
    let names: Vec<String> = (0..SMALLEST_OP_COUNT)
        // SAFETY: the index lies within the table of names, see the constant.
        .map(|index| text(unsafe { op_name(index) }))
        .collect();
    let number = |name: &'static str| {
        let found = names.iter().position(|known| known == name);
        found
            .and_then(|index| u32::try_from(index).ok())
            .ok_or_else(|| LoadError::NoSuchOp {
                version: version.to_owned(),
                name,
            })
    };
    Ok(OpIds {
        none: number("NONE")?,
        mul_mat: number("MUL_MAT")?,
        views: [
            number("RESHAPE")?,
            number("VIEW")?,
            number("PERMUTE")?,
            number("TRANSPOSE")?,
        ],
    })
}

/// Copies a string of ggml's static data.
fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: callers pass what `ggml_version` or `ggml_op_name` returned: a
    // NUL-terminated string literal, or null, which is handled above.
    let string = unsafe { CStr::from_ptr(pointer) };
    string.to_string_lossy().into_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ptr;

    use super::*;

    /// A buffer of the host below.
    #[repr(C)]
    pub(crate) struct FakeBuffer {
        pub(crate) buffer_type: *mut BufferType,
        pub(crate) usage: c_int,
        pub(crate) size: usize,
    }

    /// A host of a few lines: operations numbered as by hand, buffers as
    /// above, no graphs, a log that goes to stderr.
    pub(crate) fn fake_host() -> Host {
        unsafe extern "C" fn init(
            _: *mut BufferType,
            _: api3::BufferInterface,
            _: *mut c_void,
            _: usize,
        ) -> *mut Buffer {
            ptr::null_mut()
        }
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
        unsafe extern "C" fn is_host(_: *mut BufferType) -> bool {
            true
        }
        unsafe extern "C" fn no_nodes(_: *mut Graph) -> c_int {
            0
        }
        unsafe extern "C" fn no_node(_: *mut Graph, _: c_int) -> *mut Tensor {
            ptr::null_mut()
        }
        Host {
            layout: Layout::Api3,
            ops: OpIds {
                none: 0,
                mul_mat: 29,
                views: [35, 36, 37, 38],
            },
            version: "fake".to_owned(),
            logger: Logger::new(None),
            buffer_init: init,
            buffer_get_type: buffer_type,
            buffer_get_usage: usage,
            buffer_get_size: size,
            buft_is_host: is_host,
            graph_n_nodes: no_nodes,
            graph_node: no_node,
        }
    }

    #[test]
    fn operations_are_numbered_by_name_not_by_place() {
        extern "C" fn shuffled(index: c_int) -> *const c_char {
            match index {
                0 => c"NONE".as_ptr(),
                7 => c"MUL_MAT".as_ptr(),
                8 => c"TRANSPOSE".as_ptr(),
                9 => c"VIEW".as_ptr(),
                10 => c"PERMUTE".as_ptr(),
                11 => c"RESHAPE".as_ptr(),
                _ => c"OTHER".as_ptr(),
            }
        }
        let ops = find_ops(shuffled, "x").unwrap();
        assert_eq!(ops.mul_mat, 7);
        assert_eq!(ops.views, [11, 9, 10, 8]);

        extern "C" fn none(_: c_int) -> *const c_char {
            std::ptr::null()
        }
        let error = find_ops(none, "9.9").unwrap_err().to_string();
        assert!(error.contains("9.9") && error.contains("NONE"), "{error}");
    }
}
