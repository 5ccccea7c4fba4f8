// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows, by topic.
//!
//! A row is a function of `RowContext`, which fails by returning `NotPassed`, and a
//! line here with its name and its fact. It must pass on the model, on the real
//! driver and on a slow board, and measures no time.
//!
//! - `Busy` is a job that runs for as long as the row needs.
//! - `RowBench` makes raw jobs that hang, and `MatmulProgram`s. The value and place
//!   of their results show which ran, and which ran last. A job's fence names its
//!   core.
//! - A row that needs another process is `with_processes`, and left out on the model.
//! - A row that fails on released kernels because of a bug is named `bug-...`, with a
//!   line in `expected/rows.txt` and a file in `bugs`.

mod bugs;
mod cores;
mod create;
mod dma_buf;
mod entry;
mod exported;
mod jobs;
mod mmap;
mod names;
mod prep;
mod prime;
mod processes;
mod recovery;
mod reply;
mod run;
mod submit;
mod sync;
mod sync_file;

use crate::RowContext;
use crate::check::RowOutcome;

/// One fact about the driver.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// The fact about the driver, as a sentence.
    pub what: &'static str,
    /// How it may damage the kernel that it runs on, if it may.
    pub danger: Option<&'static str>,
    /// Whether it needs several processes, which a model within one process does not
    /// have.
    pub needs_kernel: bool,
    /// Checks the fact on a device.
    pub(crate) run: fn(&RowContext) -> RowOutcome,
}

const fn row(name: &'static str, what: &'static str, run: fn(&RowContext) -> RowOutcome) -> Row {
    Row {
        name,
        what,
        danger: None,
        needs_kernel: false,
        run,
    }
}

const fn with_processes(row: Row) -> Row {
    Row {
        needs_kernel: true,
        ..row
    }
}

const fn dangerous(danger: &'static str, row: Row) -> Row {
    Row {
        danger: Some(danger),
        ..row
    }
}

/// The danger of rows with a DMA error.
const WARNS: &str = "it makes the kernel warn, and a kernel with panic_on_warn panic";

/// The danger of rows that make the kernel use freed memory.
const CORRUPTS: &str = "it corrupts the kernel's memory: reboot afterwards";

/// All rows. Those named `bug-...` are last, as rows after them on the same kernel
/// prove little. The most harmful is the last.
pub const ROWS: &[Row] = &[
    row(
        "version",
        "VERSION names the driver `rocket`",
        entry::version,
    ),
    row(
        "capabilities",
        "GET_CAP: PRIME both ways, monotonic timestamps, no sync objects",
        entry::capabilities,
    ),
    row(
        "unknown-ioctl",
        "an unknown driver ioctl is EINVAL, one that is not DRM's ENOTTY",
        entry::unknown,
    ),
    row(
        "poll-read",
        "poll finds no events, a non-blocking read is EAGAIN",
        entry::poll_and_read,
    ),
    row(
        "argument-size",
        "a shorter argument is extended by zeros, a longer one is cut off, NULL is EFAULT",
        entry::argument_size,
    ),
    row(
        "argument-back",
        "a shorter argument gets back as many bytes as it has",
        reply::argument_back,
    ),
    row(
        "version-room",
        "VERSION copies as much of a text as fits, without a final NUL, and returns its length",
        reply::version_room,
    ),
    row(
        "capability-unknown",
        "GET_CAP of a capability of display drivers is EOPNOTSUPP",
        reply::unknown_capability,
    ),
    row(
        "create-nothing",
        "CREATE_BO of 0 bytes is ENOSPC",
        create::nothing,
    ),
    row(
        "create-small",
        "CREATE_BO of 1, 100, 4096, 4097 bytes gives whole pages of zeros",
        create::small,
    ),
    row(
        "create-addresses",
        "addresses from 0, best fit in pages; handles from 1, the lowest free; both per file",
        create::addresses,
    ),
    row("create-1gib", "CREATE_BO of 1 GiB works", create::one_gib),
    dangerous(
        "2 GiB of freed memory stay mapped for the NPU until the file is closed",
        row(
            "create-2gib",
            "CREATE_BO of 2 GiB and of 4 GiB - 1 is ENOMEM, unless the bug `huge-bo` is fixed",
            create::too_large,
        ),
    ),
    row(
        "gem-close",
        "GEM_CLOSE of an unknown handle, twice, or of 0 is EINVAL",
        create::close,
    ),
    row("gem-names", "GEM names are for root", names::names),
    row(
        "mmap-part",
        "mmap of a part, read-only, executable, and read-only made writable work",
        mmap::parts,
    ),
    row(
        "mmap-range",
        "mmap longer than the pages, inside a BO, or at offset 0 is EINVAL",
        mmap::out_of_range,
    ),
    row("mmap-private", "MAP_PRIVATE is EINVAL", mmap::private),
    row(
        "mmap-other-file",
        "mmap through another file is EACCES until that file has imported the BO",
        mmap::other_file,
    ),
    row(
        "mmap-after-close",
        "a mapping stays valid after GEM_CLOSE, and address and offset stay taken",
        mmap::after_close,
    ),
    row(
        "mmap-closed",
        "mmap after GEM_CLOSE is EACCES while it is mapped",
        reply::mmap_closed,
    ),
    row(
        "mmap-offsets",
        "mmap offsets are whole pages, unique across files; NPU addresses are separate for each file",
        reply::offsets,
    ),
    row(
        "prep-reserved",
        "PREP_BO and FINI_BO with reserved != 0 are EINVAL, whatever the handle",
        prep::reserved,
    ),
    row(
        "prep-unknown",
        "PREP_BO and FINI_BO of an unknown handle or 0 are ENOENT",
        prep::unknown_handle,
    ),
    row(
        "fini-any",
        "FINI_BO works in any state, without PREP_BO, repeatedly, and never waits",
        prep::fini_any_state,
    ),
    row(
        "prep-idle",
        "PREP_BO of an idle BO works with any timeout",
        prep::idle,
    ),
    row(
        "prep-busy-past",
        "PREP_BO of a busy BO with a deadline in the past is EBUSY at once",
        prep::busy_past,
    ),
    row(
        "prep-busy-future",
        "PREP_BO of a busy BO is ETIMEDOUT when its deadline passes, give or take a jiffy",
        prep::busy_future,
    ),
    row(
        "prep-busy-forever",
        "PREP_BO of a busy BO without a deadline waits for the job's end",
        prep::busy_forever,
    ),
    row(
        "prep-read-only",
        "PREP_BO of a BO that a running job only reads does not wait",
        prep::only_read,
    ),
    row(
        "prep-signal",
        "a signal ends PREP_BO with EINTR, or not at all under SA_RESTART",
        prep::interrupted,
    ),
    row(
        "submit-no-jobs",
        "SUBMIT of no jobs works, even with reserved != 0",
        submit::no_jobs,
    ),
    row(
        "submit-malformed",
        "SUBMIT with a job size below 40 or reserved != 0 is EINVAL",
        submit::malformed,
    ),
    row(
        "submit-fault",
        "SUBMIT of a job at NULL is EFAULT",
        jobs::fault,
    ),
    row(
        "submit-strides",
        "a larger size of the job or task structure is used as the stride",
        jobs::strides,
    ),
    row(
        "submit-bad",
        "SUBMIT works with a bad job, which does not run; the next job runs",
        jobs::bad,
    ),
    row(
        "submit-twice",
        "a job that lists an object twice, or as input and output, does not run",
        jobs::twice,
    ),
    row(
        "close-busy",
        "GEM_CLOSE of a running job's output works at once; its address stays taken",
        jobs::closed,
    ),
    row(
        "after-kill",
        "a job behind a killed one runs",
        jobs::after_kill,
    ),
    row(
        "after-kill-elsewhere",
        "a job that waits for another file's job runs even if that is killed",
        recovery::elsewhere,
    ),
    dangerous(
        WARNS,
        row(
            "fault-read",
            "a job that reads an unmapped address is killed; the next one gives right results",
            recovery::read_fault,
        ),
    ),
    dangerous(
        WARNS,
        row(
            "fault-write",
            "a job that writes to an unmapped address is killed; the next one gives right results",
            recovery::write_fault,
        ),
    ),
    row(
        "run-without-lists",
        "jobs without input objects, without output objects, or without both run",
        run::without_lists,
    ),
    row(
        "run-tasks",
        "the tasks of a job run in order",
        run::tasks_in_order,
    ),
    row(
        "run-jobs",
        "the jobs of one SUBMIT run in order, even if the first has to wait",
        run::jobs_in_order,
    ),
    row(
        "run-submits",
        "jobs of a file that are submitted one by one run in order",
        run::submits_in_order,
    ),
    row(
        "run-closed",
        "a job writes to an object whose handle was closed before it ran",
        run::closed_output,
    ),
    row(
        "run-after-sleep",
        "results are right after the cores were suspended, which may lose registers",
        recovery::after_sleep,
    ),
    row(
        "cores-one-each",
        "the jobs of three files use one core each; a fourth file shares one",
        cores::one_each,
    ),
    row(
        "cores-alternate",
        "a single file that is idle between its jobs alternates between two cores",
        cores::alternates,
    ),
    row(
        "cores-stay",
        "jobs of a file stay on one core while one of them is unfinished",
        cores::stays,
    ),
    row(
        "cores-at-once",
        "jobs of three files run at once: one ends while the other two hang",
        cores::at_once,
    ),
    row(
        "cores-fourth",
        "a fourth file's job waits until one of three hanging jobs has ended",
        cores::fourth_waits,
    ),
    row(
        "prime-refused",
        "export with bad flags is EINVAL, of a bad handle ENOENT; import of a foreign file is EINVAL",
        prime::refused,
    ),
    row(
        "prime-handles",
        "import gives the exporting file the same handle, another file a new one without an address",
        prime::handles,
    ),
    row(
        "dma-buf-seek",
        "lseek of a dma-buf returns its page-rounded size, and otherwise only goes to the start",
        sync::seek,
    ),
    row(
        "dma-buf-flags",
        "SYNC, EXPORT_ and IMPORT_SYNC_FILE need READ, WRITE or both; IMPORT needs a sync_file",
        sync::dma_buf_flags,
    ),
    row(
        "dma-buf-map",
        "mmap of a dma-buf shows the object from its start; private or beyond the end is EINVAL",
        exported::mmap,
    ),
    row(
        "sync-file-flags",
        "FILE_INFO and MERGE with flags are EINVAL; MERGE with no sync_file is ENOENT",
        sync::sync_file_flags,
    ),
    row(
        "fence-active",
        "a job's fence is on its outputs only, and polls as readable at the job's end",
        sync::active,
    ),
    row(
        "fence-merged",
        "a merged sync_file waits for both of its jobs",
        sync::merged,
    ),
    row(
        "fence-killed",
        "the fence of a killed job has -ECANCELED, while PREP_BO returns 0",
        sync::killed,
    ),
    row(
        "dma-buf-sync",
        "DMA_BUF_IOCTL_SYNC waits for a job that writes the BO, not for one that reads it",
        sync::cpu_access,
    ),
    row(
        "raw-ordered",
        "a job that reads what another file's job writes waits for it",
        sync::read_after_write,
    ),
    row(
        "waw-ordered",
        "a job that writes what another file's job writes waits for it",
        sync::write_after_write,
    ),
    row(
        "war-unordered",
        "a job that writes a BO does not wait for another file's job that reads it",
        sync::unordered,
    ),
    row(
        "war-ordered",
        "a job that writes a BO waits for its reader if the reader's fence was imported into it",
        sync::ordered,
    ),
    row(
        "dma-buf-keeps",
        "a dma-buf keeps object and address until its last descriptor is closed",
        dma_buf::keeps,
    ),
    row(
        "dma-buf-writable",
        "the first export decides whether a dma-buf is writable",
        dma_buf::writable,
    ),
    row(
        "dma-buf-requests",
        "a dma-buf's ioctls of another size are ENOTTY, at NULL EFAULT; a name has at most 31 bytes",
        dma_buf::requests,
    ),
    row(
        "dma-buf-poll",
        "poll finds a dma-buf readable when no job writes it, writable when none uses it",
        dma_buf::poll,
    ),
    row(
        "fence-imported",
        "an imported fence of a writer delays readers and PREP_BO, one of a reader does not",
        dma_buf::imported_write,
    ),
    row(
        "sync-file-requests",
        "a sync_file's ioctls of another size are ENOTTY, at NULL EFAULT; lseek is ESPIPE",
        sync_file::requests,
    ),
    row(
        "sync-file-names",
        "a fence names its driver and queue until its job's end; MERGE gives a file its name",
        sync_file::names,
    ),
    row(
        "sync-file-room",
        "FILE_INFO returns the number of fences, and each fence if there is room for all",
        sync_file::room,
    ),
    row(
        "merge-left-out",
        "MERGE drops signalled fences; if all are, it returns a fence with the latest end",
        sync_file::left_out,
    ),
    row(
        "merge-latest",
        "MERGE of two fences of one queue keeps the later",
        sync_file::latest,
    ),
    dangerous(
        WARNS,
        row(
            "file-busy",
            "closing a file waits until its queue is empty; its jobs run to their end",
            processes::closed,
        ),
    ),
    row(
        "file-mapped",
        "a mapping outlives its file, and keeps its offset taken",
        processes::closed_mapped,
    ),
    with_processes(row(
        "file-forked",
        "a forked child shares its parent's file: a handle that it closes is closed for both",
        processes::forked,
    )),
    with_processes(row(
        "file-killed",
        "queued jobs of a killed process fail with ESRCH",
        processes::killed,
    )),
    row(
        "bug-one-clock",
        "the driver uses all four clocks of each core",
        bugs::clocks,
    ),
    row(
        "bug-no-suspend",
        "a core whose job was killed is suspended afterwards",
        bugs::suspend,
    ),
    row(
        "bug-group-leak",
        "a job releases the references to the IOMMU group that it takes",
        bugs::group,
    ),
    dangerous(
        "it uses all memory for a moment, and leaks some kernel memory until the next boot",
        row(
            "bug-domain-leak",
            "a failed CREATE_BO leaks no memory after the file is closed",
            bugs::domain,
        ),
    ),
    dangerous(
        WARNS,
        row(
            "bug-dma-warning",
            "a program that reads an unmapped address does not make the kernel warn",
            bugs::dma,
        ),
    ),
    dangerous(
        WARNS,
        row(
            "bug-count-warning",
            "SUBMIT of a job with absurdly many tasks does not make the kernel warn",
            bugs::count,
        ),
    ),
    // Must follow the row above: the kernel warns once.
    dangerous(
        WARNS,
        row(
            "bug-count-jobs",
            "SUBMIT of absurdly many jobs is ENOMEM",
            bugs::count_of_jobs,
        ),
    ),
    dangerous(
        "2 GiB of freed memory stay mapped for the NPU until the file is closed",
        row(
            "bug-huge-bo",
            "a CREATE_BO of 2 GiB does not make later ones fail",
            bugs::huge,
        ),
    ),
    dangerous(
        CORRUPTS,
        row(
            "bug-close-after-wait",
            "a process may exit as soon as PREP_BO returns",
            bugs::close_after_wait,
        ),
    ),
    dangerous(
        CORRUPTS,
        row(
            "bug-close-exported",
            "a process may exit with a buffer object that it exported",
            bugs::close_exported,
        ),
    ),
    dangerous(
        CORRUPTS,
        row(
            "bug-die-busy",
            "a process may exit while a job runs",
            bugs::die_busy,
        ),
    ),
    dangerous(
        "the kernel follows a null pointer with a lock held: reboot afterwards",
        row(
            "bug-get-unique",
            "DRM_IOCTL_GET_UNIQUE returns",
            bugs::get_unique,
        ),
    ),
];
