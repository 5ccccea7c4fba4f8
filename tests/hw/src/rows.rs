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
//!   line in `expected/rows.txt` and a file in `bugs`. On the model the suite skips it.
//! - A row whose jobs fail before they are queued is `with_failing_jobs`. The suite skips
//!   it on kernels that this takes down, even with `--destructive`.

mod bugs;
mod cores;
mod create;
mod dma_buf;
mod entry;
mod jobs;
mod mmap;
mod prep;
mod prime;
mod processes;
mod recovery;
mod run;
mod sync;
mod sync_file;

use crate::RowContext;
use crate::check::RowOutcome;
use crate::scenario::Scenario;

/// One fact about the driver.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// The fact about the driver, as a sentence.
    pub what: &'static str,
    /// How it may damage the kernel that it runs on, if it may.
    pub danger: Option<&'static str>,
    /// Whether it submits jobs that fail before they are queued, which the driver
    /// survives from Linux 7.2 on.
    pub fails_submit: bool,
    /// Whether it needs several processes, which a model within one process does not
    /// have.
    pub needs_kernel: bool,
    /// Checks the fact on a device.
    pub(crate) run: fn(&RowContext) -> RowOutcome,
}

/// A row without a fact, which [`Row::checks`] adds.
const fn row(name: &'static str, run: fn(&RowContext) -> RowOutcome) -> Row {
    Row {
        name,
        what: "",
        danger: None,
        fails_submit: false,
        needs_kernel: false,
        run,
    }
}

impl Row {
    const fn checks(self, what: &'static str) -> Self {
        Self { what, ..self }
    }

    const fn danger(self, danger: &'static str) -> Self {
        let danger = Some(danger);
        Self { danger, ..self }
    }

    const fn with_failing_jobs(self) -> Self {
        Self {
            fails_submit: true,
            ..self
        }
    }

    const fn with_processes(self) -> Self {
        Self {
            needs_kernel: true,
            ..self
        }
    }
}

/// The danger of rows with a DMA error.
const WARNS: &str = "it makes the kernel warn, and a kernel with panic_on_warn panic";

/// The danger of rows that make the kernel use freed memory.
const CORRUPTS: &str = "it corrupts the kernel's memory: reboot afterwards";

/// All rows. Those named `bug-...` are last, as rows after them on the same kernel
/// prove little. The most harmful is the last.
pub const ROWS: &[Row] = &[
    row("version", entry::version).checks("VERSION names the driver `rocket`"),
    row("capabilities", entry::capabilities)
        .checks("GET_CAP: PRIME both ways, monotonic timestamps, no sync objects"),
    row("unknown-ioctl", entry::unknown)
        .checks("an unknown driver ioctl is EINVAL, one that is not DRM's ENOTTY"),
    row("poll-read", entry::poll_and_read)
        .checks("poll finds no events, a non-blocking read is EAGAIN"),
    row("argument-size", entry::argument_size)
        .checks("a shorter argument is extended by zeros, a longer one is cut off, NULL is EFAULT"),
    row("argument-back", entry::argument_back)
        .checks("a shorter argument gets back as many bytes as it has"),
    row("version-room", entry::version_room).checks(
        "VERSION copies as much of a text as fits, without a final NUL, and returns its length",
    ),
    row("capability-unknown", entry::unknown_capability)
        .checks("GET_CAP of a capability of display drivers is EOPNOTSUPP"),
    row("create-nothing", create::nothing).checks("CREATE_BO of 0 bytes is ENOSPC"),
    row("create-small", create::small)
        .checks("CREATE_BO of 1, 100, 4096, 4097 bytes gives whole pages of zeros"),
    row("create-addresses", create::addresses).checks(
        "addresses from 0, best fit in pages; handles from 1, the lowest free; both per file",
    ),
    row("create-1gib", create::one_gib).checks("CREATE_BO of 1 GiB works"),
    row("create-2gib", create::too_large)
        .checks("CREATE_BO of 2 GiB and of 4 GiB - 1 is ENOMEM, unless the bug `huge-bo` is fixed")
        .danger("2 GiB of freed memory stay mapped for the NPU until the file is closed"),
    row("gem-close", create::close)
        .checks("GEM_CLOSE of an unknown handle, twice, or of 0 is EINVAL"),
    row("gem-names", create::names).checks("GEM names are for root"),
    row("mmap-part", mmap::parts)
        .checks("mmap of a part, read-only, executable, and read-only made writable work"),
    row("mmap-range", mmap::out_of_range)
        .checks("mmap longer than the pages, inside a BO, or at offset 0 is EINVAL"),
    row("mmap-private", mmap::private).checks("MAP_PRIVATE is EINVAL"),
    row("mmap-other-file", mmap::other_file)
        .checks("mmap through another file is EACCES until that file has imported the BO"),
    row("mmap-after-close", mmap::after_close)
        .checks("a mapping stays valid after GEM_CLOSE, and address and offset stay taken"),
    row("mmap-closed", mmap::closed).checks("mmap after GEM_CLOSE is EACCES while it is mapped"),
    row("mmap-offsets", mmap::offsets).checks(
        "mmap offsets are whole pages, unique across files; NPU addresses are separate for each \
         file",
    ),
    row("prep-reserved", prep::reserved)
        .checks("PREP_BO and FINI_BO with reserved != 0 are EINVAL, whatever the handle"),
    row("prep-unknown", prep::unknown_handle)
        .checks("PREP_BO and FINI_BO of an unknown handle or 0 are ENOENT"),
    row("fini-any", prep::fini_any_state)
        .checks("FINI_BO works in any state, without PREP_BO, repeatedly, and never waits"),
    row("prep-idle", prep::idle).checks("PREP_BO of an idle BO works with any timeout"),
    row("prep-busy-past", prep::busy_past)
        .checks("PREP_BO of a busy BO with a deadline in the past is EBUSY at once"),
    row("prep-busy-future", prep::busy_future)
        .checks("PREP_BO of a busy BO is ETIMEDOUT when its deadline passes, give or take a jiffy"),
    row("prep-busy-forever", prep::busy_forever)
        .checks("PREP_BO of a busy BO without a deadline waits for the job's end"),
    row("prep-read-only", prep::only_read)
        .checks("PREP_BO of a BO that a running job only reads does not wait"),
    row("prep-signal", prep::interrupted)
        .checks("a signal ends PREP_BO with EINTR, or not at all under SA_RESTART"),
    row("submit-no-jobs", jobs::no_jobs).checks("SUBMIT of no jobs works, even with reserved != 0"),
    row("submit-malformed", jobs::malformed)
        .checks("SUBMIT with a job size below 40 or reserved != 0 is EINVAL"),
    row("submit-fault", jobs::fault).checks("SUBMIT of a job at NULL is EFAULT"),
    row("submit-strides", jobs::strides)
        .checks("a larger size of the job or task structure is used as the stride"),
    row("submit-bad", jobs::bad)
        .checks("SUBMIT works with a bad job, which does not run; the next job runs")
        .with_failing_jobs(),
    row("submit-twice", jobs::twice)
        .checks("a job that lists an object twice, or as input and output, does not run"),
    row("close-busy", jobs::closed)
        .checks("GEM_CLOSE of a running job's output works at once; its address stays taken"),
    row("after-kill", jobs::after_kill).checks("a job behind a killed one runs"),
    row("after-kill-elsewhere", recovery::elsewhere)
        .checks("a job that waits for another file's job runs even if that is killed"),
    row("fault-read", recovery::read_fault)
        .checks("a job that reads an unmapped address is killed; the next one gives right results")
        .danger(WARNS),
    row("fault-write", recovery::write_fault)
        .checks(
            "a job that writes to an unmapped address is killed; the next one gives right results",
        )
        .danger(WARNS),
    row("run-without-lists", run::without_lists)
        .checks("jobs without input objects, without output objects, or without both run"),
    row("run-tasks", run::tasks_in_order).checks("the tasks of a job run in order"),
    row("run-jobs", run::jobs_in_order)
        .checks("the jobs of one SUBMIT run in order, even if the first has to wait"),
    row("run-submits", run::submits_in_order)
        .checks("jobs of a file that are submitted one by one run in order"),
    row("run-closed", run::closed_output)
        .checks("a job writes to an object whose handle was closed before it ran"),
    row("run-after-sleep", recovery::after_sleep)
        .checks("results are right after the cores were suspended, which may lose registers"),
    row("cores-one-each", cores::one_each)
        .checks("the jobs of three files use one core each; a fourth file shares one"),
    row("cores-alternate", cores::alternates)
        .checks("a single file that is idle between its jobs alternates between two cores"),
    row("cores-stay", cores::stays)
        .checks("jobs of a file stay on one core while one of them is unfinished"),
    row("cores-at-once", cores::at_once)
        .checks("jobs of three files run at once: one ends while the other two hang"),
    row("cores-fourth", cores::fourth_waits)
        .checks("a fourth file's job waits until one of three hanging jobs has ended"),
    row("prime-refused", prime::bad_arguments).checks(
        "export with bad flags is EINVAL, of a bad handle ENOENT; import of a foreign file is \
         EINVAL",
    ),
    row("prime-handles", prime::handles).checks(
        "import gives the exporting file the same handle, another file a new one without an \
         address",
    ),
    row("dma-buf-seek", sync::seek).checks(
        "lseek of a dma-buf returns its page-rounded size, and otherwise only goes to the start",
    ),
    row("dma-buf-flags", sync::dma_buf_flags).checks(
        "SYNC, EXPORT_ and IMPORT_SYNC_FILE need READ, WRITE or both; IMPORT needs a sync_file",
    ),
    row("dma-buf-map", mmap::dma_buf).checks(
        "mmap of a dma-buf shows the object from its start; private or beyond the end is EINVAL",
    ),
    row("sync-file-flags", sync::sync_file_flags)
        .checks("FILE_INFO and MERGE with flags are EINVAL; MERGE with no sync_file is ENOENT"),
    row("fence-active", sync::on_outputs)
        .checks("a job's fence is on its outputs only, and polls as readable at the job's end"),
    row("fence-merged", sync::merged).checks("a merged sync_file waits for both of its jobs"),
    row("fence-killed", sync::killed)
        .checks("the fence of a killed job has -ECANCELED, while PREP_BO returns 0"),
    row("dma-buf-sync", sync::cpu_access)
        .checks("DMA_BUF_IOCTL_SYNC waits for a job that writes the BO, not for one that reads it"),
    row("raw-ordered", sync::read_after_write)
        .checks("a job that reads what another file's job writes waits for it"),
    row("waw-ordered", sync::write_after_write)
        .checks("a job that writes what another file's job writes waits for it"),
    row("war-unordered", sync::unordered)
        .checks("a job that writes a BO does not wait for another file's job that reads it"),
    row("war-ordered", sync::ordered).checks(
        "a job that writes a BO waits for its reader if the reader's fence was imported into it",
    ),
    row("dma-buf-keeps", dma_buf::keeps)
        .checks("a dma-buf keeps object and address until its last descriptor is closed"),
    row("dma-buf-writable", dma_buf::writable)
        .checks("the first export decides whether a dma-buf is writable"),
    row("dma-buf-requests", dma_buf::requests).checks(
        "a dma-buf's ioctls of another size are ENOTTY, at NULL EFAULT; a name has at most \
         31 bytes",
    ),
    row("dma-buf-poll", dma_buf::poll)
        .checks("poll finds a dma-buf readable when no job writes it, writable when none uses it"),
    row("fence-imported", dma_buf::imported_write).checks(
        "an imported fence of a writer delays readers and PREP_BO, one of a reader does not",
    ),
    row("sync-file-requests", sync_file::requests)
        .checks("a sync_file's ioctls of another size are ENOTTY, at NULL EFAULT; lseek is ESPIPE"),
    row("sync-file-names", sync_file::names).checks(
        "a fence names its driver and queue until its job's end; MERGE gives a file its name",
    ),
    row("sync-file-room", sync_file::room)
        .checks("FILE_INFO returns the number of fences, and each fence if there is room for all"),
    row("merge-left-out", sync_file::left_out)
        .checks("MERGE drops signalled fences; if all are, it returns a fence with the latest end"),
    row("merge-latest", sync_file::latest)
        .checks("MERGE of two fences of one queue keeps the later"),
    row("file-busy", processes::closed)
        .checks("closing a file waits until its queue is empty; its jobs run to their end")
        .danger(WARNS),
    row("file-mapped", processes::closed_mapped)
        .checks("a mapping outlives its file, and keeps its offset taken"),
    row("file-forked", processes::forked)
        .checks(
            "a forked child shares its parent's file: a handle that it closes is closed for both",
        )
        .with_processes(),
    row("file-killed", processes::killed)
        .checks("queued jobs of a killed process fail with ESRCH")
        .with_processes(),
    row("bug-one-clock", bugs::clocks).checks("the driver uses all four clocks of each core"),
    row("bug-no-suspend", bugs::suspend)
        .checks("a core whose job was killed is suspended afterwards"),
    row("bug-group-leak", bugs::group)
        .checks("a job releases the references to the IOMMU group that it takes"),
    row("bug-domain-leak", bugs::domain)
        .checks("a failed CREATE_BO leaks no memory after the file is closed")
        .danger(
            "it uses all memory for a moment, and leaks some kernel memory until the next boot",
        ),
    row("bug-dma-warning", bugs::dma)
        .checks("a program that reads an unmapped address does not make the kernel warn")
        .danger(WARNS),
    row("bug-count-warning", bugs::count)
        .checks("SUBMIT of a job with absurdly many tasks does not make the kernel warn")
        .danger(WARNS)
        .with_failing_jobs(),
    // Must follow the row above: the kernel warns once.
    row("bug-count-jobs", bugs::count_of_jobs)
        .checks("SUBMIT of absurdly many jobs is ENOMEM")
        .danger(WARNS),
    row("bug-huge-bo", bugs::huge)
        .checks("a CREATE_BO of 2 GiB does not make later ones fail")
        .danger("2 GiB of freed memory stay mapped for the NPU until the file is closed"),
    row("bug-close-after-wait", |row| {
        bugs::harmless(row, Scenario::ExitAfterWait, bugs::RACES)
    })
    .checks("a process may exit as soon as PREP_BO returns")
    .danger(CORRUPTS),
    row("bug-close-exported", |row| {
        bugs::harmless(row, Scenario::ExitExported, 1)
    })
    .checks("a process may exit with a buffer object that it exported")
    .danger(CORRUPTS),
    row("bug-die-busy", |row| {
        bugs::harmless(row, Scenario::ExitBusy, 1)
    })
    .checks("a process may exit while a job runs")
    .danger(CORRUPTS),
    row("bug-get-unique", |row| {
        bugs::harmless(row, Scenario::GetUnique, 1)
    })
    .checks("DRM_IOCTL_GET_UNIQUE returns")
    .danger("the kernel follows a null pointer with a lock held: reboot afterwards"),
];
