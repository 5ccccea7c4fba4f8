// SPDX-License-Identifier: MIT OR Apache-2.0
//! A host whose CPU has two extra buffer types.

use super::*;
use crate::ggml::abi::Buffer;

unsafe extern "C" fn plain() -> *mut BufferType {
    ptr::without_provenance_mut(0x2000)
}

unsafe extern "C" fn reg(_: *mut Device) -> *mut Reg {
    ptr::without_provenance_mut(0x3000)
}

/// The fake device is itself the list of buffer types.
unsafe extern "C" fn extras(device: *mut Device) -> *const *mut BufferType {
    device.cast_const().cast()
}

unsafe extern "C" fn offers(_: *mut Reg, name: *const c_char) -> *mut c_void {
    // SAFETY: a NUL-terminated name.
    assert_eq!(unsafe { CStr::from_ptr(name) }, EXTRAS_NAME);
    let function: Extras = extras;
    function as *mut c_void
}

unsafe extern "C" fn offers_nothing(_: *mut Reg, _: *const c_char) -> *mut c_void {
    ptr::null_mut()
}

/// Makes a buffer whose address is the sum of the type's address and the size.
unsafe extern "C" fn alloc(buffer_type: *mut BufferType, size: usize) -> *mut Buffer {
    ptr::without_provenance_mut(buffer_type.addr() + size)
}

/// The replacement of `alloc`.
unsafe extern "C" fn hook(_: *mut BufferType, _: usize) -> *mut Buffer {
    ptr::null_mut()
}

unsafe extern "C" fn from_host_ptr(
    _: *mut Device,
    _: *mut c_void,
    _: usize,
    _: usize,
) -> *mut Buffer {
    ptr::null_mut()
}

fn cpu(proc_address: ProcAddress) -> CpuBackend {
    CpuBackend {
        cpu_buffer_type: plain,
        device_reg: reg,
        proc_address,
        ops: None,
        hooks: MakerHooks {
            alloc: hook,
            from_host_ptr,
        },
        replaced: OnceLock::new(),
    }
}

#[test]
fn buffers_of_extra_types_are_looked_at_and_made_as_before() {
    // Each begins with get_name and alloc_buffer.
    let mut types = [[ptr::null_mut(), alloc as *mut c_void]; 2];
    let begin = types.as_mut_ptr();
    let [first, second] = [0, 1].map(|index| begin.wrapping_add(index).cast::<BufferType>());
    let list = [first, second, ptr::null_mut()];
    let device = GgmlPtr::new(list.as_ptr().cast_mut().cast()).unwrap();
    let cpu = cpu(offers);
    assert!(!cpu.is_extra(first));
    cpu.replaced.get_or_init(|| Replaced {
        device,
        plain: None,
        extras: cpu.extras(device),
        from_host_ptr: None,
    });
    for buffer_type in [first, second] {
        assert!(cpu.is_extra(buffer_type));
        let own = cpu.own_alloc(buffer_type).unwrap();
        // SAFETY: the function above.
        let made = unsafe { own(buffer_type, 4096) };
        assert_eq!(made.addr(), buffer_type.addr() + 4096);
    }
    assert!(types.iter().all(|words| words[1] == hook as *mut c_void));
    assert!(!cpu.is_extra(cpu.buffer_type()));
    assert!(cpu.own_alloc(cpu.buffer_type()).is_none());
    assert!(self::cpu(offers_nothing).extras(device).is_empty());
}
