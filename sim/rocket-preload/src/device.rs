// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the server, opens the device, and gets the shadow directory.

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_int;
use npu_wire::{Address, C_ENVIRONMENT, Request, RequestKind};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::call::{CallOutcome, call};
use crate::complain::complain;
use crate::guard::look;
use crate::named::Named;
use crate::wire::Room;

/// The server's address, from the program's environment.
///
/// # Errors
/// `ENODEV` if the environment names no server.
fn address() -> Result<Address, Errno> {
    // SAFETY: a C string. As always in C, nobody may change the environment at the same
    // time.
    let name = unsafe { libc::getenv(C_ENVIRONMENT.as_ptr()) };
    if name.is_null() {
        return Err(Errno::NODEV);
    }
    // SAFETY: the C library returned a C string.
    let name = unsafe { CStr::from_ptr(name) };
    Address::new(name.to_bytes()).ok_or(Errno::NODEV)
}

pub(crate) fn request(ask: RequestKind) -> Request {
    Request {
        process: rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs(),
        ..Request::new(ask)
    }
}

/// A connection that is not an open file. It is closed without the replaced `close`, which
/// would ask the server whether there is a file to wait for.
pub(crate) struct Control(ManuallyDrop<OwnedFd>);

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: taken once, at the end.
        let connection = unsafe { ManuallyDrop::take(&mut self.0) };
        // SAFETY: the descriptor was owned, and nobody owns it now.
        unsafe { rustix::io::close(connection.into_raw_fd()) };
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Control {
    fn connect(address: &Address, flags: SocketFlags) -> Result<Self, Errno> {
        let socket = Self(ManuallyDrop::new(npu_wire::new_socket(flags)?));
        address.connect_socket(&socket)?;
        Ok(socket)
    }

    /// Converts to the program's descriptor, once the connection is an open file.
    fn into_file(self) -> OwnedFd {
        let mut connection = ManuallyDrop::new(self);
        // SAFETY: taken once, as `drop` does not run.
        unsafe { ManuallyDrop::take(&mut connection.0) }
    }
}

/// Opens such a connection, if there is a server.
fn control() -> Result<Control, Errno> {
    Control::connect(&address()?, SocketFlags::CLOEXEC)
}

/// Opens the device.
///
/// # Errors
/// `ENODEV` if there is no server; `EACCES` if it belongs to another user.
pub(crate) fn open(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let no_device = |why: &[u8]| {
        complain(why);
        Errno::NODEV
    };
    let address = address().map_err(|_| {
        no_device(b"ROCKET_SERVER names no server: start the program with `npu-probe run`")
    })?;
    try_open(&address, flags).map_err(|errno| match errno {
        Errno::CONNREFUSED => no_device(b"no server with the name in ROCKET_SERVER is running"),
        Errno::PROTO => no_device(
            b"the server has another version than librocket_preload.so: use both from one build",
        ),
        Errno::ACCESS | Errno::TIMEDOUT => {
            complain(
                b"another user has taken the name of the server, or the server accepts no \
                  connection: start the program again with `npu-probe run`",
            );
            errno
        }
        other => other,
    })
}

fn try_open(address: &Address, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    let connection = Control::connect(address, flags)?;
    ask(&connection, RequestKind::Open, Room::NONE)?.result?;
    Ok(connection.into_file())
}

/// Opens sw_sync, for fences that the program signals itself.
pub(crate) fn open_sw_sync() -> Result<OwnedFd, Errno> {
    let outcome = ask(&control()?, RequestKind::SwSync, Room::NONE)?;
    outcome.result?;
    outcome.file.ok_or(Errno::PROTO)
}

/// Makes a call about a file that may be the device's. Does not change `errno`.
///
/// # Errors
/// Those of the call. Without a server no such file exists.
pub(crate) fn ask_about(fd: c_int, request: &Request, named: &Named) -> Result<CallOutcome, Errno> {
    if fd < 0 {
        return Err(Errno::BADF);
    }
    look(Err(Errno::IO), || {
        let connection = control()?;
        // SAFETY: it is not -1. Only the kernel uses it, and returns an error if no file has this
        // number.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        call(connection.as_fd(), request, named, Room::NONE, Some(file))
    })
}

fn ask(connection: &impl AsFd, ask: RequestKind, out: Room<'_>) -> Result<CallOutcome, Errno> {
    call(
        connection.as_fd(),
        &request(ask),
        &Named::nothing(),
        out,
        None,
    )
}

/// Path of the shadow directory. Threads may find different ones, if a server has ended in
/// between.
static ROOT: AtomicPtr<Box<[u8]>> = AtomicPtr::new(ptr::null_mut());

const ROOT_BYTES: usize = 256;

/// Path of the shadow directory, if it is already known.
pub(crate) fn known_shadow_root() -> Option<&'static [u8]> {
    // SAFETY: null, or a leaked box with path and length, leaked before its address was
    // stored. Nobody changes it.
    let root = unsafe { ROOT.load(Ordering::Acquire).as_ref() }?;
    Some(root)
}

/// Path of the shadow directory; empty if the system has the real device. The first call
/// asks the server. `None` without a server.
pub(crate) fn shadow_root() -> Option<&'static [u8]> {
    if let Some(root) = known_shadow_root() {
        return Some(root);
    }
    let connection = control().ok()?;
    let mut path = [0; ROOT_BYTES];
    let outcome = ask(&connection, RequestKind::Shadow, Room::of(&mut path)).ok()?;
    let path = path.get(..outcome.data_len)?;
    // The path is empty if the system has the real device.
    if path.first().is_some_and(|&byte| byte != b'/') {
        return None;
    }
    outcome.result.ok()?;
    let leaked = Box::leak(Box::new(Box::<[u8]>::from(path)));
    ROOT.store(leaked, Ordering::Release);
    known_shadow_root()
}

/// Whether the system has the real device, and so shows it itself.
pub(crate) fn has_real_device() -> bool {
    shadow_root().is_some_and(<[u8]>::is_empty)
}
