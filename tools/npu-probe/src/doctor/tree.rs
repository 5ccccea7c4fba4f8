// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device tree: the board, the chip, and the parts of the NPU that the board enables.
//!
//! Names and properties: Linux, arch/arm64/boot/dts/rockchip/rk3588-base.dtsi, and
//! Documentation/devicetree/bindings/npu/rockchip,rk3588-rknn-core.yaml.

use rocket_uapi::CORE_COMPATIBLE;

use super::root::SystemRoot;
use super::row::DoctorRow;

/// Paths of the tree. The second is an absolute link to the first.
const PLACES: [&str; 2] = ["sys/firmware/devicetree/base", "proc/device-tree"];
/// Parent of the first path; containers mask it with an empty directory.
const FIRMWARE: &str = "sys/firmware";
/// Prefix of Rockchip's `compatible`, and end of that of the vendor's NPU node.
const VENDOR: &str = "rockchip,";
const VENDOR_NODE: &str = "rknpu";
/// Start of the names of chips with this NPU. The RK3588S differs in its pins.
const CHIP: &str = "rk3588";

/// A node of a core or of an IOMMU, or the vendor's node of all cores.
#[derive(Debug)]
struct TreeNode {
    name: String,
    compatible: Vec<String>,
    /// The status; `okay` if the node has none (Devicetree Specification, 2.3.4).
    status: String,
    phandle: Option<u32>,
    /// phandle of the IOMMU of the core.
    iommu: Option<u32>,
    /// Properties that the binding requires and the node lacks.
    lacks: Vec<&'static str>,
}

impl TreeNode {
    fn is_enabled(&self) -> bool {
        ["okay", "ok"].contains(&self.status.as_str())
    }

    fn is_core(&self) -> bool {
        self.compatible.iter().any(|name| name == CORE_COMPATIBLE)
    }

    fn is_vendors(&self) -> bool {
        let mut names = self.compatible.iter();
        names.any(|name| name.starts_with(VENDOR) && name.ends_with(VENDOR_NODE))
    }
}

#[derive(Debug, Default)]
pub(super) struct DeviceTree {
    model: Option<String>,
    /// Rockchip's name of the chip; none for other vendors' chips.
    chip: Option<String>,
    nodes: Vec<TreeNode>,
    /// Whether there is a tree that can be read; PCs have none.
    is_readable: bool,
    /// Whether the firmware directory is empty: a container masks it.
    is_masked: bool,
}

impl DeviceTree {
    pub(super) fn of(root: &SystemRoot) -> Self {
        let mut places = PLACES.into_iter();
        let Some(base) = places.find(|place| root.exists(&format!("{place}/compatible"))) else {
            return Self {
                is_masked: root.exists(FIRMWARE) && root.names(FIRMWARE).is_empty(),
                ..Self::default()
            };
        };
        Self {
            model: root.line(&format!("{base}/model")),
            chip: chip(&root.strings(&format!("{base}/compatible"))),
            nodes: nodes(root, base),
            is_readable: true,
            is_masked: false,
        }
    }

    fn is_rk3588(&self) -> bool {
        let chip = self.chip.as_ref();
        chip.is_some_and(|chip| chip.starts_with(CHIP))
    }

    /// Whether the tree describes a board or virtual machine with the NPU.
    pub(super) fn has_npu(&self) -> bool {
        self.is_rk3588() || self.nodes.iter().any(TreeNode::is_core)
    }

    /// Whether the tree names a chip with another NPU.
    pub(super) fn has_other_npu(&self) -> bool {
        self.chip.is_some() && !self.has_npu()
    }

    /// The row of the board. `works`: the rocket driver is bound, whatever the tree says.
    pub(super) fn board_row(&self, works: bool) -> DoctorRow {
        let model = self.model.as_deref().unwrap_or("a board without a name");
        let elsewhere = "Use a board with an RK3588 or RK3588S, or the software model \
                         (`--device model`).";
        match &self.chip {
            Some(chip) if self.is_rk3588() => DoctorRow::ok(format!("{model} ({chip})")),
            Some(chip) => DoctorRow::problem(
                format!(
                    "{model} ({chip}): the mainline driver does not support its NPU, and this \
                     project was not tested on it"
                ),
                elsewhere,
            ),
            None if self.has_npu() => DoctorRow::note(
                "not a Rockchip board, but with the NPU: a virtual machine",
                "Measure times on a board, not here.",
            ),
            None if works => {
                let why = if self.is_masked {
                    "/sys/firmware is masked, as in a container"
                } else {
                    "no device tree names it"
                };
                DoctorRow::ok(format!("a board with the NPU; {why}"))
            }
            None if self.is_masked => DoctorRow::problem(
                "unknown: /sys/firmware is masked, as in a container, and no rocket driver is \
                 bound",
                "Run `npu-probe doctor` outside the container.",
            ),
            None => DoctorRow::problem("not a Rockchip board", elsewhere),
        }
    }

    /// Number of enabled cores; `None` if no tree is readable.
    pub(super) fn enabled_cores(&self) -> Option<usize> {
        let cores = self.nodes.iter().filter(|node| node.is_core());
        let enabled = cores.filter(|node| node.is_enabled()).count();
        self.is_readable.then_some(enabled)
    }

    /// The row of the cores, of which `enabled` are enabled.
    pub(super) fn cores_row(&self, enabled: usize) -> DoctorRow {
        let cores: Vec<&TreeNode> = self.nodes.iter().filter(|node| node.is_core()).collect();
        if cores.is_empty() {
            let vendors = self.nodes.iter().find(|node| node.is_vendors());
            let found = match vendors {
                Some(node) => format!("the vendor's: {} is for the rknpu driver", node.name),
                None => "no node for the NPU".to_owned(),
            };
            let remedy = "Boot a mainline kernel, 6.18 or later, with the device tree of the \
                          same version.";
            return DoctorRow::problem(found, remedy);
        }
        let details = cores.iter().map(|core| self.describe(core));
        let found = format!("{enabled} of {} cores enabled", cores.len());
        let behind_disabled = |core: &&TreeNode| {
            core.is_enabled() && self.iommu_of(core).is_none_or(|iommu| !iommu.is_enabled())
        };
        let row = if enabled == 0 {
            let remedy = "Enable rknn_core_0 to 2 and rknn_mmu_0 to 2 with a device tree overlay \
                          (status, npu-supply, sram-supply), or use a newer device tree of the \
                          board.";
            DoctorRow::problem(found, remedy)
        } else if cores.iter().any(behind_disabled) {
            let remedy = "Enable rknn_mmu_0 to 2 too: a core does not start while its IOMMU is \
                          disabled.";
            DoctorRow::problem(found, remedy)
        } else if enabled < cores.len() {
            let remedy = "Enable the other cores, or use the enabled ones only.";
            DoctorRow::note(found, remedy)
        } else {
            DoctorRow::ok(found)
        };
        row.with(details)
    }

    fn iommu_of(&self, core: &TreeNode) -> Option<&TreeNode> {
        let phandle = core.iommu?;
        let mut nodes = self.nodes.iter();
        nodes.find(|node| node.phandle == Some(phandle))
    }

    fn describe(&self, core: &TreeNode) -> String {
        let iommu = match self.iommu_of(core) {
            Some(iommu) => format!("{} {}", iommu.name, iommu.status),
            None => "no IOMMU".to_owned(),
        };
        let mut text = format!("{} {}, {iommu}", core.name, core.status);
        if !core.lacks.is_empty() {
            text = format!("{text}, lacks {}", core.lacks.join(", "));
        }
        text
    }
}

/// The chip in the tree's `compatible`: one with this NPU, or else the vendor's last name, since
/// the board comes first and the chip last.
fn chip(compatible: &[String]) -> Option<String> {
    let mut names = compatible
        .iter()
        .filter_map(|name| name.strip_prefix(VENDOR));
    let known = names.clone().find(|name| name.starts_with(CHIP));
    known.or_else(|| names.next_back()).map(str::to_owned)
}

/// The nodes of the NPU and of IOMMUs: at the top, or in some trees below `soc`.
fn nodes(root: &SystemRoot, base: &str) -> Vec<TreeNode> {
    let mut nodes = Vec::new();
    for parent in [base.to_owned(), format!("{base}/soc")] {
        for name in root.names(&parent) {
            if name.starts_with("npu@") || name.starts_with("iommu@") {
                nodes.push(node(root, &format!("{parent}/{name}"), name));
            }
        }
    }
    nodes
}

fn node(root: &SystemRoot, path: &str, name: String) -> TreeNode {
    let status = root.line(&format!("{path}/status"));
    // Numbers in a property have 32 bits each, most significant byte first.
    let first_cell = |property: &str| {
        let bytes = root.bytes(&format!("{path}/{property}"))?;
        Some(u32::from_be_bytes(*bytes.first_chunk()?))
    };
    let demanded = ["npu-supply", "sram-supply", "power-domains", "clocks"];
    TreeNode {
        name,
        compatible: root.strings(&format!("{path}/compatible")),
        status: status.unwrap_or_else(|| "okay".to_owned()),
        phandle: first_cell("phandle"),
        iommu: first_cell("iommus"),
        lacks: demanded
            .into_iter()
            .filter(|property| !root.exists(&format!("{path}/{property}")))
            .collect(),
    }
}
