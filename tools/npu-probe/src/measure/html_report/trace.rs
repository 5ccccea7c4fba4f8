// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a trace in Chrome's format, and keeps the part that is drawn.
//!
//! Events are processed while the file is read, so a trace of any length takes bounded
//! memory. Events that are left out are counted.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::text::shown;

/// Most slices that are kept, 24 bytes each.
const MOST_SLICES: usize = 2_000_000;
/// Most tracks, and most names of tracks.
const MOST_TRACKS: usize = 64;
/// Matmuls of the table: the longest ones.
const MOST_MATMULS: usize = 10;

/// Process and thread of an event.
pub(super) type TraceTrack = (u64, u64);

/// The kinds of work in drawing order: name, colour, distance from the edges of a row.
const KINDS: [(&str, &str, f64); 12] = [
    ("graph", "#8f9aa8", 1.0),
    ("matmul", "#e6a8b4", 3.0),
    ("quantise", "#72b7b2", 5.0),
    ("pack", "#4c78a8", 5.0),
    ("submit", "#f58518", 5.0),
    ("wait", "#c9b458", 5.0),
    ("unpack", "#54a24b", 5.0),
    ("compute", "#ff9da6", 5.0),
    ("job", "#9467bd", 3.0),
    ("driver", "#d62728", 5.0),
    ("task", "#b279a2", 5.0),
    ("other", "#8c6d4f", 6.0),
];

/// Matmuls, and all work without a kind.
const MATMUL: SliceKind = SliceKind(1);
const OTHER: SliceKind = SliceKind(11);

/// The kind of work of a slice: an index of [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SliceKind(usize);

impl SliceKind {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..KINDS.len()).map(Self)
    }

    /// The kind of an event: from its category, or from its name if it has none.
    fn of(category: Option<&str>, name: &str) -> Self {
        let word = category.unwrap_or_else(|| name.split(' ').next().unwrap_or_default());
        let word = match word {
            "attach" | "kick" => "driver",
            other => other,
        };
        let named = Self::all().find(|kind| kind.name() == word);
        named.unwrap_or(OTHER)
    }

    pub(super) const fn name(self) -> &'static str {
        KINDS[self.0].0
    }

    pub(super) const fn color(self) -> &'static str {
        KINDS[self.0].1
    }

    /// Distance from the edges of its row.
    pub(super) const fn inset(self) -> f64 {
        KINDS[self.0].2
    }
}

/// A slice of a track; times in microseconds of the trace's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedSlice {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) kind: SliceKind,
}

/// A matmul of the table.
#[derive(Clone, Debug)]
pub(super) struct LongMatmul {
    pub(super) name: String,
    /// Precision and sizes.
    pub(super) what: String,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// The kept part of a trace. All its texts are [`shown`] ones.
#[derive(Debug, Default)]
pub(super) struct TraceSlices {
    processes: BTreeMap<u64, String>,
    threads: BTreeMap<TraceTrack, String>,
    tracks: BTreeMap<TraceTrack, Vec<TimedSlice>>,
    kept: usize,
    pub(super) left_out: usize,
    /// The longest matmuls, longest first.
    pub(super) matmuls: Vec<LongMatmul>,
}

impl TraceSlices {
    fn add(&mut self, event: TraceEvent) {
        let track = (event.pid, event.tid);
        match (&*event.ph, &*event.name) {
            ("M", "process_name") if self.processes.len() < MOST_TRACKS => {
                self.processes.insert(event.pid, shown(&event.args.name));
            }
            ("M", "thread_name") if self.threads.len() < MOST_TRACKS => {
                self.threads.insert(track, shown(&event.args.name));
            }
            ("X", _) => self.add_slice(track, event),
            // Arrows, and events of other programs.
            _ => {}
        }
    }

    fn add_slice(&mut self, track: TraceTrack, event: TraceEvent) {
        let (from, to) = (event.ts, event.ts + event.dur);
        let has_room = self.tracks.len() < MOST_TRACKS || self.tracks.contains_key(&track);
        if !(to.is_finite() && from <= to && has_room && self.kept < MOST_SLICES) {
            self.left_out += 1;
            return;
        }
        self.kept += 1;
        let kind = SliceKind::of(event.cat.as_deref(), &event.name);
        let slice = TimedSlice { from, to, kind };
        self.tracks.entry(track).or_default().push(slice);
        let us = |matmul: &LongMatmul| matmul.to - matmul.from;
        let shortest = self.matmuls.last().map_or(0.0, us);
        let is_long = self.matmuls.len() < MOST_MATMULS || to - from > shortest;
        if kind == MATMUL && is_long {
            self.matmuls.push(LongMatmul {
                name: shown(&event.name),
                what: shown(&event.args.what()),
                from,
                to,
            });
            self.matmuls.sort_by(|a, b| us(b).total_cmp(&us(a)));
            self.matmuls.truncate(MOST_MATMULS);
        }
    }

    pub(super) fn process(&self, process: u64) -> String {
        let named = self.processes.get(&process).cloned();
        named.unwrap_or_else(|| format!("process {process}"))
    }

    pub(super) fn thread(&self, track: TraceTrack) -> String {
        let named = self.threads.get(&track).cloned();
        named.unwrap_or_else(|| format!("thread {}", track.1))
    }

    /// The tracks with times of the timing model, which has a separate clock, or those with
    /// measured ones.
    pub(super) fn of_clock(
        &self,
        modelled: bool,
    ) -> impl Iterator<Item = (TraceTrack, &[TimedSlice])> {
        let tracks = self.tracks.iter();
        let tracks = tracks.map(|(track, slices)| (*track, &**slices));
        tracks.filter(move |(track, _)| self.process(track.0).contains("(modelled)") == modelled)
    }

    /// Whether the software model computed, according to the names.
    pub(super) fn is_model(&self) -> bool {
        let mut names = self.processes.values();
        names.any(|name| name.contains("software model") || name.contains("(modelled)"))
    }
}

#[derive(Deserialize)]
struct TraceEvent {
    #[serde(default)]
    name: String,
    ph: String,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    tid: u64,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    cat: Option<String>,
    #[serde(default)]
    args: EventArgs,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EventArgs {
    name: String,
    precision: Option<String>,
    rows: Option<u64>,
    k: Option<u64>,
    n: Option<u64>,
}

impl EventArgs {
    fn what(self) -> String {
        let precision = self.precision.unwrap_or_default();
        match (self.rows, self.k, self.n) {
            (Some(m), Some(k), Some(n)) => format!("{precision} {m}x{k}x{n}"),
            _ => precision,
        }
    }
}

impl<'de> Deserialize<'de> for TraceSlices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Events;

        impl<'de> Visitor<'de> for Events {
            type Value = TraceSlices;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("events of a trace")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut events: A) -> Result<TraceSlices, A::Error> {
                let mut trace = TraceSlices::default();
                while let Some(event) = events.next_element()? {
                    trace.add(event);
                }
                Ok(trace)
            }
        }

        deserializer.deserialize_seq(Events)
    }
}
