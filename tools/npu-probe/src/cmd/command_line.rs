// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: parsed here, without touching the system.

use std::env;
use std::ffi::OsString;

use anyhow::anyhow;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::base::exit::Failure;
use crate::base::flags::{BenchFlags, DecodeFlags, SelfTestFlags};
use crate::base::output;
use crate::cmd;

/// Check, measure and use the NPU of an RK3588
///
/// Without a command, the self-test runs: on the NPU, or on a software model of it where
/// there is none.
#[derive(Debug, Parser)]
#[command(
    name = "npu-probe",
    version,
    after_long_help = EXIT_CODES,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) selftest: SelfTestFlags,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  the result is right, or the command did its work
  1  the result differs: from the CPU's (self-test, bench), from every
     side's (calibrate), from the recorded one (replay); two captures differ
     (decode); a board does not work (first); a program has errors
     (decode --lint)
  2  the command line or an input file is wrong
  3  the device is missing or not usable (doctor: no NPU is usable)
  4  the device or its driver failed
  5  the output could not be written

RUST_LOG=trace logs what the libraries do.";

/// Width of help.
const COLUMNS: usize = 80;

/// The commands on the first page of help, grouped by user.
const GROUPS: [(&str, &str); 3] = [
    ("Everyone", "selftest doctor bench model report"),
    ("With a board", "first calibrate evidence explain"),
    ("Programs", "run decode asm replay"),
];

/// Commands of earlier versions, and what replaces them; for one release.
const GONE: [(&str, &str); 4] = [
    (
        "exec",
        "`npu-probe replay CAPTURE --job N --program FILE` runs a changed program with the memory \
         of a recorded job",
    ),
    (
        "info",
        "`npu-probe doctor` shows the usable device, `npu-probe` the device that it uses and why, \
         `npu-probe bench --plan` the profile",
    ),
    ("expert", "`npu-probe --help` lists all commands"),
    (
        "serve",
        "`npu-probe run` serves the software NPU to a program and to all that it starts, such as \
         a shell",
    ),
];

/// Commands of earlier versions, and the arguments that do the same today; for one release.
const RENAMED: [(&str, &[&str]); 4] = [
    ("soak", &["selftest", "--seconds=10"]),
    ("rung", &["first", "--rung"]),
    ("diff", &["decode"]),
    ("plan", &["bench", "--plan"]),
];

/// The command line with today's name of the command; fails for a command that is gone.
fn todays(mut arguments: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let name = arguments.get(1).and_then(|name| name.to_str());
    if let Some((_, today)) = RENAMED.iter().find(|(old, _)| name == Some(old)) {
        arguments.splice(1..2, today.iter().map(OsString::from));
        return Ok(arguments);
    }
    match GONE.iter().find(|(gone, _)| name == Some(gone)) {
        Some((gone, successor)) => Err(Failure::Usage(anyhow!(
            "the command `{gone}` is gone: {successor}"
        ))),
        None => Ok(arguments),
    }
}

impl Flags {
    /// Reads the command line. Returns `None` after help and version. Ends this process if the line
    /// is wrong (2).
    pub(crate) fn read() -> Result<Option<Self>, Failure> {
        let arguments = todays(env::args_os().collect())?;
        let parsed = Self::with_page().try_get_matches_from(arguments);
        match parsed.and_then(|matches| Self::from_arg_matches(&matches)) {
            Ok(flags) => Ok(Some(flags)),
            // clap itself would not tell that the output is lost.
            Err(page) if page.exit_code() == 0 => output::print(&page.to_string()).map(|()| None),
            Err(error) => error.exit(),
        }
    }

    /// The definition of the command line, with the page of commands.
    fn with_page() -> clap::Command {
        // The text of each option is on its man page and `npu-probe help COMMAND`.
        let help = Arg::new("help").short('h').long("help").global(true);
        let help = help.action(ArgAction::HelpShort).help("Print help");
        let tool = Self::command().term_width(COLUMNS);
        let tool = tool.disable_help_flag(true).arg(help);
        let about = tool.get_about().map(ToString::to_string);
        let mut page = format!(
            "{}\n\nUsage: npu-probe [COMMAND] [OPTIONS]\n",
            about.unwrap_or_default()
        );
        for (title, names) in GROUPS {
            page += &format!("\n{title}:\n{}", list(&tool, names));
        }
        page += "\nWithout a command the self-test runs: on the NPU, or on a software model of it\n\
                 where there is none. `npu-probe COMMAND --help` shows options and examples,\n\
                 `npu-probe help COMMAND` explains them; `--version` prints the version.\n\n\
                 Exit codes: 0 right or done, 1 a result differs, 2 wrong command line or\n\
                 input, 3 no usable device, 4 the device failed, 5 output not written\n";
        tool.override_help(page)
    }
}

/// One line per command: its name and what it does.
fn list(tool: &clap::Command, names: &str) -> String {
    let line = |name: &str| {
        let command = tool.find_subcommand(name)?;
        Some(format!("  {name:9}  {}\n", command.get_about()?))
    };
    names.split(' ').filter_map(line).collect()
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Multiply two matrices on the NPU, and compare with the CPU
    ///
    /// Random integers or floats, through the same code as all other matmuls. Every
    /// element of the result is compared. With --seconds, several processes multiply
    /// matrices of all sizes and precisions.
    #[command(after_help = "Examples:
  npu-probe selftest --dtype fp16 --shape 100x999x7
  npu-probe selftest --device /dev/accel/accel0 --repeat 100
  npu-probe selftest --seconds 60 --processes 4     stress the NPU
  npu-probe selftest --dump failing                 keep jobs and report
`npu-probe help selftest` explains the options, and shows more.")]
    Selftest(SelfTestFlags),
    /// Check whether this machine can use its NPU, and say how to fix it
    ///
    /// Checks the kernel, the device tree, the drivers, the device node and the user's
    /// rights, clocks and interrupts, memory, known bugs of the driver, and software that
    /// uses the NPU. Opens no device and changes nothing. Root sees more. The exit code is 3
    /// if no NPU is usable.
    #[command(after_help = "Example: npu-probe doctor")]
    Doctor(cmd::doctor::DoctorFlags),
    /// Measure this board, and save its profile
    ///
    /// Measures the clock, start costs, memory and the CPU's kernels, finds the tiles
    /// that give right results, and decides contested facts: where sources contradict
    /// each other, an experiment runs on the device and on a model of each side. Takes
    /// about a minute on a board (estimated). The exit code is 1 if the device matches no
    /// side of a fact. Run `first` or the self-test before. Engines, llama.cpp and
    /// `bench` read the profile (docs/profile.md). On the software model times are
    /// modelled, and no NPU uses the profile.
    #[command(after_help = "Example: npu-probe calibrate --json > board.json")]
    Calibrate(cmd::calibrate::CalibrateFlags),
    /// Measure or predict the speed of matmuls
    ///
    /// Wall time, CPU time, SUBMITs and bytes of a matmul, its modelled time, and the
    /// lower bound from multiplications or memory alone. Two rows of each result are
    /// checked first. The CPU computes no jobs of the NPU, unlike in programs, for which
    /// --plan predicts. On the software model wall times say nothing about an NPU.
    #[command(after_help = "Examples:
  npu-probe bench 512x2048x8192
  npu-probe bench --plan 512x2048x8192              runs nothing
`npu-probe help bench` explains the options, and shows more.")]
    Bench(BenchFlags),
    /// Predict memory use and prompt speed of a GGUF model
    ///
    /// Reads the head of the file. Shows which weights llama.cpp's backend would put on the
    /// NPU, in which precision and for which minimum number of rows, whether they fit, and
    /// the speed of prompts and of parallel sequences, beside the CPU alone. Runs nothing:
    /// times are modelled, with the profile of the board.
    #[command(after_help = "Example: npu-probe model model-q8_0.gguf")]
    Model(cmd::model::GgufFlags),
    /// Check a new board with small experiments, and name what fails
    ///
    /// For the first minutes with a board. The best proven experiments run first; each
    /// later one adds one thing to one that passed. Each runs in a separate process on
    /// every core, and leaves a record. Prints what works and what does not, writes a
    /// profile that avoids what failed, and collects the records in one archive to send;
    /// `explain` judges it on any machine. The same command continues an interrupted run,
    /// also after a crash. The exit code is 1 if the board does not work.
    #[command(after_help = "Example: npu-probe first")]
    First {
        #[command(flatten)]
        first: cmd::evidence::FirstFlags,
        #[command(flatten)]
        rung: cmd::evidence::RungFlags,
    },
    /// Print the verdict on an archive of `first` or `evidence`
    #[command(after_help = "Example: npu-probe explain ARCHIVE.tar.gz")]
    Explain(cmd::explain::ExplainFlags),
    /// Run all checks and collect the results in one archive
    ///
    /// Runs `first`, then `calibrate`, `bench`, llama.cpp if a model is given, and the
    /// driver suite, and adds a page of the results. Runs nothing that is known to damage a
    /// kernel, and leaves everything private out of the archive. A step that takes too long
    /// is killed. The same command continues an interrupted run; it does not repeat a step
    /// that failed or took the machine down, unless --retry is given.
    #[command(after_help = "Example: npu-probe evidence --model model-q8_0.gguf")]
    Evidence(cmd::evidence::EvidenceFlags),
    /// Render results of other commands as one HTML page
    ///
    /// With tables, a roofline and the timeline of a trace, for a browser or a printer.
    /// The page needs no other file.
    #[command(after_help = "Example: npu-probe report doctor.json bench.json -o report.html")]
    Report(cmd::report::HtmlReportFlags),
    /// Run a program on the software NPU, and record its jobs if wanted
    ///
    /// The program finds the software NPU as /dev/accel/accel0. It must be linked
    /// dynamically; it needs no changes. With --device and a path it uses that device,
    /// for example to record its jobs. At the end the program's use of the NPU is printed
    /// on standard error. The exit code is the program's; 128 plus the signal's number if
    /// a signal ended it.
    #[command(after_help = "Examples:
  npu-probe run -- ./a.out
  npu-probe run --record it.rkcap -- ./a.out")]
    Run(cmd::run::RunFlags),
    /// Disassemble a program, list the jobs of a capture, or compare two
    ///
    /// Shows what each task computes, and its lint findings.
    #[command(after_help = "Examples:
  npu-probe decode --job 0 failing/jobs.rkcap
  npu-probe decode board.rkcap model.rkcap")]
    Decode(DecodeFlags),
    /// Assemble a register program
    #[command(after_help = "Example: npu-probe asm changed.s -o changed.hex")]
    Asm(cmd::asm::AsmFlags),
    /// Replay the jobs of a capture, and compare the results
    ///
    /// On the chosen device, each job from the state that it was recorded in. The exit code
    /// is 1 if a result differs: the first byte that differs is shown, with its output
    /// element where the program names it.
    #[command(after_help = "Example: npu-probe replay failing/jobs.rkcap --device model")]
    Replay(cmd::replay::ReplayFlags),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn each_command_is_on_a_page_that_fits_a_screen() {
        let mut tool = Flags::with_page();
        let page = tool.render_long_help().to_string();
        assert!(page.lines().count() < 32, "{page}");
        assert!(page.lines().all(|line| line.len() <= COLUMNS), "{page}");
        let shown = |one: &&clap::Command| !one.is_hide_set() && one.get_name() != "help";
        for one in tool.get_subcommands().filter(shown) {
            let line = format!("  {:9}  {}\n", one.get_name(), one.get_about().unwrap());
            assert!(page.contains(&line), "{line}");
        }
    }

    #[test]
    fn help_of_each_command_is_one_screen() {
        for name in GROUPS.iter().flat_map(|(_, names)| names.split(' ')) {
            let words = ["npu-probe", name, "--help"];
            let page = Flags::with_page().try_get_matches_from(words).unwrap_err();
            let page = page.to_string();
            assert!(page.lines().count() <= 32, "{page}");
            assert!(page.lines().all(|line| line.len() <= COLUMNS), "{page}");
        }
    }

    #[test]
    fn the_self_test_has_a_name_and_needs_none() {
        let alone = parse("npu-probe --seed 7").unwrap();
        let Some(Command::Selftest(named)) = parse("npu-probe selftest --seed 7").unwrap().command
        else {
            panic!("another command");
        };
        assert_eq!(format!("{:?}", alone.selftest), format!("{named:?}"));
    }

    #[test]
    fn earlier_names_of_commands_are_accepted() {
        let parsed = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            format!(
                "{:?}",
                Flags::try_parse_from(todays(words).unwrap()).unwrap()
            )
        };
        assert_eq!(
            parsed("npu-probe soak --seconds 7 --kill"),
            parsed("npu-probe selftest --seconds 7 --kill")
        );
    }

    #[test]
    fn options_of_a_program_are_its_own() {
        let Some(Command::Run(run)) = parse("npu-probe run a --json").unwrap().command else {
            panic!("it is `run`");
        };
        assert!(!run.form.json && run.command == ["a", "--json"]);
    }
}
