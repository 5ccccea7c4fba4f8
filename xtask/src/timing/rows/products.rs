// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of whole products, of their clients, and of levers.

use anyhow::Result;
use rknpu_regcmd::MatmulType::{Fp16ToFp16, Int4ToInt16, Int8ToInt32};
use rknpu_regcmd::timing::seconds;

use super::super::figures::{FigureTable, row};
use super::super::host::HostCosts;
use super::super::jobs::{FAST, MS, SIZE, TILE};
use super::super::product::{CutProduct, SummedOn};
use super::super::tiles::TimedTile;

pub(super) fn host() -> Result<FigureTable> {
    let host = HostCosts::LIBROCKETNPU;
    let ms = |ps| MS * seconds(ps);
    let (m, k, n) = (u64::from(SIZE.0), u64::from(SIZE.1), u64::from(SIZE.2));
    let (read, tiles) = (host.read_ps(m * n), host.read_ps(320 * 256 * 256));
    let whole = fp16(SIZE);
    let right_sized = CutProduct {
        right_sized: true,
        ..whole
    };
    Ok(FigureTable {
        title: "Client",
        conditions: "512x3840x4096 fp16, one A76; cache maintenance summed over five files.",
        rows: vec![
            row("laying out B", "ms", 32.0, ms(host.pack_ps(n * k))).fitted(),
            row("laying out A", "ms", 4.0, ms(host.pack_ps(m * k))),
            row("reading 320 tiles", "ms", 76.0, ms(tiles)).fitted(),
            row("reading the result", "ms", 10.0, ms(read)),
            row(
                "cache maintenance, buffers of 64 tiles",
                "ms",
                127.0,
                MS * whole.run(&FAST)?.sync,
            )
            .fitted(),
            row(
                "the same, buffers as long as needed",
                "ms",
                15.0,
                MS * right_sized.run(&FAST)?.sync,
            ),
        ],
    })
}

/// fp16 with sums on the NPU, five files.
fn fp16(size: (u32, u32, u32)) -> CutProduct {
    CutProduct {
        ty: Fp16ToFp16,
        size,
        tile: (256, 384, 256),
        files: 5,
        sums: SummedOn::OnNpu,
        right_sized: false,
        packs_weights: false,
    }
}

/// fp16 in one file, as its one-shot call cuts it.
pub(super) fn one_file(size: (u32, u32, u32), tile: (u32, u32, u32)) -> CutProduct {
    CutProduct {
        tile,
        files: 1,
        right_sized: true,
        packs_weights: true,
        ..fp16(size)
    }
}

pub(super) fn products() -> Result<FigureTable> {
    let down = (512, 15360, 3840);
    let gops = |product: CutProduct| product.gops(&FAST);
    let right_sized = CutProduct {
        right_sized: true,
        ..fp16(SIZE)
    };
    let int8 = |size, k| fp16(size).as_integers(Int8ToInt32, k).gops(&FAST);
    let int4 = |size, k| fp16(size).as_integers(Int4ToInt16, k).gops(&FAST);
    Ok(FigureTable {
        title: "Products, weights resident, five files",
        conditions: "600 MHz, three cores. fp16: sums and reuse of features on the NPU, a job for \
                     each tile of K, output buffers of 64 tiles. int8, int4: every tile is read \
                     and summed on the CPU. Tiles of 256x256, in K 384 of fp16, 640 or 704 of \
                     int8, 1280 or 1408 of int4: as the library's rule for CBUF gives them.",
        rows: vec![
            row("512x3840x4096 fp16", "GOP/s", 461.0, gops(fp16(SIZE))?),
            row("512x3840x4096 int8", "GOP/s", 386.0, int8(SIZE, 640)?),
            row("512x3840x4096 int4", "GOP/s", 413.0, int4(SIZE, 1280)?),
            row("512x15360x3840 fp16", "GOP/s", 486.0, gops(fp16(down))?),
            row("512x15360x3840 int8", "GOP/s", 452.0, int8(down, 704)?),
            row("512x15360x3840 int4", "GOP/s", 463.0, int4(down, 1408)?),
            row(
                "512x3840x4096 fp16, buffers as long as needed",
                "GOP/s",
                539.0,
                gops(right_sized)?,
            ),
        ],
    })
}

/// Products whose tiles of half the width, 256x512x128 in place of 256x384x256, were
/// measured, and the gain of a call.
const NARROWED: [((u32, u32, u32), f64); 10] = [
    ((512, 2048, 2048), 1.158),
    ((512, 2048, 4096), 1.138),
    ((2048, 4096, 4096), 1.092),
    ((1024, 4096, 4096), 1.08),
    ((512, 8192, 2048), 1.081),
    ((1024, 8192, 8192), 1.072),
    ((512, 15360, 3840), 1.06),
    ((512, 4096, 4096), 1.06),
    ((512, 3840, 15360), 1.02),
    (SIZE, 1.02),
];

pub(super) fn levers() -> Result<FigureTable> {
    let plain = TimedTile { adds: true, ..TILE };
    let reusing = TimedTile {
        reuses: true,
        ..plain
    };
    let kick = FAST.driver.kick_ps;
    let device = |tile: TimedTile| Ok::<_, anyhow::Error>(tile.work()?.duration_ps(&FAST) + kick);
    // Four tiles of N share the rows of A.
    let shared = (device(plain)? + 3 * device(reusing)?) as f64 / (4 * device(plain)?) as f64;
    let mut rows = vec![row("wait, DATA_REUSE against none", "ratio", 0.79, shared)];
    for (size, published) in NARROWED {
        let time = |tile| Ok::<_, anyhow::Error>(one_file(size, tile).run(&FAST)?.wall);
        let gain = time((256, 384, 256))? / time((256, 512, 128))?;
        let (m, k, n) = size;
        rows.push(row(
            format!("tiles of half the width, {m}x{k}x{n}"),
            "ratio",
            published,
            gain,
        ));
    }
    Ok(FigureTable {
        title: "Levers",
        conditions: "Ratios of times, 600 MHz. Tiles of half the width are deeper: 256x512x128 in \
                     place of 256x384x256. Their gain is of a whole call of one file that lays \
                     out A and B and sums on the NPU.",
        rows,
    })
}
