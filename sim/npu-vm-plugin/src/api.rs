// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of QEMU's plugin interface that this plugin uses, as
//! `qemu-plugin.h` declares it from QEMU 7.2 (version 1 of the interface) to
//! 10.0 (version 4).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::{mem, ptr};

/// A function of QEMU 9.0 and later, which require at least version 2.
const SINCE_2: &CStr = c"qemu_plugin_num_vcpus";

/// First version in which `qemu_plugin_insn_data` copies.
const COPIES: c_int = 3;

/// `qemu_plugin_id_t`.
pub(crate) type Id = u64;
/// `qemu_plugin_meminfo_t`.
pub(crate) type MemInfo = u32;
/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_W`.
pub(crate) const WRITES: c_int = 2;

/// The first fields of `qemu_info_t`.
#[repr(C)]
pub struct QemuInfo {
    _target: *const c_char,
    _oldest: c_int,
    /// This QEMU's version of the interface.
    pub(crate) version: c_int,
}

/// `struct qemu_plugin_tb`: a translated block of guest code.
#[repr(C)]
pub(crate) struct TranslatedBlock {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`: one of its instructions.
#[repr(C)]
pub(crate) struct Instruction {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_hwaddr`: where an access went.
#[repr(C)]
pub(crate) struct HardwareAddress {
    _opaque: [u8; 0],
}

// SAFETY: the declarations are those of the header, in every version except as
// noted.
unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        callback: extern "C" fn(Id, *mut TranslatedBlock),
    );
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const TranslatedBlock) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(
        block: *const TranslatedBlock,
        index: usize,
    ) -> *mut Instruction;
    pub(crate) fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    /// Before version 3 it takes only `instruction`, and returns the code's address.
    fn qemu_plugin_insn_data(
        instruction: *const Instruction,
        out: *mut c_void,
        len: usize,
    ) -> usize;
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: extern "C" fn(c_uint, MemInfo, u64, *mut c_void),
        registers: c_int,
        direction: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_get_hwaddr(access: MemInfo, address: u64) -> *mut HardwareAddress;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(place: *const HardwareAddress) -> u64;
}

// SAFETY: the C library of every program has it.
unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A version of the interface that the QEMU of this process accepts, and that
/// has everything used here.
pub(crate) fn version() -> c_int {
    // SAFETY: the name is a string, and null stands for all loaded libraries.
    let found = unsafe { dlsym(ptr::null_mut(), SINCE_2.as_ptr()) };
    if found.is_null() { 1 } else { 2 }
}

/// The code of an instruction, on a processor with four-byte instructions.
///
/// # Safety
/// The instruction must belong to a block within its callback, and `version` must
/// be this QEMU's.
pub(crate) unsafe fn code(instruction: *const Instruction, version: c_int) -> u32 {
    type Pointer = unsafe extern "C" fn(*const Instruction) -> *const [u8; 4];
    type Copier = unsafe extern "C" fn(*const Instruction, *mut c_void, usize) -> usize;
    let mut code = [0; 4];
    if version < COPIES {
        // SAFETY: this is its declaration in those versions.
        let data = unsafe { mem::transmute::<Copier, Pointer>(qemu_plugin_insn_data) };
        // SAFETY: the caller's promise.
        let data = unsafe { data(instruction) };
        // SAFETY: four bytes are there, within the callback.
        code = unsafe { data.read() };
    } else {
        // SAFETY: the caller's promise; at most four bytes are written.
        unsafe { qemu_plugin_insn_data(instruction, code.as_mut_ptr().cast(), code.len()) };
    }
    u32::from_le_bytes(code)
}
