// SPDX-License-Identifier: MIT OR Apache-2.0
//! poll and epoll: the device has no events, whereas the connection that
//! stands for it can mostly be written to. That it has ended is told.

use libc::{c_int, c_void, nfds_t, pollfd, size_t};

use crate::guard::look;
use crate::next::hook;
use crate::target::is_device;

/// What the connection has and the device has not.
const WRITABLE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND;

/// Takes away what the device has not. Returns how many files are left with
/// an event; `None` if nothing was taken from any.
///
/// # Safety
/// `files` is what poll has just filled: `count` of them, valid for writes.
unsafe fn take_away(files: *mut pollfd, count: nfds_t) -> Option<c_int> {
    let len = usize::try_from(count).ok()?;
    // SAFETY: see above; of a count of 0 nobody asks, as none has an event.
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

/// poll by way of the next function: once more, without asking whether the
/// device can be written to, if nothing else was to be told.
///
/// # Safety
/// As poll(2); `next` is it.
unsafe fn poll_by(files: *mut pollfd, count: nfds_t, next: impl Fn(*mut pollfd) -> c_int) -> c_int {
    let result = next(files);
    if result <= 0 {
        return result;
    }
    // SAFETY: poll has just filled it.
    match unsafe { take_away(files, count) } {
        None => result,
        Some(left @ 1..) => left,
        // Nothing of the time has gone: the device was ready at once.
        Some(_) => {
            // SAFETY: as above; the count was good.
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
        // SAFETY: as the program called it.
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
            // SAFETY: what the program gives epoll_ctl for a file that it has.
            let mut asked = unsafe { event.read() };
            asked.events &= !u32::from(WRITABLE.cast_unsigned());
            changed = Some(asked);
        }
        let event = changed.as_mut().map_or(event, std::ptr::from_mut);
        next(epoll, operation, fd, event)
    }
    epoll_ctl(..);
}
