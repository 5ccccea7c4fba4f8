// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device tree: the board, the chip, and the parts of the NPU that the board enables.
//!
//! Names and properties: Linux, arch/arm64/boot/dts/rockchip/rk3588-base.dtsi, and
//! Documentation/devicetree/bindings/npu/rockchip,rk3588-rknn-core.yaml.

use super::root::SystemRoot;
use super::row::DoctorRow;

/// Paths of the tree. The second is an absolute link to the first.
const PLACES: [&str; 2] = ["sys/firmware/devicetree/base", "proc/device-tree"];
/// Parent of the first path; containers mask it with an empty directory.
const FIRMWARE: &str = "sys/firmware";
/// `compatible` of a core, for the mainline driver.
const CORE: &str = "rockchip,rk3588-rknn-core";
/// Prefix of Rockchip's `compatible`, and end of that of the vendor's NPU node.
const VENDOR: &str = "rockchip,";
const VENDOR_NODE: &str = "rknpu";
/// Start of `compatible` of chips with this NPU. The RK3588S differs in its pins.
const CHIP: &str = "rockchip,rk3588";

/// The chip that the tree names.
#[derive(Debug)]
enum ChipKind {
    /// RK3588 or a variant.
    Rk3588(String),
    /// Another chip of the vendor.
    Rockchip(String),
    /// Another vendor's chip, or no tree.
    Other,
}

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
        self.compatible.iter().any(|name| name == CORE)
    }

    fn is_vendors(&self) -> bool {
        let mut names = self.compatible.iter();
        names.any(|name| name.starts_with(VENDOR) && name.ends_with(VENDOR_NODE))
    }
}

#[derive(Debug)]
pub(super) struct DeviceTree {
    model: Option<String>,
    chip: ChipKind,
    nodes: Vec<TreeNode>,
    visibility: TreeVisibility,
}

/// Whether the tree is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TreeVisibility {
    Seen,
    /// The firmware directory is empty: a container masks it.
    Masked,
    /// There is no tree, as on PCs.
    None,
}

impl DeviceTree {
    pub(super) fn of(root: &SystemRoot) -> Self {
        let mut places = PLACES.into_iter();
        let Some(base) = places.find(|place| root.exists(&format!("{place}/compatible"))) else {
            let masked = root.exists(FIRMWARE) && root.names(FIRMWARE).is_empty();
            return Self {
                model: None,
                chip: ChipKind::Other,
                nodes: Vec::new(),
                visibility: if masked {
                    TreeVisibility::Masked
                } else {
                    TreeVisibility::None
                },
            };
        };
        Self {
            visibility: TreeVisibility::Seen,
            model: root.line(&format!("{base}/model")),
            chip: chip(&root.strings(&format!("{base}/compatible"))),
            nodes: nodes(root, base),
        }
    }

    /// Whether the tree describes a board or virtual machine with the NPU.
    pub(super) fn has_npu(&self) -> bool {
        matches!(self.chip, ChipKind::Rk3588(_)) || self.nodes.iter().any(TreeNode::is_core)
    }

    /// Whether the tree names a chip with another NPU.
    pub(super) fn has_other_npu(&self) -> bool {
        matches!(self.chip, ChipKind::Rockchip(_)) && !self.has_npu()
    }

    /// The row of the board. `works`: the rocket driver is bound, whatever the tree says.
    pub(super) fn board_row(&self, works: bool) -> DoctorRow {
        let model = self.model.as_deref().unwrap_or("a board without a name");
        let elsewhere = "Use a board with an RK3588 or RK3588S, or the software model \
                         (`--device model`).";
        match &self.chip {
            ChipKind::Rk3588(chip) => DoctorRow::ok("board", format!("{model} ({chip})")),
            ChipKind::Rockchip(chip) => DoctorRow::problem(
                "board",
                format!(
                    "{model} ({chip}): the mainline driver does not support its NPU, and this \
                     project was not tested on it"
                ),
                elsewhere,
            ),
            ChipKind::Other if self.has_npu() => DoctorRow::note(
                "board",
                "not a Rockchip board, but with the NPU: a virtual machine",
                "Measure times on a board, not here.",
            ),
            ChipKind::Other if works => DoctorRow::ok(
                "board",
                match self.visibility {
                    TreeVisibility::Masked => {
                        "a board with the NPU; /sys/firmware is masked, as in a container"
                    }
                    _ => "a board with the NPU; no device tree names it",
                },
            ),
            ChipKind::Other if self.visibility == TreeVisibility::Masked => DoctorRow::problem(
                "board",
                "unknown: /sys/firmware is masked, as in a container, and no rocket driver is \
                 bound",
                "Run `npu-probe doctor` outside the container.",
            ),
            ChipKind::Other => DoctorRow::problem("board", "not a Rockchip board", elsewhere),
        }
    }

    /// Number of enabled cores; `None` if no tree is readable.
    pub(super) fn enabled_cores(&self) -> Option<usize> {
        let cores = self.nodes.iter().filter(|node| node.is_core());
        let enabled = cores.filter(|node| node.is_enabled()).count();
        (self.visibility == TreeVisibility::Seen).then_some(enabled)
    }

    /// The row of the cores, of which `enabled` are enabled.
    pub(super) fn cores_row(&self, enabled: usize) -> DoctorRow {
        const TOPIC: &str = "device tree";
        let cores: Vec<&TreeNode> = self.nodes.iter().filter(|node| node.is_core()).collect();
        if cores.is_empty() {
            let vendors = self.nodes.iter().find(|node| node.is_vendors());
            let found = match vendors {
                Some(node) => format!("the vendor's: {} is for the rknpu driver", node.name),
                None => "no node for the NPU".to_owned(),
            };
            let remedy = "Boot a mainline kernel, 6.18 or later, with the device tree of the \
                          same version.";
            return DoctorRow::problem(TOPIC, found, remedy);
        }
        let details = cores.iter().map(|core| self.describe(core));
        let found = format!("{enabled} of {} cores enabled", cores.len());
        let behind_disabled = |core: &&TreeNode| {
            core.is_enabled() && self.iommu_of(core).is_none_or(|iommu| !iommu.is_enabled())
        };
        if enabled == 0 {
            let remedy = "Enable rknn_core_0 to 2 and rknn_mmu_0 to 2 with a device tree overlay \
                          (status, npu-supply, sram-supply), or use a newer device tree of the \
                          board.";
            return DoctorRow::problem(TOPIC, found, remedy).with(details);
        }
        if cores.iter().any(behind_disabled) {
            let remedy = "Enable rknn_mmu_0 to 2 too: a core does not start while its IOMMU is \
                          disabled.";
            return DoctorRow::problem(TOPIC, found, remedy).with(details);
        }
        if enabled < cores.len() {
            let remedy = "Enable the other cores, or use the enabled ones only.";
            return DoctorRow::note(TOPIC, found, remedy).with(details);
        }
        DoctorRow::ok(TOPIC, found).with(details)
    }

    fn iommu_of(&self, core: &TreeNode) -> Option<&TreeNode> {
        let phandle = core.iommu?;
        let mut nodes = self.nodes.iter();
        nodes.find(|node| node.phandle == Some(phandle))
    }

    /// A core, as one line.
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

fn chip(compatible: &[String]) -> ChipKind {
    let mut names = compatible.iter();
    if let Some(name) = names.find(|name| name.starts_with(CHIP)) {
        return ChipKind::Rk3588(name.trim_start_matches(VENDOR).to_owned());
    }
    let of_vendor = |name: &String| Some(name.strip_prefix(VENDOR)?.to_owned());
    // The board comes first and the chip last.
    let chip = compatible.iter().rev().find_map(of_vendor);
    chip.map_or(ChipKind::Other, ChipKind::Rockchip)
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
