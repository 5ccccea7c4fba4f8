// SPDX-License-Identifier: MIT OR Apache-2.0
//! `libnpu_vm_plugin.so`: the NPU as a plugin of stock QEMU.
//!
//! ```text
//! -plugin libnpu_vm_plugin.so,ram=FD,qmp=FD,qtest=FD,cores=N,fact=NAME=SIDE,wedged=N,stall=N
//! ```
//!
//! Each FD is a file descriptor that QEMU inherits: the file that is the guest's RAM, and the
//! far ends of QEMU's monitor and test server. `fact` selects a side of a contested fact,
//! `wedged` the number of a core whose tasks never end; both may be repeated. With `stall=N`
//! each Nth job never starts.
//!
//! The plugin watches the word stores of the guest's kernel, and passes those
//! to the NPU's registers on before the guest's next instruction.

mod api;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use npu_vm::{GuestNpu, Wires, board};
use rknpu_chip::{ChipOptions, Core, NpuCore};

/// The only machine of this process.
static MACHINE: OnceLock<GuestNpu> = OnceLock::new();

/// The version of the interface that this plugin wants. QEMU reads it before it
/// calls the plugin, and accepts none before its oldest or after its own.
// SAFETY: no other library of QEMU defines this name; QEMU finds plugins by it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(0);

/// Sets that version to fit this QEMU when the library is loaded.
// SAFETY: the loader calls the functions of this section once, before QEMU can
// look for anything here.
#[used]
#[unsafe(link_section = ".init_array")]
static FIT: extern "C" fn() = {
    extern "C" fn fit() {
        qemu_plugin_version.store(api::version(), Ordering::Relaxed);
    }
    fit
};

/// QEMU's version of the interface.
static INTERFACE: AtomicI32 = AtomicI32::new(0);

/// QEMU calls this when it loads the plugin.
///
/// # Safety
/// `info` must be QEMU's; `arguments` must point to `count` strings. Only QEMU calls it, once.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: api::Id,
    info: *const api::QemuInfo,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    let arguments = match usize::try_from(count) {
        // SAFETY: QEMU passes an array of `count` strings.
        Ok(count) if count > 0 => unsafe { slice::from_raw_parts(arguments, count) },
        _ => &[],
    };
    let arguments = arguments.iter().map(|&argument| {
        // SAFETY: QEMU's arguments are strings that end with a zero and live as
        // long as the plugin.
        unsafe { CStr::from_ptr(argument) }.to_string_lossy()
    });
    let machine = match start(arguments) {
        Ok(machine) => machine,
        Err(reason) => return fail(&reason),
    };
    // SAFETY: QEMU's structure is valid within this call.
    let version = unsafe { (*info).version };
    INTERFACE.store(version, Ordering::Relaxed);
    if MACHINE.set(machine).is_err() {
        return fail("the plugin is already loaded");
    }
    // SAFETY: the callback has the signature that QEMU expects.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
    0
}

fn fail(reason: &str) -> c_int {
    eprintln!("npu-vm-plugin: {reason}");
    1
}

/// The machine that the plugin's arguments describe.
fn start(arguments: impl Iterator<Item = impl AsRef<str>>) -> Result<GuestNpu, String> {
    let [mut ram, mut qmp, mut qtest] = [None; 3];
    let mut cores = board::MAX_CORES;
    let mut options = ChipOptions::default();
    let mut wedged = Vec::new();
    let mut stall = None;
    for argument in arguments {
        let argument = argument.as_ref();
        if let Some(fact) = argument.strip_prefix("fact=") {
            let set = options.contested.set(fact);
            set.map_err(|error| error.to_string())?;
            continue;
        }
        let parsed = argument
            .split_once('=')
            .and_then(|(name, value)| Some((name, value.parse::<u32>().ok()?)));
        match parsed {
            Some(("ram", fd)) => ram = Some(fd),
            Some(("qmp", fd)) => qmp = Some(fd),
            Some(("qtest", fd)) => qtest = Some(fd),
            Some(("cores", count)) => cores = count,
            Some(("wedged", core)) => wedged.push(core),
            Some(("stall", every)) if every > 0 => stall = NonZeroU64::new(every.into()),
            _ => {
                return Err(format!(
                    "the argument `{argument}` is unknown, or its value is not a number"
                ));
            }
        }
    }
    let [Some(ram), Some(qmp), Some(qtest)] = [ram, qmp, qtest] else {
        return Err("missing argument: ram=FD, qmp=FD and qtest=FD are required".to_owned());
    };
    if ram == qmp || ram == qtest || qmp == qtest {
        return Err("ram, qmp and qtest need different file descriptors".to_owned());
    }
    let wires = Wires {
        ram: File::from(inherited(ram)?),
        qmp: inherited(qmp)?.into(),
        qtest: inherited(qtest)?.into(),
    };
    // To use another model, make it here.
    let core = |index| -> Box<dyn NpuCore> {
        let core = Core::new(&options);
        Box::new(if wedged.contains(&index) {
            core.broken()
        } else {
            core
        })
    };
    let cores = (0..cores).map(core).collect();
    GuestNpu::start(cores, stall, wires).map_err(|error| error.to_string())
}

/// Takes a file descriptor that was inherited for this plugin alone.
fn inherited(fd: u32) -> Result<OwnedFd, String> {
    let fd = RawFd::try_from(fd).map_err(|_| format!("{fd} is not a valid file descriptor"))?;
    // Only to check that it is open.
    File::open(format!("/proc/self/fdinfo/{fd}"))
        .map_err(|error| format!("file descriptor {fd} was not inherited: {error}"))?;
    // SAFETY: it is open, as just checked. The program that starts QEMU gives
    // it to this plugin alone, which takes each descriptor once: `start` runs
    // once, and its three differ.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Start of the kernel's half of virtual addresses.
const KERNEL: u64 = 1 << 63;

/// Whether this is `str wN, [xM, #imm]`, with which all of the kernel's
/// accessors for registers end.
fn stores_word(instruction: u32) -> bool {
    instruction & 0xffc0_0000 == 0xb900_0000
}

/// QEMU calls this when it has translated a block of the guest's code.
extern "C" fn translated(_id: api::Id, block: *mut api::TranslatedBlock) {
    // SAFETY: QEMU's block is valid within this call.
    let count = unsafe { api::qemu_plugin_tb_n_insns(block) };
    for index in 0..count {
        // SAFETY: as above, and `index` is below the block's length.
        let instruction = unsafe { api::qemu_plugin_tb_get_insn(block, index) };
        // SAFETY: the instruction is the block's.
        if unsafe { api::qemu_plugin_insn_vaddr(instruction) } < KERNEL {
            return;
        }
        // SAFETY: as above, and the version is QEMU's.
        let code = unsafe { api::code(instruction, INTERFACE.load(Ordering::Relaxed)) };
        if stores_word(code) {
            // SAFETY: as above; the callback has the right signature and
            // ignores its data.
            unsafe {
                api::qemu_plugin_register_vcpu_mem_cb(
                    instruction,
                    stored,
                    api::NO_REGISTERS,
                    api::WRITES,
                    ptr::null_mut(),
                );
            }
        }
    }
}

/// QEMU calls this when a processor has executed one of these instructions.
extern "C" fn stored(_processor: c_uint, access: api::MemInfo, address: u64, _data: *mut c_void) {
    // SAFETY: `access` and `address` are those of this callback.
    let place = unsafe { api::qemu_plugin_get_hwaddr(access, address) };
    if place.is_null() {
        return;
    }
    // SAFETY: it is not null, and valid within this callback.
    let physical = unsafe { api::qemu_plugin_hwaddr_phys_addr(place) };
    if !board::REGISTERS.contains(&physical) {
        return;
    }
    if let Some(machine) = MACHINE.get() {
        machine.stored(physical);
    }
}
