// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `npu-probe calibrate` measures, and the profile that it makes of it.
//!
//! ```text
//! machine   clock, memory, start costs: tasks that have all run on silicon before
//! host      the CPU's kernels, cache maintenance
//! tiles     tiles that grow beyond those that have run
//! fastest   the best plans of some products
//! facts     experiments on contested facts, the risky ones last
//! ```
//!
//! The software model's times are those of its timing model, so that the same model
//! gives the same profile; of its host's CPU nothing is measured.

pub(crate) mod facts;
mod fastest;
mod file;
mod host;
mod machine;
mod report;
mod tiles;
mod timed;

use npu_matmul::Profile;
use npu_matmul::profile::Board;
use npu_model::Opened;

use crate::exit::Failure;
use crate::shape::ProductShape;

pub(crate) use file::write;
pub(crate) use report::CalibrateReport;

/// Opens a device for one measurement: a model with a timeline of its own.
pub(crate) trait Open: Fn() -> Result<Opened, Failure> {}
impl<F: Fn() -> Result<Opened, Failure>> Open for F {}

/// Measures everything but the facts. `tell` hears what is done, and what came of it.
pub(crate) fn measured(
    open: &impl Open,
    products: &[ProductShape],
    tell: &impl Fn(&str),
) -> Result<Profile, Failure> {
    let opened = open()?;
    let info = opened.device.info();
    let board = Board::of(&info);
    let mut profile = Profile::clone(&Profile::built_in());
    profile.name = format!("{board}, calibrated").into();
    profile.board = Some(board);
    tell("clock, memory and start costs");
    profile.machine = machine::measure(open, info.cores, tell)?;
    tell(&report::machine(&profile.machine));
    if !info.is_model {
        tell("kernels of the CPU");
        profile.host = host::measure(&opened.device)?;
        tell(&report::host(&profile.host));
        tell("larger tiles");
        tiles::extend(&mut profile.envelope, &opened.device, tell)?;
    }
    tell("the fastest plans");
    for &shape in products {
        for plan in fastest::plans(open, &profile, shape)? {
            tell(&report::plan(&plan));
            profile
                .insert(plan)
                .map_err(|error| Failure::Device(error.into()))?;
        }
    }
    Ok(profile)
}
