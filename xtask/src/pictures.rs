// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pictures of docs/matmul.md that show facts: the order in which the NPU's memory has
//! the elements of a matrix, and the tiles that a product is cut into.

use anyhow::Result;
use npu_matmul::layout::{activation, output, weight};
use npu_matmul::plan::WeightPlan;
use npu_matmul::{Dtype, Plan, PlanOptions};
use rknpu_regcmd::MatmulType;

/// Fills of what belongs together.
const FILLS: [&str; 3] = ["#dbe8f8", "#e3f2dc", "#fbe8d0"];

/// A picture in the making; points and sizes are in pixels.
struct Svg(String);

impl Svg {
    fn new(width: u32, height: u32) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" \
             text-anchor=\"middle\">\n\
             <!-- SPDX-License-Identifier: MIT OR Apache-2.0. Written by `cargo xtask docs`. -->\n\
             <defs><marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" \
             orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\"/></marker></defs>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        ))
    }

    /// A box; `stroke` is how wide its edge is.
    fn rect(&mut self, [x, y]: [u32; 2], [width, height]: [u32; 2], fill: &str, stroke: u32) {
        self.0 += &format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" \
             stroke=\"black\" stroke-width=\"{stroke}\"/>\n"
        );
    }

    /// A line of text whose middle, or else whose `start`, is above this point.
    fn text(&mut self, [x, y]: [u32; 2], anchor: &str, text: &str) {
        self.0 += &format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n");
    }

    fn finish(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// A matrix, cut into the runs of a row that are in memory as they are in the row.
struct Matrix {
    title: &'static str,
    /// What counts rows and columns.
    axes: [&'static str; 2],
    /// Runs of a column, and of a row; elements of a run.
    runs: [usize; 2],
    length: usize,
    /// Rows whose runs follow each other.
    group: usize,
    /// A run in the picture.
    size: [u32; 2],
    corner: [u32; 2],
    /// First byte of an element.
    byte: fn(usize, usize) -> usize,
}

const MATRICES: [Matrix; 3] = [
    Matrix {
        title: "A, int8: 4 rows, K = 64",
        axes: ["m", "k"],
        runs: [4, 4],
        length: 16,
        group: 4,
        size: [72, 22],
        corner: [44, 48],
        byte: |m, k| activation(Dtype::Int8, 4, m, k).byte,
    },
    Matrix {
        title: "C, int32: 4 rows, N = 16",
        axes: ["m", "n"],
        runs: [4, 4],
        length: 4,
        group: 4,
        size: [72, 22],
        corner: [44, 204],
        byte: |m, n| output(MatmulType::Int8ToInt32, 4, m, n),
    },
    Matrix {
        title: "B, int8: 64 kernels, K = 64",
        axes: ["n", "k"],
        runs: [64, 2],
        length: 32,
        group: Dtype::Int8.kernel_group(),
        size: [110, 4],
        corner: [430, 48],
        byte: |n, k| weight(Dtype::Int8, 64, n, k).byte,
    },
];

impl Matrix {
    /// The runs, as row and column with the first byte, in the order of memory.
    fn in_memory(&self) -> Vec<(usize, [usize; 2])> {
        let [rows, columns] = self.runs;
        let all = (0..rows * columns).map(|run| [run / columns, run % columns]);
        let byte = |[row, column]: [usize; 2]| (self.byte)(row, column * self.length);
        let mut runs: Vec<_> = all.map(|run| (byte(run), run)).collect();
        runs.sort_unstable();
        runs
    }

    fn draw(&self, svg: &mut Svg) {
        let ([x, y], [width, height]) = (self.corner, self.size);
        let [row_axis, column_axis] = self.axes;
        svg.text([x, y - 30], "start", self.title);
        for column in 0..self.runs[1] {
            let text = format!("{column_axis} {}", range(column, self.length));
            svg.text(
                [x + column as u32 * width + width / 2, y - 8],
                "middle",
                &text,
            );
        }
        // What is cut into thin rows has its names and numbers a group apart.
        let step = if height < 20 { self.group } else { 1 };
        let mut way = Vec::new();
        for (byte, [row, column]) in self.in_memory() {
            let [left, top] = [x + column as u32 * width, y + row as u32 * height];
            way.push(format!("{},{}", left + width - 18, top + height / 2));
            if row % step > 0 {
                continue;
            }
            svg.rect(
                [left, top],
                [width, step as u32 * height],
                FILLS[row / self.group % 3],
                1,
            );
            if column == 0 {
                svg.text([x - 20, top + 15], "middle", &format!("{row_axis} {row}"));
            }
            svg.text([left + 26, top + 15], "middle", &byte.to_string());
        }
        svg.0 += &format!(
            "<path d=\"M{}\" fill=\"none\" stroke=\"#2458a6\" marker-end=\"url(#head)\"/>\n",
            way.join(" L")
        );
    }
}

fn range(index: usize, tile: usize) -> String {
    format!("{}..{}", index * tile, (index + 1) * tile)
}

/// docs/layout.svg.
pub(crate) fn layout() -> Result<String> {
    let mut svg = Svg::new(672, 352);
    MATRICES.iter().for_each(|matrix| matrix.draw(&mut svg));
    let text = "Numbers: first byte in memory. Line: the order of memory.";
    svg.text([44, 340], "start", text);
    Ok(svg.finish())
}

/// A product that is small enough for a picture, as M, N and K; its tiles.
const PRODUCT: [usize; 3] = [12, 192, 64];
const TILES: [usize; 3] = [4, 32, 32];
const DEVICES: usize = 3;

/// A tile of C in the picture; as wide as a tile of A, as high as one of B.
const TILE: [u32; 2] = [76, 34];
/// Corners of C, of A left of it, and of B above it.
const C: [u32; 2] = [256, 172];
const A: [u32; 2] = [64, C[1]];
const B: [u32; 2] = [C[0], 60];

/// What computes a tile of C: the device, and the numbers of the tasks in its job, by K
/// tile.
type TileTasks = (usize, Vec<usize>);

/// What the plan says of each tile of C, by row and column.
fn tiles() -> Result<Vec<Vec<TileTasks>>> {
    let [[m, n, k], [row_tile, n_tile, k_tile]] = [PRODUCT, TILES];
    let options = PlanOptions {
        row_tile: Some(row_tile),
        k_tile: Some(k_tile),
        n_tile: Some(n_tile),
        replicate: Some(false),
        ..PlanOptions::default()
    };
    let weights = WeightPlan::new(Dtype::Int8, n, k, DEVICES, &options)?;
    let mut tiles = vec![vec![(0, vec![0; k / k_tile]); n / n_tile]; m / row_tile];
    for job in Plan::new(&weights, m, &options)?
        .steps()
        .flat_map(|step| step.jobs)
    {
        for (number, task) in job.tasks.iter().enumerate() {
            let a = &job.band.activations[task.activation];
            let tile = &mut tiles[a.rows.start / row_tile][task.n.start / n_tile];
            tile.0 = job.device;
            tile.1[a.k_tile.index] = number;
        }
    }
    Ok(tiles)
}

/// docs/tiles.svg.
pub(crate) fn tiled_product() -> Result<String> {
    let at = |[x, y]: [u32; 2], column: usize, row: usize| {
        [x + column as u32 * TILE[0], y + row as u32 * TILE[1]]
    };
    let middle = |[x, y]: [u32; 2]| [x + TILE[0] / 2, y + TILE[1] / 2 + 4];
    let [row_tile, n_tile, k_tile] = TILES;
    let mut svg = Svg::new(736, 308);
    // One tile of C, and what it is made of, have a bold edge.
    let bold = [1, 2];
    let edge = |is: bool| if is { 3 } else { 1 };

    svg.text([A[0], A[1] - 30], "start", "A, 12 x 64");
    svg.text(
        [B[0], B[1] - 40],
        "start",
        "B, 192 x 64, its rows as columns",
    );
    let tiles = tiles()?;
    for k in 0..PRODUCT[2] / k_tile {
        let name = format!("k {}", range(k, k_tile));
        let [x, y] = at(A, k, 0);
        svg.text([x + TILE[0] / 2, y - 8], "middle", &name);
        let [x, y] = middle(at(B, 0, k));
        svg.text([x - 76, y], "middle", &name);
        for row in 0..tiles.len() {
            svg.rect(at(A, k, row), TILE, "white", edge(row == bold[0]));
        }
        for (column, (device, _)) in tiles[0].iter().enumerate() {
            svg.rect(
                at(B, column, k),
                TILE,
                FILLS[*device],
                edge(column == bold[1]),
            );
        }
    }
    for (column, (device, _)) in tiles[0].iter().enumerate() {
        let [x, y] = at(B, column, 0);
        let x = x + TILE[0] / 2;
        svg.text([x, y - 22], "middle", &format!("device {device}"));
        svg.text(
            [x, y - 8],
            "middle",
            &format!("n {}", range(column, n_tile)),
        );
    }
    for (row, tiles) in tiles.iter().enumerate() {
        let [x, y] = middle(at(A, 0, row));
        svg.text(
            [x - 70, y],
            "middle",
            &format!("m {}", range(row, row_tile)),
        );
        for (column, (device, tasks)) in tiles.iter().enumerate() {
            let corner = at(C, column, row);
            svg.rect(corner, TILE, FILLS[*device], edge([row, column] == bold));
            let tasks: Vec<_> = tasks.iter().map(usize::to_string).collect();
            svg.text(middle(corner), "middle", &tasks.join(" + "));
        }
    }
    let text = "C, 12 x 192: the tasks of the device's job";
    svg.text([C[0], C[1] + 3 * TILE[1] + 24], "start", text);
    Ok(svg.finish())
}
