// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows, in the order of what they are about.

mod bugs;
mod create;
mod entry;
mod jobs;
mod mmap;
mod prep;
mod prime;
mod submit;
mod sync;

use crate::Context;
use crate::check::Outcome;

/// One fact about the driver.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What it is called on the command line.
    pub name: &'static str,
    /// The fact.
    pub what: &'static str,
    /// How it may damage the kernel that it runs on, if it may.
    pub danger: Option<&'static str>,
    /// Checks it.
    pub(crate) run: fn(&Context) -> Outcome,
}

const fn row(name: &'static str, what: &'static str, run: fn(&Context) -> Outcome) -> Row {
    Row {
        name,
        what,
        danger: None,
        run,
    }
}

const fn dangerous(danger: &'static str, row: Row) -> Row {
    Row {
        danger: Some(danger),
        ..row
    }
}

/// What the bug of freed memory that is used comes to.
const CORRUPTS: &str = "it corrupts the kernel's memory: reboot afterwards";

/// What a warning comes to.
const WARNS: &str = "it makes the kernel warn, which ends one with panic_on_warn";

/// All rows. Those whose names begin with `bug-` are last, for what comes after
/// them on the same kernel means little, and the worst is the last of them.
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
        "a shorter argument is extended by zeros, a longer one's tail ignored, NULL is EFAULT",
        entry::argument_size,
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
            "CREATE_BO of 2 GiB and of 4 GiB - 1 is ENOMEM, unless the bug `huge-bo` is mended",
            create::too_large,
        ),
    ),
    row(
        "gem-close",
        "GEM_CLOSE of an unknown handle, twice, or of 0 is EINVAL",
        create::close,
    ),
    row(
        "gem-names",
        "GEM_FLINK and GEM_OPEN are for root, in whose hands they work",
        create::names,
    ),
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
        "larger job and task structures are strides",
        jobs::strides,
    ),
    row(
        "submit-bad",
        "SUBMIT works with a bad job, which does not run, and the next one does",
        jobs::bad,
    ),
    row(
        "submit-twice",
        "a job with an object twice, or on both sides, does not run",
        jobs::twice,
    ),
    row(
        "close-busy",
        "GEM_CLOSE of what a job writes works at once; its address stays taken",
        jobs::closed,
    ),
    row(
        "after-kill",
        "a job behind one that is killed runs",
        jobs::after_kill,
    ),
    row(
        "prime-refused",
        "export of bad flags is EINVAL, of a bad handle ENOENT; import of what is not the driver's EINVAL",
        prime::refused,
    ),
    row(
        "prime-handles",
        "import gives its own file the same handle, another one a new one, without an address",
        prime::handles,
    ),
    row(
        "dma-buf-seek",
        "lseek of a dma-buf tells its page-rounded size, and else only goes to the start",
        sync::seek,
    ),
    row(
        "dma-buf-flags",
        "SYNC, EXPORT_ and IMPORT_SYNC_FILE want READ, WRITE or both, and a sync_file",
        sync::dma_buf_flags,
    ),
    row(
        "sync-file-flags",
        "FILE_INFO and MERGE want no flags; MERGE with no sync_file is ENOENT",
        sync::sync_file_flags,
    ),
    row(
        "fence-active",
        "a job's fence is on what it writes only, and polls as readable at the job's end",
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
        "it waits once the reader's fence was imported into the BO",
        sync::ordered,
    ),
    row(
        "bug-one-clock",
        "the driver has all four clocks of each core",
        bugs::clocks,
    ),
    row(
        "bug-no-suspend",
        "a core whose job was killed goes to rest",
        bugs::suspend,
    ),
    row(
        "bug-group-leak",
        "a job gives back what references to the IOMMU group it takes",
        bugs::group,
    ),
    dangerous(
        "it takes all memory for a moment, and some of the kernel's until the next boot",
        row(
            "bug-domain-leak",
            "a CREATE_BO that fails leaves nothing when the file is closed",
            bugs::domain,
        ),
    ),
    dangerous(
        WARNS,
        row(
            "bug-dma-warning",
            "a program that reads where nothing is is no matter for a warning",
            bugs::dma,
        ),
    ),
    dangerous(
        WARNS,
        row(
            "bug-count-warning",
            "SUBMIT of a job with absurdly many tasks is no matter for the kernel's log",
            bugs::count,
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
            "a process may exit as soon as PREP_BO says that the job is over",
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
        "it follows a null pointer with a lock held: reboot afterwards",
        row(
            "bug-get-unique",
            "DRM_IOCTL_GET_UNIQUE returns",
            bugs::get_unique,
        ),
    ),
];
