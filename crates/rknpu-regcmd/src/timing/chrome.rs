// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of Chrome's trace event format, which ui.perfetto.dev and
//! chrome://tracing show: a file is a JSON array of them.
//!
//! `X` is a slice, `M` names a track, `s` and `f` are the ends of an arrow.
//! Times are microseconds; six decimals keep the picoseconds.

use alloc::string::String;

use serde::Serialize;
use serde_json::{Value, json};

const PS_PER_US: f64 = 1e6;

/// A track: a process and a thread of the format. Viewers treat process and thread 0
/// as an idle CPU.
pub type Track = (u32, u64);

/// One event of the format.
#[derive(Clone, Debug, Serialize)]
pub struct ChromeEvent {
    name: String,
    ph: &'static str,
    pid: u32,
    tid: u64,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// The binding of an arrow's end: to the slice around it, not to the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    args: Value,
}

impl ChromeEvent {
    fn new(ph: &'static str, name: impl Into<String>, (pid, tid): Track, at_ps: u64) -> Self {
        Self {
            name: name.into(),
            ph,
            pid,
            tid,
            ts: us(at_ps),
            dur: None,
            cat: None,
            id: None,
            bp: None,
            args: json!({}),
        }
    }

    /// A slice between two times, in picoseconds from a start common to all events.
    #[must_use]
    pub fn slice(
        name: impl Into<String>,
        track: Track,
        (from, to): (u64, u64),
        args: Value,
    ) -> Self {
        Self {
            dur: Some(us(to.saturating_sub(from))),
            args,
            ..Self::new("X", name, track, from)
        }
    }

    /// The same event in a category, which viewers can filter by.
    #[must_use]
    pub fn in_category(self, category: &'static str) -> Self {
        Self {
            cat: Some(category),
            ..self
        }
    }

    /// The name of a process of the format.
    #[must_use]
    pub fn process_name(pid: u32, name: &str) -> Self {
        Self {
            args: json!({ "name": name }),
            ..Self::new("M", "process_name", (pid, 0), 0)
        }
    }

    /// The name of a track.
    #[must_use]
    pub fn thread_name(track: Track, name: &str) -> Self {
        Self {
            args: json!({ "name": name }),
            ..Self::new("M", "thread_name", track, 0)
        }
    }

    /// The two ends of arrow number `id` of a category, at slices of two tracks.
    #[must_use]
    pub fn arrow(
        category: &'static str,
        id: u64,
        from: (Track, u64),
        to: (Track, u64),
    ) -> [Self; 2] {
        let end = |ph, (track, at_ps)| Self {
            cat: Some(category),
            id: Some(id),
            ..Self::new(ph, category, track, at_ps)
        };
        [
            end("s", from),
            Self {
                bp: Some("e"),
                ..end("f", to)
            },
        ]
    }
}

fn us(ps: u64) -> f64 {
    ps as f64 / PS_PER_US
}
