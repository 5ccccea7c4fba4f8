// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fastest of a product's best plans.

use std::sync::Arc;

use anyhow::anyhow;
use npu_matmul::plan::{
    Alternative, Candidate, INT4_TYPICAL_CHANNELS, PlanSizes, alternatives, int4_depth,
    int4_depth_within,
};
use npu_matmul::profile::{FastestPlan, MeasuredTile};
use npu_matmul::{Dtype, Error, PlanError, PlanOptions, Profile, Results};
use npu_model::Opened;

use super::Open;
use super::timed::last_product_ps;
use crate::bench::MeasuredProduct;
use crate::cmd::measuring;
use crate::data::ProductOperands;
use crate::exit::Failure;
use crate::flags::OperandDtypes;
use crate::int4::of_int4;
use crate::product::ProductResult;
use crate::shape::ProductShape;

/// Plans that are tried, the best ones by prediction.
const TRIED: usize = 4;

/// Times that each is run on an NPU, after once to warm up; modelled times are the same
/// each time.
const REPEAT: usize = 3;

/// Picoseconds of a nanosecond.
const PS_PER_NS: u64 = 1000;

/// Nanoseconds of a millisecond.
const NS_PER_MS: f64 = 1e6;

/// The fastest plan of a product in each precision, on one file for each core.
pub(super) fn plans(
    open: &impl Open,
    profile: &Profile,
    unmeasured_tiles: bool,
    shape: ProductShape,
) -> Result<Vec<FastestPlan>, Failure> {
    let opened = open()?;
    let info = opened.device.info();
    let fds = usize::try_from(info.cores).unwrap_or(1).max(1);
    let of = |kind: &OperandDtypes| {
        let dtype = kind.dtype();
        let int4_depth = int4_depth_within(shape.k, INT4_TYPICAL_CHANNELS);
        let mut options = PlanOptions {
            profile: Arc::new(profile.clone()),
            unmeasured_tiles: Some(unmeasured_tiles),
            ..PlanOptions::default()
        };
        options.conditions.rows = shape.m;
        let tuning = PlanTuning {
            case: MeasuredProduct {
                kind: *kind,
                results: Results::Sums,
                int4_depth: (dtype == Dtype::Int4).then_some(int4_depth),
                shape,
                repeat: if info.is_model { 1 } else { REPEAT },
                machine: profile.machine,
                is_model: info.is_model,
            },
            fds,
            options,
        };
        tuning.run(open)
    };
    // A board may have no tile of a precision.
    let has_tiles = |kind: &&OperandDtypes| {
        let of = |tile: &MeasuredTile| tile.dtype == kind.dtype();
        unmeasured_tiles || profile.envelope.iter().any(of)
    };
    OperandDtypes::PLAIN
        .iter()
        .filter(has_tiles)
        .map(of)
        .collect()
}

/// A product whose plans are measured, and how that is done.
#[derive(Debug)]
struct PlanTuning {
    case: MeasuredProduct,
    fds: usize,
    /// Options that plans are made with, none of them forced.
    options: PlanOptions,
}

impl PlanTuning {
    /// Measures the best plans by prediction, each on a device of its own, and compares
    /// their results with the first one's.
    fn run(&self, open: &impl Open) -> Result<FastestPlan, Failure> {
        let operands = self.case.operands()?;
        let options = self.options_for(&operands).map_err(Error::from)?;
        let shape = self.case.shape;
        let found = alternatives(
            self.case.kind.dtype(),
            shape.n,
            shape.k,
            self.fds,
            &options,
            TRIED,
        )
        .map_err(Error::from)?;
        let mut first: Option<(ProductResult, usize)> = None;
        let mut best: Option<(u64, PlanSizes)> = None;
        for alternative in &found {
            let (product, ns) = self.measure(alternative, &operands, &open()?)?;
            let k_tiles = alternative.candidate.weights.k_tile_count();
            match &first {
                None => first = Some((product, k_tiles)),
                Some((first, tiles)) => {
                    let most = k_tiles.max(*tiles);
                    let wrong = product.contradictions(first, &operands, shape, most);
                    if wrong > 0 {
                        return Err(differs(alternative, wrong));
                    }
                }
            }
            if best.is_none_or(|(least, _)| ns < least) {
                best = Some((ns, alternative.choice));
            }
        }
        let (Some((ns, sizes)), Some(alternative)) = (best, found.first()) else {
            return Err(Failure::Usage(anyhow!("{shape} has no plan")));
        };
        let weights = &alternative.candidate.weights;
        Ok(FastestPlan::of(
            weights,
            shape.m,
            self.case.results,
            sizes,
            ns,
        ))
    }

    /// Options of which the engine can obey all choices.
    fn options_for(&self, operands: &ProductOperands) -> Result<PlanOptions, PlanError> {
        let (Dtype::Int4, ProductOperands::Integers { b, .. }) = (self.case.kind.dtype(), operands)
        else {
            return Ok(self.options.clone());
        };
        let ProductShape { n, k, .. } = self.case.shape;
        of_int4(&self.options, n, k, self.fds, int4_depth(k, b))
    }

    /// The result, and the time: on an NPU the median from call to return, on
    /// the software model the modelled time of the jobs and of the CPU's sums.
    fn measure(
        &self,
        alternative: &Alternative,
        operands: &ProductOperands,
        opened: &Opened,
    ) -> Result<(ProductResult, u64), Failure> {
        let forced = PlanOptions {
            // The weights tell it again.
            int4_depth: None,
            ..alternative.choice.forced(&self.options)
        };
        let engine = measuring::engine(&opened.device, self.fds, forced, None)?;
        let profile = &self.options.profile;
        let (measurement, product) = self.case.measure_with(&engine, profile, operands)?;
        let ns = match &opened.model {
            None if measurement.gops.is_none() => {
                return Err(Failure::Device(anyhow!(
                    "no job ran: there is nothing to measure"
                )));
            }
            // Not negative, and centuries fit.
            None => (measurement.wall_ms.median * NS_PER_MS) as u64,
            Some(model) => {
                // One more warms up.
                let jobs_ps = last_product_ps(model, self.case.repeat + 1)?;
                let Candidate {
                    call, prediction, ..
                } = &alternative.candidate;
                let not_hidden = call.call_ps.saturating_sub(prediction.npu_ps);
                jobs_ps.saturating_add(not_hidden) / PS_PER_NS
            }
        };
        Ok((product, ns))
    }
}

/// Plans of one product contradict each other.
fn differs(alternative: &Alternative, elements: usize) -> Failure {
    let PlanSizes {
        k_tile, row_tile, ..
    } = alternative.choice;
    Failure::Device(anyhow!(
        "{elements} elements differ from those of the first plan with tiles of {row_tile} rows \
         and K {k_tile}: nothing is said of its speed"
    ))
}
