// SPDX-License-Identifier: MIT OR Apache-2.0
//! GEM names, which only root may use.

use rocket_uapi::{Errno, PAGE_BYTES};

use crate::RowContext;
use crate::check::{Must, NotPassed, RowOutcome, expect};
use crate::raw::File;

pub(super) fn names(context: &RowContext) -> RowOutcome {
    if !context.info.is_model && rustix::process::geteuid().is_root() {
        return Err(NotPassed::Skip("root may use GEM names".to_owned()));
    }
    let file = File::new(&context.device);
    let bo = file.create(PAGE_BYTES as u32).must("CREATE_BO")?;
    expect("GEM_FLINK", file.flink(bo.handle), Err(Errno::ACCESS))
}
