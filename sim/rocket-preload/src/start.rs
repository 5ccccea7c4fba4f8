// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting a server where the program was told of none.
//!
//! It is no child of the program, which shall see no child of ours: neither by
//! wait, nor by SIGCHLD.

use std::ffi::{CStr, CString, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use libc::{c_char, c_int, c_long};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::complain::complain;

/// Environment variable with the path of the server's program.
const PROGRAM_VARIABLE: &CStr = c"ROCKET_SERVER_PROGRAM";

/// The server's program, by its usual name.
const PROGRAM: &str = "npu-probe";

/// Starts a server for this user, or waits for one that somebody else starts:
/// `is_there` tells whether it is.
///
/// # Errors
/// `ENODEV` if there is no program to start; `EACCES` if another user made the
/// lock file.
pub(crate) fn server(is_there: impl Fn() -> bool) -> Result<(), Errno> {
    // Held until the server is there; it ends with this descriptor.
    let lock = lock()?;
    if is_there() {
        return Ok(());
    }
    let started = start();
    drop(lock);
    if started.is_err() {
        complain(
            b"no server could be started: start the program by `npu-probe run`, \
              or name npu-probe in ROCKET_SERVER_PROGRAM",
        );
    }
    started.map_err(|_| Errno::NODEV)
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a C string. As for all of C, nobody may change the environment
    // at the same time.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the C library returned a C string.
    let value = unsafe { CStr::from_ptr(value) };
    Some(value.to_bytes()).filter(|value| !value.is_empty())
}

/// The folder by which programs of this user meet.
pub(crate) fn folder() -> &'static [u8] {
    npu_wire::meeting_folder(variable(c"XDG_RUNTIME_DIR"), variable(c"TMPDIR"))
}

/// Waits for the lock of those who start a server of this user.
fn lock() -> Result<OwnedFd, Errno> {
    let user = rustix::process::geteuid().as_raw();
    let path = [folder(), format!("/rocket-npu-{user}.lock").as_bytes()].concat();
    let path = CString::new(path).map_err(|_| Errno::INVAL)?;
    // No link: in /tmp anybody may have put one there.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?;
    // Nor a file that another user can open, and so lock for as long as he likes.
    let found = rustix::fs::fstat(&file)?;
    let others = Mode::RWXG | Mode::RWXO;
    if found.st_uid != user
        || FileType::from_raw_mode(found.st_mode) != FileType::RegularFile
        || Mode::from_raw_mode(found.st_mode).intersects(others)
    {
        complain(
            b"the lock file rocket-npu-UID.lock in XDG_RUNTIME_DIR, TMPDIR or /tmp belongs to \
              another user, or others can open it: remove it, or set TMPDIR to a folder of your own",
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

/// Where the server's program may be, best first.
fn programs() -> Vec<CString> {
    let mut paths: Vec<Vec<u8>> = Vec::new();
    if let Some(path) = variable(PROGRAM_VARIABLE) {
        paths.push(path.to_vec());
    } else {
        if let Some(folder) = own_folder() {
            for beside in ["/", "/../bin/"] {
                paths.push([&folder, beside.as_bytes(), PROGRAM.as_bytes()].concat());
            }
        }
        let folders = variable(c"PATH").unwrap_or_default();
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

/// The folder of this library.
fn own_folder() -> Option<Vec<u8>> {
    let own = own_folder as fn() -> Option<Vec<u8>> as *const c_void;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address, and room for what is known of it.
    if unsafe { libc::dladdr(own, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: zeroes are good for it, and it was filled.
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

/// What the new process needs, made before there is one.
struct Exec {
    programs: Vec<CString>,
    arguments: [*const c_char; 3],
    environment: Vec<*const c_char>,
    ready: c_int,
    null: c_int,
}

/// Starts a server and waits until clients can come.
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
        arguments: [c"npu-probe".as_ptr(), c"serve".as_ptr(), ptr::null()],
        environment: environment
            .iter()
            .map(|entry| entry.as_ptr())
            .chain([ptr::null()])
            .collect(),
        ready: theirs.as_raw_fd(),
        null: null.as_raw_fd(),
    };
    // SAFETY: the child calls nothing but what may be called there.
    let child = unsafe { fork_unseen() }?;
    if child == 0 {
        // Its own child is nobody's: so the server is not the program's.
        // SAFETY: as above.
        match unsafe { fork_unseen() } {
            // SAFETY: in a child just made.
            Ok(0) => unsafe { become_server(&exec) },
            // SAFETY: as above: it ends at once.
            _ => unsafe { libc::_exit(0) },
        }
    }
    drop(theirs);
    reap(child);
    wait_for_ready(ready.as_fd())
}

/// fork, without a signal to the program when the child ends, and without a
/// place among the children that it waits for.
///
/// # Safety
/// The child may call only what is async-signal-safe.
unsafe fn fork_unseen() -> Result<c_int, Errno> {
    // Flags and stack: a fork, by a signal of none. Where an emulator knows no
    // such thing, a plain one.
    for signal in [0, c_long::from(libc::SIGCHLD)] {
        let none: c_long = 0;
        // SAFETY: no memory is shared, and no stack is given.
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
        // SAFETY: writes nothing.
        let reaped = unsafe { libc::waitpid(child, ptr::null_mut(), libc::__WALL) };
        if reaped >= 0 || crate::guard::errno() != libc::EINTR {
            return;
        }
    }
}

/// Makes this process the server.
///
/// # Safety
/// For a child just forked. Calls only what is async-signal-safe.
unsafe fn become_server(exec: &Exec) -> ! {
    const FIRST_OTHER: libc::c_uint = 3;
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: numbers, and a set that is made empty before it is used.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "one list of calls")]
    unsafe {
        libc::setsid();
        libc::dup2(exec.null, libc::STDIN_FILENO);
        libc::dup2(exec.ready, libc::STDOUT_FILENO);
        libc::dup2(exec.null, libc::STDERR_FILENO);
        // The program's other descriptors: a pipe would never end.
        libc::syscall(libc::SYS_close_range, FIRST_OTHER, libc::c_uint::MAX, 0);
        libc::chdir(c"/".as_ptr());
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
    for program in &exec.programs {
        // SAFETY: C strings and arrays of them that end with null. It returns
        // only if there is no such program.
        unsafe {
            libc::execve(
                program.as_ptr(),
                exec.arguments.as_ptr(),
                exec.environment.as_ptr(),
            )
        };
    }
    // SAFETY: nothing of the program is touched on the way out.
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
