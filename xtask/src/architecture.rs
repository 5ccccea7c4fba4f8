// SPDX-License-Identifier: MIT OR Apache-2.0
//! docs/architecture.svg, and the table of its boxes in docs/architecture.md.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::svg;

/// The page whose section has the table of the boxes.
pub(crate) const PAGE: &str = "docs/architecture.md";
/// The picture of the boxes, which that page shows.
pub(crate) const PICTURE: &str = "docs/architecture.svg";
/// Name of the section of the page that has the table.
pub(crate) const SECTION: &str = "boxes";

/// A part of the project, and where to start reading it.
struct Part {
    name: &'static str,
    /// Its package, and the file there to start reading at.
    package: &'static str,
    file: &'static str,
    /// What the part does, for the table.
    what: &'static str,
    /// Column and row in the picture.
    at: [u32; 2],
    /// Parts that get something from it.
    to: &'static [&'static str],
}

#[rustfmt::skip]
const PARTS: [Part; 13] = [
    part("ggml", "crates/ggml-shim", "src/mul_mat.rs", [0, 0], &["matmul"],
        "a product that stock llama.cpp asks for; which ones are worth it, weights that are found once"),
    part("matmul", "crates/npu-matmul", "src/gemm.rs", [1, 0], &["plan"],
        "quantise, lay out, run the plan, add up partial results"),
    part("plan", "crates/npu-matmul", "src/plan/mod.rs", [2, 0], &["program"],
        "what is cut where, as data: devices, jobs, tiles"),
    part("program", "crates/rknpu-regcmd", "src/program.rs", [3, 0], &["words", "job"],
        "words whose addresses are names of buffers; linked, addresses and the proof of what they touch"),
    part("job", "crates/rocket-uapi", "src/job.rs", [4, 0], &["device"],
        "programs, the buffers that they read and write, a fence; proof that it ran"),
    part("device", "crates/rocket-uapi", "src/device.rs", [5, 0], &["driver"],
        "an open file of the kernel's driver or of the model's, behind `FileOperations`"),
    part("words", "crates/rknpu-regcmd", "src/word.rs", [3, 1], &["task"],
        "64 bits: target, value, offset of a register"),
    part("driver", "crates/npu-model", "src/driver/mod.rs", [5, 1], &["chip"],
        "the kernel's driver in software: handles, addresses, fences, its silences"),
    part("task", "crates/rknpu-regcmd", "src/task/mod.rs", [3, 2], &["rules", "extents", "timing", "chip"],
        "what register values ask for: sizes, precisions, where operands lie"),
    part("rules", "crates/rknpu-regcmd", "src/rules/mod.rs", [1, 3], &[],
        "what hangs or garbles, in one table: the lint tells of a row, the chip does what it says"),
    part("extents", "crates/rknpu-regcmd", "src/extent/mod.rs", [2, 3], &[],
        "what each DMA engine touches, first to last byte"),
    part("timing", "crates/rknpu-regcmd", "src/timing/mod.rs", [4, 3], &[],
        "how long it takes"),
    part("chip", "crates/rknpu-chip", "src/lib.rs", [5, 3], &[],
        "the NPU in software: registers, a bus, interrupts"),
];

const fn part(
    name: &'static str,
    package: &'static str,
    file: &'static str,
    at: [u32; 2],
    to: &'static [&'static str],
    what: &'static str,
) -> Part {
    Part {
        name,
        package,
        file,
        what,
        at,
        to,
    }
}

/// Sizes in the picture: a box, and the distance from one to the next.
const BOX: [u32; 2] = [160, 58];
const STEP: [u32; 2] = [188, 100];
const MARGIN: u32 = 12;

impl Part {
    /// The upper left corner.
    fn corner(&self) -> [u32; 2] {
        [0, 1].map(|axis| MARGIN + self.at[axis] * STEP[axis])
    }

    /// Where an arrow to `other` leaves, and where it arrives.
    fn arrow(&self, other: &Self) -> [[u32; 2]; 2] {
        let [[x, y], [to_x, to_y]] = [self.corner(), other.corner()];
        if self.at[1] == other.at[1] {
            let middle = y + BOX[1] / 2;
            return [[x + BOX[0], middle], [to_x, middle]];
        }
        [[x + BOX[0] / 2, y + BOX[1]], [to_x + BOX[0] / 2, to_y]]
    }
}

/// Draws the boxes and their arrows.
pub(crate) fn svg() -> Result<String> {
    let [width, height] = [0, 1].map(|axis| {
        let last = PARTS.iter().map(|part| part.at[axis]).max().unwrap_or(0);
        last * STEP[axis] + BOX[axis] + 2 * MARGIN
    });
    let mut svg = svg::begin(width, height);
    for part in &PARTS {
        for name in part.to {
            let other = PARTS.iter().find(|other| other.name == *name);
            let [[x1, y1], [x2, y2]] = part.arrow(other.with_context(|| (*name).to_owned())?);
            writeln!(
                svg,
                "<path d=\"M{x1},{y1} L{x2},{y2}\" stroke=\"black\" marker-end=\"url(#head)\"/>"
            )?;
        }
    }
    for part in &PARTS {
        let ([x, y], [width, height]) = (part.corner(), BOX);
        let (package, file, name) = (part.package, part.file, part.name);
        let short = package.rsplit('/').next().unwrap_or(package);
        writeln!(
            svg,
            "<a href=\"../{package}/{file}\"><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" \
             height=\"{height}\" rx=\"5\" fill=\"#eef3fa\" stroke=\"black\"/>"
        )?;
        let x = x + width / 2;
        for (line, text, weight) in [
            (18, name, "bold"),
            (34, short, "normal"),
            (50, file, "normal"),
        ] {
            let y = y + line;
            writeln!(
                svg,
                "<text x=\"{x}\" y=\"{y}\" font-weight=\"{weight}\">{text}</text>"
            )?;
        }
        svg.push_str("</a>\n");
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The table of the boxes: what each does, and the file to start reading at.
pub(crate) fn markdown() -> Result<String> {
    let mut table = String::from("| box | start reading at | what |\n|---|---|---|\n");
    for Part {
        name,
        package,
        file,
        what,
        ..
    } in PARTS
    {
        let path = format!("{package}/{file}");
        writeln!(table, "| {name} | [{path}](../{path}) | {what} |")?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths;

    #[test]
    fn each_box_names_a_file_that_is_there() {
        for part in PARTS {
            let file = paths::root().join(part.package).join(part.file);
            assert!(file.is_file(), "{}", file.display());
        }
    }

    #[test]
    fn no_two_boxes_are_in_one_place() {
        for (index, part) in PARTS.iter().enumerate() {
            assert!(PARTS[index + 1..].iter().all(|other| other.at != part.at));
        }
    }
}
