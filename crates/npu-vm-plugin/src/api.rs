// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of QEMU's plugin interface that is used, as `qemu-plugin.h` has
//! it.

use std::ffi::{c_int, c_uint, c_void};

/// Version of the interface: that of QEMU 10.0. Later ones accept it.
pub(crate) const VERSION: c_int = 4;

/// `qemu_plugin_id_t`.
pub(crate) type Id = u64;
/// `qemu_plugin_meminfo_t`.
pub(crate) type Access = u32;
/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_W`.
pub(crate) const WRITES: c_int = 2;

/// `struct qemu_plugin_tb`: a translated block of guest code.
#[repr(C)]
pub(crate) struct Block {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`: one of its instructions.
#[repr(C)]
pub(crate) struct Instruction {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_hwaddr`: where an access went.
#[repr(C)]
pub(crate) struct Place {
    _opaque: [u8; 0],
}

/// `qemu_plugin_mem_value`: what was stored, in as many of the low bits as the
/// access has.
#[repr(C)]
pub(crate) struct Value {
    _size: c_int,
    pub(crate) low: u64,
    _high: u64,
}

// SAFETY: the declarations are those of the header, for the version above.
unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        callback: extern "C" fn(Id, *mut Block),
    );
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub(crate) fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    pub(crate) fn qemu_plugin_insn_data(
        instruction: *const Instruction,
        out: *mut c_void,
        len: usize,
    ) -> usize;
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: extern "C" fn(c_uint, Access, u64, *mut c_void),
        registers: c_int,
        direction: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_mem_get_value(access: Access) -> Value;
    pub(crate) fn qemu_plugin_get_hwaddr(access: Access, address: u64) -> *mut Place;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(place: *const Place) -> u64;
}
