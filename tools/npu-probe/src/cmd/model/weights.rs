// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the weights of a model that the NPU uses: tensor by tensor, as the backend decides.

use std::collections::HashSet;

use npu_matmul::memory::{DoesNotFit, MemoryPlan};
use npu_offload::{
    FormatClass, LayerPart, NumberFormat, OffloadRules, WeightMatrix, WeightRole, add_tensor,
};
use serde::Serialize;

use crate::gguf::{GgufModel, GgufTensor, check_count};

/// Limits for weight sizes (each takes milliseconds of planning) and matrices: more than any
/// model has.
const MAX_SIZES: u64 = 128;
const MAX_MATRICES: u64 = 1 << 18;

/// Where weights stay, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WeightPlace {
    Npu,
    /// They exceed the memory limit.
    CpuMemory,
    /// They exceed the NPU's address space.
    CpuAddresses,
    /// Their type is unknown, or cannot be decoded.
    CpuType,
    /// There is no plan for their size.
    CpuSize,
    /// The timing model predicts that the NPU is slower with them.
    CpuFaster,
}

/// Tensors that differ only in their layer number.
#[derive(Debug, Serialize)]
pub(super) struct WeightGroup {
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) type_name: String,
    /// Rows of the matrix (output channels), and columns (channels).
    pub(super) n: usize,
    pub(super) k: usize,
    /// Matrices of each tensor: experts.
    pub(super) matrices: usize,
    pub(super) tensors: usize,
    pub(super) place: WeightPlace,
    /// Precision of matmuls, and the minimum number of rows (for experts, of one expert).
    pub(super) computed_in: Option<&'static str>,
    pub(super) from_rows: Option<usize>,
    /// Bytes of all these tensors, packed.
    pub(super) packed_bytes: u64,
    #[serde(skip)]
    format: Option<NumberFormat>,
    #[serde(skip)]
    role: WeightRole,
}

impl WeightGroup {
    /// Whether memory and addresses suffice for these tensors.
    pub(super) const fn fits(&self) -> bool {
        !matches!(
            self.place,
            WeightPlace::CpuMemory | WeightPlace::CpuAddresses
        )
    }

    fn is_alike(&self, other: &Self) -> bool {
        let key = |group: &Self| (group.n, group.k, group.matrices, group.place);
        self.name == other.name && self.type_name == other.type_name && key(self) == key(other)
    }
}

/// All weight matrices of a model.
#[derive(Debug)]
pub(super) struct PlacedWeights {
    pub(super) groups: Vec<WeightGroup>,
    /// Bytes of the weights on the NPU.
    pub(super) bytes: u64,
}

/// Output channels and channels, if the tensor holds matrices.
fn size(tensor: &GgufTensor) -> Option<[usize; 2]> {
    let [k, n, ..] = tensor.dimensions;
    (n > 1).then_some([n, k])
}

fn matrices(tensor: &GgufTensor) -> usize {
    tensor.dimensions[2] * tensor.dimensions[3]
}

/// Rejects models whose planning would take hours.
pub(super) fn check(model: &GgufModel) -> anyhow::Result<()> {
    let sized = || model.tensors.iter().filter(|one| size(one).is_some());
    let sizes: HashSet<_> = sized().map(|one| (one.type_id, size(one))).collect();
    let count: usize = sized().map(matrices).sum();
    check_count("sizes of weights", sizes.len() as u64, MAX_SIZES)?;
    check_count("matrices of weights", count as u64, MAX_MATRICES)
}

impl PlacedWeights {
    /// Places the weights in at most `limit` bytes of memory.
    pub(super) fn new(model: &GgufModel, rules: &OffloadRules, limit: u64) -> Self {
        let target = &rules.target;
        let mut memory = MemoryPlan::for_weights(target.fds, limit, &target.options);
        let roles = model
            .tensors
            .iter()
            .map(|one| (WeightRole::of(&one.name), one));
        let mut due: Vec<_> = roles.filter(|(_, one)| size(one).is_some()).collect();
        if due.iter().any(|(role, _)| *role == WeightRole::Output) {
            due.retain(|(role, _)| *role != WeightRole::Embedding);
        }
        due.sort_by_key(|(role, _)| *role);
        let mut groups: Vec<WeightGroup> = Vec::new();
        for (role, tensor) in due {
            let group = place(tensor, role, rules, &mut memory);
            match groups.iter_mut().find(|known| known.is_alike(&group)) {
                Some(known) => {
                    known.tensors += 1;
                    known.packed_bytes = known.packed_bytes.saturating_add(group.packed_bytes);
                }
                None => groups.push(group),
            }
        }
        Self {
            groups,
            bytes: memory.total(),
        }
    }

    /// The weights for the estimate of a whole graph, or why there is no estimate.
    pub(super) fn of_graph(&self) -> Result<Vec<WeightMatrix>, String> {
        let weights = self.groups.iter().map(|group| {
            if group.matrices > 1 {
                return Err("graphs with experts are not modelled".to_owned());
            }
            let format = group.format;
            let format = format.ok_or_else(|| format!("{} is unknown", group.type_name))?;
            Ok(WeightMatrix {
                format,
                size: [group.n, group.k],
                count: group.tensors,
                part: LayerPart::of(&group.name),
                is_output: group.role != WeightRole::Layer,
                is_placed: group.place == WeightPlace::Npu,
            })
        });
        weights.collect()
    }
}

fn place(
    tensor: &GgufTensor,
    role: WeightRole,
    rules: &OffloadRules,
    memory: &mut MemoryPlan,
) -> WeightGroup {
    let [k, n, ..] = tensor.dimensions;
    let (type_name, format) = match tensor.format() {
        Some((name, format)) => (name.to_owned(), Some(format)),
        None => (format!("type {}", tensor.type_id), None),
    };
    let mut group = WeightGroup {
        name: without_number(&tensor.name),
        type_name,
        n,
        k,
        matrices: matrices(tensor),
        tensors: 1,
        place: WeightPlace::CpuType,
        computed_in: None,
        from_rows: None,
        packed_bytes: 0,
        format,
        role,
    };
    let Some(format) = format.filter(|format| format.class != FormatClass::Other) else {
        return group;
    };
    let decision = rules.decide(format, [n, k]);
    let Some(plan) = rules.target.weight_plan(decision.precision, [n, k]) else {
        group.place = WeightPlace::CpuSize;
        return group;
    };
    if decision.fewest_rows.is_none() {
        group.place = WeightPlace::CpuFaster;
        return group;
    }
    group.computed_in = Some(decision.precision.name());
    group.from_rows = decision.fewest_rows;
    group.packed_bytes = plan.device_bytes().saturating_mul(group.matrices as u64);
    group.place = match add_tensor(memory, &vec![plan; group.matrices]) {
        Ok(()) => WeightPlace::Npu,
        Err(DoesNotFit::Memory { .. }) => WeightPlace::CpuMemory,
        Err(_) => WeightPlace::CpuAddresses,
    };
    group
}

/// A name with `*` in place of the layer number.
fn without_number(name: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let parts = name.split('.').map(|part| match is_number(part) {
        true => "*",
        false => part,
    });
    parts.collect::<Vec<_>>().join(".")
}
