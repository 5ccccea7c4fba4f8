// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording is read back as it was made; a file that is not whole is
//! refused.

#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{Memory, device, fields, reader};
use npu_capture::format::{PAGE, SectionKind};
use npu_capture::{
    Capture, CaptureError, CaptureWriter, CapturedObject, Contents, JobOutcome, JobView, Moment,
    Recorder, RecorderOptions, Role,
};
use proptest::prelude::*;
use rocket_uapi::{DeviceInfo, Errno, Iova, sys};
use test_support::cases;

fn info() -> DeviceInfo {
    DeviceInfo {
        name: "a test".into(),
        driver: drm::Driver {
            version: (0, -1, 2),
            name: "rocket".into(),
            date: "".into(),
            desc: "rocket DRM".into(),
        },
        is_model: true,
        cores: 3,
    }
}

/// A write to an object: its handle, a byte offset and a value.
type Poke = (u32, u16, u8);

#[derive(Clone, Debug)]
struct PlannedJob {
    file: u32,
    tasks: Vec<sys::Task>,
    reads: Vec<u32>,
    writes: Vec<u32>,
    before: Vec<Poke>,
    after: Vec<Poke>,
    outcome: JobOutcome,
}

/// Pages of the objects of each file, whose handles are 1, 2 and 3.
const OBJECTS: [u64; 3] = [1, 3, 2];

fn outcomes() -> impl Strategy<Value = JobOutcome> {
    prop_oneof![
        Just(JobOutcome::Completed),
        Just(JobOutcome::Dropped),
        Just(JobOutcome::Unknown),
        Just(JobOutcome::Killed(Errno::CANCELED)),
        Just(JobOutcome::Refused(Errno::INVAL)),
    ]
}

fn handles() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(1_u32..4, 0..3)
}

fn pokes() -> impl Strategy<Value = Vec<Poke>> {
    prop::collection::vec((1_u32..4, any::<u16>(), any::<u8>()), 0..6)
}

prop_compose! {
    fn planned()(
        file in 0_u32..2,
        tasks in prop::collection::vec((0_u32..0x8000, 0_u32..40).prop_map(task), 0..4),
        reads in handles(),
        writes in handles(),
        before in pokes(),
        after in pokes(),
        outcome in outcomes(),
    ) -> PlannedJob {
        PlannedJob { file, tasks, reads, writes, before, after, outcome }
    }
}

fn task((regcmd, words): (u32, u32)) -> sys::Task {
    sys::Task {
        regcmd,
        regcmd_count: words,
    }
}

/// The objects of a file, one behind the other.
fn objects(file: u32) -> Vec<CapturedObject> {
    let mut iova = 0;
    let object = |(handle, pages)| {
        let bytes = pages * PAGE;
        let start = iova;
        iova += bytes as u32;
        CapturedObject {
            file,
            handle,
            iova: Some(Iova(start)),
            bytes,
        }
    };
    (1..).zip(OBJECTS).map(object).collect()
}

fn poke(memory: &mut Memory, pokes: &[Poke]) {
    for (handle, at, byte) in pokes {
        let bytes = memory.get_mut(handle).unwrap();
        let at = usize::from(*at) % bytes.len();
        bytes[at] = *byte;
    }
}

/// Records the jobs. Returns the memory before and after each.
fn record(path: &Path, jobs: &[PlannedJob], zero_data: bool) -> Vec<[Memory; 2]> {
    let options = RecorderOptions {
        zero_data,
        notes: vec![("name".into(), "value".into())],
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(path, &info(), options).unwrap();
    let zeroes = |object: CapturedObject| (object.handle, vec![0; object.bytes as usize]);
    let mut files = [0, 1].map(|file| objects(file).into_iter().map(zeroes).collect::<Memory>());
    let mut moments = Vec::new();
    for job in jobs {
        let memory = &mut files[job.file as usize];
        poke(memory, &job.before);
        let before = memory.clone();
        let token = recorder.job(&JobView {
            file: job.file,
            tasks: &job.tasks,
            reads: &job.reads,
            writes: &job.writes,
            objects: &objects(job.file),
            bytes: &reader(memory),
        });
        poke(memory, &job.after);
        token.finish(job.outcome, Some(&reader(memory)));
        moments.push([before, memory.clone()]);
    }
    let summary = recorder.finish().unwrap();
    assert_eq!(summary.jobs as usize, jobs.len());
    assert_eq!(summary.bytes, fs::metadata(path).unwrap().len());
    moments
}

fn check(capture: &Capture, jobs: &[PlannedJob], moments: &[[Memory; 2]]) {
    assert_eq!(capture.device().info, info());
    assert_eq!(capture.notes(), [("name".to_owned(), "value".to_owned())]);
    assert_eq!(capture.jobs().len(), jobs.len());
    let mut contents = Contents::new(capture);
    for (index, (job, planned)) in capture.jobs().iter().zip(jobs).enumerate() {
        assert_eq!(job.file, planned.file);
        assert_eq!(job.outcome, planned.outcome);
        assert!(job.ended_ns.unwrap() >= job.started_ns);
        assert_eq!(job.tasks, planned.tasks);
        assert_eq!(job.handles(Role::In), planned.reads);
        assert_eq!(job.handles(Role::Out), planned.writes);
        for (moment, memory) in [Moment::Before(index), Moment::After(index)]
            .into_iter()
            .zip(&moments[index])
        {
            contents.go(moment);
            for object in job.objects() {
                let found = &capture.objects()[object];
                let expected = &memory[&found.handle];
                assert_eq!(found.bytes, expected.len() as u64);
                let mut bytes = vec![1; expected.len()];
                contents.read(object, 0, &mut bytes).unwrap();
                assert!(bytes == *expected, "object {object}, {moment:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn recorded_jobs_are_read_back(jobs in prop::collection::vec(planned(), 0..12)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let moments = record(&path, &jobs, false);
        let capture = Capture::open(&path).unwrap();
        prop_assert!(capture.finished());
        check(&capture, &jobs, &moments);
        let bytes = fs::read(&path).unwrap();
        check(&Capture::from_bytes(&bytes).unwrap(), &jobs, &moments);
    }

    #[test]
    fn without_data_only_words_stay(jobs in prop::collection::vec(planned(), 0..12)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut moments = record(&path, &jobs, true);
        // Words that were once a program of the file stay from then on.
        let mut words = [(); 2].map(|()| vec![false; OBJECTS.iter().sum::<u64>() as usize * 4096]);
        for (job, moment) in jobs.iter().zip(&mut moments) {
            let kept = &mut words[job.file as usize];
            for object in objects(job.file).iter().filter_map(CapturedObject::range) {
                for task in &job.tasks {
                    let start = u64::from(task.regcmd);
                    let end = start + u64::from(task.regcmd_count) * 8;
                    if object.start <= start && end <= object.end {
                        kept[start as usize..end as usize].fill(true);
                    }
                }
            }
            for memory in moment {
                let all = memory.values_mut().flatten();
                all.zip(&*kept).filter(|(_, kept)| !**kept).for_each(|(byte, _)| *byte = 0);
            }
        }
        let capture = Capture::open(&path).unwrap();
        prop_assert!(capture.zero_data());
        check(&capture, &jobs, &moments);
    }
}

/// A small file and its jobs.
fn sample(folder: &Path) -> (Vec<u8>, Vec<PlannedJob>, Vec<[Memory; 2]>) {
    let path = folder.join("sample");
    let job = |file, byte, outcome| PlannedJob {
        file,
        tasks: vec![task((0, 12)), task((0x1010, 4))],
        reads: vec![1],
        writes: vec![2],
        before: vec![(1, 8, byte), (2, 5000, byte)],
        after: vec![(2, 9000, byte ^ 0xff)],
        outcome,
    };
    let jobs = vec![
        job(0, 1, JobOutcome::Completed),
        job(1, 2, JobOutcome::Killed(Errno::CANCELED)),
        job(0, 3, JobOutcome::Completed),
    ];
    let moments = record(&path, &jobs, false);
    (fs::read(&path).unwrap(), jobs, moments)
}

#[test]
fn a_file_without_its_end_is_refused_and_what_is_whole_can_be_had() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, jobs, moments) = sample(folder.path());
    let mut had = Vec::new();
    for len in 0..bytes.len() {
        let cut = &bytes[..len];
        let error = Capture::from_bytes(cut).unwrap_err();
        assert!(
            matches!(error, CaptureError::NotACapture | CaptureError::Unfinished),
            "{len}: {error}"
        );
        if let Ok(capture) = Capture::from_unfinished_bytes(cut) {
            assert!(!capture.finished());
            let count = capture.jobs().len();
            // The last job may have no end in the rest.
            let ended = capture.jobs().iter().filter(|job| job.ended_ns.is_some());
            let ended = ended.count();
            assert!(ended + 1 >= count);
            if ended == count {
                check(&capture, &jobs[..ended], &moments[..ended]);
            }
            had.push(count);
        }
    }
    assert!(had.is_sorted());
    assert_eq!(had.first(), Some(&0));
    assert_eq!(had.last(), Some(&jobs.len()));
    let whole = Capture::from_unfinished_bytes(&bytes).unwrap();
    assert!(whole.finished());
}

/// The golden file was made by the recorder of version 1 from `sample`.
#[test]
fn version_1_is_read_forever() {
    let folder = tempfile::tempdir().unwrap();
    let (_, jobs, moments) = sample(folder.path());
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/version-1.rkcap");
    let capture = Capture::open(&golden).unwrap();
    assert_eq!(capture.device().chip, "rk3588");
    assert_eq!(capture.device().profile.len(), 10);
    check(&capture, &jobs, &moments);
}

#[test]
fn a_changed_bit_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (bytes, ..) = sample(folder.path());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let read = Capture::from_bytes(&changed);
            assert!(read.is_err(), "bit {bit} of byte {at} is not covered");
            // Either result is right here; reading must end.
            let _ = Capture::from_unfinished_bytes(&changed);
        }
    }
}

/// A file of these sections with correct checksums, whatever they claim.
fn forged(sections: &[(SectionKind, Vec<u8>)]) -> Result<Capture, CaptureError> {
    let mut writer = CaptureWriter::new(Vec::new(), 0, 0).unwrap();
    for (kind, payload) in sections {
        writer.section(*kind, payload).unwrap();
    }
    Capture::from_bytes(&writer.finish().unwrap())
}

fn object(numbers: &[u32; 8]) -> (SectionKind, Vec<u8>) {
    (SectionKind::OBJECT, fields(numbers))
}

fn pages(numbers: &[u32], data: &[u8]) -> (SectionKind, Vec<u8>) {
    (SectionKind::PAGES, [&fields(numbers), data].concat())
}

/// Checks that a file of a device and these sections is refused as malformed.
fn assert_malformed(sections: &[(SectionKind, Vec<u8>)]) {
    let read = forged(&[&[device()], sections].concat());
    let is_malformed = matches!(read, Err(CaptureError::Malformed { .. }));
    assert!(is_malformed, "{sections:?}: {read:?}");
}

#[test]
fn sections_that_are_not_known_are_passed_over() {
    let stranger = (SectionKind(*b"X\0\xff "), vec![1; 100_000]);
    let capture = forged(&[stranger.clone(), device(), stranger]).unwrap();
    assert!(capture.jobs().is_empty() && capture.objects().is_empty());
}

#[test]
fn lies_are_refused() {
    // Number, file, handle, address, length (64 bits), has an address,
    // reserved.
    let good = object(&[0, 0, 1, 0x1000, 0x2000, 0, 1, 0]);
    assert!(forged(&[device(), good.clone()]).is_ok());
    for wrong in [
        [1, 0, 1, 0x1000, 0x2000, 0, 1, 0],
        [0, 0, 1, 0x1001, 0x2000, 0, 1, 0],
        [0, 0, 1, 0x1000, 0x2001, 0, 1, 0],
        [0, 0, 1, 0x1000, 0, 1, 1, 0],
        [0, 0, 1, 0x1000, 0, u32::MAX, 1, 0],
        [0, 0, 1, 0x1000, 0, 0, 1, 0],
        [0, 0, 1, 0x1000, 0x2000, 0, 0, 0],
    ] {
        assert_malformed(&[object(&wrong)]);
    }
    // Object, runs, length, reserved; then first, count, kind for each run.
    assert!(forged(&[device(), good.clone(), pages(&[0, 1, 0, 0, 0, 2, 0], &[])]).is_ok());
    for (wrong, data) in [
        (&[1, 0, 0, 0][..], &[][..]),
        (&[0, 1, 0, 0], &[]),
        (&[0, u32::MAX, 0, 0], &[]),
        (&[0, 1, 0, 0, 0, 0, 0], &[]),
        (&[0, 1, 0, 0, 1, 2, 0], &[]),
        (&[0, 1, 0, 0, u32::MAX, u32::MAX, 0], &[]),
        (&[0, 2, 0, 0, 0, 1, 0, 0, 1, 0], &[]),
        (&[0, 1, 0, 0, 0, 1, 2], &[]),
        (&[0, 1, 0, 0, 0, 1, 1], &[]),
        (&[0, 1, 4096, 0, 0, 1, 1], &[]),
        (&[0, 1, 8192, 0, 0, 1, 1], &[1]),
        (&[0, 1, 0, 0, 0, 1, 0], &[1]),
    ] {
        assert_malformed(&[good.clone(), pages(wrong, data)]);
    }
    assert!(matches!(forged(&[]), Err(CaptureError::NoDevice)));
    assert_malformed(&[device()]);
    let job = |numbers: &[u32]| (SectionKind::JOB, fields(numbers));
    let done = |numbers: &[u32]| (SectionKind::DONE, fields(numbers));
    // Number, file, start (64 bits), tasks, uses; address, words; handle,
    // object, role.
    let run = job(&[0, 0, 0, 0, 1, 1, 0x1000, 5, 1, 0, 0]);
    assert!(forged(&[device(), good.clone(), run.clone()]).is_ok());
    for wrong in [
        vec![run.clone(), run.clone()],
        vec![job(&[1, 0, 0, 0, 0, 0])],
        vec![job(&[0, 0, 0, 0, u32::MAX, 0])],
        vec![job(&[0, 0, 0, 0, 0, 1, 1, 5, 0])],
        vec![job(&[0, 1, 0, 0, 0, 1, 1, 0, 0])],
        vec![job(&[0, 0, 0, 0, 0, 1, 1, 0, 3])],
        vec![done(&[0, 0, 0, 0, 0, 0])],
        vec![run.clone(), done(&[1, 0, 0, 0, 0, 0])],
        vec![run.clone(), done(&[0, 5, 0, 0, 0, 0])],
        vec![run.clone(), done(&[0, 1, 0, 0, 0, 0])],
        vec![
            run.clone(),
            done(&[0, 0, 0, 0, 0, 0]),
            done(&[0, 0, 0, 0, 0, 0]),
        ],
    ] {
        assert_malformed(&[vec![good.clone()], wrong].concat());
    }
}

#[test]
fn pages_that_unpack_to_something_else_are_refused() {
    // An object of 256 pages, in which a decompression bomb would fit.
    let object = object(&[0, 0, 1, 0, 0x10_0000, 0, 1, 0]);
    let read = |packed: &[u8]| {
        let pages = pages(&[0, 1, 8192, 0, 0, 2, 1], packed);
        let capture = forged(&[device(), object.clone(), pages]).unwrap();
        let mut contents = Contents::new(&capture);
        contents.go(Moment::Before(0));
        contents.read(0, 4090, &mut [0; 10])
    };
    let packed = |len| zstd::bulk::compress(&vec![3; len], 19).unwrap();
    assert!(read(&packed(8192)).is_ok());
    for wrong in [0, 1, 8191, 8193, 1 << 26].map(packed) {
        let error = read(&wrong).unwrap_err();
        assert!(matches!(error, CaptureError::Compression { .. }), "{error}");
    }
    assert!(read(b"no zstd").is_err());
}
