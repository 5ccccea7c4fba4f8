// SPDX-License-Identifier: MIT OR Apache-2.0
//! `GGML_ROCKET_PLANS=file`: measured plans, which `npu-probe tune` wrote.

use std::path::Path;
use std::sync::Arc;

use npu_matmul::plan::{TunedFor, TunedPlans};
use rknpu_regcmd::timing::Machine;
use rocket_uapi::DeviceInfo;

/// The plans in `file`, or one line of complaint if they are not for this device,
/// of which plans assume that it is `machine`.
pub(crate) fn read(
    file: &Path,
    info: &DeviceInfo,
    machine: &Machine,
) -> Result<Arc<TunedPlans>, String> {
    let complaint = |error: &dyn std::fmt::Display| {
        format!(
            "GGML_ROCKET_PLANS: {}: {error}; using predicted plans",
            file.display()
        )
    };
    let plans = TunedPlans::read(file).map_err(|error| complaint(&error))?;
    plans
        .conditions()
        .check(&TunedFor::device(info, machine))
        .map_err(|error| complaint(&error))?;
    Ok(Arc::new(plans))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use npu_model::{Model, ModelOptions, Selector};

    use super::*;
    use crate::engine;

    #[test]
    fn plans_are_for_one_device_and_clock() {
        let info = Model::new(ModelOptions::default()).open_device().info();
        let machine = Machine::RK3588;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plans.json");
        let complaint = |machine: &Machine| read(&file, &info, machine).unwrap_err();
        assert!(complaint(&machine).contains("using predicted plans"));
        fs::write(&file, "{}").unwrap();
        assert!(complaint(&machine).contains("no table of plans"));
        let table = TunedPlans::new(TunedFor::device(&info, &machine));
        fs::write(&file, table.to_json().unwrap()).unwrap();
        assert_eq!(*read(&file, &info, &machine).unwrap(), table);
        let other = complaint(&machine.at_clock(200_000_000));
        assert!(
            other.contains("200 MHz") && other.contains("600 MHz"),
            "{other}"
        );
        for (clock, used) in [(600_000_000, true), (200_000_000, false)] {
            let opened = engine::open(&Selector::Model, false, None, Some(clock), Some(&file));
            let opened = opened.unwrap();
            assert_eq!(opened.target.options.tuned.is_some(), used);
            assert_eq!(opened.complaint.is_none(), used);
        }
    }
}
