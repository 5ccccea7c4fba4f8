// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a server if the program's environment names none.
//!
//! The server is no child of the program, so that the program sees no unexpected child:
//! neither by wait, nor by SIGCHLD.

use std::ffi::{CStr, CString, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use libc::{c_char, c_int, c_long};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::complain::complain;

const PROGRAM_VARIABLE: &CStr = c"ROCKET_SERVER_PROGRAM";

const PROGRAM: &str = "npu-probe";

/// Starts a server for this user, or waits until another process has started one.
/// `is_there` checks whether a server is reachable.
///
/// # Errors
/// `ENODEV` if there is no program to start; `EACCES` if the lock file belongs to another
/// user, or others can open it.
pub(crate) fn server(is_there: impl Fn() -> bool) -> Result<(), Errno> {
    // Held until the server is reachable. Closing the descriptor releases it.
    let lock = lock()?;
    if is_there() {
        return Ok(());
    }
    let started = start();
    drop(lock);
    if started.is_err() {
        complain(
            b"cannot start a server: start the program with `npu-probe run`, \
              or set ROCKET_SERVER_PROGRAM to the path of npu-probe",
        );
    }
    started.map_err(|_| Errno::NODEV)
}

/// An environment variable; `None` if unset.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a C string. As always in C, nobody may change the environment at the same
    // time.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the C library returned a C string.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// An environment variable; `None` if unset or empty.
fn non_empty_variable(name: &CStr) -> Option<&'static [u8]> {
    variable(name).filter(|value| !value.is_empty())
}

/// The directory that this user's programs with the same server have in common.
pub(crate) fn folder() -> &'static [u8] {
    npu_wire::shared_directory(
        non_empty_variable(c"XDG_RUNTIME_DIR"),
        non_empty_variable(c"TMPDIR"),
    )
}

/// Takes the lock for starting a server of this user.
fn lock() -> Result<OwnedFd, Errno> {
    let user = rustix::process::geteuid().as_raw();
    let path = [folder(), format!("/rocket-npu-{user}.lock").as_bytes()].concat();
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    // Do not follow a link: in /tmp anybody could create one.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    // Refuse a file that another user can open, and so lock for any time.
    let found = rustix::fs::fstat(&file)?;
    let others = Mode::RWXG | Mode::RWXO;
    if found.st_uid != user
        || FileType::from_raw_mode(found.st_mode) != FileType::RegularFile
        || Mode::from_raw_mode(found.st_mode).intersects(others)
    {
        complain(
            b"the lock file rocket-npu-UID.lock in XDG_RUNTIME_DIR, TMPDIR or /tmp belongs to \
              another user, or others can open it: remove it, or set TMPDIR to a directory of \
              yours",
        );
        return Err(Errno::ACCESS);
    }
    loop {
        match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
            Err(Errno::INTR) => (),
            other => return other.map(|()| file),
        }
    }
}

/// Candidate paths of the server's program, best first.
fn programs() -> Vec<CString> {
    let mut paths: Vec<Vec<u8>> = Vec::new();
    if let Some(path) = non_empty_variable(PROGRAM_VARIABLE) {
        paths.push(path.to_vec());
    } else {
        if let Some(folder) = own_folder() {
            for beside in ["/", "/../bin/"] {
                paths.push([&folder, beside.as_bytes(), PROGRAM.as_bytes()].concat());
            }
        }
        let folders = non_empty_variable(c"PATH").unwrap_or_default();
        let folders = folders.split(|&byte| byte == b':');
        for folder in folders.filter(|folder| folder.first() == Some(&b'/')) {
            paths.push([folder, b"/", PROGRAM.as_bytes()].concat());
        }
    }
    paths
        .into_iter()
        .filter_map(|path| CString::new(path).ok())
        .collect()
}

fn own_folder() -> Option<Vec<u8>> {
    let own = own_folder as fn() -> Option<Vec<u8>> as *const c_void;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address, and room for the result.
    if unsafe { libc::dladdr(own, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroes are valid for it, and dladdr has filled it.
    let found = unsafe { found.assume_init() };
    if found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's C string, which lives as long as this library.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
    let end = path.iter().rposition(|&byte| byte == b'/')?;
    Some(path[..end].to_vec())
}

/// The environment without this library, which a server must not load.
fn environment() -> Vec<CString> {
    std::env::vars_os()
        .filter(|(name, _)| name != "LD_PRELOAD")
        .filter_map(|(name, value)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
        })
        .collect()
}

/// Data for the new process, prepared before the fork.
struct Exec {
    programs: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    ready: c_int,
    null: c_int,
}

/// Starts a server and waits until clients can connect.
fn start() -> Result<(), Errno> {
    let (ready, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let null = rustix::fs::openat(
        CWD,
        c"/dev/null",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let environment = environment();
    let exec = Exec {
        programs: programs(),
        arguments: [c"npu-probe", c"run", c"--serve"]
            .map(CStr::as_ptr)
            .into_iter()
            .chain([ptr::null()])
            .collect(),
        environment: environment
            .iter()
            .map(|entry| entry.as_ptr())
            .chain([ptr::null()])
            .collect(),
        ready: theirs.as_raw_fd(),
        null: null.as_raw_fd(),
    };
    // SAFETY: the child calls only async-signal-safe functions.
    let child = unsafe { fork_unseen() }?;
    if child == 0 {
        // Fork again and exit, so that the server becomes an orphan and no child of the
        // program.
        // SAFETY: as above.
        match unsafe { fork_unseen() } {
            // SAFETY: this is a child that was just forked.
            Ok(0) => unsafe { become_server(&exec) },
            // SAFETY: as above; it exits at once.
            _ => unsafe { libc::_exit(0) },
        }
    }
    drop(theirs);
    reap(child);
    wait_for_ready(ready.as_fd())
}

/// Forks a child that sends the program no signal when it ends, and that a plain wait of
/// the program does not return.
///
/// # Safety
/// The child may call only what is async-signal-safe.
unsafe fn fork_unseen() -> Result<c_int, Errno> {
    // clone without flags and stack is a fork, here without an exit signal. If an emulator
    // does not support that, use SIGCHLD.
    for signal in [0, c_long::from(libc::SIGCHLD)] {
        let none: c_long = 0;
        // SAFETY: no memory is shared, and there is no other stack.
        let child = unsafe { libc::syscall(libc::SYS_clone, signal, none, none, none, none) };
        if child >= 0 {
            return Ok(child as c_int);
        }
        if crate::guard::errno() != libc::EINVAL {
            break;
        }
    }
    Err(Errno::from_raw_os_error(crate::guard::errno()))
}

fn reap(child: c_int) {
    loop {
        // SAFETY: the call writes no memory.
        let reaped = unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
        if reaped >= 0 || crate::guard::errno() != libc::EINTR {
            return;
        }
    }
}

/// Makes this process the server.
///
/// # Safety
/// Only for a child that was just forked. It calls only async-signal-safe functions.
unsafe fn become_server(exec: &Exec) -> ! {
    const FIRST_OTHER: libc::c_uint = 3;
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the arguments are numbers, and a set that is initialised before its use.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one list of calls")]
    unsafe {
        libc::setsid();
        libc::dup2(exec.null, libc::STDIN_FILENO);
        libc::dup2(exec.ready, libc::STDOUT_FILENO);
        libc::dup2(exec.null, libc::STDERR_FILENO);
        // Close the program's other descriptors: a pipe that stays open would never end.
        libc::syscall(libc::SYS_close_range, FIRST_OTHER, libc::c_uint::MAX, 0);
        libc::chdir(c"/".as_ptr());
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
    for program in &exec.programs {
        // SAFETY: C strings, and null-terminated arrays of them. The call returns only if
        // it fails.
        unsafe {
            libc::execve(
                program.as_ptr(),
                exec.arguments.as_ptr(),
                exec.environment.as_ptr(),
            )
        };
    }
    // SAFETY: `_exit` runs no code of the program.
    unsafe { libc::_exit(127) }
}

/// Waits for the first byte that the server prints.
fn wait_for_ready(ready: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut byte = [0; 1];
    loop {
        match rustix::io::read(ready, &mut byte) {
            Ok(0) => return Err(Errno::NODEV),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => (),
            Err(errno) => return Err(errno),
        }
    }
}
