// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of an experiment: all that is needed to judge it again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::Context;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use rknpu_chip::Contested;
use rknpu_regcmd::Word;
use rocket_uapi::Device;
use serde::{Deserialize, Serialize};

use super::runner::{self, CoreRounds, ExperimentLog};
use super::{Experiment, SeenJob};
use crate::doctor::{open_without_waiting, read_records};
use crate::matmul::data::hex;

/// Up to this many bytes of operands are kept. A program of the same version generates
/// larger ones again.
const OPERANDS_KEPT: usize = 1 << 18;
/// Most bytes of any item of a record, so that a malicious file cannot exhaust memory.
const BYTES_MAX: u64 = 64 << 20;
/// The kernel log; each read returns one record.
const LOG: &str = "/dev/kmsg";
const LINES_MAX: usize = 200;
/// Words that occur in messages about the NPU, its memory, its power and its driver.
const ABOUT: [&str; 7] = [
    ".npu",
    "rocket",
    "iommu",
    "regulator",
    "power-domain",
    "pm_domain",
    "drm",
];

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExperimentRecord {
    /// The experiment's name.
    pub(crate) rung: String,
    /// Version of this program, which made programs and operands.
    pub(crate) version: String,
    pub(crate) cores: u32,
    /// Whether all jobs ended with the model's results.
    pub(crate) right: bool,
    pub(crate) error: Option<String>,
    pub(crate) jobs: Vec<RecordedJob>,
    /// Files, counted from 0, whose core does not work; their jobs are not judged.
    #[serde(default)]
    pub(crate) dead_files: Vec<u32>,
    /// Wrong outputs with their guards, each once.
    outputs: Vec<PackedBytes>,
    /// Words of the tasks of the last job, in hexadecimal.
    programs: Vec<Vec<String>>,
    operands: Vec<PackedBytes>,
    /// Kernel messages about the NPU during the run, or why they are unknown.
    pub(crate) kernel_log: Result<Vec<String>, String>,
    /// Why the jobs' interrupts are unknown.
    #[serde(default)]
    no_interrupts: Option<String>,
    /// Jobs that were repeated with the same results as the recorded ones.
    #[serde(default)]
    pub(crate) repeated: u64,
    /// Jobs that never started, and were submitted again.
    #[serde(default)]
    pub(crate) not_started: u64,
    /// Results of changing single registers, if that was done.
    #[serde(default)]
    pub(crate) flips: Vec<FlipRecord>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecordedJob {
    /// Whether it ended by itself.
    pub(crate) completed: bool,
    /// Time from SUBMIT until its output was read, microseconds.
    micros: u64,
    /// Index of its output; none if the output is right.
    pub(crate) output: Option<usize>,
    /// The NPU's interrupt lines, one per core, that were raised while it ran.
    #[serde(default)]
    pub(crate) raised: Vec<String>,
}

/// A run of a program with one register changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FlipRecord {
    /// The register, and both values.
    pub(crate) register: String,
    /// Whether its jobs still end with the right results.
    pub(crate) right: bool,
}

/// Bytes, compressed, as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PackedBytes {
    bytes: usize,
    /// Compressed bytes in hexadecimal; empty for operands that can be generated again.
    deflated: String,
}

impl PackedBytes {
    fn of(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
        packer.write_all(bytes)?;
        let packed = packer.finish()?;
        Ok(Self {
            bytes: bytes.len(),
            deflated: hex(&packed),
        })
    }

    fn unpacked(&self) -> anyhow::Result<Vec<u8>> {
        let digits = self.deflated.as_bytes().chunks(2);
        let byte = |digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        let packed: Option<Vec<u8>> = digits.map(byte).collect();
        let packed = packed.context("digits")?;
        let mut bytes = Vec::new();
        let limit = BYTES_MAX.min(self.bytes as u64);
        ZlibDecoder::new(&packed[..])
            .take(limit)
            .read_to_end(&mut bytes)?;
        anyhow::ensure!(bytes.len() == self.bytes, "an output is cut short");
        Ok(bytes)
    }
}

impl ExperimentRecord {
    /// Runs an experiment on a device; returns the outcomes of its jobs, with which
    /// [`ExperimentRecord::keep`] must complete the record.
    pub(crate) fn start(
        name: &str,
        experiment: &Experiment,
        device: &Device,
        rounds: CoreRounds,
    ) -> anyhow::Result<(Self, anyhow::Result<Vec<SeenJob>>)> {
        let info = device.info();
        let mut record = Self::of(name, info.cores, experiment)?;
        let kernel_log = kernel_log(info.is_model);
        let mut log = ExperimentLog {
            no_interrupts: info
                .is_model
                .then(|| "a software model interrupts no processor".to_owned()),
            ..ExperimentLog::default()
        };
        let seen = runner::run_on_cores(device, experiment, rounds, &mut log);
        record.no_interrupts = log.no_interrupts;
        (record.repeated, record.not_started) = (log.repeated, log.not_started);
        record.kernel_log = kernel_log.and_then(about_the_npu);
        let words =
            |words: &Vec<Word>| words.iter().map(|w| format!("{:016x}", w.bits())).collect();
        record.programs = log.programs.iter().map(words).collect();
        let (mut times, mut raised) = (log.times.into_iter(), log.raised.into_iter());
        let jobs = seen.iter().flatten().map(|job| RecordedJob {
            completed: job.completed,
            micros: u64::try_from(times.next().unwrap_or_default().as_micros()).unwrap_or(u64::MAX),
            output: None,
            raised: raised.next().unwrap_or_default(),
        });
        record.jobs = jobs.collect();
        Ok((record, seen))
    }

    /// Stores the jobs' outputs that differ from `right`. If `right` has fewer jobs, they
    /// repeat.
    pub(crate) fn keep(&mut self, seen: &[SeenJob], right: &[SeenJob]) -> anyhow::Result<()> {
        let mut outputs: Vec<&[u8]> = Vec::new();
        for (index, (job, seen)) in self.jobs.iter_mut().zip(seen).enumerate() {
            let file = index as u32 % self.cores.max(1);
            let is_right = Some(seen) == right.get(index % right.len().max(1));
            if is_right || self.dead_files.contains(&file) {
                continue;
            }
            let known = outputs.iter().position(|one| **one == seen.output);
            job.output = known.or(Some(outputs.len()));
            if known.is_none() {
                outputs.push(&seen.output);
            }
        }
        let outputs = outputs.into_iter().map(PackedBytes::of);
        self.outputs = outputs.collect::<Result<_, _>>()?;
        self.right = self.jobs.iter().all(|job| job.output.is_none());
        Ok(())
    }

    /// The record of an experiment that has not run yet.
    pub(crate) fn of(rung: &str, cores: u32, experiment: &Experiment) -> anyhow::Result<Self> {
        let kept: usize = experiment.inputs.iter().map(Vec::len).sum();
        let operand = |bytes: &Vec<u8>| {
            if kept <= OPERANDS_KEPT {
                PackedBytes::of(bytes)
            } else {
                Ok(PackedBytes {
                    bytes: bytes.len(),
                    deflated: String::new(),
                })
            }
        };
        let operands = experiment.inputs.iter().map(operand);
        Ok(Self {
            rung: rung.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cores,
            right: false,
            error: None,
            jobs: Vec::new(),
            dead_files: Vec::new(),
            outputs: Vec::new(),
            programs: Vec::new(),
            operands: operands.collect::<Result<_, _>>()?,
            kernel_log: Ok(Vec::new()),
            no_interrupts: None,
            repeated: 0,
            not_started: 0,
            flips: Vec::new(),
        })
    }

    /// The files whose jobs are all wrong, if those of all other files are right.
    pub(crate) fn wrong_files(&self) -> BTreeSet<u32> {
        let places = |are_wrong: bool| {
            let jobs = (0..).zip(&self.jobs);
            let jobs = jobs.filter(move |(_, job)| job.output.is_some() == are_wrong);
            jobs.map(|(index, _): (u32, _)| index % self.cores.max(1))
        };
        let (wrong, right) = (places(true).collect::<BTreeSet<_>>(), places(false));
        let mut right = right
            .filter(|file| !self.dead_files.contains(file))
            .peekable();
        if right.peek().is_none() || right.any(|file| wrong.contains(&file)) {
            return BTreeSet::new();
        }
        wrong
    }

    pub(crate) fn first_wrong(&self) -> anyhow::Result<Option<SeenJob>> {
        let wrong = self.jobs.iter().find_map(|job| Some((job, job.output?)));
        let Some((job, index)) = wrong else {
            return Ok(None);
        };
        let output = self.outputs.get(index).context("an output is missing")?;
        Ok(Some(SeenJob {
            completed: job.completed,
            output: output.unpacked()?,
        }))
    }

    /// Whether its operands equal those that this program generates for the experiment.
    pub(crate) fn is_of(&self, experiment: &Experiment) -> bool {
        let lengths = experiment.inputs.iter().map(Vec::len);
        let same_inputs = self.operands.iter().map(|one| one.bytes).eq(lengths);
        let kept = |(one, own): (&PackedBytes, &Vec<u8>)| {
            one.deflated.is_empty() || one.unpacked().is_ok_and(|bytes| bytes == *own)
        };
        same_inputs && self.operands.iter().zip(&experiment.inputs).all(kept)
    }
}

/// The model's outcome of one job of a rung, whose jobs are all equal.
pub(crate) fn expected(experiment: &Experiment) -> anyhow::Result<Option<SeenJob>> {
    on_model(experiment, Contested::default())
}

/// The model's outcome of one job, on these sides of contested facts.
pub(crate) fn on_model(
    experiment: &Experiment,
    contested: Contested,
) -> anyhow::Result<Option<SeenJob>> {
    let mut one = experiment.clone();
    one.jobs.truncate(one.unobserved + 1);
    let seen = runner::run_on_model(&one, contested)?;
    Ok(seen.into_iter().next())
}

/// The kernel log from now on; a model has none.
fn kernel_log(is_model: bool) -> Result<File, String> {
    if is_model {
        return Err("a software model has no kernel".to_owned());
    }
    let at_end = open_without_waiting(Path::new(LOG)).and_then(|mut file| {
        file.seek(SeekFrom::End(0))?;
        Ok(file)
    });
    at_end.map_err(|error| format!("{LOG}: {error} (root may read it)"))
}

/// The remaining lines of a log that are about the NPU.
fn about_the_npu(mut log: File) -> Result<Vec<String>, String> {
    let records = read_records(&mut log).map_err(|error| format!("{LOG}: {error}"))?;
    // Properties follow a record's first line; their lines begin with a blank.
    let firsts = records.lines().filter(|line| !line.starts_with(' '));
    let messages = firsts.filter_map(|line| Some(line.split_once(';')?.1));
    let about = |message: &&str| ABOUT.iter().any(|word| message.contains(word));
    let lines = messages.filter(about).take(LINES_MAX);
    Ok(lines.map(str::to_owned).collect())
}
