// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries tiles larger than those that are known to have run. Each is a separate matmul,
//! compared with the CPU's.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use npu_matmul::plan::WeightPlan;
use npu_matmul::profile::MeasuredTile;
use npu_matmul::{Dtype, PlanOptions, Profile};
use rocket_uapi::Device;

use super::facts;
use crate::base::exit::Failure;
use crate::base::flags::OperandDtypes;
use crate::base::shape::MatmulShape;
use crate::matmul::data::MatmulOperands;
use crate::matmul::engine_run::{self, MatmulResult};
use crate::matmul::expected::CpuResult;

/// Depths to try: K of current models, whole or divided.
const DEPTHS: [usize; 4] = [512, 1024, 2048, 4096];

/// Columns of the first tiles of a depth, and of the last ones.
const COLUMNS: usize = 256;
const COLUMNS_MAX: usize = 8192;

const SEED: u64 = 1;

/// No tile starts after this time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Adds correct tiles to the profile, larger than those that are known to run, and saves it after
/// each tile. They may hang a core.
pub(crate) fn extend(
    profile: &mut Profile,
    device: &Device,
    tell: &impl Fn(&str),
    keep: &impl Fn(&Profile) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if device.info().is_model {
        // The model runs all legal tiles.
        return Ok(());
    }
    tell("larger tiles");
    let start = Instant::now();
    let go_on = || start.elapsed() < PATIENCE;
    let find = |dtype, smallest| grow(device, dtype, smallest, COLUMNS_MAX, go_on);
    extend_by(profile, find, tell, keep)
}

/// Does the work of [`extend`]. `find` searches upwards from the rows and the depth of a
/// known tile.
fn extend_by(
    profile: &mut Profile,
    find: impl Fn(Dtype, [usize; 2]) -> Result<Option<[usize; 3]>, Failure>,
    tell: &impl Fn(&str),
    keep: &impl Fn(&Profile) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for dtype in Dtype::ALL {
        for k in DEPTHS {
            let known = |tile: &&MeasuredTile| tile.dtype == dtype && tile.k >= k;
            let rows = profile.envelope.iter().filter(known).map(|tile| tile.rows);
            let from = rows.max().unwrap_or(npu_matmul::dtype::ROW_MULTIPLE);
            let Some([rows, k, n]) = find(dtype, [from, k])? else {
                continue;
            };
            tell(&format!("{dtype}: {rows} rows, K {k}, {n} columns run"));
            profile.envelope.push(MeasuredTile {
                dtype,
                rows,
                k,
                n,
                evidence: "calibrate".into(),
            });
            keep(profile)?;
        }
    }
    Ok(())
}

/// The largest tile of a depth with right results. Doubles the rows first, then the
/// columns.
fn grow(
    device: &Device,
    dtype: Dtype,
    [from, k]: [usize; 2],
    columns_max: usize,
    go_on: impl Fn() -> bool,
) -> Result<Option<[usize; 3]>, Failure> {
    let most = rows_max(dtype, k)?;
    let mut found = None;
    for rows in ladder(from, most).chain([most]) {
        if !go_on() || !runs(device, dtype, [rows, k, COLUMNS])? {
            break;
        }
        found = Some([rows, k, COLUMNS]);
    }
    let Some([rows, ..]) = found else {
        return Ok(None);
    };
    for columns in ladder(2 * COLUMNS, columns_max + 1) {
        if !go_on() || !runs(device, dtype, [rows, k, columns])? {
            break;
        }
        found = Some([rows, k, columns]);
    }
    Ok(found)
}

/// The numbers from `start` on, below `end`, each twice the one before.
fn ladder(start: usize, end: usize) -> impl Iterator<Item = usize> {
    let twice = |&before: &usize| before.checked_mul(2);
    std::iter::successors(Some(start.max(1)), twice).take_while(move |&now| now < end)
}

/// The largest legal number of rows.
fn rows_max(dtype: Dtype, k: usize) -> Result<usize, Failure> {
    let options = PlanOptions {
        k_tile: Some(k),
        int4_depth: Some(k),
        ..PlanOptions::default()
    };
    let weights = WeightPlan::new(dtype, COLUMNS, k, 1, &options);
    Ok(weights.map_err(npu_matmul::Error::from)?.row_tile_max)
}

/// Whether a matmul of one such tile gives right results.
fn runs(device: &Device, dtype: Dtype, [rows, k, n]: [usize; 3]) -> Result<bool, Failure> {
    let kind = match dtype {
        Dtype::Int8 => OperandDtypes::Int8,
        Dtype::Int4 => OperandDtypes::Int4,
        Dtype::Fp16 => OperandDtypes::Fp16,
    };
    let options = PlanOptions {
        row_tile: Some(rows),
        k_tile: Some(k),
        n_tile: Some(n),
        parts: Some(1),
        unmeasured_tiles: Some(true),
        ..PlanOptions::default()
    };
    let operands = MatmulOperands::random(kind, [rows * k, n * k], SEED).in_one_tile(k);
    let engine = engine_run::engine(device, 1, options, None)?;
    let weights = operands.load(&engine, dtype, n, k)?;
    let mut matmul = MatmulResult::unwritten(&operands, rows * n);
    if matmul.multiply(&engine, &weights, rows, &operands).is_err() {
        // The job was killed. Results on a broken core would be meaningless.
        return if facts::is_healthy(device).map_err(Failure::Device)? {
            Ok(false)
        } else {
            Err(Failure::Device(anyhow!(
                "after a tile of {rows} rows, K {k}, {n} columns ({dtype}) no matmul runs; the \
                 NPU may need a power cycle"
            )))
        };
    }
    let shape = MatmulShape { m: rows, k, n };
    // Rows that do not fit CBUF are the last ones.
    let looked_at = [0, 1, rows / 2, rows - 2, rows - 1];
    Ok(CpuResult::wrong_row(&matmul, shape, &operands, 1, looked_at).is_none())
}

#[cfg(test)]
mod tests {
    use npu_model::{Model, ModelOptions};

    use super::*;

    fn device(options: &str) -> Device {
        let options: ModelOptions = options.parse().unwrap();
        Model::new(options).open_device()
    }

    #[test]
    fn tiles_grow_to_the_largest_that_is_right() {
        let strict = device("level=strict");
        let most = rows_max(Dtype::Int8, 1024).unwrap();
        let found = grow(&strict, Dtype::Int8, [256, 1024], 512, || true);
        assert_eq!(found.unwrap(), Some([most, 1024, 512]));
        let found = grow(&device(""), Dtype::Int4, [64, 512], 256, || false);
        assert_eq!(found.unwrap(), None);
    }

    /// A chip that needs all weights in CBUF hangs if they do not fit.
    #[test]
    fn a_hang_ends_the_growth() {
        let device = device("weight-room=all,job-limit=1");
        let found = grow(&device, Dtype::Int8, [32, 1024], 512, || true).unwrap();
        let [rows, k, n] = found.unwrap();
        assert!(rows >= 32 && rows < rows_max(Dtype::Int8, 1024).unwrap());
        assert_eq!((k, n), (1024, COLUMNS));
    }

    /// A tile that breaks the NPU does not lose the tiles found before it.
    #[test]
    fn each_tile_is_kept_when_it_is_found() {
        let mut profile = Profile::clone(&Profile::built_in());
        let known = profile.envelope.len();
        let find = |_, [rows, k]: [usize; 2]| {
            if k == DEPTHS[1] {
                Err(Failure::Device(anyhow!("no matmul runs")))
            } else {
                Ok(Some([2 * rows, k, COLUMNS]))
            }
        };
        let kept = std::cell::Cell::new(0);
        let keep = |profile: &Profile| {
            kept.set(profile.envelope.len());
            Ok(())
        };
        assert!(extend_by(&mut profile, find, &|_| (), &keep).is_err());
        assert_eq!(kept.get(), known + 1);
    }

    #[test]
    fn each_number_is_twice_the_one_before() {
        assert_eq!(ladder(3, 25).collect::<Vec<_>>(), [3, 6, 12, 24]);
        assert_eq!(ladder(8, 8).count(), 0);
    }
}
