// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares two captures.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;

use rknpu_regcmd::{Iova, Item};

use crate::capture::{Capture, CapturedJob};
use crate::contents::{Contents, Moment};
use crate::error::CaptureError;
use crate::format::PAGE;

/// Bytes that are compared at a time.
const PIECE: u64 = 256 * PAGE;

/// Calls `each` with each difference of `first` and `second`, in order, as one line.
/// Jobs are compared by index, objects by their position in the lists of a job.
/// Different contents are reported when they were recorded, not again for later
/// jobs.
///
/// # Errors
/// When a capture can no longer be read.
pub fn diff(
    first: &Capture,
    second: &Capture,
    each: &mut dyn FnMut(fmt::Arguments<'_>),
) -> Result<(), CaptureError> {
    let facts = [first, second].map(capture_facts);
    compare("", &facts, each);
    let mut diff = Diff {
        sides: [first, second],
        contents: [Contents::new(first), Contents::new(second)],
        pairs: BTreeSet::new(),
        each,
    };
    for (index, jobs) in first.jobs().iter().zip(second.jobs()).enumerate() {
        diff.job(index, [jobs.0, jobs.1])?;
    }
    Ok(())
}

/// Names and values.
type Facts = Vec<(String, String)>;

fn capture_facts(capture: &Capture) -> Facts {
    let device = capture.device();
    let info = &device.info;
    let (major, minor, patch) = info.driver.version;
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    let named = [
        ("device", info.name.clone()),
        ("driver", text(&info.driver.name)),
        ("driver version", format!("{major}.{minor}.{patch}")),
        ("driver description", text(&info.driver.desc)),
        ("software model", info.is_model.to_string()),
        ("cores", info.cores.to_string()),
        ("chip", device.chip.clone()),
        ("recorder", device.recorder.clone()),
        ("without data", capture.zero_data().to_string()),
        ("jobs", capture.jobs().len().to_string()),
    ];
    let mut facts: Facts = named.map(|(name, value)| (name.to_owned(), value)).into();
    let profile = device.profile.iter();
    facts.extend(profile.map(|(name, value)| (format!("chip {name}"), value.to_string())));
    let notes = capture.notes().iter();
    facts.extend(notes.map(|(name, value)| (format!("note {name}"), value.clone())));
    facts
}

fn job_facts(capture: &Capture, job: &CapturedJob) -> Facts {
    let tasks = job.tasks.iter();
    let tasks = tasks.map(|task| format!("{}+{}", Iova(task.regcmd), task.regcmd_count));
    let uses = job.uses.iter();
    let lists = uses.map(|used| format!("{} {}", used.role, used.handle));
    let objects = job.objects().into_iter().map(|index| {
        let object = capture.objects()[index];
        match object.iova {
            Some(iova) => format!("{}: {} bytes at {iova}", object.handle, object.bytes),
            None => format!("{}: no address", object.handle),
        }
    });
    let named = [
        ("file", job.file.to_string()),
        ("programs", job.tasks.len().to_string()),
        ("places of programs", list(tasks)),
        ("lists", list(lists)),
        ("objects", list(objects)),
        ("outcome", job.outcome.to_string()),
    ];
    named.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Reports the facts that differ, each name once.
fn compare(place: &str, [ours, theirs]: &[Facts; 2], each: &mut dyn FnMut(fmt::Arguments<'_>)) {
    // Of equal names the first counts.
    let by_name = |facts: &'_ Facts| facts.iter().rev().cloned().collect::<BTreeMap<_, _>>();
    let sides = [ours, theirs].map(by_name);
    let mut told = BTreeSet::new();
    for (name, _) in ours.iter().chain(theirs) {
        let [first, second] = sides
            .each_ref()
            .map(|side| side.get(name).map_or("none", String::as_str));
        if told.insert(name) && first != second {
            each(format_args!("{place}{name}: {first} | {second}"));
        }
    }
}

fn list(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join(", ")
}

struct Diff<'a, 'e> {
    sides: [&'a Capture; 2],
    contents: [Contents<'a>; 2],
    /// Pairs of objects whose contents were compared.
    pairs: BTreeSet<(usize, usize)>,
    each: &'e mut dyn FnMut(fmt::Arguments<'_>),
}

impl<'a> Diff<'a, '_> {
    fn job(&mut self, index: usize, jobs: [&'a CapturedJob; 2]) -> Result<(), CaptureError> {
        let facts = [0, 1].map(|side| job_facts(self.sides[side], jobs[side]));
        compare(&format!("job {index}: "), &facts, self.each);
        self.go(Moment::Before(index));
        self.words(index, jobs);
        let pairs: BTreeSet<_> = jobs[0]
            .uses
            .iter()
            .zip(&jobs[1].uses)
            .filter_map(|(first, second)| Some((first.object?, second.object?)))
            .collect();
        for moment in [Moment::Before(index), Moment::After(index)] {
            self.go(moment);
            for &(object, other) in &pairs {
                let changed = self.changed(moment, [object, other]);
                if self.pairs.insert((object, other)) || changed {
                    self.object(moment, object, other)?;
                }
            }
        }
        Ok(())
    }

    fn go(&mut self, moment: Moment) {
        self.contents.iter_mut().for_each(|side| side.go(moment));
    }

    /// Whether pages of either object were recorded just before `moment`.
    fn changed(&self, moment: Moment, objects: [usize; 2]) -> bool {
        self.sides.iter().zip(objects).any(|(side, object)| {
            let chunks = side.chunks_at(moment).unwrap_or_default();
            side.chunks[chunks]
                .iter()
                .any(|chunk| chunk.object == object)
        })
    }

    fn words(&mut self, job: usize, jobs: [&CapturedJob; 2]) {
        let [first, second] =
            [0, 1].map(|at| self.sides[at].programs(jobs[at], &self.contents[at]));
        let text =
            |word: Option<&_>| word.map_or("none".into(), |&word| Item::of(word).to_string());
        for (program, (first, second)) in first.zip(second).enumerate() {
            let (ours, theirs) = (first.words(), second.words());
            for index in 0..ours.len().max(theirs.len()) {
                let (ours, theirs) = (ours.get(index), theirs.get(index));
                if ours != theirs {
                    let (ours, theirs) = (text(ours), text(theirs));
                    let place = format_args!("job {job}, program {program}, word {index}");
                    (self.each)(format_args!("{place}: {ours} | {theirs}"));
                }
            }
        }
    }

    fn object(&mut self, moment: Moment, object: usize, other: usize) -> Result<(), CaptureError> {
        let [first, second] = &self.contents;
        let len = self.sides[0].objects()[object].bytes;
        let len = len.min(self.sides[1].objects()[other].bytes);
        let (mut ours, mut theirs) = (vec![0; PIECE as usize], vec![0; PIECE as usize]);
        let mut found = None;
        let mut bytes = 0;
        // Compare only where either has data.
        let ranges = first.data_ranges(object).chain(second.data_ranges(other));
        let pieces: BTreeSet<u64> = ranges
            .flat_map(|range| range.start / PIECE..range.end.div_ceil(PIECE))
            .collect();
        for offset in pieces.into_iter().map(|piece| piece * PIECE) {
            let count = len.saturating_sub(offset).min(PIECE) as usize;
            first.read(object, offset, &mut ours[..count])?;
            second.read(other, offset, &mut theirs[..count])?;
            let pairs = ours[..count].iter().zip(&theirs[..count]).enumerate();
            for (at, (&ours, &theirs)) in pairs.filter(|(_, (ours, theirs))| ours != theirs) {
                bytes += 1;
                found.get_or_insert((offset + at as u64, ours, theirs));
            }
        }
        if let Some((offset, first, second)) = found {
            let (when, job) = match moment {
                Moment::Before(job) => ("before", job),
                Moment::After(job) => ("after", job),
            };
            let objects = if object == other {
                object.to_string()
            } else {
                format!("{object} | {other}")
            };
            (self.each)(format_args!(
                "{when} job {job}: object {objects}: {bytes} bytes differ, \
                 the first at {offset:#x}: {first:#04x} | {second:#04x}"
            ));
        }
        Ok(())
    }
}
