// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: parsed here, without touching the system.

mod bench;
mod calibrate;
mod capture;
mod common;
mod doctor;
mod dtype;
mod evidence;
mod exec;
mod first;
mod html_report;
mod measuring;
mod model;
mod plan;
pub(crate) mod planning;
mod selftest;
mod soak;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

pub(crate) use bench::BenchFlags;
pub(crate) use calibrate::CalibrateFlags;
pub(crate) use capture::{CaptureFlags, DiffFlags, ReplayFlags};
pub(crate) use common::{DeviceFlags, ReportFlags, RunFiles};
pub(crate) use doctor::DoctorFlags;
pub(crate) use dtype::OperandDtypes;
pub(crate) use evidence::EvidenceFlags;
pub(crate) use exec::{BufferFile, ExecFlags, OutputRegion};
pub(crate) use first::{ExplainFlags, FirstFlags, RungFlags};
pub(crate) use html_report::HtmlReportFlags;
pub(crate) use measuring::MeasuringFlags;
pub(crate) use model::GgufFlags;
pub(crate) use plan::PlanFlags;
pub(crate) use selftest::SelfTestFlags;
pub(crate) use soak::SoakFlags;

/// Check that the RK3588 NPU of this machine computes what it should.
///
/// Without a command, the self-test: multiplies two matrices of random integers
/// (or floats) on the NPU, through the same path that everything else here
/// uses, and compares each element of the result with the CPU's.
///
/// Where there is no NPU it runs on a software model of it, and says so.
#[derive(Debug, Parser)]
#[command(
    name = "npu-probe",
    version,
    after_help = "--help tells more: expert commands and options, exit codes, examples.",
    after_long_help = AFTER_HELP,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) selftest: SelfTestFlags,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  the result is right (or the command did its work)
  1  the result differs from the CPU's (calibrate: from every side's; replay
     and diff: from the recorded one; decode --lint: there are errors)
  2  the command line or an input file makes no sense
  3  the device that was demanded is not there, or not usable (doctor: no NPU is)
  4  the device or its driver failed (exec: the program did not complete)
  5  the output could not be written

Examples:
  npu-probe                                the self-test, 64x64x64, int8
  npu-probe --dtype fp16 --shape 100x999x7 other sizes, any from 1
  npu-probe --device /dev/accel/accel0     on this device and no other
  npu-probe --dump failing                 keep the jobs with all their memory, and the
                                           report, to send them to somebody
  npu-probe doctor                         why the NPU works here, or does not
  npu-probe info                           which device, which driver, and why
  npu-probe decode failing/jobs.rkcap      what ran; --job 0 prints its programs
  npu-probe asm changed.s -o changed.hex   a register program from such text
  npu-probe exec changed.hex --bo 0x0:a.bin --bo 0x10000:b.bin \\
      --out 0x20000:16384:c.bin            one program against given memory
  npu-probe replay failing/jobs.rkcap --device model
                                           what do they give elsewhere?
  npu-probe run --record it.rkcap -- ./a.out
                                           the same of any program's jobs
  npu-probe calibrate --json > board.json  what this board is like: for all that plans,
                                           and to be sent

RUST_LOG=trace shows what the libraries do.";

/// Commands on register programs and captures, and what other programs start: told
/// after all else.
const EXPERT_COMMANDS: [&str; 7] = ["decode", "asm", "exec", "rung", "replay", "diff", "serve"];

/// Options of the self-test that only `--help` tells.
const EXPERT_OPTIONS: [&str; 4] = ["seed", "fds", "trace", "record"];

impl Flags {
    /// Reads the command line.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::with_short_help().try_get_matches()?)
    }

    /// The definition, with a first page of help that has what users need.
    fn with_short_help() -> clap::Command {
        let mut tool = Self::command();
        let mut experts = "Expert commands:\n".to_owned();
        for name in EXPERT_COMMANDS {
            tool = tool.mut_subcommand(name, |one| {
                let about = one.get_about().map(ToString::to_string);
                experts += &format!("  {name:9}  {}\n", about.unwrap_or_default());
                one.hide(true)
            });
        }
        for name in EXPERT_OPTIONS {
            tool = tool.mut_arg(name, |one| one.hide_short_help(true));
        }
        tool.after_long_help(format!("{experts}\n{AFTER_HELP}"))
    }
}

/// What to do other than the self-test.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell why the NPU of this machine can be used, or not, and what to do
    ///
    /// Looks at the kernel, the device tree, the drivers, the device node and the
    /// user's rights, clocks and interrupts, memory, known bugs of the driver, and
    /// software that uses the NPU. Opens no device and changes nothing. Root sees
    /// more of it. The exit code is 3 if no NPU can be used.
    Doctor(DoctorFlags),
    /// Tell which device would be used, and why
    Info(InfoFlags),
    /// Measure what this board is like, and write its profile
    ///
    /// The clock, which no driver tells; start costs, memory, the CPU's kernels; which
    /// tiles work; and on which side of contested facts the silicon is: sources contradict each other, and an experiment for each runs on
    /// the device and on a model of each side. About a minute on a board. The exit code
    /// is 1 if a device is on no side of a fact. Run the self-test first: where that
    /// fails, nothing here says much. Engines, llama.cpp, `plan` and `bench` read the
    /// profile (docs/profile.md). On the software model times are modelled, and an NPU
    /// does not use such a profile.
    Calibrate(CalibrateFlags),
    /// Measure how fast products are
    ///
    /// Wall time, CPU time, SUBMITs and bytes of a product, its modelled time,
    /// and the least time that multiplications or memory alone would take. Two
    /// rows of each result are checked first: what is wrong has no speed. On
    /// the software model wall times say nothing of an NPU.
    Bench(BenchFlags),
    /// Show how a product would be cut, and what it would take
    ///
    /// Runs nothing: times are those of the timing model, with the profile of the
    /// board that the device is in.
    Plan(PlanFlags),
    /// Tell what a language model would gain, before it is loaded
    ///
    /// Reads the head of a GGUF file: which weights llama.cpp's backend would put on the
    /// NPU, in which precision and from how many rows on, whether they fit, and how fast
    /// prompts and parallel sequences would be, beside the CPU alone. Runs nothing: times
    /// are modelled, by the profile of the board that the device is in.
    Model(GgufFlags),
    /// Multiply random matrices in several processes for a while
    ///
    /// Of all sizes and precisions, over one to three files each; every element
    /// of every product is compared with what the CPU computes, exactly. The exit
    /// code is 1 if one is wrong, and 4 if a process fails or the driver kills a job. On the software model
    /// each process has one of its own.
    Soak(SoakFlags),
    /// Check a new board with small experiments, and name what fails
    ///
    /// For the first minutes with a board. The best proven experiments run first; each of
    /// the others adds one thing to one that passed. Each runs in a separate process on
    /// every core, and leaves a record. Prints what works and what does not, writes a
    /// profile that avoids what failed, and collects the records in one archive to send;
    /// `explain` judges it on any machine. The same command continues an interrupted run,
    /// also after a crash. The exit code is 1 if the board does not work.
    First(FirstFlags),
    /// Print the verdict on an archive of `first` or `evidence`
    Explain(ExplainFlags),
    /// Run all checks and collect the results in one archive
    ///
    /// Runs `first`, then `calibrate`, `bench`, llama.cpp if a model is given, and the
    /// driver suite, and adds a page of the results. Runs nothing that is known to damage a
    /// kernel, and leaves everything private out of the archive. A step that takes too long
    /// is killed. The same command continues an interrupted run; it does not repeat a step
    /// that failed or took the machine down, unless --retry is given.
    Evidence(EvidenceFlags),
    /// Run one experiment of `first`, and print its record
    ///
    /// As JSON. The exit code is 1 if a job does not end with the right result.
    Rung(RungFlags),
    /// Make one HTML page of what other commands have written
    ///
    /// With tables, a roofline and the timeline of a trace, for a browser or a printer.
    /// The page holds all that it needs.
    Report(HtmlReportFlags),
    /// Run a program that finds the software NPU as /dev/accel/accel0
    ///
    /// For programs that are linked dynamically and know nothing of this
    /// project. With --device and a node the program works on that device, which
    /// is of use with --record. Prints at the end, on standard error, what the program did with
    /// the NPU. The exit code is the program's; 128 and the signal's number if
    /// a signal ended it.
    Run(RunFlags),
    /// Disassemble a register program, or list the jobs of a capture
    ///
    /// With what each task asks for, and what is wrong with it.
    Decode(DecodeFlags),
    /// Make a register program from assembler text
    Asm(AsmFlags),
    /// Run one register program against given memory
    ///
    /// On a core of the software model's chip after power-up, kicked off as the
    /// kernel driver would: memory lies at exactly the given addresses, all
    /// else is a fault. Tells interrupts, traps, faults and modelled time; the
    /// files are written in any case, and the exit code is 4 if the program
    /// did not complete.
    Exec(ExecFlags),
    /// Run the jobs of a capture again and compare what comes out
    ///
    /// On the device that is chosen, each job from the state that it was
    /// recorded in. The exit code is 1 if anything comes out otherwise: the
    /// first byte that differs is shown, with its output element where the
    /// program tells.
    Replay(ReplayFlags),
    /// Tell what differs between two captures
    ///
    /// Device, jobs, command words by the names of their registers, contents.
    /// The exit code is 1 if anything differs.
    Diff(DiffFlags),
    /// Serve the software NPU until its last client is gone
    ///
    /// librocket_preload.so starts this by itself in a program that no
    /// `npu-probe run` has started. All programs of a user then share one
    /// device.
    Serve(ServeFlags),
    /// Write man pages and shell completions
    #[cfg(feature = "manual")]
    #[command(hide = true)]
    Manual {
        /// Directory of the files
        folder: PathBuf,
    },
}

/// Options of `info`.
#[derive(Debug, Args)]
pub(crate) struct InfoFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Options of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) model: ModelFlags,

    // Its field `report` is a file.
    #[command(flatten)]
    pub(crate) form: ReportFlags,

    #[command(flatten)]
    pub(crate) files: RunFiles,

    /// Record command words only: all other contents are left out
    #[arg(long, requires = "record")]
    pub(crate) zero_data: bool,

    /// Write the report into this file instead of to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// The library to load into the program
    ///
    /// Looked for where npu-probe is, and from there in ../lib and ../lib/npu-probe.
    #[arg(long, value_name = "PATH")]
    pub(crate) preload: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    #[command(flatten)]
    pub(crate) model: ModelFlags,

    /// Name of the server, as ROCKET_SERVER has it [default: the user's]
    #[arg(long, value_name = "NAME")]
    pub(crate) address: Option<String>,
}

/// What can be chosen about a device that is shown to programs.
#[derive(Debug, Args)]
pub(crate) struct ModelFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    /// Number of cores [default: 3]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) cores: Option<u32>,

    /// What happens when a program does what silicon punishes: `faithful`,
    /// `strict` or `silent` [default: faithful]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) strict: Option<String>,
}

/// Options of `decode`.
#[derive(Debug, Args)]
pub(crate) struct DecodeFlags {
    /// File with a program; `-` is standard input
    ///
    /// A capture file, or assembler text, or 64-bit words in hexadecimal between blanks or commas
    /// (in both, `#` and `;` begin comments), or words in binary, little
    /// endian. The name tells which (.asm .s, .hex .words, .bin), or else the
    /// content.
    pub(crate) file: PathBuf,

    /// Of a capture, print the programs of this job
    #[arg(long, value_name = "INDEX")]
    pub(crate) job: Option<usize>,

    #[command(flatten)]
    pub(crate) capture: CaptureFlags,

    /// Tell nothing but what is wrong with all programs
    ///
    /// The exit code is 1 if there are errors, not for warnings and notes.
    #[arg(long, conflicts_with_all = ["job", "statements"])]
    pub(crate) lint: bool,

    /// Print what the words mean without their numbers and bits: to be edited
    /// and given to `asm`
    #[arg(long)]
    pub(crate) statements: bool,

    #[command(flatten)]
    pub(crate) report: ReportFlags,
}

/// Options of `asm`.
#[derive(Debug, Args)]
pub(crate) struct AsmFlags {
    /// File with assembler text, as `decode` prints it; `-` is standard input
    ///
    /// Words in hexadecimal or binary are taken too, as by `decode`.
    pub(crate) file: PathBuf,

    /// Write the words here [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,

    /// Write text, one word in hexadecimal a line: the default
    #[arg(long)]
    hex: bool,

    /// Write binary, little endian
    #[arg(long, conflicts_with = "hex")]
    pub(crate) bin: bool,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn the_first_page_has_what_users_need() {
        let mut tool = Flags::with_short_help();
        let (first, all) = (tool.render_help(), tool.render_long_help());
        let (first, all) = (first.to_string(), all.to_string());
        assert!(first.lines().count() < 40, "{first}");
        let (_, experts) = all.split_once("Expert commands:\n").unwrap();
        for one in tool.get_subcommands() {
            let (name, about) = (one.get_name(), one.get_about().unwrap().to_string());
            let is_expert = EXPERT_COMMANDS.contains(&name);
            assert_eq!(first.contains(&about), !one.is_hide_set(), "{name}");
            assert_eq!(experts.contains(&about), is_expert, "{name}");
            assert!(
                name == "manual" || all.matches(&about).count() == 1,
                "{name}"
            );
        }
        for option in EXPERT_OPTIONS.map(|name| format!("--{name} ")) {
            assert!(
                !first.contains(&option) && all.contains(&option),
                "{option}"
            );
        }
    }

    #[test]
    fn alone_is_the_self_test() {
        let flags = parse("npu-probe").unwrap();
        assert!(flags.command.is_none());
        let test = flags.selftest;
        assert_eq!(test.shape.to_string(), "64x64x64");
        assert_eq!((test.dtype, test.seed), (OperandDtypes::Int8, 1));
        assert_eq!((test.repeat.get(), test.fds.get()), (1, 1));
    }

    #[test]
    fn options_go_where_they_belong() {
        let line = "npu-probe --dtype fp16 --shape 3x5x7 --seed 9 --repeat 2 --dump x --json";
        let test = parse(line).unwrap().selftest;
        assert_eq!(test.shape.to_string(), "3x5x7");
        assert_eq!((test.dtype, test.seed), (OperandDtypes::Fp16, 9));
        assert!(test.repeat.get() == 2 && test.report.json);
        let Some(Command::Run(run)) = parse("npu-probe run a --json").unwrap().command else {
            panic!("it is `run`");
        };
        assert!(!run.form.json && run.command == ["a", "--json"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "npu-probe --shape 0x1x1",
            "npu-probe --shape 64",
            "npu-probe --dtype int2",
            "npu-probe --repeat 0",
            "npu-probe --shape 5x5x5 info",
            "npu-probe --json info",
            "npu-probe --device model info",
            "npu-probe --dump x decode y",
            "npu-probe decode",
            "npu-probe frobnicate",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    /// Nothing is taken and then ignored.
    #[test]
    fn a_command_takes_no_flag_of_another() {
        let mut tool = Flags::command();
        tool.build();
        let flags = |command: &clap::Command| -> BTreeMap<String, bool> {
            let long = command.get_arguments().filter_map(|flag| {
                let takes_value = flag.get_action().takes_values();
                Some((flag.get_long()?.to_owned(), takes_value))
            });
            long.collect()
        };
        let mut all = flags(&tool);
        tool.get_subcommands()
            .for_each(|one| all.extend(flags(one)));
        assert!(all.contains_key("json") && all.contains_key("device"));
        for command in tool
            .get_subcommands()
            .filter(|one| one.get_name() != "help")
        {
            let own = flags(command);
            for (flag, takes_value) in all.iter().filter(|(flag, _)| !own.contains_key(*flag)) {
                let flag = format!("--{flag}");
                let mut words = vec!["npu-probe", command.get_name(), &flag];
                words.extend(takes_value.then_some("1"));
                let told = Flags::try_parse_from(&words).unwrap_err();
                assert_eq!(told.kind(), ErrorKind::UnknownArgument, "{words:?}: {told}");
                assert_eq!(told.exit_code(), 2);
            }
        }
    }
}
