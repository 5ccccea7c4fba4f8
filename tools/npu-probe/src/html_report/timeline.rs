// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the timeline as SVG: one row per thread and core.

use std::fmt::Write;

use maud::{Markup, html};

use super::axis::PictureAxis;
use super::text::{ShownText, time};
use super::trace::{SliceKind, TimedSlice, TraceSlices, TraceTrack};

/// Sizes in units of the picture; a unit is a pixel on a wide screen.
const WIDTH: f64 = 900.0;
const LABELS: f64 = 116.0;
const ROW: f64 = 20.0;
const MARKS: f64 = 20.0;
/// Slices with a smaller distance are drawn as one.
const NEAR: f64 = 0.75;
/// Most rows of a picture.
const MOST_ROWS: usize = 20;

/// One picture: the tracks of one clock, in a window of time.
pub(super) struct TraceTimeline<'a> {
    trace: &'a TraceSlices,
    tracks: Vec<(TraceTrack, &'a [TimedSlice])>,
    rows_left_out: usize,
    window: (f64, f64),
}

impl<'a> TraceTimeline<'a> {
    /// All tracks with modelled times, or all with measured ones; `None` if there
    /// are none. `window` is a part of their clock; without it all of it is drawn.
    pub(super) fn new(
        trace: &'a TraceSlices,
        modelled: bool,
        window: Option<(f64, f64)>,
    ) -> Option<Self> {
        let mut tracks: Vec<_> = trace.of_clock(modelled).collect();
        let rows_left_out = tracks.len().saturating_sub(MOST_ROWS);
        tracks.truncate(MOST_ROWS);
        let all = tracks.iter().flat_map(|(_, slices)| slices.iter());
        let whole = all.fold(None, |window, slice| {
            let (from, to) = window.unwrap_or((slice.from, slice.to));
            Some((slice.from.min(from), slice.to.max(to)))
        })?;
        Some(Self {
            trace,
            tracks,
            rows_left_out,
            window: window.unwrap_or(whole),
        })
    }

    /// Length of the drawn window, microseconds.
    pub(super) fn span(&self) -> f64 {
        self.window.1 - self.window.0
    }

    /// The picture and its legend.
    pub(super) fn draw(&self, title: &str) -> Markup {
        let axis = PictureAxis::linear((0.0, self.span()), (LABELS, WIDTH - 8.0));
        let mut rows = Vec::new();
        let mut y = MARKS;
        let mut process = None;
        let mut kinds = Vec::new();
        for (track, slices) in &self.tracks {
            let mut heading = None;
            if process.replace(track.0) != Some(track.0) {
                y += ROW;
                heading = Some((y - 6.0, self.trace.process(track.0)));
            }
            let paths = self.paths(slices, &axis, y);
            kinds.extend(paths.iter().map(|(kind, _)| *kind));
            rows.push((y, heading, short(&self.trace.thread(*track)), paths));
            y += ROW;
        }
        kinds.sort_unstable();
        kinds.dedup();
        html! {
            figure {
                div.scroll tabindex="0" {
                    svg.wide role="img" aria-label=(title) viewBox={ "0 0 " (WIDTH) " " (y + 4.0) } {
                        @for mark in axis.marks() { @let x = axis.at(mark);
                            line.grid x1=(x) x2=(x) y1=(MARKS - 4.0) y2=(y) {}
                            text.mark x=(x) y="12" { (time(mark)) }
                        }
                        @for (y, heading, label, paths) in &rows {
                            @if let Some((y, name)) = heading { text.heading x="2" y=(y) { (name) } }
                            text x="2" y=(y + 14.0) { (label) }
                            line.grid x1=(LABELS) x2=(WIDTH - 8.0) y1=(y + ROW) y2=(y + ROW) {}
                            @for (kind, path) in paths { path fill=(kind.color()) d=(path) {} }
                        }
                    }
                }
                figcaption { (title) ul.legend { @for kind in kinds {
                    li { svg.swatch viewBox="0 0 10 10" { rect width="10" height="10" fill=(kind.color()) {} } " " (kind.name()) }
                } }
                    @if self.rows_left_out > 0 { (self.rows_left_out) " more threads are left out." }
                }
            }
        }
    }

    /// The slices of a row: one path per kind.
    fn paths(&self, slices: &[TimedSlice], axis: &PictureAxis, y: f64) -> Vec<(SliceKind, String)> {
        let (from, to) = self.window;
        let path = |kind: SliceKind| {
            let seen = slices.iter();
            let seen = seen.filter(|one| one.kind == kind && one.from <= to && one.to >= from);
            let place = |one: &TimedSlice| (axis.at(one.from - from), axis.at(one.to - from));
            let mut places: Vec<(f64, f64)> = seen.map(place).collect();
            places.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut merged: Vec<(f64, f64)> = Vec::new();
            for (from, to) in places {
                match merged.last_mut() {
                    Some(last) if from <= last.1 + NEAR => last.1 = last.1.max(to),
                    _ => merged.push((from, to)),
                }
            }
            let inset = kind.inset();
            let mut path = String::new();
            for (from, to) in merged {
                let (width, height) = ((to - from).max(NEAR), ROW - 2.0 * inset);
                // Writing to it cannot fail.
                let _ = write!(
                    path,
                    "M{from:.2} {:.0}h{width:.2}v{height:.0}h-{width:.2}z",
                    y + inset
                );
            }
            (!path.is_empty()).then_some((kind, path))
        };
        SliceKind::all().filter_map(path).collect()
    }
}

/// A name, cut to fit the space for labels.
fn short(name: &ShownText) -> ShownText {
    const MOST: usize = 17;
    match name.chars().nth(MOST) {
        Some(_) => {
            let start: String = name.chars().take(MOST - 2).collect();
            ShownText::from(&*(start + ".."))
        }
        None => name.clone(),
    }
}
