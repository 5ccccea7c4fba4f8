// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares two captures.

use std::collections::BTreeSet;
use std::fmt;

use rknpu_regcmd::{Item, Word};

use crate::capture::{Capture, CapturedJob};
use crate::contents::{Contents, Moment};
use crate::error::CaptureError;
use crate::format::PAGE;

/// Bytes that are compared at a time.
const PIECE: u64 = 256 * PAGE;

/// One difference between two captures.
#[derive(Clone, Debug, PartialEq)]
pub enum CaptureDifference {
    /// A difference of the devices, or of the recordings as a whole.
    Whole {
        /// The field that differs.
        what: String,
        /// What the first capture has.
        first: String,
        /// What the second capture has.
        second: String,
    },
    /// A difference of a job.
    Job {
        /// Index of the job in both captures.
        job: usize,
        /// The field of the job that differs.
        what: &'static str,
        /// What the first capture has.
        first: String,
        /// What the second capture has.
        second: String,
    },
    /// A different command word.
    Word {
        /// Index of the job in both captures.
        job: usize,
        /// Index of the program in the job.
        program: usize,
        /// Index of the word in the program.
        index: usize,
        /// What the first capture has.
        first: Option<Word>,
        /// What the second capture has.
        second: Option<Word>,
    },
    /// Different contents of a buffer object.
    Contents {
        /// The moment, before or after a job.
        moment: Moment,
        /// The number of the object in the first.
        object: usize,
        /// The number of the object in the second.
        other: usize,
        /// Number of bytes that differ.
        bytes: u64,
        /// Offset of the first of them in the object.
        offset: u64,
        /// That byte in the first.
        first: u8,
        /// That byte in the second.
        second: u8,
    },
}

impl fmt::Display for CaptureDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole {
                what,
                first,
                second,
            } => write!(f, "{what}: {first} | {second}"),
            Self::Job {
                job,
                what,
                first,
                second,
            } => write!(f, "job {job}: {what}: {first} | {second}"),
            Self::Word {
                job,
                program,
                index,
                first,
                second,
            } => {
                let text = |word: &Option<Word>| {
                    word.map_or_else(|| "none".to_owned(), |word| Item::of(word).to_string())
                };
                let (first, second) = (text(first), text(second));
                write!(
                    f,
                    "job {job}, program {program}, word {index}: {first} | {second}"
                )
            }
            Self::Contents {
                moment,
                object,
                other,
                bytes,
                offset,
                first,
                second,
            } => {
                let (when, job) = match moment {
                    Moment::Before(job) => ("before", job),
                    Moment::After(job) => ("after", job),
                };
                write!(f, "{when} job {job}: object {object}")?;
                if object != other {
                    write!(f, " | {other}")?;
                }
                write!(
                    f,
                    ": {bytes} bytes differ, the first at {offset:#x}: {first:#04x} | {second:#04x}"
                )
            }
        }
    }
}

/// Calls `each` for each difference of `first` and `second`, in order. Jobs are
/// compared by index, objects by their position in the lists of a job.
/// Different contents are reported when they were recorded, not again for later
/// jobs.
///
/// # Errors
/// When a capture can no longer be read.
pub fn diff(
    first: &Capture,
    second: &Capture,
    each: &mut dyn FnMut(CaptureDifference),
) -> Result<(), CaptureError> {
    whole(first, second, each);
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

fn whole(first: &Capture, second: &Capture, each: &mut dyn FnMut(CaptureDifference)) {
    let facts = |capture: &Capture| {
        let device = capture.device();
        let info = &device.info;
        let (major, minor, patch) = info.version;
        let mut facts = vec![
            ("device".to_owned(), info.name.clone()),
            ("driver".to_owned(), info.driver.clone()),
            (
                "driver version".to_owned(),
                format!("{major}.{minor}.{patch}"),
            ),
            ("driver description".to_owned(), info.description.clone()),
            ("software model".to_owned(), info.is_model.to_string()),
            ("cores".to_owned(), info.cores.to_string()),
            ("chip".to_owned(), device.chip.clone()),
            ("recorder".to_owned(), device.recorder.clone()),
            ("without data".to_owned(), capture.zero_data().to_string()),
            ("jobs".to_owned(), capture.jobs().len().to_string()),
        ];
        let profile = device.profile.iter();
        facts.extend(profile.map(|(name, value)| (format!("chip {name}"), value.to_string())));
        let notes = capture.notes().iter();
        facts.extend(notes.map(|(name, value)| (format!("note {name}"), value.clone())));
        facts
    };
    let (ours, theirs) = (facts(first), facts(second));
    let find = |list: &[(String, String)], name: &str| {
        let found = list.iter().find(|(other, _)| other == name);
        found.map_or_else(|| "none".to_owned(), |(_, value)| value.clone())
    };
    let names: Vec<&String> = ours.iter().chain(&theirs).map(|(name, _)| name).collect();
    let mut told = BTreeSet::new();
    for name in names {
        let (first, second) = (find(&ours, name), find(&theirs, name));
        if told.insert(name) && first != second {
            each(CaptureDifference::Whole {
                what: name.clone(),
                first,
                second,
            });
        }
    }
}

struct Diff<'a, 'e> {
    sides: [&'a Capture; 2],
    contents: [Contents<'a>; 2],
    /// Pairs of objects whose contents were compared.
    pairs: BTreeSet<(usize, usize)>,
    each: &'e mut dyn FnMut(CaptureDifference),
}

impl<'a> Diff<'a, '_> {
    fn job(&mut self, index: usize, jobs: [&'a CapturedJob; 2]) -> Result<(), CaptureError> {
        self.fields(index, jobs);
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
                let changed = self.changed(moment, jobs, [object, other]);
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
    fn changed(&self, moment: Moment, jobs: [&CapturedJob; 2], objects: [usize; 2]) -> bool {
        (0..2).any(|side| {
            let chunks = match moment {
                Moment::Before(_) => jobs[side].before.clone(),
                Moment::After(_) => jobs[side].after.clone(),
            };
            let chunks = &self.sides[side].chunks[chunks];
            chunks.iter().any(|chunk| chunk.object == objects[side])
        })
    }

    fn fields(&mut self, job: usize, jobs: [&CapturedJob; 2]) {
        let lists = |job: &CapturedJob| {
            let uses = job.uses.iter();
            let texts: Vec<_> = uses
                .map(|used| format!("{} {}", used.role, used.handle))
                .collect();
            texts.join(", ")
        };
        let places = |side: usize| {
            let objects = jobs[side].objects().into_iter();
            let objects = objects.map(|object| self.sides[side].objects()[object]);
            let texts = objects.map(|object| match object.iova {
                Some(iova) => format!("{}: {} bytes at {iova}", object.handle, object.bytes),
                None => format!("{}: no address", object.handle),
            });
            texts.collect::<Vec<_>>().join(", ")
        };
        let tasks = |job: &CapturedJob| {
            let texts = job
                .tasks
                .iter()
                .map(|task| format!("{}+{}", task.regcmd, task.words));
            texts.collect::<Vec<_>>().join(", ")
        };
        let facts = |side: usize| {
            let job = jobs[side];
            [
                ("file", job.file.to_string()),
                ("programs", job.tasks.len().to_string()),
                ("places of programs", tasks(job)),
                ("lists", lists(job)),
                ("objects", places(side)),
                ("outcome", job.outcome.to_string()),
            ]
        };
        for ((what, first), (_, second)) in facts(0).into_iter().zip(facts(1)) {
            if first != second {
                (self.each)(CaptureDifference::Job {
                    job,
                    what,
                    first,
                    second,
                });
            }
        }
    }

    fn words(&mut self, job: usize, jobs: [&CapturedJob; 2]) {
        let [first, second] =
            [0, 1].map(|at| self.sides[at].programs(jobs[at], &self.contents[at]));
        for (first, second) in first.zip(second) {
            let (ours, theirs) = (first.words(), second.words());
            for index in 0..ours.len().max(theirs.len()) {
                let (ours, theirs) = (ours.get(index).copied(), theirs.get(index).copied());
                if ours != theirs {
                    (self.each)(CaptureDifference::Word {
                        job,
                        program: first.index,
                        index,
                        first: ours,
                        second: theirs,
                    });
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
            (self.each)(CaptureDifference::Contents {
                moment,
                object,
                other,
                bytes,
                offset,
                first,
                second,
            });
        }
        Ok(())
    }
}
