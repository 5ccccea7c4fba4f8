// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ggml that loaded this library: its functions, its version, the numbers of its operations.

mod ops;

use std::ffi::{CStr, c_char, c_int};

pub(crate) use ops::OpIds;

use crate::ggml::abi::{Buffer, BufferType, DEVICE_TYPES_GPU, Device, Graph, Reg, Tensor};
use crate::ggml::layout::TableLayout;
use crate::ggml::load_error::LoadError;
use crate::ggml::log::Logger;
use crate::ggml::symbols::{SymbolScope, function};
use crate::ggml::types::FormatTable;
use crate::ggml::written_bytes::WrittenBytes;

/// The functions of the loaded ggml.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) layout: TableLayout,
    pub(crate) ops: OpIds,
    pub(crate) version: String,
    /// Whether ggml marks the nodes of a graph that are to be computed with
    /// [`crate::ggml::abi::FLAG_COMPUTE`]. Nodes without the mark belong to a branch that was not chosen,
    /// and may not even be allocated. A ggml that does not mark nodes wants every node computed.
    pub(crate) marks_computed_nodes: bool,
    pub(crate) logger: Logger,
    /// Identifies weights, if ggml does not: in a process that serves whole graphs.
    pub(crate) evidence: Option<WrittenBytes>,
    pub(crate) types: FormatTable,
    // These take live buffers.
    pub(crate) buffer_get_type: unsafe extern "C" fn(*mut Buffer) -> *mut BufferType,
    /// See [`crate::ggml::abi::usage`].
    pub(crate) buffer_get_usage: unsafe extern "C" fn(*mut Buffer) -> c_int,
    pub(crate) buffer_get_size: unsafe extern "C" fn(*mut Buffer) -> usize,
    /// Whether the CPU can read buffers of this type in place.
    pub(crate) buft_is_host: unsafe extern "C" fn(*mut BufferType) -> bool,
    graph_n_nodes: unsafe extern "C" fn(*mut Graph) -> c_int,
    graph_node: unsafe extern "C" fn(*mut Graph, c_int) -> *mut Tensor,
}

impl Host {
    /// Checks that this library supports the ggml of this process, and finds its functions.
    pub(crate) fn new(place: &SymbolScope) -> Result<Self, LoadError> {
        let version: Option<unsafe extern "C" fn() -> *const c_char> =
            function!(place, c"ggml_version");
        let version = version.map_or("of unknown version".to_owned(), |version| {
            // SAFETY: takes no arguments.
            let version = unsafe { version() };
            // SAFETY: it returns a string literal.
            unsafe { ops::text(version) }
        });
        let layout = TableLayout::detect(|name| place.symbol(name).is_some(), &version)?;
        layout.check(place, &version)?;
        let incomplete = || LoadError::Incomplete(version.clone());
        let op_name: Option<ops::OpName> = function!(place, c"ggml_op_name");
        let ops = OpIds::find(op_name.ok_or_else(incomplete)?, &version)?;
        let find = || {
            Some(Self {
                layout,
                ops,
                version: version.clone(),
                // This function came with the mark, in January 2026 (llama.cpp's pull request
                // 18550): 0.9.4 has neither, 0.9.7 has both.
                marks_computed_nodes: place.symbol(c"ggml_build_forward_select").is_some(),
                logger: Logger::new(Some(place)),
                evidence: None,
                types: FormatTable::find(place)?,
                buffer_get_type: function!(place, c"ggml_backend_buffer_get_type")?,
                buffer_get_usage: function!(place, c"ggml_backend_buffer_get_usage")?,
                buffer_get_size: function!(place, c"ggml_backend_buffer_get_size")?,
                buft_is_host: function!(place, c"ggml_backend_buft_is_host")?,
                graph_n_nodes: function!(place, c"ggml_graph_n_nodes")?,
                graph_node: function!(place, c"ggml_graph_node")?,
            })
        };
        find().ok_or_else(incomplete)
    }

    /// Whether ggml has loaded the backend `name` before us. The function for that is in libggml,
    /// unlike all others, which are in libggml-base; a host without it counts as having loaded
    /// nothing.
    pub(crate) fn has_backend(&self, name: &CStr) -> bool {
        let function: Option<unsafe extern "C" fn(*const c_char) -> *mut Reg> =
            SymbolScope::candidates()
                .iter()
                .find_map(|place| function!(place, c"ggml_backend_reg_by_name"));
        // SAFETY: reads the list of registered backends, which exists because
        // it is just loading us; the name is NUL-terminated.
        function.is_some_and(|by_name| !unsafe { by_name(name.as_ptr()) }.is_null())
    }

    /// Name and description of a GPU that ggml has found; `None` without one.
    pub(crate) fn gpu_device(&self, place: &SymbolScope) -> Option<String> {
        type Text = unsafe extern "C" fn(*mut Device) -> *const c_char;
        // Like `has_backend`, in libggml.
        let by_type: unsafe extern "C" fn(c_int) -> *mut Device = SymbolScope::candidates()
            .iter()
            .find_map(|place| function!(place, c"ggml_backend_dev_by_type"))?;
        let name: Text = function!(place, c"ggml_backend_dev_name")?;
        let description: Text = function!(place, c"ggml_backend_dev_description")?;
        // SAFETY: reads the list of registered devices, see `has_backend`.
        let mut devices = DEVICE_TYPES_GPU
            .into_iter()
            .map(|kind| unsafe { by_type(kind) });
        let device = devices.find(|device| !device.is_null())?;
        let text = |function: Text| {
            // SAFETY: takes a registered device, which lives for ever.
            let text = unsafe { function(device) };
            // SAFETY: a string of that device.
            unsafe { ops::text(text) }
        };
        Some(format!("{} ({})", text(name), text(description)))
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

#[cfg(test)]
pub(crate) mod tests;
