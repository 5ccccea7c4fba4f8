// SPDX-License-Identifier: MIT OR Apache-2.0
//! One product with each of its best plans.

use anyhow::anyhow;
use npu_matmul::plan::{
    Alternative, Candidate, PlanSizes, TunedKey, TunedPlan, alternatives, int4_depth,
};
use npu_matmul::{Dtype, Error, PlanOptions, Threads};
use npu_model::Opened;

use super::modelled;
use super::report::{TimedPlan, TunedProduct};
use crate::bench::MeasuredProduct;
use crate::cmd::measuring;
use crate::data::ProductOperands;
use crate::exit::Failure;
use crate::int4::of_int4;
use crate::product::ProductResult;
use crate::shape::ProductShape;

/// Picoseconds of a nanosecond.
const PS_PER_NS: u64 = 1000;

/// Nanoseconds of a millisecond.
const NS_PER_MS: f64 = 1e6;

/// A product whose plans are measured, and how that is done.
#[derive(Debug)]
pub(crate) struct PlanTuning {
    pub(crate) case: MeasuredProduct,
    pub(crate) fds: usize,
    pub(crate) threads: Option<Threads>,
    /// Options that plans are made with, none of them forced.
    pub(crate) options: PlanOptions,
    /// Plans that are tried, at most.
    pub(crate) count: usize,
}

impl PlanTuning {
    /// Measures the best plans by prediction, each on a device of its own from
    /// `open` (a model with a timeline at the assumed clock), and compares their
    /// results with the first one's.
    pub(crate) fn run(
        &self,
        open: impl Fn() -> Result<Opened, Failure>,
    ) -> Result<(TunedProduct, TunedPlan), Failure> {
        let operands = self.case.operands()?;
        let options = self.options_for(&operands).map_err(Error::from)?;
        let shape = self.case.shape;
        let found = alternatives(
            self.case.kind.dtype(),
            shape.n,
            shape.k,
            self.fds,
            &options,
            self.count,
        )
        .map_err(Error::from)?;
        let mut first: Option<(ProductResult, usize)> = None;
        let mut timed = Vec::new();
        for alternative in &found {
            let (product, measured_ns) = self.measure(alternative, &operands, &open()?)?;
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
            timed.push(TimedPlan {
                choice: alternative.choice,
                predicted_ns: alternative.candidate.cost_ps() / PS_PER_NS,
                measured_ns,
            });
        }
        let best = timed
            .iter()
            .enumerate()
            .min_by_key(|(_, one)| one.measured_ns)
            .map(|(at, one)| (at, *one));
        let (Some((at, best)), Some(alternative)) = (best, found.first()) else {
            return Err(Failure::Usage(anyhow!("{shape} has no plan")));
        };
        let key = TunedKey::of(&alternative.candidate.weights, shape.m, self.case.results);
        let plan = TunedPlan {
            key,
            choice: best.choice,
            predicted_ns: best.predicted_ns,
            measured_ns: best.measured_ns,
        };
        let tuned = TunedProduct {
            dtype: self.case.kind.to_string(),
            results: self.case.results,
            int4_depth: key.int4_depth,
            m: shape.m,
            k: shape.k,
            n: shape.n,
            plans: timed,
            best: at,
        };
        Ok((tuned, plan))
    }

    /// Options of which the engine can obey all choices.
    fn options_for(
        &self,
        operands: &ProductOperands,
    ) -> Result<PlanOptions, npu_matmul::PlanError> {
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
        let engine = measuring::engine(&opened.device, self.fds, forced, self.threads)?;
        let (measurement, product) = self.case.measure_with(&engine, None, operands)?;
        let ns = match &opened.model {
            None if measurement.gops.is_none() => {
                return Err(Failure::Device(anyhow!(
                    "no job ran: there is nothing to tune"
                )));
            }
            // Not negative, and centuries fit.
            None => (measurement.wall_ms.median * NS_PER_MS) as u64,
            Some(model) => {
                // One more warms up.
                let jobs_ps = modelled::last_product_ps(model, self.case.repeat + 1)?;
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
