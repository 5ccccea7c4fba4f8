// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of whole products, of their clients, and of levers.

use anyhow::Result;
use rknpu_regcmd::MatmulType::{Fp16ToFp16, Int4ToInt16, Int8ToInt32};
use rknpu_regcmd::timing::seconds;

use super::super::figures::{FigureTable, row};
use super::super::host::HostCosts;
use super::super::jobs::{FAST, MS, SIZE, TILE, TileJobs, wait};
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
    }
}

/// int8 with sums on the CPU, five files.
fn int8(size: (u32, u32, u32)) -> CutProduct {
    CutProduct {
        ty: Int8ToInt32,
        sums: SummedOn::OnHost,
        ..fp16(size)
    }
}

/// int4, likewise.
fn int4(size: (u32, u32, u32)) -> CutProduct {
    CutProduct {
        ty: Int4ToInt16,
        ..int8(size)
    }
}

/// fp16 in one file, as its one-shot call cuts it.
pub(super) fn one_file(size: (u32, u32, u32), tile: (u32, u32, u32)) -> CutProduct {
    CutProduct {
        tile,
        files: 1,
        right_sized: true,
        ..fp16(size)
    }
}

pub(super) fn products() -> Result<FigureTable> {
    let down = (512, 15360, 3840);
    let gops = |product: CutProduct| product.gops(&FAST);
    let deep = |product: CutProduct, k| CutProduct {
        tile: (256, k, 256),
        ..product
    };
    let right_sized = CutProduct {
        right_sized: true,
        ..fp16(SIZE)
    };
    Ok(FigureTable {
        title: "Products, weights resident, five files",
        conditions: "600 MHz, three cores. fp16: sums and reuse of features on the NPU, a job for \
                     each tile of K, output buffers of 64 tiles. int8, int4: every tile is read \
                     and summed on the CPU. Tiles of 256x384x256 but where said.",
        rows: vec![
            row("512x3840x4096 fp16", "GOP/s", 461.0, gops(fp16(SIZE))?),
            row("512x3840x4096 int8", "GOP/s", 386.0, gops(int8(SIZE))?),
            row("512x3840x4096 int4", "GOP/s", 413.0, gops(int4(SIZE))?),
            row("512x15360x3840 fp16", "GOP/s", 486.0, gops(fp16(down))?),
            row("512x15360x3840 int8", "GOP/s", 452.0, gops(int8(down))?),
            row("512x15360x3840 int4", "GOP/s", 463.0, gops(int4(down))?),
            row(
                "512x3840x4096 fp16, buffers as long as needed",
                "GOP/s",
                539.0,
                gops(right_sized)?,
            ),
            row(
                "512x3840x4096 int8, tiles of 640 in K",
                "GOP/s",
                386.0,
                gops(deep(int8(SIZE), 640))?,
            ),
            row(
                "512x3840x4096 int4, tiles of 1280 in K",
                "GOP/s",
                413.0,
                gops(deep(int4(SIZE), 1280))?,
            ),
        ],
    })
}

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
    let asymmetric = |size| {
        let wait = |tile| Ok::<_, anyhow::Error>(one_file(size, tile).run(&FAST)?.wait);
        Ok::<_, anyhow::Error>(wait((256, 384, 256))? / wait((256, 512, 128))?)
    };
    Ok(FigureTable {
        title: "Levers",
        conditions: "Ratios of times, 600 MHz. The asymmetric tile (256x512x128 in place of \
                     256x384x256) was published as the gain of a whole call; modelled is the \
                     wait for the NPU alone.",
        rows: vec![
            row(
                "wait, one kick for 64 tasks against 64 kicks",
                "ratio",
                48.0 / 62.0,
                wait(&FAST, TileJobs::FIVE_CHAINED)? / wait(&FAST, TileJobs::FIVE)?,
            ),
            row("wait, DATA_REUSE against none", "ratio", 0.79, shared),
            row(
                "asymmetric tile, 512x2048x2048",
                "ratio",
                1.158,
                asymmetric((512, 2048, 2048))?,
            ),
            row(
                "asymmetric tile, 512x4096x4096",
                "ratio",
                1.06,
                asymmetric((512, 4096, 4096))?,
            ),
            row(
                "asymmetric tile, 512x3840x4096",
                "ratio",
                1.02,
                asymmetric(SIZE)?,
            ),
        ],
    })
}
