// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tensor of the host. Only this module follows ggml's pointers.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use zerocopy::FromBytes;

use crate::ggml::abi::{Buffer, FLAG_COMPUTE, MAX_DIMS, Tensor};
use crate::ggml::host::Host;
use crate::ggml::tensor_data::TensorData;
use crate::ggml::tensor_shape::TensorShape;

/// A tensor of the host that is live during `'a`, with all that its pointers lead to. Its methods
/// read ggml's structures; only those that are unsafe touch the tensor's data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TensorRef<'a> {
    tensor: NonNull<Tensor>,
    /// The ggml that it belongs to.
    pub(crate) host: &'a Host,
    /// Lifetime of the tensor, which `host` alone does not express.
    live: PhantomData<&'a Tensor>,
}

impl<'a> TensorRef<'a> {
    /// Creates a tensor of `host`; `None` for null.
    ///
    /// # Safety
    /// `tensor` is null or live during `'a`, and so is all that can be reached from it: operands,
    /// what it is a view of, the operands of those, and their buffers. Nobody changes these
    /// structures meanwhile; data may change.
    pub(crate) unsafe fn new(host: &'a Host, tensor: *const Tensor) -> Option<Self> {
        Some(Self {
            tensor: NonNull::new(tensor.cast_mut())?,
            host,
            live: PhantomData,
        })
    }

    /// The tensor that a pointer of this tensor leads to.
    fn follow(self, pointer: *const Tensor) -> Option<Self> {
        // SAFETY: a tensor that can be reached from this one, for which `new` was promised the
        // same.
        unsafe { Self::new(self.host, pointer) }
    }

    /// ggml's struct of this tensor.
    pub(crate) fn fields(self) -> &'a Tensor {
        // SAFETY: live and unchanged during 'a, by the promise to `new`.
        unsafe { self.tensor.as_ref() }
    }

    /// The pointer, for functions of ggml.
    pub(crate) fn as_ptr(self) -> *mut Tensor {
        self.tensor.as_ptr()
    }

    pub(crate) fn op(self) -> u32 {
        self.fields().op
    }

    /// Whether it is computed: neither stored nor a view of other data.
    pub(crate) fn is_computed(self) -> bool {
        let ops = self.host.ops;
        self.op() != ops.none && !ops.views.contains(&self.op())
    }

    /// Whether ggml wants this node of a graph computed.
    pub(crate) fn is_wanted(self) -> bool {
        !self.host.marks_computed_nodes || self.has_flag(FLAG_COMPUTE)
    }

    pub(crate) fn has_flag(self, flag: i32) -> bool {
        self.fields().flags & flag != 0
    }

    pub(crate) fn ne(self) -> [i64; MAX_DIMS] {
        self.fields().ne
    }

    /// Address of its first element; 0 if it has no data.
    pub(crate) fn address(self) -> usize {
        self.fields().data.addr()
    }

    /// Its name, for messages.
    pub(crate) fn name(self) -> String {
        let name = &self.fields().name;
        match CStr::from_bytes_until_nul(name) {
            Ok(name) => name.to_string_lossy().into_owned(),
            Err(_) => String::from_utf8_lossy(name).into_owned(),
        }
    }

    pub(crate) fn operand(self, index: usize) -> Option<Self> {
        self.follow(*self.fields().src.get(index)?)
    }

    /// All operands, with `None` for gaps.
    pub(crate) fn operands(self) -> impl Iterator<Item = Option<Self>> {
        let operands = self.fields().src.iter();
        operands.map(move |operand| self.follow(*operand))
    }

    /// The tensor that it is a view of.
    pub(crate) fn viewed(self) -> Option<Self> {
        self.follow(self.fields().view_src)
    }

    /// Its buffer, or that of the tensor that it is a view of; null if it has none.
    pub(crate) fn buffer(self) -> *mut Buffer {
        let own = self.fields().buffer;
        match self.viewed() {
            Some(viewed) if own.is_null() => viewed.fields().buffer,
            _ => own,
        }
    }

    /// What this function of ggml says about its buffer; `None` if it has no buffer.
    ///
    /// # Safety
    /// `function` only reads a live buffer.
    unsafe fn of_buffer<T>(self, function: unsafe extern "C" fn(*mut Buffer) -> T) -> Option<T> {
        let buffer = self.buffer();
        // SAFETY: a buffer of a tensor is null or live, by the promise to `new`; the rest by the
        // caller's promise.
        (!buffer.is_null()).then(|| unsafe { function(buffer) })
    }

    /// Usage of its buffer, see [`crate::ggml::abi::usage`]; `None` if it has no buffer.
    pub(crate) fn buffer_usage(self) -> Option<c_int> {
        // SAFETY: ggml's getter only reads the buffer.
        unsafe { self.of_buffer(self.host.buffer_get_usage) }
    }

    /// Bytes of its buffer; `None` if it has no buffer.
    pub(crate) fn buffer_size(self) -> Option<usize> {
        // SAFETY: ggml's getter only reads the buffer.
        unsafe { self.of_buffer(self.host.buffer_get_size) }
    }

    /// Whether the CPU reads its buffer in place; `None` if it has no buffer.
    pub(crate) fn is_in_host_buffer(self) -> Option<bool> {
        // SAFETY: ggml's getter only reads the buffer.
        let buffer_type = unsafe { self.of_buffer(self.host.buffer_get_type) }?;
        // SAFETY: the type of a live buffer.
        Some(unsafe { (self.host.buft_is_host)(buffer_type) })
    }

    /// Whether its data are weights by the evidence.
    pub(crate) fn is_evident_weight(self) -> bool {
        let seen = self.host.evidence.as_ref().zip(self.range());
        seen.is_some_and(|(evidence, range)| evidence.are_weights(self.buffer(), &range))
    }

    /// Whether its data can be read in place.
    pub(crate) fn is_readable(self) -> bool {
        self.is_in_host_buffer().unwrap_or(true)
    }

    pub(crate) fn descriptor(self) -> TensorShape {
        let Tensor { ne, nb, .. } = *self.fields();
        TensorShape {
            // SAFETY: the type of a tensor of the host.
            format: unsafe { self.host.types.format(self.fields().type_id) },
            ne,
            nb,
        }
    }

    /// Addresses from the first element to the end of the last one; `None` without data.
    pub(crate) fn range(self) -> Option<Range<usize>> {
        let address = self.address();
        self.descriptor().extent(address).filter(|_| address != 0)
    }

    /// Its data; `None` if it has none.
    ///
    /// # Safety
    /// The tensor is allocated, and nobody writes to its data during `'a`.
    pub(crate) unsafe fn rows(self) -> Option<TensorData<'a>> {
        let len = self.range()?.len();
        let data = self.fields().data.cast::<u8>();
        Some(TensorData {
            // SAFETY: an allocated tensor's bytes reach from `data` to behind its last element,
            // which `range` computes from its strides; the length is at most isize::MAX; not
            // written to, by the caller's promise.
            bytes: unsafe { slice::from_raw_parts(data, len) },
            tensor: self.descriptor(),
        })
    }

    /// Its data as memory for outputs; `None` if it has none, or none of whole, aligned binary32
    /// numbers.
    ///
    /// # Safety
    /// The tensor is allocated, and nobody else accesses its data during `'a`.
    pub(crate) unsafe fn output(self) -> Option<&'a mut [f32]> {
        let len = self.range()?.len();
        let data = self.fields().data.cast::<u8>();
        // SAFETY: the range is that of the tensor, all of whose bytes are allocated; nobody else
        // accesses them, by the caller's promise. Every byte pattern is a valid u8.
        let bytes = unsafe { slice::from_raw_parts_mut(data, len) };
        <[f32]>::mut_from_bytes(bytes).ok()
    }
}
