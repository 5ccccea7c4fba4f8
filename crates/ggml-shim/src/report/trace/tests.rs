// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that read traces back as JSON.

use std::fs::{self, File};

use super::*;

/// A file that is removed when this is dropped.
fn scratch() -> tempfile::TempPath {
    tempfile::NamedTempFile::new().unwrap().into_temp_path()
}

fn events(path: &Path) -> Vec<Value> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn create(path: &Path) -> io::Result<Trace> {
    Trace::begin(TraceFile::open(path)?, "a device", true, Logger::new(None))
}

/// Adds an event without a length.
fn add(trace: &Trace, category: &'static str) {
    let now = Instant::now();
    trace.slice(category, "p", (now, now), json!({}));
}

fn of<'a>(events: &'a [Value], category: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["cat"] == category).collect()
}

#[test]
fn a_trace_is_json_at_any_time() {
    let path = scratch();
    let trace = create(&path).unwrap();
    assert_eq!(events(&path).len(), 2);
    let now = Instant::now();
    for number in 1..=3 {
        let args = json!({ "number": number });
        trace.slice("matmul", "a \"name\"\n", (now, Instant::now()), args);
        trace.flush();
        // As after a crash.
        let seen = events(&path);
        let matmuls = of(&seen, "matmul");
        assert_eq!(matmuls.len(), number);
        assert_eq!(matmuls[number - 1]["name"], "a \"name\"\n");
        assert_eq!(matmuls[number - 1]["args"]["number"], number);
    }
    trace.finish(|| vec![ChromeEvent::process_name(1, "last")]);
    assert!(!trace.is_open());
    add(&trace, "matmul");
    trace.flush();
    let seen = events(&path);
    assert_eq!(of(&seen, "matmul").len(), 3);
    assert_eq!(seen.last().unwrap()["args"]["name"], "last");
}

#[test]
fn events_are_written_before_they_fill_memory() {
    let path = scratch();
    let trace = create(&path).unwrap();
    for _ in 0..4_000 {
        add(&trace, "pack");
        assert!(trace.lock().as_ref().unwrap().events.len() < BUFFER);
    }
    let written = of(&events(&path), "pack").len();
    assert!(written > 0 && written < 4_000);
    trace.flush();
    assert_eq!(of(&events(&path), "pack").len(), 4_000);
}

#[test]
fn threads_have_a_track_each_and_lose_nothing() {
    let path = scratch();
    let trace = create(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    add(&trace, "matmul");
                }
                trace.flush();
            });
        }
    });
    let seen = events(&path);
    let matmuls = of(&seen, "matmul");
    assert_eq!(matmuls.len(), 200);
    let tracks: HashSet<_> = matmuls.iter().map(|e| e["tid"].as_u64()).collect();
    assert_eq!(tracks.len(), 4);
    let names = seen.iter().filter(|e| e["name"] == "thread_name");
    assert_eq!(names.count(), 4);
}

#[test]
fn a_failed_write_gives_one_complaint() {
    for path in ["/no/such/directory/trace.json", "/"] {
        let error = create(Path::new(path)).unwrap_err();
        let line = complaint(Path::new(path), &error);
        assert!(line.contains(path) && line.contains("goes on"), "{line}");
    }
    // A full disk.
    let full = Path::new("/dev/full");
    if full.exists() {
        assert!(create(full).is_err());
    }
    let path = scratch();
    let trace = create(&path).unwrap();
    if let Some(sink) = &mut *trace.lock() {
        sink.output.file = File::open(&path).unwrap();
    }
    for _ in 0..2 {
        add(&trace, "matmul");
        trace.flush();
    }
    assert!(!trace.is_open());
    trace.finish(|| unreachable!("nobody would read them"));
    assert_eq!(events(&path).len(), 2);
}

#[test]
fn a_file_has_one_writer_at_a_time() {
    let path = scratch();
    let first = create(&path).unwrap();
    add(&first, "matmul");
    first.flush();
    let error = create(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    let line = complaint(&path, &error);
    assert!(
        line.contains("another process") && line.contains("%p"),
        "{line}"
    );
    assert_eq!(of(&events(&path), "matmul").len(), 1);
    // The next trace replaces it.
    first.finish(Vec::new);
    let _second = create(&path).unwrap();
    assert_eq!(of(&events(&path), "matmul").len(), 0);
}

#[test]
fn the_number_of_the_process_can_be_in_the_name() {
    let directory = tempfile::tempdir().unwrap();
    let trace = create(&directory.path().join("of-%p.json")).unwrap();
    let name = format!("of-{}.json", std::process::id());
    let path = directory.path().join(name);
    assert_eq!(trace.lock().as_ref().unwrap().output.path, path);
    assert_eq!(events(&path).len(), 2);
}

#[test]
fn a_thread_knows_its_list_and_forgets_it() {
    assert_eq!(list_here(), 0);
    in_list(3, || {
        in_list(4, || assert_eq!(list_here(), 4));
        assert_eq!(list_here(), 3);
    });
    assert_eq!(list_here(), 0);
    let panicked = std::panic::catch_unwind(|| in_list(5, || panic!("expected")));
    assert!(panicked.is_err());
    assert_eq!(list_here(), 0);
}
