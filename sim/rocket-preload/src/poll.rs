// SPDX-License-Identifier: MIT OR Apache-2.0
//! poll and epoll: the device has no events, but the connection that stands for it is
//! usually writable. These functions hide that. They still report that the connection has
//! ended.

use libc::{c_int, c_void, nfds_t, pollfd, size_t};

use crate::guard::look;
use crate::next::hook;
use crate::target::is_device;

/// Events of the connection that the device does not have.
const WRITABLE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;

/// Removes [`WRITABLE`] events from files of the device. Returns how many files still have
/// an event; `None` if nothing was removed.
///
/// # Safety
/// poll has just filled `files`: `count` structures, valid for writes.
unsafe fn clear_writable(files: *mut pollfd, count: nfds_t) -> Option<c_int> {
    let len = usize::try_from(count).ok()?;
    // SAFETY: see above; the count is not 0, since some file has an event.
    let files = unsafe { std::slice::from_raw_parts_mut(files, len) };
    let mut taken = false;
    for file in &mut *files {
        if file.revents & WRITABLE != 0 && look(false, || is_device(file.fd)) {
            file.revents &= !WRITABLE;
            taken = true;
        }
    }
    let left = files.iter().filter(|file| file.revents != 0).count();
    taken.then_some(c_int::try_from(left).unwrap_or(c_int::MAX))
}

/// Calls the next poll. If it reports only that the device is writable, it calls poll again
/// without asking for that.
///
/// # Safety
/// As poll(2); `next` is that function.
unsafe fn poll_by(files: *mut pollfd, count: nfds_t, next: impl Fn(*mut pollfd) -> c_int) -> c_int {
    let result = next(files);
    if result <= 0 {
        return result;
    }
    // SAFETY: poll has just filled it.
    match unsafe { clear_writable(files, count) } {
        None => result,
        Some(left @ 1..) => left,
        // The full timeout is left, because the device was ready at once.
        Some(_) => {
            // SAFETY: as above; the count is valid.
            let asked = unsafe { std::slice::from_raw_parts_mut(files, count as usize) };
            let mut again = asked.to_vec();
            for file in &mut again {
                if look(false, || is_device(file.fd)) {
                    file.events &= !WRITABLE;
                }
            }
            let result = next(again.as_mut_ptr());
            if result >= 0 {
                for (file, seen) in asked.iter_mut().zip(&again) {
                    file.revents = seen.revents;
                }
            }
            result
        }
    }
}

hook! {
    // See poll(2).
    fn(files: *mut pollfd, count: nfds_t) -> c_int, |next| {
        // SAFETY: the program made this call.
        unsafe { poll_by(files, count, |files| next(files, count)) }
    }
    poll(.., timeout: c_int);
    __poll_chk(.., timeout: c_int, size: size_t);
    ppoll(.., timeout: *const c_void, mask: *const c_void);
    __ppoll_chk(.., timeout: *const c_void, mask: *const c_void, size: size_t);
}

hook! {
    // See epoll_ctl(2).
    fn(
        epoll: c_int, operation: c_int, fd: c_int, event: *mut libc::epoll_event
    ) -> c_int, |next| {
        let asks = matches!(operation, libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD);
        let mut changed = None;
        if asks && !event.is_null() && look(false, || is_device(fd)) {
            // SAFETY: the program passed the event for a file that it has open.
            let mut asked = unsafe { event.read() };
            asked.events &= !u32::from(WRITABLE.cast_unsigned());
            changed = Some(asked);
        }
        let event = changed.as_mut().map_or(event, std::ptr::from_mut);
        next(epoll, operation, fd, event)
    }
    epoll_ctl(..);
}
