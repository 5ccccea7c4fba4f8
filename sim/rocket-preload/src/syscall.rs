// SPDX-License-Identifier: MIT OR Apache-2.0
//! syscall(2), with which some programs make these calls by number.

use libc::{c_int, c_long, c_uint, c_ulong};

use crate::next::hook;
use crate::{close, ioctl, mmap, open, paths, stat};

fn pointer<T>(register: c_long) -> *mut T {
    std::ptr::with_exposed_provenance_mut(register.cast_unsigned() as usize)
}

hook! {
    // See syscall(2). C declares it variadic; its arguments are in the registers of named
    // ones (see `open`). If the program gave fewer, the other registers hold unrelated
    // values, which are passed on as the C library does.
    fn(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long, |next| {
        // Each function takes the part of a register that the system call takes: the low
        // half for an int.
        let fd = a as c_int;
        #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one of them runs")]
        // SAFETY: this is the same call through its function.
        let result: c_int = unsafe {
            match number {
                libc::SYS_close => close::close(fd),
                libc::SYS_ioctl => ioctl::ioctl(fd, b as c_ulong, pointer(c)),
                libc::SYS_mmap => {
                    let (len, prot, flags) = (b as usize, c as c_int, d as c_int);
                    let mapped = mmap::mmap(pointer(a), len, prot, flags, e as c_int, f);
                    return mapped.expose_provenance() as c_long;
                }
                #[cfg(target_arch = "x86_64")]
                libc::SYS_open => open::open(pointer(a), b as c_int, c as libc::mode_t),
                libc::SYS_openat => open::openat(fd, pointer(b), c as c_int, d as libc::mode_t),
                libc::SYS_fstat => stat::fstat(fd, pointer(b)),
                libc::SYS_newfstatat => stat::fstatat(fd, pointer(b), pointer(c), d as c_int),
                libc::SYS_statx => {
                    stat::statx(fd, pointer(b), c as c_int, d as c_uint, pointer(e))
                }
                libc::SYS_readlinkat => {
                    return paths::readlinkat(fd, pointer(b), pointer(c), d as usize) as c_long;
                }
                _ => return next(number, a, b, c, d, e, f),
            }
        };
        c_long::from(result)
    }
    syscall(..);
}
