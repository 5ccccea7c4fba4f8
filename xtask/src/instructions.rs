// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask instructions`: counts the aarch64 instructions that each CPU kernel executes for an
//! element.
//!
//! QEMU's user emulator is set to translate one instruction at a time and to log each executed
//! translation, so it prints a line for each instruction. The count of one kernel run is the
//! difference between a program that runs the kernel twice and one that runs it once. QEMU's own
//! counter is a plugin, which Debian's package lacks and a static emulator could not load.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arch::{Arch, first_missing};
use crate::generated::{replace_section, table};
use crate::{build, paths, process};

/// The page with the table, and the name of its section.
const PAGE: &str = "docs/matmul-figures.md";
const SECTION: &str = "instructions";

/// The architecture whose instructions are counted: the board's.
const ARCH: Arch = Arch::Arm64;

/// Time limit of a program. The log has hundreds of thousands of lines per second.
const LIMIT: Duration = Duration::from_secs(600);

/// Counts the lines of executed translations (QEMU's `-d exec`) of a program. The last number
/// before the bracket has flags. Their lowest nine bits are the most instructions of the
/// translation (`CF_COUNT_MASK` in QEMU's include/exec), which must be one. The switch for that has
/// two names in different QEMU versions; setting both is harmless.
const COUNT: &str = r#"
export QEMU_SINGLESTEP=1 QEMU_ONE_INSN_PER_TB=1 QEMU_LOG=nochain,exec QEMU_LOG_FILENAME=/dev/stdout
"$@" | awk '/^Trace / { lines++; alone += /[02468ace]01\]/ }
    END { if (lines == 0 || lines != alone) exit 1; print lines }'
"#;

/// Options of `cargo xtask instructions`.
#[derive(clap::Args, Debug)]
pub(crate) struct InstructionsArgs {
    /// Count only kernels whose name contains this
    #[arg(default_value = "")]
    kernel: String,
    /// Write the table into docs/matmul-figures.md
    #[arg(long, conflicts_with = "kernel")]
    record: bool,
}

/// Counts and prints; writes the table if asked.
pub(crate) fn run(args: &InstructionsArgs) -> Result<()> {
    if let Some(missing) = first_missing([ARCH.emulator()[0], &ARCH.cross_linker()]) {
        bail!("`{missing}` is not installed");
    }
    let program = build::kernel_runs(ARCH)?;
    let mut rows = Vec::new();
    for kernel in output(&emulated("\"$@\"", &program))?.lines() {
        // Elements, bytes and name.
        let mut words = kernel.splitn(3, ' ');
        let mut word = || words.next().context("a kernel has three words");
        let (elements, bytes): (f64, f64) = (word()?.parse()?, word()?.parse()?);
        let name = word()?;
        if !name.contains(&args.kernel) {
            continue;
        }
        let executed = |times| -> Result<f64> {
            Ok(output(emulated(COUNT, &program).args([name, times]))?.parse()?)
        };
        let each = (executed("2")? - executed("1")?) / elements;
        let row = format!("{name} | {each:.2} | {:.1}", bytes / elements);
        println!("{row}");
        rows.push(row);
    }
    if !args.record {
        return Ok(());
    }
    let [emulator, options @ ..] = ARCH.emulator() else {
        bail!("no emulator")
    };
    let version = |program: &str| -> Result<String> {
        let text = output(Command::new(program).arg("--version"))?;
        Ok(text.lines().next().unwrap_or_default().to_owned())
    };
    let heads = "kernel | instructions per element | bytes read and written per element";
    let page = format!(
        "Counted with {}, `{}`, the `dist` build by {}.\n\n{}",
        version(emulator)?,
        options.join(" "),
        version("rustc")?,
        table(heads, rows)
    );
    let path = paths::root().join(PAGE);
    fs::write(
        &path,
        replace_section(&paths::text(&path)?, SECTION, &page)?,
    )
    .with_context(|| format!("writing {}", path.display()))
}

/// A shell that runs `script` with a command line that starts `program`.
fn emulated(script: &str, program: &Path) -> Command {
    let mut shell = Command::new("bash");
    shell
        .args(["-euo", "pipefail", "-c", script, "bash"])
        .args(ARCH.emulator());
    if !ARCH.is_native() {
        // Debian's path of the C library for another architecture.
        shell.args(["-L", &format!("/usr/{}", ARCH.triplet())]);
    }
    shell.arg(program);
    shell
}

fn output(command: &Command) -> Result<String> {
    process::stdout(command, LIMIT).context("counting")
}

#[cfg(test)]
mod tests {
    use npu_matmul::Dtype;
    use npu_matmul::profile::{KernelCost, UnpackTo};
    use rknpu_regcmd::MatmulType::{Int4ToInt16, Int8ToInt32};

    use super::*;
    use crate::generated::section;

    /// The cost model uses the recorded counts.
    #[test]
    fn the_host_model_has_what_was_counted() {
        let page = paths::text(&paths::root().join(PAGE)).unwrap();
        let table = section(&page, SECTION).unwrap();
        let of = |kernel: &str| {
            let row = format!("| {kernel} | ");
            let counted = table.lines().find_map(|line| line.strip_prefix(&row));
            let counted = counted.and_then(|cells| cells.split(' ').next());
            100.0 * counted.unwrap().parse::<f64>().unwrap()
        };
        let unpack = KernelCost::unpack;
        for (cost, expected) in [
            (KernelCost::pack(Dtype::Int8), of("pack int8 activations")),
            (KernelCost::pack(Dtype::Fp16), of("pack f16 activations")),
            // One row of bytes becomes two rows of nibbles.
            (
                KernelCost::pack(Dtype::Int4),
                of("split into nibbles and pack") / 2.0,
            ),
            (
                unpack(Int8ToInt32, UnpackTo::Result),
                of("unpack int32, dequantise"),
            ),
            (
                unpack(Int8ToInt32, UnpackTo::CachedSum),
                of("unpack int32, add"),
            ),
            (
                unpack(Int4ToInt16, UnpackTo::Sum),
                of("unpack int16 to int32"),
            ),
            (
                KernelCost::round(Dtype::Fp16),
                of("absmax of rows") + of("f32 to f16"),
            ),
            (KernelCost::round(Dtype::Int8), of("absmax and quantise")),
            (
                KernelCost::SOFTMAX,
                of("softmax: maxima of f16") + of("softmax: exponentials of f16"),
            ),
            (KernelCost::ADD_SCORES, of("softmax: add scores of parts")),
            (KernelCost::PACK_COLUMNS, of("pack f16 columns as weights")),
            (KernelCost::ALL_FINITE, of("f16 vectors: all finite")),
            // A block of 4096 has 12 stages.
            (
                KernelCost::ROTATION_STAGE,
                of("Hadamard, blocks of 4096") / 12.0,
            ),
        ] {
            let difference = f64::from(cost.centi_instructions) - expected;
            assert!(difference.abs() <= 0.51, "{cost:?}, counted: {expected}");
        }
    }
}
