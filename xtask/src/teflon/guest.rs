// SPDX-License-Identifier: MIT OR Apache-2.0
//! The delegate on the real kernel driver, in a virtual machine.

use std::path::Path;

use anyhow::{Context, Result};

use crate::debian::Sysroot;
use crate::vm::{Guest, GuestRunner, Initramfs, KernelArgs};

/// The delegate in its package, and the library that loads it.
pub(super) const DELEGATE: &str = "usr/lib/teflon/libteflon.so";
pub(super) const RUNTIME: &str = "libtensorflow-lite.so.2.14.1";

/// Time that a guest has for one run, seconds.
const LIMIT: u64 = 600;

/// Places in the guest.
const PROGRAM: &str = "/bin/infer";
const MODEL: &str = "/model";
const INPUT: &str = "/input";
const OUTPUT: &str = "/tmp/output";

/// Where the kernel counts interrupts.
const INTERRUPTS: &str = "/proc/interrupts";

/// Ending of the names of the NPU's interrupts there: those of the cores' devices.
const NPU: &str = ".npu";

/// Runs the delegate in guests: what is the same in each of them.
#[derive(Debug)]
pub(super) struct GuestDelegate {
    runner: GuestRunner,
    files: Initramfs,
    command: [String; 6],
}

/// What the delegate computed in a guest, and the interrupts that it took.
#[derive(Debug)]
pub(super) struct GuestInference {
    pub(super) output: Vec<u8>,
    /// Interrupts of the NPU's cores: one for each task.
    pub(super) interrupts: u64,
}

impl GuestDelegate {
    /// A kernel with the driver, and guests with the delegate for `client`.
    pub(super) fn prepare(sysroot: &Sysroot, client: &Path) -> Result<Self> {
        let runner = GuestRunner::prepare(&Guest::new(KernelArgs::default(), 1))?;
        let (mut files, program) = runner.files(PROGRAM)?;
        let runtime = format!("{}/{RUNTIME}", sysroot.place_of_libraries());
        let loaded = [&*runtime, DELEGATE].map(|place| sysroot.root().join(place));
        let [runtime, delegate] = [&*runtime, DELEGATE].map(|place| format!("/{place}"));
        files.add(client, &program)?;
        files.add(&loaded[0], &runtime)?;
        files.add(&loaded[1], &delegate)?;
        let [lite, teflon] = loaded;
        files.add_libraries(sysroot, &[], &[client.to_owned(), lite, teflon])?;
        let [model, input, output] = [MODEL, INPUT, OUTPUT].map(str::to_owned);
        let command = [program, runtime, model, input, output, delegate];
        Ok(Self {
            runner,
            files,
            command,
        })
    }

    /// Runs the delegate with a model and its input.
    pub(super) fn infer(&self, model: &Path, input: &Path) -> Result<GuestInference> {
        let mut files = self.files.clone();
        files.add(model, MODEL)?;
        files.add(input, INPUT)?;
        files.command(&self.command);
        files.want(&[OUTPUT, INTERRUPTS]);
        let (ended, files) = self.runner.finish(files, LIMIT)?.of_program()?;
        ended.checked("in the guest, infer")?;
        let file = |place: usize| files.get(place).cloned().flatten();
        let output = file(0).context("the guest has no output")?;
        let interrupts = file(1).with_context(|| format!("the guest has no {INTERRUPTS}"))?;
        Ok(GuestInference {
            output,
            interrupts: npu_interrupts(&String::from_utf8_lossy(&interrupts)),
        })
    }
}

/// How many interrupts of the NPU's cores the kernel has counted, on all
/// processors.
fn npu_interrupts(text: &str) -> u64 {
    let lines = text.lines().filter(|line| line.trim_end().ends_with(NPU));
    let counts = lines.flat_map(|line| {
        let words = line.split_whitespace().skip(1);
        words.map_while(|word| word.parse::<u64>().ok())
    });
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::npu_interrupts;

    #[test]
    fn interrupts_of_the_cores_are_counted() {
        let text = "           CPU0       CPU1\n 11:       5000          7    GICv3  27 Level     arch_timer\n";
        assert_eq!(npu_interrupts(text), 0, "no job");
        let text = format!(
            "{text} 14:         10          3    GICv3 142 Edge      fdab9000.iommu, fdab0000.npu\n \
             15:          4          0    GICv3 143 Edge      fdac9000.iommu, fdac0000.npu\n"
        );
        assert_eq!(npu_interrupts(&text), 17);
    }
}
