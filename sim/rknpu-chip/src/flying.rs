// SPDX-License-Identifier: MIT OR Apache-2.0
//! A flying task: the DPU takes its main input from memory, by MRDMA.
//!
//! A group of the writer is SIZE_E + 1 atoms of output channels here
//! (inferred; all known programs use one).

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::rules::{FLYING_DUAL, FLYING_WIDTH, ORIG_CHANNEL};
use rknpu_regcmd::task::{DpuOutput, FLYING, Reads, Task};

use super::check;
use super::core_parts::CoreParts;
use super::dpu::Dpu;
use super::dpu::tile::{self, DpuTile, Values};
use super::precision::ATOM;
use super::trap::Stop;
use super::writer::OutputWriter;

/// Number of wrong elements at the end of the widest lines.
const TRAILING: usize = 54;
const TILE_PIXELS: usize = 4096;

/// Runs the task that `regs` describe.
pub(crate) fn run(
    parts: &mut CoreParts<'_>,
    regs: &RegisterFile,
    reads: &Reads,
    output: DpuOutput,
) -> Result<(), Stop> {
    let writer = OutputWriter::new(output, regs);
    let width = output.cube[0];
    let all = Task::Flying {
        reads: *reads,
        output,
    };
    let broken = check::registers(parts.report, &all, regs, parts.contested)?;
    parts.clock.spend(regs, FLYING)?;
    let dpu = Dpu::load(regs, Some(reads), true, &parts.dma, parts.contested)?;
    let dropped = broken.has(&FLYING_DUAL);
    let first_lane_only = broken.has(&ORIG_CHANNEL);

    let per_atom = dpu.out.precision.per_atom();
    let channels = output.group_atoms * per_atom;
    let pixels = output.pixels();
    for first in (0..pixels).step_by(TILE_PIXELS) {
        for group in 0..writer.channels.div_ceil(channels) {
            let mut tile = DpuTile {
                pixel: first,
                pixels: TILE_PIXELS.min(pixels - first),
                channel: group * channels,
                channels,
                values: Values::default(),
            };
            tile::main_input(&parts.dma, reads, dpu.float, &mut tile)?;
            if broken.has(&FLYING_WIDTH) {
                spoil_line_ends(&mut tile, width, reads.precision.per_atom());
            }
            let mut bytes = dpu.process(parts, regs, &mut tile)?;
            if dropped {
                bytes.fill(0);
            }
            if first_lane_only {
                for atom in bytes.chunks_exact_mut(ATOM) {
                    atom[ATOM / per_atom..].fill(0);
                }
            }
            writer.store(&parts.dma, group, &tile, &bytes)?;
        }
    }
    Ok(())
}

/// Zeroes the last elements of lines that are as wide as the field allows.
fn spoil_line_ends(tile: &mut DpuTile, width: usize, per_atom: usize) {
    for index in 0..tile.pixels {
        let bytes_after = (width - 1 - (tile.pixel + index) % width) * per_atom;
        for channel in 0..tile.channels {
            if bytes_after + per_atom - 1 - channel % per_atom < TRAILING {
                let at = index * tile.channels + channel;
                match &mut tile.values {
                    Values::Int(values) => values[at] = 0,
                    Values::Float(values) => values[at] = 0.0,
                }
            }
        }
    }
}
