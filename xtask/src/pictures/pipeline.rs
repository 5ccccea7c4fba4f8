// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the CPU and the NPU do at the same time: a product of several parts, and
//! the same of one.

use std::ops::Range;

use super::FILLS;
use crate::svg::Svg;

/// Parts of the product that is cut.
const PARTS: u32 = 4;
/// What a product takes, in units of time: an example.
const PACK: u32 = 8;
const NPU: u32 = 24;
const UNPACK: u32 = 12;

/// A unit of time, and the height of a bar, pixels.
const UNIT: u32 = 16;
const HEIGHT: u32 = 26;
const LEFT: u32 = 56;

/// When a part is packed, computed and unpacked.
struct Part {
    pack: Range<u32>,
    npu: Range<u32>,
    unpack: Range<u32>,
}

/// All parts are packed one after the other, computed as they come, and unpacked
/// as they end.
fn schedule(parts: u32) -> Vec<Part> {
    let share = |of: u32| of / parts;
    let (mut npu_free, mut cpu_free) = (0, PACK);
    (0..parts)
        .map(|index| {
            let pack = index * share(PACK)..(index + 1) * share(PACK);
            let start = pack.end.max(npu_free);
            let npu = start..start + share(NPU);
            let start = npu.end.max(cpu_free);
            let unpack = start..start + share(UNPACK);
            (npu_free, cpu_free) = (npu.end, unpack.end);
            Part { pack, npu, unpack }
        })
        .collect()
}

fn draw(svg: &mut Svg, top: u32, title: &str, parts: &[Part]) {
    svg.note([LEFT, top - 8], title);
    let below = top + HEIGHT + 4;
    for (name, top) in [("CPU", top), ("NPU", below)] {
        svg.text([LEFT - 26, top + 17], name);
    }
    for (index, part) in parts.iter().enumerate() {
        for (kind, (name, time, top)) in [
            ("pack", &part.pack, top),
            ("run", &part.npu, below),
            ("unpack", &part.unpack, top),
        ]
        .into_iter()
        .enumerate()
        {
            let (x, width) = (LEFT + time.start * UNIT, (time.end - time.start) * UNIT);
            svg.rect([x, top], [width, HEIGHT], FILLS[kind], 1);
            // What is too short for its name is told by its colour.
            let text = if width < 60 {
                index.to_string()
            } else {
                format!("{name} {index}")
            };
            svg.text([x + width / 2, top + 17], &text);
        }
    }
}

/// The picture.
pub(super) fn svg() -> String {
    let whole = LEFT + (PACK + NPU + UNPACK) * UNIT;
    let mut svg = Svg::new(whole + 20, 212);
    draw(&mut svg, 28, "one part", &schedule(1));
    draw(&mut svg, 118, "four parts", &schedule(PARTS));
    let y = 200;
    svg.path(&[[LEFT, y], [whole, y]]);
    svg.text([LEFT - 26, y + 4], "time");
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_done_twice_at_once_and_the_npu_never_waits() {
        for parts in [1, PARTS] {
            let parts = schedule(parts);
            let cpu = parts.iter().map(|part| &part.pack);
            let cpu: Vec<_> = cpu.chain(parts.iter().map(|part| &part.unpack)).collect();
            assert!(cpu.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let npu: Vec<_> = parts.iter().map(|part| &part.npu).collect();
            assert!(npu.windows(2).all(|pair| pair[0].end == pair[1].start));
            for part in &parts {
                assert!(part.pack.end <= part.npu.start && part.npu.end <= part.unpack.start);
            }
        }
    }

    #[test]
    fn parts_cost_no_more_than_the_first_pack_and_the_last_unpack() {
        let end = |parts| schedule(parts).last().map(|part| part.unpack.end);
        assert_eq!(end(1), Some(PACK + NPU + UNPACK));
        assert_eq!(end(PARTS), Some(PACK / PARTS + NPU + UNPACK / PARTS));
    }
}
