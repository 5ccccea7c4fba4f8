// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of devices and programs. Each message says what to do.

use std::fmt;

use rknpu_regcmd::{ATOM_BYTES, Iova, Program};
use thiserror::Error;

use crate::Errno;
use crate::units::{ByteLen, Handle, LengthError};

const GROUP_READ_WRITE: u32 = 0o060;

/// What to do if there is no node.
pub(crate) const DRIVER_REMEDY: &str = "the rocket driver is in Linux 6.18 and newer \
     (CONFIG_DRM_ACCEL_ROCKET); check that the kernel has it, that `modprobe rocket` succeeds, \
     and that the board's device tree enables the NPU (`dmesg | grep -i rocket`)";

/// What to do if a thread cannot be started (`EAGAIN`).
pub const NO_THREAD_REMEDY: &str = "end programs or free memory, or raise `ulimit -u`, TasksMax of \
     the systemd unit or pids.max of the cgroup";

/// Permissions of a node that this process may not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Permission bits, e.g. `0o660`.
    pub mode: u32,
    /// Name of the group that owns the node, or its number.
    pub group: String,
    /// Name of the user of this process, or its number; `$USER` of the shell if not given.
    pub user: Option<String>,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, group, user } = self;
        let user = user.as_deref().unwrap_or("$USER");
        if mode & GROUP_READ_WRITE == GROUP_READ_WRITE && group != "root" {
            write!(
                f,
                "it is for the group `{group}` (mode {mode:04o}); join it with \
                 `sudo usermod -aG {group} {user}`, then log in again, or restart the service"
            )
        } else {
            write!(
                f,
                "it is for its owner only (mode {mode:04o}, group `{group}`); give it to a group \
                 with a udev rule such as SUBSYSTEM==\"accel\", GROUP=\"render\", MODE=\"0660\", \
                 or run as root"
            )
        }
    }
}

/// An error of a device or of a call on it. Calls have the names that the kernel gives
/// them, such as `CREATE_BO` or `mmap`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// A length that no BO can have.
    #[error(transparent)]
    Length(#[from] LengthError),
    /// No memory or no address space left for a BO.
    #[error(
        "CREATE_BO of {0} failed: out of memory or of mappings (vm.max_map_count), or the file's \
         4 GiB of NPU addresses are used up; free buffer objects or spread them over several files"
    )]
    OutOfMemory(ByteLen),
    /// No file descriptor left.
    #[error("{0} failed: the process has no file descriptor left; raise `ulimit -n`")]
    OutOfFileDescriptors(&'static str),
    /// No open file left in the system, or in the server of the software NPU.
    #[error(
        "{0} failed: the system, or the server of the software NPU, has no file descriptor left; \
         end programs that hold many, or raise fs.file-max or the server's `ulimit -n`"
    )]
    OutOfSystemFiles(&'static str),
    /// The device is gone.
    #[error("{0} failed: the device is gone")]
    DeviceGone(&'static str),
    /// A wait ended at its deadline: a job still writes the BO.
    #[error("the wait for buffer object {} ended at its deadline; a job still writes it", u32::from(*.0))]
    TimedOut(Handle),
    /// A wait for a fence ended at its deadline.
    #[error("the wait for a fence ended at its deadline; at least one of its jobs still runs")]
    FenceTimedOut,
    /// The dma-buf was exported from the file that imports it, where it has this handle.
    #[error(
        "buffer object {} cannot be imported into the open file that exported it; use the \
         `DmaBuf`, or import it into another file",
        u32::from(*.0)
    )]
    OwnBuffer(Handle),
    /// A copy leaves the buffer.
    #[error("{count} bytes at offset {offset} are not within the buffer of {len} bytes")]
    OutOfBounds {
        /// First byte of the copy, counted from the start of the buffer.
        offset: usize,
        /// Bytes to copy.
        count: usize,
        /// Length of the buffer.
        len: usize,
    },
    /// The device gave a BO an address that the NPU cannot use.
    #[error(
        "the driver placed a buffer object at {address:#x}, beyond the NPU's 32-bit addresses; \
         close other buffer objects of this file"
    )]
    AddressTooHigh {
        /// The NPU address that CREATE_BO gave.
        address: u64,
    },
    /// There is no node at that path.
    #[error("there is no such device node; {DRIVER_REMEDY}")]
    NoSuchNode,
    /// The file is not a DRM device.
    #[error("not a DRM device; give the path of an accel node such as /dev/accel/accel0")]
    NotADevice,
    /// The user may not open the node.
    #[error("no permission to open it: {0}")]
    NoPermission(Permission),
    /// The node is served by another driver, with this name in its VERSION.
    #[error("it is served by the driver `{0}`, not by `rocket`; choose another node")]
    OtherDriver(String),
    /// The driver drives the NPU of another chip, with this name in the device tree.
    #[error(
        "its NPU is `{0}`, and this project supports the RK3588's only; use a board with an \
         RK3588 or RK3588S, or the software model"
    )]
    OtherChip(String),
    /// The mapping of a BO is shorter than requested.
    #[error(
        "buffer object {} was mapped with {mapped} bytes instead of {len}: a bug in the driver or \
         its model",
        u32::from(*.handle)
    )]
    MappingTooShort {
        /// The handle of the new buffer object.
        handle: Handle,
        /// Bytes that were mapped.
        mapped: usize,
        /// The requested length.
        len: ByteLen,
    },
    /// The list has no program.
    #[error("no program was given")]
    NoProgram,
    /// A program is longer than the NPU can fetch.
    #[error(
        "program {index} has {words} words; the NPU can fetch {}",
        Program::WORDS_MAX
    )]
    TooManyWords {
        /// Index of the program in the list that was given.
        index: usize,
        /// Number of its 64-bit words.
        words: usize,
    },
    /// The programs lie at this unaligned address: the NPU would hang.
    #[error(
        "programs would lie at {0}, but the NPU fetches from multiples of {ATOM_BYTES} only; the \
         driver gave that address: a bug in the driver or its model"
    )]
    Unaligned(Iova),
    /// A job lists a handle that the file does not have.
    #[error(
        "job {job} lists buffer object {}, which this open file does not have; keep its `Bo` until \
         the job has ended (not submitted: before Linux 7.2 such a SUBMIT crashes the kernel)",
        u32::from(*handle)
    )]
    UnknownHandle {
        /// Index of the job in the list that was given.
        job: usize,
        /// The handle.
        handle: Handle,
    },
    /// A task has no words.
    #[error(
        "task {task} of job {job} has no words; leave it out (not submitted: before Linux 7.2 \
         such a SUBMIT crashes the kernel)"
    )]
    EmptyTask {
        /// Index of the job in the list that was given.
        job: usize,
        /// Index of the task in the job.
        task: usize,
    },
    /// The witness program could not be built.
    #[error("the witness program is invalid: a bug in rocket-uapi")]
    Witness,
    /// A job was submitted to a file that its buffers do not belong to.
    #[error("the job was built for another open file, where addresses differ")]
    OtherDevice,
    /// The driver returned an errno without a variant of its own.
    #[error("{call}{} failed: {errno}{}", on(*handle), advice(*errno))]
    Refused {
        /// The call that failed.
        call: &'static str,
        /// The BO, if the call names one.
        handle: Option<Handle>,
        /// The errno of the call.
        errno: Errno,
    },
    /// The device does not support the call.
    #[error("{0} is not possible on this device")]
    Unsupported(&'static str),
}

impl Error {
    /// The error for `call` failing with `errno`.
    #[must_use]
    pub fn of(call: &'static str, handle: Option<Handle>, errno: Errno) -> Self {
        match errno {
            Errno::MFILE => Self::OutOfFileDescriptors(call),
            Errno::NFILE => Self::OutOfSystemFiles(call),
            Errno::NODEV | Errno::NXIO => Self::DeviceGone(call),
            _ => Self::Refused {
                call,
                handle,
                errno,
            },
        }
    }

    /// Checks that the NPU can fetch programs at `address`.
    pub(crate) fn check_program_address(address: Iova) -> Result<(), Self> {
        if address.0.is_multiple_of(ATOM_BYTES) {
            Ok(())
        } else {
            Err(Self::Unaligned(address))
        }
    }
}

/// What to do about an errno that has a single cause here.
fn advice(errno: Errno) -> String {
    match errno {
        Errno::AGAIN => format!("; no thread could be started: {NO_THREAD_REMEDY}"),
        Errno::NOMEM => "; free memory, or raise `ulimit -v`".to_owned(),
        _ => String::new(),
    }
}

fn on(handle: Option<Handle>) -> String {
    let named = |handle| format!(" of buffer object {}", u32::from(handle));
    handle.map_or_else(String::new, named)
}
