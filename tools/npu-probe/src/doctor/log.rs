// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages about the NPU in the kernel log, if this user may read it.

use super::root::{SystemRoot, shown_line};
use super::row::DoctorRow;
use crate::base::table::joined;

/// The log; each read returns one record (Linux, Documentation/ABI/testing/dev-kmsg).
const LOG: &str = "dev/kmsg";
/// File that is not 0 if only privileged users may read the log.
const RESTRICTED: &str = "proc/sys/kernel/dmesg_restrict";
/// Message of the driver for each core that it probes (Linux, rocket_core.c).
const CORE: &str = "Rockchip NPU core ";
/// Message of the driver for a job that it kills (Linux, rocket_job.c).
const TIMED_OUT: &str = "NPU job timed out";
/// Boards with 4 GiB or less have less memory than this, boards with 8 GiB more.
const LARGE_MEMORY: u64 = 5 << 30;
/// Message of the kernel for an unused regulator, 30 seconds after boot (Linux,
/// drivers/regulator/core.c).
const SWITCHED_OFF: &str = "disabling";
/// Cores of an RK3588, in the order of their hardware numbers (Linux, rk3588-base.dtsi).
const CORES: [&str; 3] = ["fdab0000.npu", "fdac0000.npu", "fdad0000.npu"];

/// The kernel log; `None` if it is not readable.
#[derive(Debug)]
pub(super) struct KernelLog(Option<String>);

impl KernelLog {
    pub(super) fn of(root: &SystemRoot) -> Self {
        Self(root.records(LOG))
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flat_map(|text| text.lines())
    }

    /// Whether the kernel switched a regulator off because nothing used it.
    pub(super) fn switched_off(&self, regulator: &str) -> bool {
        let message = format!("{regulator}: {SWITCHED_OFF}");
        self.lines().any(|line| line.trim_end().ends_with(&message))
    }

    /// Number of jobs that the driver killed after its time limit.
    fn timeouts(&self) -> usize {
        self.lines().filter(|line| line.contains(TIMED_OUT)).count()
    }

    /// The row of killed jobs; none if the log has none. `interrupts`: how often the cores
    /// raised one. `memory`: bytes of the machine.
    pub(super) fn killed_row(
        &self,
        interrupts: Option<u64>,
        memory: Option<u64>,
    ) -> Option<DoctorRow> {
        let killed = self.timeouts();
        if killed == 0 {
            return None;
        }
        let found = format!("{killed} by the driver (kernel log)");
        let all_died = interrupts == Some(0);
        let is_large = memory.is_some_and(|bytes| bytes > LARGE_MEMORY);
        Some(if all_died && is_large {
            DoctorRow::problem(
                format!("{found}, and no job has ended"),
                "Boot with `mem=3838M` (kernel command line) and try again: if jobs end then, the \
                 page directory of the IOMMU lies above 4 GiB, where the NPU's IOMMU cannot read \
                 it. Report the board and its kernel.",
            )
        } else if all_died {
            DoctorRow::problem(
                format!("{found}, and no job has ended"),
                "Check power, clocks and device tree: `npu-probe first` finds the first program \
                 that does not run.",
            )
        } else {
            DoctorRow::note(
                found,
                "Run `npu-probe first`: it finds what does not run on this board.",
            )
        })
    }

    /// The number that the driver gave a core at its last probe.
    fn number(&self, core: &str) -> Option<usize> {
        let device = format!("{core}: {CORE}");
        let parse_line = |line: &str| {
            let (_, rest) = line.split_once(&device)?;
            rest.split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        };
        self.lines().filter_map(parse_line).last()
    }

    /// The row of the core numbers. The driver numbers cores in the order of probing and
    /// writes the number into the core's S_POINTER. A core with another core's number
    /// raises no interrupt (E-core-number).
    pub(super) fn numbers_row(&self, root: &SystemRoot, bound: &[String]) -> DoctorRow {
        let elsewhere = bound.iter().filter(|core| !CORES.contains(&core.as_str()));
        let elsewhere = joined(elsewhere, ", ");
        if !elsewhere.is_empty() {
            // A core of a virtual machine: its address does not give its number.
            return DoctorRow::note(
                format!("not checked: {elsewhere} is not a core of an RK3588"),
                "If one job in two or three is killed, compare `sudo dmesg | grep 'NPU core'` \
                 with the core numbers of this chip.",
            );
        }
        let given: Vec<(&String, Option<usize>)> =
            bound.iter().map(|core| (core, self.number(core))).collect();
        let wrong = given.iter().filter_map(|(core, number)| {
            let number = (*number)?;
            (CORES.get(number) != Some(&core.as_str())).then(|| format!("{core} is {number}"))
        });
        let wrong = joined(wrong, ", ");
        if !wrong.is_empty() {
            return DoctorRow::problem(
                format!("not in the order of the cores: {wrong}"),
                "Make the kernel probe the cores in order: enable all of them in the device \
                 tree, build rocket in or load it from the initramfs, and reboot. Jobs on a core \
                 with a wrong number hang until the driver kills them.",
            );
        }
        if given.iter().all(|(_, number)| number.is_some()) {
            return DoctorRow::ok("in the order of the cores (kernel log)");
        }
        // The driver counts the cores that it probes, so numbers after a gap are wrong.
        let is_bound = CORES.map(|core| bound.iter().any(|bound| bound == core));
        let gap = is_bound.windows(2).any(|pair| pair == [false, true]);
        let may_read = match (&self.0, root.number(RESTRICTED)) {
            (Some(_), _) => "the kernel log no longer has the lines of all cores",
            (None, Some(1..)) => "the kernel log is for root only (dmesg_restrict)",
            (None, _) => "the kernel log is not readable (/dev/kmsg)",
        };
        let found = if gap {
            format!("{may_read}; a core before the last one is missing")
        } else {
            format!("not checked: {may_read}")
        };
        DoctorRow::note(
            found,
            "If one job in two or three is killed, check `sudo dmesg | grep 'NPU core'`: \
             fdab0000.npu must be core 0, fdac0000.npu core 1, fdad0000.npu core 2.",
        )
    }

    /// The last log lines about the driver and its devices.
    pub(super) fn of_driver(&self) -> Vec<String> {
        const MOST: usize = 4;
        let message = |line| <str>::split_once(line, ';').map_or(line, |(_, message)| message);
        let about = |message: &&str| message.contains(".npu: ") && !message.contains(CORE);
        let lines: Vec<&str> = self.lines().map(message).filter(about).collect();
        let last = lines.iter().skip(lines.len().saturating_sub(MOST));
        last.filter_map(|message| Some(format!("log: {}", shown_line(message)?)))
            .collect()
    }
}
