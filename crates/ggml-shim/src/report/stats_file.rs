// SPDX-License-Identifier: MIT OR Apache-2.0
//! `GGML_ROCKET_STATS=FILE`: the statistics table in a file, for programs that a signal ends.
//!
//! A thread writes the file, so that it has the last graph's counts even if none follows.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::ggml::shared::lock;

/// From one write to the next.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct StatsFile {
    path: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether counts changed since the last write.
    is_stale: bool,
    /// Whether the process ends, or the file cannot be written.
    is_over: bool,
    writer: Option<JoinHandle<()>>,
}

impl StatsFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Has the file written, now or [`PAUSE`] after the last write. The first call starts the
    /// thread; `complain` gets the error that ends it.
    pub(crate) fn renew(
        &'static self,
        table: impl Fn() -> String + Send + 'static,
        complain: impl Fn(&str) + Send + 'static,
    ) {
        let mut state = lock(&self.state);
        if state.is_over {
            return;
        }
        state.is_stale = true;
        if state.writer.is_none() {
            let thread = thread::Builder::new().name("rocket-stats".to_owned());
            // If there is no thread, the next graph tries again.
            state.writer = thread.spawn(move || self.write_on(table, complain)).ok();
        }
        self.changed.notify_one();
    }

    /// The thread.
    fn write_on(&self, table: impl Fn() -> String, complain: impl Fn(&str)) {
        let wait = |state| {
            self.changed
                .wait(state)
                .unwrap_or_else(|it| it.into_inner())
        };
        loop {
            let mut state = lock(&self.state);
            while !state.is_stale && !state.is_over {
                state = wait(state);
            }
            if state.is_over {
                return;
            }
            state.is_stale = false;
            drop(state);
            if let Err(error) = self.write(&table()) {
                lock(&self.state).is_over = true;
                return complain(&self.complaint(&error));
            }
            let goes_on = |state: &mut State| !state.is_over;
            let state = lock(&self.state);
            drop(self.changed.wait_timeout_while(state, PAUSE, goes_on));
        }
    }

    /// Ends the thread, and writes the file a last time. Does nothing if no graph was computed, or
    /// if the file could not be written before.
    pub(crate) fn finish(&self, table: &str) -> io::Result<()> {
        let mut state = lock(&self.state);
        let Some(writer) = state.writer.take().filter(|_| !state.is_over) else {
            return Ok(());
        };
        state.is_over = true;
        drop(state);
        self.changed.notify_one();
        // A panic in it has been reported.
        let _ = writer.join();
        self.write(table)
    }

    pub(crate) fn complaint(&self, error: &io::Error) -> String {
        format!("no statistics in {}: {error}", self.path.display())
    }

    /// Replaces the file at once, so that readers never see a part.
    fn write(&self, table: &str) -> io::Result<()> {
        if fs::symlink_metadata(&self.path).is_ok_and(|file| !file.is_file()) {
            return Err(io::Error::other("it is there, and is no regular file"));
        }
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{}", std::process::id()));
        let new = Path::new(&name);
        let written = write_new(new, table).and_then(|()| fs::rename(new, &self.path));
        written.inspect_err(|_| drop(fs::remove_file(new)))
    }
}

/// Writes a file that no link leads elsewhere.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    // Left by an earlier process with this number.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    fn leaked(path: PathBuf) -> &'static StatsFile {
        Box::leak(Box::new(StatsFile::new(path)))
    }

    fn until(is_so: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn the_file_follows_the_last_graph_without_an_end_of_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats.txt");
        let file = leaked(path.clone());
        let graphs = Arc::new(AtomicUsize::new(0));
        let tables = Arc::new(AtomicUsize::new(0));
        let compute = || {
            graphs.fetch_add(1, Ordering::SeqCst);
            let (graphs, tables) = (Arc::clone(&graphs), Arc::clone(&tables));
            let table = move || {
                tables.fetch_add(1, Ordering::SeqCst);
                format!("graphs {}", graphs.load(Ordering::SeqCst))
            };
            file.renew(table, |line| panic!("{line}"));
        };
        let shows = |table: &str| until(|| fs::read_to_string(&path).is_ok_and(|it| it == table));
        compute();
        shows("graphs 1");
        for _ in 1..1000 {
            compute();
        }
        shows("graphs 1000");
        assert!(tables.load(Ordering::SeqCst) < 100);
        file.finish("the end").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "the end");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        // Nothing more is written.
        file.renew(|| "more".to_owned(), |line| panic!("{line}"));
        file.finish("more").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "the end");
    }

    #[test]
    fn an_unwritable_file_gives_one_complaint() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::write(&target, "other").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for path in [link, folder.path().join("no/folder"), folder.path().into()] {
            let file = leaked(path);
            let told = Arc::new(AtomicUsize::new(0));
            for _ in 0..2 {
                let told = Arc::clone(&told);
                let complain = move |line: &str| {
                    assert!(line.starts_with("no statistics in "), "{line}");
                    told.fetch_add(1, Ordering::SeqCst);
                };
                file.renew(String::new, complain);
            }
            until(|| told.load(Ordering::SeqCst) == 1);
            file.renew(String::new, |_| panic!("told again"));
            file.finish("").unwrap();
        }
        assert_eq!(fs::read_to_string(&target).unwrap(), "other");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn without_a_graph_there_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = leaked(folder.path().join("stats.txt"));
        file.finish("a table").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
