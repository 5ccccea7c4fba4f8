// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the timeline as SVG: one row per thread and core.

use maud::{Markup, html};

use super::axis::PictureAxis;
use super::text::time;
use super::trace::{SliceKind, TimedSlice, TraceSlices};

/// Sizes in units of the picture; a unit is a pixel on a wide screen.
const WIDTH: f64 = 900.0;
const LABELS: f64 = 116.0;
const ROW: f64 = 20.0;
const MARKS: f64 = 20.0;
/// Slices with a smaller distance are drawn as one.
const NEAR: f64 = 0.75;
/// Most rows of a picture.
const MOST_ROWS: usize = 20;

/// The picture and legend of all tracks with modelled times, or of all with measured ones; `None`
/// if there are none. `window` is a part of their clock; without it all of it is drawn. `title`
/// gets the length of what is drawn.
pub(super) fn timeline(
    trace: &TraceSlices,
    modelled: bool,
    window: Option<(f64, f64)>,
    title: impl FnOnce(String) -> String,
) -> Option<Markup> {
    let mut tracks: Vec<_> = trace.of_clock(modelled).collect();
    let rows_left_out = tracks.len().saturating_sub(MOST_ROWS);
    tracks.truncate(MOST_ROWS);
    let all = tracks.iter().flat_map(|(_, slices)| slices.iter());
    let whole = all.fold(None, |window, slice| {
        let (from, to) = window.unwrap_or((slice.from, slice.to));
        Some((slice.from.min(from), slice.to.max(to)))
    })?;
    let (from, to) = window.unwrap_or(whole);
    let title = title(time(to - from));
    let axis = PictureAxis::linear((0.0, to - from), (LABELS, WIDTH - 8.0));
    let mut rows = Vec::new();
    let mut y = MARKS;
    let mut process = None;
    let mut kinds = Vec::new();
    for (track, slices) in tracks {
        let mut heading = None;
        if process.replace(track.0) != Some(track.0) {
            y += ROW;
            heading = Some((y - 6.0, trace.process(track.0)));
        }
        let seen = slices.iter().filter(|one| one.from <= to && one.to >= from);
        let seen: Vec<_> = seen.collect();
        let paths = SliceKind::all().filter_map(|kind| {
            let intervals = seen.iter().filter(|one| one.kind == kind);
            let place = |one: &&TimedSlice| (axis.at(one.from - from), axis.at(one.to - from));
            Some((kind, path(kind, intervals.map(place).collect(), y)?))
        });
        let paths: Vec<(SliceKind, String)> = paths.collect();
        kinds.extend(paths.iter().map(|(kind, _)| *kind));
        rows.push((y, heading, short(&trace.thread(track)), paths));
        y += ROW;
    }
    kinds.sort_unstable();
    kinds.dedup();
    Some(html! {
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
                @if rows_left_out > 0 { (rows_left_out) " more threads are left out." }
            }
        }
    })
}

/// The path of all slices of a kind in a row at `y`, from their starts and ends.
fn path(kind: SliceKind, mut places: Vec<(f64, f64)>, y: f64) -> Option<String> {
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, f64)> = Vec::new();
    for (from, to) in places {
        match merged.last_mut() {
            Some(last) if from <= last.1 + NEAR => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    let (top, height) = (y + kind.inset(), ROW - 2.0 * kind.inset());
    let rectangles = merged.into_iter().map(|(from, to)| {
        let width = (to - from).max(NEAR);
        format!("M{from:.2} {top:.0}h{width:.2}v{height:.0}h-{width:.2}z")
    });
    let path: String = rectangles.collect();
    (!path.is_empty()).then_some(path)
}

/// A name, cut to fit the space for labels.
fn short(name: &str) -> String {
    const MOST: usize = 17;
    match name.chars().nth(MOST) {
        Some(_) => name.chars().take(MOST - 2).collect::<String>() + "..",
        None => name.to_owned(),
    }
}
