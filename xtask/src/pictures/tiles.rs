// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tiles a product is cut into, and which task computes which.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use npu_matmul::plan::WeightPlan;
use npu_matmul::{Dtype, Plan, PlanOptions};

use super::FILLS;
use crate::svg::Svg;

/// A product that is small enough for a picture.
const M: usize = 12;
const N: usize = 192;
const K: usize = 64;
const DEVICES: usize = 3;
/// Its tiles.
const ROW_TILE: usize = 4;
const N_TILE: usize = 32;
const K_TILE: usize = 32;

/// A tile of C in the picture, pixels; as wide as a tile of A, as high as one of B.
const TILE: [u32; 2] = [76, 34];
/// Corner of C.
const C: [u32; 2] = [256, 172];
/// Corner of A, left of it; of B, above it.
const A: [u32; 2] = [64, C[1]];
const B: [u32; 2] = [C[0], 60];

/// A tile of C: its place, counted in tiles.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    row: usize,
    column: usize,
}

/// Which device computes it, and the number of the task in the device's job for
/// each K tile.
#[derive(Debug, PartialEq)]
struct Tile {
    device: usize,
    tasks: Vec<usize>,
}

/// What the plan says.
fn tiles() -> Result<BTreeMap<Place, Tile>> {
    let options = PlanOptions {
        row_tile: Some(ROW_TILE),
        k_tile: Some(K_TILE),
        n_tile: Some(N_TILE),
        replicate: Some(false),
        ..PlanOptions::default()
    };
    let weights = WeightPlan::new(Dtype::Int8, N, K, DEVICES, &options)?;
    let plan = Plan::new(&weights, M, &options)?;
    let mut tiles = BTreeMap::new();
    for job in plan.steps().flat_map(|step| step.jobs) {
        for (number, task) in job.tasks.iter().enumerate() {
            let a = &job.band.activations[task.activation];
            let place = Place {
                row: a.rows.start / ROW_TILE,
                column: task.n.start / N_TILE,
            };
            let tile = tiles.entry(place).or_insert_with(|| Tile {
                device: job.device,
                tasks: vec![0; K / K_TILE],
            });
            *(tile.tasks.get_mut(a.k_tile.index)).context("a K tile too many")? = number;
        }
    }
    Ok(tiles)
}

/// The corner of a tile of the matrix at `corner`.
fn at(corner: [u32; 2], column: usize, row: usize) -> [u32; 2] {
    let [width, height] = TILE;
    [
        corner[0] + column as u32 * width,
        corner[1] + row as u32 * height,
    ]
}

/// The middle of a tile, for its text.
fn middle([x, y]: [u32; 2]) -> [u32; 2] {
    [x + TILE[0] / 2, y + TILE[1] / 2 + 4]
}

fn range(index: usize, tile: usize) -> String {
    format!("{}..{}", index * tile, (index + 1) * tile)
}

/// The picture.
pub(super) fn svg() -> Result<String> {
    let (row_tiles, n_tiles, k_tiles) = (M / ROW_TILE, N / N_TILE, K / K_TILE);
    let tiles = tiles()?;
    let mut svg = Svg::new(736, 308);
    // One tile of C, and what it is made of, have a bold edge.
    let bold = Place { row: 1, column: 2 };
    let edge = |is: bool| if is { 3 } else { 1 };

    svg.note([A[0], A[1] - 30], "A, 12 x 64");
    svg.note([B[0], B[1] - 40], "B, 192 x 64, its rows as columns");
    for k in 0..k_tiles {
        let [x, y] = at(A, k, 0);
        svg.text([x + TILE[0] / 2, y - 8], &format!("k {}", range(k, K_TILE)));
        let [x, y] = middle(at(B, 0, k));
        svg.text([x - 76, y], &format!("k {}", range(k, K_TILE)));
        for row in 0..row_tiles {
            svg.rect(at(A, k, row), TILE, "white", edge(row == bold.row));
        }
    }
    for row in 0..row_tiles {
        let [x, y] = middle(at(A, 0, row));
        svg.text([x - 70, y], &format!("m {}", range(row, ROW_TILE)));
    }
    for column in 0..n_tiles {
        let tile = tiles
            .get(&Place { row: 0, column })
            .context("no plan of C")?;
        let [x, y] = at(B, column, 0);
        let x = x + TILE[0] / 2;
        svg.text([x, y - 22], &format!("device {}", tile.device));
        svg.text([x, y - 8], &format!("n {}", range(column, N_TILE)));
        for k in 0..k_tiles {
            let is = edge(column == bold.column);
            svg.rect(at(B, column, k), TILE, FILLS[tile.device % FILLS.len()], is);
        }
    }
    for (place, tile) in &tiles {
        let corner = at(C, place.column, place.row);
        let fill = FILLS[tile.device % FILLS.len()];
        svg.rect(corner, TILE, fill, edge(*place == bold));
        let tasks: Vec<_> = tile.tasks.iter().map(usize::to_string).collect();
        svg.text(middle(corner), &tasks.join(" + "));
    }
    svg.note(
        [C[0], C[1] + 3 * TILE[1] + 24],
        "C, 12 x 192: the tasks of the device's job",
    );
    Ok(svg.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_in_one_place() {
        let tiles = tiles().unwrap();
        assert_eq!(tiles.len(), M / ROW_TILE * N / N_TILE);
        for device in 0..DEVICES {
            let of = tiles.values().filter(|tile| tile.device == device);
            let mut tasks: Vec<_> = of.flat_map(|tile| tile.tasks.clone()).collect();
            tasks.sort_unstable();
            let all = tiles.len() / DEVICES * K / K_TILE;
            assert_eq!(tasks, (0..all).collect::<Vec<_>>());
        }
    }
}
