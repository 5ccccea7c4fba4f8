// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the pictures of docs/layouts.md against the layouts and plans.

use std::collections::BTreeMap;
use std::ops::Range;

use npu_matmul::layout::{Position, activation, activation_bytes, output, output_bytes, weight};
use npu_matmul::plan::WeightPlan;
use npu_matmul::{Dtype, Plan, PlanOptions};

/// A grid of byte ranges.
struct Picture {
    /// The text behind `byte of (x, y) = `, if any.
    formula: Option<String>,
    cells: Vec<Cell>,
}

struct Cell {
    rows: Range<usize>,
    columns: Range<usize>,
    bytes: Range<usize>,
}

/// The pictures of the page, by title.
fn pictures() -> BTreeMap<String, Picture> {
    let page = include_str!("../../../../docs/layouts.md");
    let mut pictures = BTreeMap::new();
    let mut lines = page.lines().filter_map(|line| line.strip_prefix("    "));
    let mut title = lines.next();
    while let Some(name) = title {
        let mut picture = Picture {
            formula: None,
            cells: Vec::new(),
        };
        let mut columns = Vec::new();
        title = None;
        for line in lines.by_ref() {
            if let Some((_, formula)) = line.split_once(") = ") {
                picture.formula = Some(formula.to_owned());
            } else if let Some((row, cells)) = line.split_once('|') {
                let cells = cells.split('|').map(str::trim).filter(|c| !c.is_empty());
                if row.trim() != ":" {
                    let rows = range(row.split_whitespace().nth(1).unwrap());
                    let cells: Vec<_> = cells.map(range).collect();
                    assert_eq!(cells.len(), columns.len(), "{line}");
                    let cells = cells.into_iter().zip(&columns);
                    picture.cells.extend(cells.map(|(bytes, columns)| Cell {
                        rows: rows.clone(),
                        columns: Range::clone(columns),
                        bytes,
                    }));
                }
            } else if line.starts_with(' ') {
                let words = line.split_whitespace();
                columns.extend(words.filter(|w| w.contains("..")).map(range));
            } else if !line.starts_with('+') {
                title = Some(line);
                break;
            }
        }
        assert!(pictures.insert(name.to_owned(), picture).is_none());
    }
    pictures
}

/// Parses a range: `3..5`, or `3` for `3..4`.
fn range(text: &str) -> Range<usize> {
    let (start, end) = text.split_once("..").unwrap_or((text, ""));
    let start = start.parse().unwrap();
    start..end.parse().unwrap_or(start + 1)
}

/// Evaluates a formula of `+ * / %` and parentheses, from left to right.
fn value(formula: &str, variables: &[(&str, usize)]) -> usize {
    let spaced = formula.replace('(', "( ").replace(')', " )");
    let mut words = spaced.split_whitespace().peekable();
    let value = sum(&mut words, variables);
    assert_eq!(words.next(), None, "{formula}");
    value
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn sum(words: &mut Words<'_>, variables: &[(&str, usize)]) -> usize {
    let mut sum = product(words, variables);
    while words.next_if_eq(&"+").is_some() {
        sum += product(words, variables);
    }
    sum
}

fn product(words: &mut Words<'_>, variables: &[(&str, usize)]) -> usize {
    let mut product = factor(words, variables);
    while let Some(operator) = words.next_if(|word| ["*", "/", "%"].contains(word)) {
        let factor = factor(words, variables);
        match operator {
            "*" => product *= factor,
            "/" => product /= factor,
            _ => product %= factor,
        }
    }
    product
}

fn factor(words: &mut Words<'_>, variables: &[(&str, usize)]) -> usize {
    let word = words.next().unwrap();
    if word == "(" {
        let inner = sum(words, variables);
        assert_eq!(words.next(), Some(")"));
        return inner;
    }
    let variable = variables.iter().find(|(name, _)| *name == word);
    variable.map_or_else(|| word.parse().unwrap(), |(_, value)| *value)
}

/// The first bit of an element.
fn bit(position: Position) -> usize {
    position.byte * 8 + position.bit as usize
}

/// Checks the number of cells, that each cell has exactly the bits of its elements, in order, and
/// that the formula gives their bytes, also in a larger tile. `size` is the size of the tile that
/// the formula names; `bit_of` gets it before an element's row and column.
fn check(
    picture: &Picture,
    cells: usize,
    element_bits: usize,
    names: [&str; 2],
    size: (&str, usize),
    bit_of: impl Fn(usize, usize, usize) -> usize,
) {
    let formula = picture.formula.as_ref().unwrap();
    let byte_of = |size_now: usize, row: usize, column: usize| {
        let variables = [(size.0, size_now), (names[0], row), (names[1], column)];
        value(formula, &variables)
    };
    assert_eq!(picture.cells.len(), cells);
    for cell in &picture.cells {
        let mut next = cell.bytes.start * 8;
        for row in cell.rows.clone() {
            for column in cell.columns.clone() {
                assert_eq!(bit_of(size.1, row, column), next, "({row}, {column})");
                let byte = byte_of(size.1, row, column);
                assert_eq!(byte, next / 8, "({row}, {column})");
                next += element_bits;
            }
        }
        assert_eq!(next, cell.bytes.end * 8);
    }
    // Several kernel groups, groups of channels and surfaces.
    const LARGER: usize = 96;
    for (row, column) in (0..LARGER).flat_map(|row| (0..LARGER).map(move |column| (row, column))) {
        let byte = bit_of(LARGER, row, column) / 8;
        assert_eq!(byte, byte_of(LARGER, row, column), "({row}, {column})");
    }
}

#[test]
fn pictures_of_single_tiles_are_the_layouts() {
    let mut pictures = pictures();
    let mut take = |title: &str| pictures.remove(title).unwrap_or_else(|| panic!("{title}"));
    for (title, dtype, surfaces) in [
        ("A, int8: 4 rows, K = 64", Dtype::Int8, 4),
        ("A, fp16: 4 rows, K = 32", Dtype::Fp16, 4),
        ("A, int4: 4 rows, K = 64", Dtype::Int4, 2),
    ] {
        let picture = take(title);
        let bits = dtype.input_bits();
        check(
            &picture,
            4 * surfaces,
            bits,
            ["m", "k"],
            ("rows", 4),
            |rows, m, k| bit(activation(dtype, rows, m, k)),
        );
    }
    for (title, dtype) in [
        ("B, int8: 64 kernels, K = 64", Dtype::Int8),
        ("B, fp16: 32 kernels, K = 64", Dtype::Fp16),
        ("B, int4: 128 kernels, K = 64", Dtype::Int4),
    ] {
        let picture = take(title);
        let bits = dtype.input_bits();
        // The first two rows and the last of two groups.
        check(
            &picture,
            6 * 2,
            bits,
            ["n", "k"],
            ("K", 64),
            |depth, n, k| bit(weight(dtype, depth, n, k)),
        );
        let rows: Vec<_> = picture.cells.iter().map(|cell| cell.rows.start).collect();
        let group = dtype.kernel_group();
        assert!(rows.contains(&(group - 1)) && rows.contains(&group));
    }
    for (title, dtypes) in [
        (
            "C, int32 and binary32: 4 rows, N = 16",
            &[Dtype::Int8, Dtype::Fp16][..],
        ),
        ("C, int16 and binary16: 4 rows, N = 32", &[Dtype::Int4]),
    ] {
        let picture = take(title);
        for &dtype in dtypes {
            let bits = dtype.output_bytes() * 8;
            check(
                &picture,
                4 * 4,
                bits,
                ["m", "n"],
                ("rows", 4),
                |rows, m, n| output(dtype, rows, m, n) * 8,
            );
        }
    }
    // All other pictures have several tiles.
    assert!(pictures.keys().all(|title| title.contains(" by ")));
}

/// The cells of a picture with several tiles, in the order of the page.
fn tiles(pictures: &BTreeMap<String, Picture>, title: &str) -> Vec<[Range<usize>; 3]> {
    let cells = pictures[title].cells.iter();
    cells
        .map(|cell| [&cell.rows, &cell.columns, &cell.bytes].map(Range::clone))
        .collect()
}

#[test]
fn pictures_of_several_tiles_are_the_plan() {
    let pictures = pictures();
    let options = PlanOptions {
        row_tile: Some(4),
        k_tile: Some(64),
        n_tile: Some(32),
        ..PlanOptions::default()
    };
    let dtype = Dtype::Int8;
    let weights = WeightPlan::new(dtype, 64, 128, 1, &options).unwrap();
    let plan = Plan::new(&weights, 4, &options).unwrap();
    let steps: Vec<_> = plan.steps().collect();
    let [step] = &steps[..] else {
        panic!("one step");
    };
    let [job] = &step.jobs[..] else {
        panic!("one job");
    };
    let a = job.band.k_tiles.iter().enumerate().map(|(index, tile)| {
        let start = job.tasks_of(index)[0].a as usize;
        let bytes = activation_bytes(dtype, job.band.padded, tile.padded);
        [job.band.rows.clone(), tile.k.clone(), start..start + bytes]
    });
    let shown = tiles(&pictures, "A in tiles, int8: 4 rows, K = 128 by 64");
    assert_eq!(shown, a.collect::<Vec<_>>());

    let mut shown_b = tiles(&pictures, "B in tiles, int8: N = 64 by 32, K = 128 by 64");
    let mut b: Vec<_> = (weights.k_tiles())
        .flat_map(|tile| [0, 32].map(|n| (tile.clone(), n)))
        .map(|(tile, n)| {
            let start = weights.weight_offset(&weights.blocks[0], tile.index, n);
            [n..n + 32, tile.k, start..start + 2048]
        })
        .collect();
    b.sort_by_key(|[n, k, _]| (n.start, k.start));
    shown_b.sort_by_key(|[n, k, _]| (n.start, k.start));
    assert_eq!(shown_b, b);

    for k_tile in 0..2 {
        let title = format!("C of K tile {k_tile}, int32: 4 rows, N = 64 by 32");
        let tasks = job.tasks.iter();
        let mut c: Vec<_> = tasks
            .filter(|task| job.band.k_tiles[task.activation].index == k_tile)
            .map(|task| {
                let rows = job.band.rows.clone();
                let start = task.c as usize;
                let bytes = output_bytes(job.dtype, 4, task.n_padded as usize);
                [rows, task.n.clone(), start..start + bytes]
            })
            .collect();
        c.sort_by_key(|[m, n, _]| (m.start, n.start));
        assert_eq!(tiles(&pictures, &title), c);
    }
    assert_eq!(job.tasks.len(), 4);
}

#[test]
fn the_page_has_the_depth_of_any_int4_weights() {
    let page = include_str!("../../../../docs/matmul.md");
    let told = format!(
        "No K tile of {} channels",
        npu_matmul::plan::INT4_K_TILE_MAX
    );
    assert!(page.contains(&told), "{told}");
}
