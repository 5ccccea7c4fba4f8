// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver of the NPU, and the cores as platform devices: their IOMMUs and power states.

use rocket_uapi::BoundCores;

use super::root::{SystemRoot, shown_line};
use super::row::DoctorRow;
use crate::base::table::joined;

const DRIVERS: &str = "sys/bus/platform/drivers";
const DEVICES: &str = "sys/bus/platform/devices";
/// End of the names of the NPU's platform devices.
const NPU: &str = ".npu";
/// Names of the vendor's driver, in its kernels and in modules made from it.
const VENDOR_DRIVERS: [&str; 2] = ["RKNPU", "rknpu"];
/// Other traces of the vendor's driver.
const VENDOR_TRACES: [&str; 3] = ["sys/module/rknpu", "dev/rknpu", "sys/kernel/debug/rknpu"];
/// File of devices that wait for other devices, with the reason.
const DEFERRED: &str = "sys/kernel/debug/devices_deferred";

#[derive(Debug)]
pub(super) struct DriverBinding {
    /// Whether the rocket driver is present, as a module or built in.
    is_there: bool,
    /// The platform devices that rocket drives, such as `fdab0000.npu`.
    pub(super) cores: Vec<String>,
    /// The name of another chip's NPU that rocket drives.
    other: Option<String>,
    vendors: bool,
}

impl DriverBinding {
    pub(super) fn of(root: &SystemRoot) -> Self {
        let rocket = format!("{DRIVERS}/rocket");
        let bound = BoundCores::of(&root.at("/"));
        let there = VENDOR_DRIVERS.map(|name| root.exists(&format!("{DRIVERS}/{name}")));
        let traces = VENDOR_TRACES.map(|path| root.exists(path));
        Self {
            is_there: root.exists(&rocket),
            cores: bound.names,
            other: bound.other,
            vendors: there.contains(&true) || traces.contains(&true),
        }
    }

    /// Whether rocket drives a core.
    pub(super) fn is_bound(&self) -> bool {
        !self.cores.is_empty()
    }

    /// The row of the driver. `enabled`: cores in the device tree, if it is readable.
    /// `kernel_has_it`: by the kernel's version. `switched_off`: an NPU supply that the
    /// kernel switched off before the driver was loaded.
    pub(super) fn row(
        &self,
        root: &SystemRoot,
        enabled: Option<usize>,
        kernel_has_it: bool,
        switched_off: Option<&str>,
    ) -> DoctorRow {
        let deferred = root.text(DEFERRED).unwrap_or_default();
        let waiting = deferred.lines().filter(|line| line.contains(NPU)).take(8);
        let waiting = waiting.filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some(format!("waits: {}", shown_line(&words.join(" "))?))
        });
        let bound = self.cores.len();
        let found = match enabled {
            Some(enabled) => format!("rocket drives {bound} of {enabled} enabled cores"),
            None => format!("rocket drives {bound} cores"),
        };
        if self.vendors && bound == 0 {
            return DoctorRow::problem(
                "the vendor's rknpu, whose interface differs",
                "Boot a mainline kernel without rknpu: not built in, not as a module, and not \
                 from an overlay.",
            );
        }
        if let Some(other) = self.other.as_ref().filter(|_| bound == 0) {
            return DoctorRow::problem(
                format!("rocket drives `{other}`, another chip's NPU"),
                "Use a board with an RK3588 or RK3588S, or the software model (`--device model`): \
                 programs for an RK3588 compute nothing elsewhere.",
            );
        }
        let lacks_some = bound < enabled.unwrap_or(bound.max(1));
        let off = switched_off.filter(|_| lacks_some).map(|supply| {
            format!(
                "{supply} is off: the kernel switches off unused supplies 30 s after boot, and a \
                 module that is loaded later can fail"
            )
        });
        let early = "Build rocket into the kernel (CONFIG_DRM_ACCEL_ROCKET=y) or load it early, \
                     from the initramfs (`echo rocket | sudo tee -a /etc/initramfs-tools/modules; \
                     sudo update-initramfs -u`), and reboot.";
        let early_or = |remedy| if off.is_some() { early } else { remedy };
        if bound == 0 && !self.is_there {
            let remedy = match (kernel_has_it, enabled) {
                (false, _) => "Boot a kernel that has the driver.",
                (true, Some(0)) => {
                    "Fix the device tree first: an enabled core makes the kernel load the driver."
                }
                (true, _) => early_or(
                    "Run `sudo modprobe rocket`. If that fails, check `sudo dmesg | grep -i \
                     rocket`.",
                ),
            };
            return DoctorRow::problem("rocket is not loaded", remedy).with(off);
        }
        let cores = (bound > 0).then(|| self.cores.join(", "));
        if bound > 0 && !lacks_some {
            return DoctorRow::ok(found).with(cores);
        }
        let row = if bound == 0 {
            let remedy = "Check `sudo dmesg | grep -i -e rocket -e npu` for what the driver lacks.";
            DoctorRow::problem(found, early_or(remedy))
        } else {
            let remedy = "Check `sudo dmesg | grep -i -e rocket -e npu` for why the other cores \
                          are missing.";
            DoctorRow::note(found, early_or(remedy))
        };
        row.with(off).with(waiting).with(cores)
    }

    pub(super) fn iommu_row(&self, root: &SystemRoot) -> DoctorRow {
        let group = |core: &String| {
            let link = root.at(&format!("{DEVICES}/{core}/iommu_group"));
            let target = std::fs::read_link(link).ok()?;
            shown_line(target.file_name()?.to_str()?)
        };
        let without = self.cores.iter().filter(|core| group(core).is_none());
        let without = joined(without, ", ");
        if without.is_empty() {
            let groups = joined(self.cores.iter().filter_map(group), ", ");
            return DoctorRow::ok(format!("one group per core: {groups}"));
        }
        DoctorRow::problem(
            format!("no group for {without}"),
            "Check that the kernel has CONFIG_ROCKCHIP_IOMMU and that the device tree enables \
             rknn_mmu_0 to 2.",
        )
    }

    /// The row of runtime power management: a core sleeps 50 ms after its last job.
    pub(super) fn sleep_row(&self, root: &SystemRoot) -> DoctorRow {
        let power =
            |core: &String, file: &str| root.line(&format!("{DEVICES}/{core}/power/{file}"));
        let status =
            |core: &String| power(core, "runtime_status").unwrap_or_else(|| "unknown".to_owned());
        let all: Vec<String> = self.cores.iter().map(status).collect();
        let found = all.join(", ");
        if all.contains(&"error".to_owned()) {
            let remedy =
                "Reboot: the kernel could not power a core up or down. `sudo dmesg` shows why.";
            return DoctorRow::problem(found, remedy);
        }
        let is_kept_on = |core| power(core, "control").is_some_and(|control| control == "on");
        if self.cores.iter().any(is_kept_on) {
            let remedy = "Write `auto` to power/control of the cores in sysfs, unless you want \
                          them to stay powered.";
            return DoctorRow::note(format!("{found}; kept on"), remedy);
        }
        DoctorRow::ok(format!("{found} (they sleep 50 ms after a job)"))
    }
}
