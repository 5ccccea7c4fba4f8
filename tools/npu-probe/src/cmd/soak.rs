// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe selftest --seconds`: many processes multiply for some time, and some are killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::base::end_signals::EndSignals;
use crate::base::exit::{Failure, Verdict};
use crate::base::flags::SelfTestFlags;
use crate::base::output;
use crate::base::progress::ProgressLine;
use crate::base::table::joined;
use crate::matmul::data::SplitMix64;
use crate::matmul::expected::ResultComparison;
use crate::matmul::report::{DeviceReport, FailedJobs};
use crate::matmul::soak::SoakMatmul;

/// Most matmuls of a process that is not killed on purpose.
const CASES: u64 = 8;

/// Most matmuls before a process is killed.
const MATMULS: u64 = 24;

/// Longest delay after the last matmul of a killed process, microseconds: about one matmul
/// in a virtual machine.
const MAX_KILL_DELAY_US: u64 = 20_000;

/// Stresses the device for `seconds`.
pub(super) fn run(args: &SelfTestFlags, seconds: u64) -> Result<Verdict, Failure> {
    let flags = &args.soak;
    // Before any thread starts.
    let signals = EndSignals::block()?;
    let opened = super::open(&args.device)?;
    let device = DeviceReport::new(opened.device.info(), opened.why);
    drop((opened.device, opened.model));
    args.report.say(&device.text())?;
    let soak = Soak {
        args,
        program: super::own_path()?,
        device: args.device.selector().to_string(),
        end: Instant::now() + Duration::from_secs(seconds),
        failed: AtomicBool::new(false),
        signals,
        interrupted: AtomicBool::new(false),
        tally: Mutex::default(),
        progress: ProgressLine::of(seconds, "seconds of the soak"),
        start: Instant::now(),
    };
    let ended = soak.all();
    let tally = soak.tally.into_inner();
    let tally = tally.unwrap_or_else(PoisonError::into_inner);
    drop(soak.progress);
    let interrupted = soak.interrupted.into_inner();
    let verdict = tally.verdict();
    let lost = tally.lost;
    let is_too_slow = lost > 0 && !(flags.allow_timeouts && tally.words > 0);
    let is_right = verdict == Verdict::Pass && ended.is_ok() && !is_too_slow;
    let report = Report {
        result: Verdict::of(is_right),
        device,
        seconds,
        interrupted,
        processes: flags.processes.get(),
        tally,
    };
    args.report.print(&report, || report.text())?;
    ended?;
    if verdict == Verdict::Pass && is_too_slow {
        return Err(Failure::Device(anyhow!(
            "the driver killed jobs of {lost} matmuls after 500 ms"
        )));
    }
    Ok(verdict)
}

/// Multiplies random matrices, and prints a line for each matmul.
pub(super) fn client(args: &SelfTestFlags, cases: u64) -> Result<Verdict, Failure> {
    let opened = super::open(&args.device)?;
    let mut random = SplitMix64::new(args.seed);
    for _ in 0..cases {
        let case = SoakMatmul::random(&mut random);
        case.run(&opened.device, |compared, failed| {
            if compared.different > 0 {
                output::complain(&format!("{case}: {} words wrong", compared.different));
            }
            let line = serde_json::to_string(&(case.kind.to_string(), compared, failed));
            let line = line.map_err(Failure::output("cannot write a matmul as JSON"))?;
            output::print(&(line + "\n"))
        })?;
    }
    Ok(Verdict::Pass)
}

/// State that all threads share. Each thread runs one process at a time.
struct Soak<'a> {
    args: &'a SelfTestFlags,
    program: PathBuf,
    device: String,
    end: Instant,
    failed: AtomicBool,
    signals: EndSignals,
    /// Whether the user wants it to end early.
    interrupted: AtomicBool,
    tally: Mutex<Tally>,
    progress: ProgressLine,
    start: Instant,
}

impl Soak<'_> {
    /// Keeps processes running until the time is over. Fails if one of them fails.
    fn all(&self) -> Result<(), Failure> {
        thread::scope(|scope| {
            let one = |place| {
                let work = move || {
                    let mut random = SplitMix64::new(self.args.seed.wrapping_add(place));
                    let mut ended = self.client(&mut random);
                    while ended.is_ok() && !self.is_over() {
                        ended = self.client(&mut random);
                    }
                    self.failed.fetch_or(ended.is_err(), Ordering::Relaxed);
                    ended.map_err(Failure::Device)
                };
                let started = thread::Builder::new().spawn_scoped(scope, work);
                // The other threads stop early.
                self.failed.fetch_or(started.is_err(), Ordering::Relaxed);
                started
            };
            let threads: Vec<_> = (0..self.args.soak.processes.get()).map(one).collect();
            let results = threads.into_iter().map(|started| match started {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|_| Err(Failure::Device(anyhow!("a thread panicked")))),
                Err(error) => Err(Failure::no_thread(error)),
            });
            // Returns the first error, after all threads have ended.
            results.fold(Ok(()), Result::and)
        })
    }

    fn is_over(&self) -> bool {
        if self.signals.arrived() {
            self.interrupted.store(true, Ordering::Relaxed);
        }
        let ends = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        Instant::now() >= self.end || ends(&self.failed) || ends(&self.interrupted)
    }

    fn count(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs one process from its start to its end.
    fn client(&self, random: &mut SplitMix64) -> anyhow::Result<()> {
        let cases = 1 + random.below(CASES);
        let last = 1 + random.below(MATMULS);
        let moment = Duration::from_micros(random.below(MAX_KILL_DELAY_US));
        let doomed = self.args.soak.kill && random.below(2) == 0;
        let mut command = Command::new(&self.program);
        command.args(["selftest", "--device", &self.device]);
        command.args(["--seed", &random.below(u64::MAX).to_string(), "--client"]);
        command.args((!doomed).then(|| cases.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // The terminal's signals are for this process, which ends after the running ones.
        command.process_group(0);
        let mut child = command.spawn().context("cannot start a process")?;
        self.count(|tally| tally.clients += 1);
        let mut matmuls = 0;
        let output = child.stdout.take().context("the process has no output")?;
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot read the output of a process")?;
            let checked = serde_json::from_str(&line);
            let (kind, compared, failed) =
                checked.with_context(|| format!("a process printed {line:?}"))?;
            self.count(|tally| tally.add(kind, &compared, failed));
            matmuls += 1;
            self.progress.reached(self.start.elapsed().as_secs());
            if doomed && matmuls == last {
                thread::sleep(moment);
                child.kill().context("cannot kill a process")?;
                self.count(|tally| tally.killed += 1);
            }
        }
        let status = child.wait().context("cannot wait for a process")?;
        let as_meant = if doomed && matmuls >= last {
            status.signal() == Some(Signal::SIGKILL as i32)
        } else {
            status.success()
        };
        if as_meant {
            Ok(())
        } else {
            Err(anyhow!("a process ended with {status}"))
        }
    }
}

/// Counts over all processes of a soak.
#[derive(Debug, Default, Serialize)]
struct Tally {
    clients: u64,
    /// Processes that were killed on purpose.
    killed: u64,
    /// Computed matmuls, by the type of their operands.
    #[serde(rename = "products")]
    matmuls: BTreeMap<String, u64>,
    words: usize,
    wrong: usize,
    /// Matmuls that lost a job, because the driver killed it twice.
    lost: u64,
    failed_jobs: FailedJobs,
}

impl Tally {
    fn add(&mut self, kind: String, compared: &ResultComparison, failed: FailedJobs) {
        self.failed_jobs.add(failed);
        match compared.elements {
            0 => self.lost += 1,
            _ => *self.matmuls.entry(kind).or_default() += 1,
        }
        self.words += compared.elements;
        self.wrong += compared.different;
    }

    fn verdict(&self) -> Verdict {
        Verdict::of(self.wrong == 0)
    }
}

#[derive(Debug, Serialize)]
struct Report {
    result: Verdict,
    device: DeviceReport,
    seconds: u64,
    /// Whether a signal ended it before its time.
    interrupted: bool,
    processes: u64,
    #[serde(flatten)]
    tally: Tally,
}

impl Report {
    fn text(&self) -> String {
        let tally = &self.tally;
        let matmuls: u64 = tally.matmuls.values().sum();
        let words = self.result.words(self.device.is_model);
        let kinds = tally.matmuls.iter();
        let kinds = joined(kinds.map(|(kind, number)| format!("{number} {kind}")), ", ");
        let early = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        format!(
            "RESULT {words}{early}: {matmuls} matmuls ({kinds}) by {} processes, {} at a time, {} of them \
             killed: {} of {} words wrong, {} matmuls lost to the driver's time limit, {}\n",
            tally.clients,
            self.processes,
            tally.killed,
            tally.wrong,
            tally.words,
            tally.lost,
            tally.failed_jobs.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_word_is_a_mismatch() {
        let mut all = Tally::default();
        for (kind, elements, different, verdict) in [
            ("int8", 64, 0, Verdict::Pass),
            ("fp16", 7, 0, Verdict::Pass),
            ("int8", 9, 1, Verdict::Mismatch),
            ("int4", 0, 0, Verdict::Mismatch),
            ("int4", 9, 0, Verdict::Mismatch),
        ] {
            let compared = ResultComparison {
                elements,
                different,
                ..ResultComparison::default()
            };
            let failed = FailedJobs {
                run_again: 1,
                lost_ms: 500.0,
            };
            all.add(kind.to_owned(), &compared, failed);
            assert_eq!(all.verdict(), verdict, "{kind} {elements}");
        }
        assert_eq!((all.words, all.wrong, all.lost), (89, 1, 1));
        let text = all.failed_jobs.text();
        assert_eq!(text, "5 jobs run again, 2500 ms lost in failed jobs");
        assert_eq!((all.matmuls["int8"], all.matmuls["int4"]), (2, 1));
    }
}
