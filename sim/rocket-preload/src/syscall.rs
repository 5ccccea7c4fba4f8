// SPDX-License-Identifier: MIT OR Apache-2.0
//! syscall(2): some programs make these calls by number.

use libc::{c_int, c_long, c_uint, c_ulong};

use crate::next::next;
use crate::{close, ioctl, mmap, mremap, open, paths, stat};

/// A register as an address.
fn pointer<T>(register: c_long) -> *mut T {
    std::ptr::with_exposed_provenance_mut(register.cast_unsigned() as usize)
}

/// See syscall(2). C declares it variadic; its arguments come in the registers
/// of named ones (see `open`), and those that the program did not give are
/// left-overs, passed on as the C library passes them on.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // Each takes of a register what the system call takes: an int its low half.
    let result: c_int = match number {
        // SAFETY: the same call, by its function.
        libc::SYS_close => unsafe { close::close(a as c_int) },
        // SAFETY: the same call, by its function.
        libc::SYS_ioctl => unsafe { ioctl::ioctl(a as c_int, b as c_ulong, pointer(c)) },
        libc::SYS_mmap => {
            // SAFETY: the same call, by its function.
            let mapped = unsafe {
                mmap::mmap(
                    pointer(a),
                    b as usize,
                    c as c_int,
                    d as c_int,
                    e as c_int,
                    f,
                )
            };
            return mapped.expose_provenance() as c_long;
        }
        libc::SYS_mremap => {
            // SAFETY: the same call, by its function.
            let mapped = unsafe {
                mremap::mremap(pointer(a), b as usize, c as usize, d as c_int, pointer(e))
            };
            return mapped.expose_provenance() as c_long;
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the same call, by its function.
        libc::SYS_open => unsafe { open::open(pointer(a), b as c_int, c as libc::mode_t) },
        // SAFETY: the same call, by its function.
        libc::SYS_openat => unsafe {
            open::openat(a as c_int, pointer(b), c as c_int, d as libc::mode_t)
        },
        // SAFETY: the same call, by its function.
        libc::SYS_fstat => unsafe { stat::fstat(a as c_int, pointer(b)) },
        // SAFETY: the same call, by its function.
        libc::SYS_newfstatat => unsafe {
            stat::fstatat(a as c_int, pointer(b), pointer(c), d as c_int)
        },
        // SAFETY: the same call, by its function.
        libc::SYS_statx => unsafe {
            stat::statx(a as c_int, pointer(b), c as c_int, d as c_uint, pointer(e))
        },
        libc::SYS_readlinkat => {
            // SAFETY: the same call, by its function.
            let len = unsafe { paths::readlinkat(a as c_int, pointer(b), pointer(c), d as usize) };
            return len as c_long;
        }
        // SAFETY: as the program called it.
        _ => unsafe {
            return next!(syscall: fn(c_long, c_long, c_long, c_long, c_long, c_long, c_long)
                    -> c_long;
                number, a, b, c, d, e, f);
        },
    };
    c_long::from(result)
}
