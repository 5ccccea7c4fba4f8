// SPDX-License-Identifier: MIT OR Apache-2.0
//! Untrusted capture files: raw bytes, and sections with right checksums.
//!
//! Any file gives an error or a capture. A capture equals itself; its contents, programs
//! and jobs can be read, linted and run on the model.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use npu_capture::format::{PAGE, SectionKind};
use npu_capture::{Capture, CaptureWriter, Contents, Moment, ReplayOptions, diff, replay};
use npu_model::{Level, Model, ModelOptions};

/// Most sections of an input.
const SECTIONS: usize = 24;
/// Most bytes of buffer objects that are read or run.
const BYTES_MAX: u64 = 1 << 20;
/// Most jobs to run: a random program takes the model milliseconds.
const JOBS_MAX: usize = 4;
/// Modelled time limit of a kick.
const TASK_LIMIT: Duration = Duration::from_micros(50);

/// Reads, compares and runs a capture file. The first byte says whether the
/// rest is the file (0), continues a valid start (1), or is choices for a file.
pub fn capture(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else {
        return;
    };
    let bytes = match first {
        0 => rest.to_vec(),
        // A file whose first bytes are right.
        1 => [&empty()[..32], rest].concat(),
        _ => match file(&mut Unstructured::new(rest)) {
            Ok(bytes) => bytes,
            Err(_) => return,
        },
    };
    let finished = Capture::from_bytes(&bytes);
    if let Ok(capture) = Capture::from_unfinished_bytes(&bytes) {
        look(&capture);
        if let Ok(finished) = &finished {
            let mut changes = 0;
            let same = diff(finished, &capture, &mut |_| changes += 1);
            assert!(
                same.is_err() || changes == 0,
                "a capture differs from itself"
            );
        }
    } else {
        assert!(
            finished.is_err(),
            "the complete file is accepted, but its sections are not"
        );
    }
}

/// A file without sections.
fn empty() -> Vec<u8> {
    let writer = CaptureWriter::new(Vec::new(), 0, 0).unwrap();
    writer.finish().unwrap()
}

/// Does everything that a command does with a capture.
fn look(capture: &Capture) {
    let bytes: u64 = capture.objects().iter().map(|object| object.bytes).sum();
    if bytes > BYTES_MAX {
        return;
    }
    let mut contents = Contents::new(capture);
    let mut page = [0; PAGE as usize];
    for (index, job) in capture.jobs().iter().enumerate() {
        for moment in [Moment::After(index), Moment::Before(index)] {
            contents.go(moment);
            for object in job.objects() {
                for range in contents.data_ranges(object) {
                    assert!(range.end <= capture.objects()[object].bytes);
                    if contents.read(object, range.start, &mut page).is_err() {
                        break;
                    }
                }
            }
        }
        for program in capture.programs(job, &contents) {
            let _ = program.lint();
            assert!(program.extents().count() <= program.words().len());
        }
    }
    if capture.jobs().len() > JOBS_MAX {
        return;
    }
    let mut options = ModelOptions {
        level: Level::Strict,
        cores: 1,
        ..ModelOptions::default()
    };
    options.driver.job_limit = TASK_LIMIT;
    let device = Model::new(options).open_device();
    let options = ReplayOptions {
        bytes_max: BYTES_MAX,
        ..ReplayOptions::default()
    };
    if let Ok(report) = replay(capture, &device, &options) {
        assert_eq!(report.jobs.len(), capture.jobs().len());
    }
}

/// Small numbers, mostly.
fn number(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match u.arbitrary::<u8>()? {
        small @ 0..=0xef => u32::from(small & 7),
        0xf0..=0xf7 => u32::MAX,
        _ => u.arbitrary()?,
    })
}

fn file(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut writer = CaptureWriter::new(Vec::new(), u32::from(u.ratio(1_u8, 8)?), 0).unwrap();
    // A device with empty names.
    writer
        .section(SectionKind::DEVICE, &[0; 6 * 4 + 5 * 2])
        .unwrap();
    let (mut objects, mut jobs) = (0, 0);
    for _ in 0..SECTIONS {
        if u.is_empty() {
            break;
        }
        let mut payload = Vec::new();
        let mut push = |fields: &[u32]| {
            payload.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
        };
        let kind = match u.int_in_range(0..=5)? {
            0 => {
                let (iova, pages) = (number(u)? << 12, number(u)?);
                let length = u64::from(pages) * PAGE;
                let (low, high) = (length as u32, (length >> 32) as u32);
                push(&[objects, number(u)? & 1, number(u)?, iova, low, high]);
                push(&[u32::from(u.ratio(7_u8, 8)?), 0]);
                objects += 1;
                SectionKind::OBJECT
            }
            1 | 2 => {
                let object = number(u)? % objects.max(1);
                let (first, zeroes, data) = (number(u)?, number(u)?, number(u)? & 3);
                let raw = data * PAGE as u32;
                push(&[object, 2, raw, 0, first, zeroes, 0]);
                push(&[first.wrapping_add(zeroes), data, 1]);
                let mut page = vec![u.arbitrary::<u8>()? & 1; raw as usize];
                let words = u.bytes(u.len().min(64))?;
                let len = words.len().min(page.len());
                page[..len].copy_from_slice(&words[..len]);
                payload.extend(npu_capture::format::pack(&page).unwrap());
                SectionKind::PAGES
            }
            3 => {
                let (tasks, uses) = (number(u)? & 3, number(u)? & 3);
                push(&[jobs, number(u)? & 1, 0, 0, tasks, uses]);
                for _ in 0..tasks {
                    push(&[number(u)? << 12, number(u)?]);
                }
                for _ in 0..uses {
                    push(&[number(u)?, number(u)?, number(u)?]);
                }
                jobs += 1;
                SectionKind::JOB
            }
            4 => {
                push(&[jobs.wrapping_sub(1), number(u)?, number(u)?, 0, 0, 0]);
                SectionKind::DONE
            }
            _ => {
                push(&[number(u)?]);
                payload.extend(u.bytes(u.len().min(16))?);
                u.choose(&[
                    SectionKind::NOTES,
                    SectionKind::DEVICE,
                    SectionKind::TABLE,
                    SectionKind(*b"NEWS"),
                ])
                .copied()?
            }
        };
        writer.section(kind, &payload).unwrap();
    }
    Ok(writer.finish().unwrap())
}
