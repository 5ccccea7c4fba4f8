// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the weights of a model that the NPU uses: tensor by tensor, as the backend decides.

use std::collections::HashSet;

use npu_matmul::memory::{DoesNotFit, MemoryPlan};
use npu_offload::{
    FormatClass, LayerPart, NumberFormat, OffloadRules, WeightMatrix, WeightRole, add_tensor,
};
use serde::Serialize;

use crate::matmul::gguf::{GgufModel, GgufTensor, check_count};

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
    pub(super) fn fits(&self) -> bool {
        ![WeightPlace::CpuMemory, WeightPlace::CpuAddresses].contains(&self.place)
    }

    /// The properties in which all tensors of a group are equal.
    fn key(&self) -> impl PartialEq {
        let names = (&self.name, &self.type_name);
        (names, self.n, self.k, self.matrices, self.place)
    }
}

/// The tensors of a model that hold matrices.
fn matrices(model: &GgufModel) -> impl Iterator<Item = &GgufTensor> {
    model
        .tensors
        .iter()
        .filter(|tensor| tensor.dimensions[1] > 1)
}

/// Rejects models whose planning would take hours.
pub(super) fn check(model: &GgufModel) -> anyhow::Result<()> {
    let size = |tensor: &GgufTensor| (tensor.type_id, [tensor.dimensions[0], tensor.dimensions[1]]);
    let sizes: HashSet<_> = matrices(model).map(size).collect();
    let count: usize = matrices(model).map(GgufTensor::matrices).sum();
    check_count("sizes of weights", sizes.len() as u64, MAX_SIZES)?;
    check_count("matrices of weights", count as u64, MAX_MATRICES)
}

/// Places all weights of a model in `memory`.
pub(super) fn place_all(
    model: &GgufModel,
    rules: &OffloadRules,
    memory: &mut MemoryPlan,
) -> Vec<WeightGroup> {
    let due = matrices(model).map(|tensor| (WeightRole::of(&tensor.name), tensor));
    let mut due: Vec<_> = due.collect();
    if due.iter().any(|(role, _)| *role == WeightRole::Output) {
        due.retain(|(role, _)| *role != WeightRole::Embedding);
    }
    due.sort_by_key(|(role, _)| *role);
    let mut groups: Vec<WeightGroup> = Vec::new();
    for (role, tensor) in due {
        let group = place(tensor, role, rules, memory);
        match groups.iter_mut().find(|known| known.key() == group.key()) {
            Some(known) => {
                known.tensors += 1;
                known.packed_bytes = known.packed_bytes.saturating_add(group.packed_bytes);
            }
            None => groups.push(group),
        }
    }
    groups
}

/// The weights for the estimate of a whole graph, or why there is no estimate.
pub(super) fn of_graph(groups: &[WeightGroup]) -> Result<Vec<WeightMatrix>, String> {
    let weights = groups.iter().map(|group| {
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
        matrices: tensor.matrices(),
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
    group.place = match add_tensor(memory, &plan, group.matrices) {
        Ok(()) => WeightPlace::Npu,
        Err(DoesNotFit::Memory { .. }) => WeightPlace::CpuMemory,
        Err(_) => WeightPlace::CpuAddresses,
    };
    group
}

/// A name with `*` in place of the layer number.
fn without_number(name: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let parts = name
        .split('.')
        .map(|part| if is_number(part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}
