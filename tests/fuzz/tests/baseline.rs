// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares digests of the results of twenty thousand programs, and of the
//! captures in the tree, with recorded ones. Moving code changes none.
//!
//! `tests/baseline.txt` has a line for each program of a known family, with the
//! results of it and of its mutations, so that a difference points to a kind of
//! program and to the code that reads it. `BLESS=1` writes the file.
//! (Generated pages have the modelled times of matmuls;
//! `cargo xtask docs --check` checks those.)

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]
// Miri has no file access, and takes hours.
#![cfg(not(miri))]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use arbitrary::Unstructured;
use fastrand::Rng;
use npu_capture::{Capture, ReplayOptions, replay};
use npu_model::{Model, ModelOptions};
use rayon::prelude::*;
use rknpu_chip::{Contested, Level};
use rknpu_regcmd::timing::{Machine, TaskWork};
use rknpu_regcmd::{
    Before, Direction, DmaEngine, LintContext, TaskRegisters, Word, extents, lint, lookup, tasks,
    written_element,
};
use twox_hash::xxhash3_128::Hasher;

use families::{A, B, C, D, Sample};
use fuzz_targets::board::{FuzzBoard, ObjectMemory};
use fuzz_targets::words;

/// Programs in total.
const PROGRAMS: usize = 20_000;
/// Programs that run one after another on a core, the first unchanged: later
/// ones find its registers and the contents of CBUF.
const IN_A_ROW: usize = 5;
const OBJECT_BYTES: usize = 128 << 10;
const PROGRAM: u32 = 0xf000_0000;
/// Most changed fields of a program.
const FIELDS_MAX: usize = 3;
/// Bytes of choices for other changes.
const CHOICES: usize = 256;
/// Places in an output whose elements are looked up.
const PLACES: u64 = 8;

/// The file, and the variable that makes this test write it.
const FILE: &str = "tests/baseline.txt";
const BLESS: &str = "BLESS";

/// Kinds of digests of a program.
const KINDS: [&str; 8] = [
    "extents",
    "elements",
    "lint",
    "work",
    "outcome",
    "diagnoses",
    "accesses",
    "memory",
];

/// A digest of each kind, of the data in the order in which it was added.
#[derive(Default)]
struct Digests([u64; KINDS.len()]);

impl Digests {
    fn add(&mut self, kind: &str, data: impl AsRef<[u8]>) {
        let index = KINDS.iter().position(|&known| known == kind).unwrap();
        self.0[index] = Hasher::oneshot_with_seed(self.0[index], data.as_ref()) as u64;
    }

    /// A line of the file.
    fn line(&self, name: &str) -> String {
        let mut line = String::from("programs");
        for (kind, digest) in KINDS.iter().zip(&self.0) {
            write!(line, " {kind}={:08x}", *digest as u32).unwrap();
        }
        line + "  " + name
    }
}

/// Adds what the words show without running.
fn read(digests: &mut Digests, words: &[Word]) {
    for before in [Before::Unknown, Before::Reset] {
        let context = LintContext {
            before,
            continues_job: false,
            address: None,
        };
        for finding in lint(words, &context) {
            digests.add("lint", finding.to_string());
        }
    }
    for TaskRegisters { regs, enable, .. } in tasks(words) {
        match extents(&regs, enable) {
            Ok(extents) => {
                for extent in extents {
                    digests.add("extents", extent.to_string());
                    if extent.engine.direction() == Direction::Read {
                        continue;
                    }
                    let step = (extent.end - extent.start) / PLACES + 1;
                    for place in 0..PLACES {
                        let iova = extent.start + place * step;
                        let found = written_element(&regs, enable, iova).map(|element| {
                            format!(
                                "{} {} {} {} {}",
                                element.x, element.y, element.channel, element.byte, element.ty
                            )
                        });
                        digests.add("elements", found.unwrap_or_default());
                    }
                }
            }
            Err(error) => digests.add("extents", error.to_string()),
        }
        match TaskWork::of(&regs, enable) {
            Ok(work) => {
                let bytes = DmaEngine::ALL.map(|engine| work.bytes.of(engine));
                let counts = [
                    work.feature_fill_bytes,
                    work.weight_fill_bytes,
                    work.drain_bytes,
                    work.mac_clocks,
                    work.macs,
                    work.decompress_clocks,
                    work.dpu_clocks,
                    work.ppu_clocks,
                    work.duration_ps(&Machine::RK3588),
                ];
                digests.add("work", format!("{bytes:?} {counts:?}"));
            }
            Err(error) => digests.add("work", error.to_string()),
        }
    }
}

/// Runs the words on `board` and adds the results.
fn run(digests: &mut Digests, board: &mut FuzzBoard, memory: &mut ObjectMemory, words: &[Word]) {
    let program = families::bytes(words);
    memory.place(PROGRAM, &program);
    let outcome = board.kick(memory, 0, PROGRAM, words.len(), 1);
    let (accesses, refused) = memory.take_accesses();
    digests.add(
        "outcome",
        format!(
            "{} {} {refused} {:?}",
            outcome.completed, outcome.dma_error, outcome.device_time
        ),
    );
    for found in &outcome.diagnosis {
        digests.add("diagnoses", format!("{:?} {found}", found.effect));
    }
    for ((master, write), touched) in accesses {
        let (start, end, bytes) = (touched.start, touched.end, touched.bytes);
        digests.add(
            "accesses",
            format!("{master} {write} {start} {end} {bytes}"),
        );
    }
    if !outcome.completed {
        board.reset();
    }
}

/// Other values in a few fields, or other words in a few places.
fn mutate(words: &mut Vec<Word>, rng: &mut Rng) {
    if rng.bool() {
        let mut choices = [0; CHOICES];
        rng.fill(&mut choices);
        words::change(words, &mut Unstructured::new(&choices)).unwrap();
        return;
    }
    for _ in 0..rng.usize(1..=FIELDS_MAX) {
        let index = rng.usize(..words.len());
        let word = words[index];
        let Some(info) = lookup(word.offset()) else {
            continue;
        };
        let field = &info.fields[rng.usize(..info.fields.len())];
        let most = u32::MAX >> (31 - (field.msb - field.lsb));
        let old = field.extract(word.value());
        let new = match rng.u32(..6) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => old.wrapping_mul(2),
            3 => old ^ 1 << rng.u32(..32),
            4 => rng.u32(..64),
            _ => 0,
        };
        let value = word.value() & !(most << field.lsb) | (new & most) << field.lsb;
        words[index] = Word::new(word.target(), word.offset(), value);
    }
}

/// The line of `count` programs made from a sample.
fn programs(sample: &Sample, count: usize) -> String {
    let mut digests = Digests::default();
    let places = [0, A, B, C, D, PROGRAM];
    for first in (0..count).step_by(IN_A_ROW) {
        let mut board = FuzzBoard::new(Level::Faithful, Contested::default());
        let mut memory = ObjectMemory::new(&places, OBJECT_BYTES, first as u8);
        for seed in first..count.min(first + IN_A_ROW) {
            let mut words = sample.words.clone();
            if seed > first {
                mutate(&mut words, &mut Rng::with_seed(seed as u64));
            }
            read(&mut digests, &words);
            run(&mut digests, &mut board, &mut memory, &words);
        }
        for object in memory.contents() {
            digests.add("memory", object);
        }
    }
    digests.line(&sample.name)
}

/// Finds every file below `folder` whose name ends with `ending`.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
}

/// A line for each capture in the tree.
fn captures() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for folder in ["crates", "sim", "tools", "tests", "xtask"] {
        files(&root.join(folder), ".rkcap", &mut found);
    }
    found.sort();
    assert!(!found.is_empty());
    let line = |path: &PathBuf| {
        let capture = Capture::open(path).unwrap();
        let device = Model::new(ModelOptions::default()).open_device();
        let report = replay(&capture, &device, &ReplayOptions::default());
        let digest = Hasher::oneshot(format!("{report:?}").as_bytes()) as u32;
        let name = path.strip_prefix(&root).unwrap().display();
        format!("capture replay={digest:08x}  {name}")
    };
    found.iter().map(line).collect()
}

/// Counts each line.
fn count<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line).or_default() += 1;
    }
    counts
}

#[test]
fn everything_is_as_recorded() {
    let known = families::all();
    let share = PROGRAMS.div_ceil(known.len());
    let mut lines: Vec<String> = known
        .par_iter()
        .map(|sample| programs(sample, share))
        .collect();
    lines.extend(captures());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os(BLESS).is_some_and(|value| value == "1") {
        let text = format!(
            "# SPDX-License-Identifier: MIT OR Apache-2.0\n\
             # Written with BLESS=1; tests/fuzz/tests/baseline.rs says what it is.\n\
             {}\n",
            lines.join("\n")
        );
        fs::write(file, text).unwrap();
        return;
    }
    let recorded = fs::read_to_string(&file).unwrap();
    let now = count(lines.iter().map(String::as_str));
    let before = count(recorded.lines().filter(|line| !line.starts_with('#')));
    let mut different = String::new();
    for (mark, these, others) in [('-', &before, &now), ('+', &now, &before)] {
        for (&line, &count) in these {
            if others.get(line).copied().unwrap_or(0) < count {
                writeln!(different, "{mark} {line}").unwrap();
            }
        }
    }
    assert!(
        different.is_empty(),
        "results differ from the recorded ones; if that is intended, run with BLESS=1 and \
         explain it in the commit\n{different}"
    );
}
