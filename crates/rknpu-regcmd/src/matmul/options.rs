// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of a matmul's program. They do not change the result, if the silicon does
//! what its sources say.

/// The two forms of the program that ran on silicon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MatmulForm {
    /// Starts CNA, CORE and DPU. DPU_RDMA does not start, so it cannot wait for data
    /// that no block sends (E-mrdma-unfed). This form ran with the vendor's driver
    /// (E-form-a-vendor); whether it runs on mainline is contested
    /// (E-form-a-mainline, E-form-a-hangs).
    A,
    /// Starts DPU_RDMA too, with its engines off. This form ran on mainline
    /// (E-form-b-mainline).
    #[default]
    B,
}

/// The operands that a task does not fetch, because the task before it left them in
/// CBUF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reuse {
    /// The rows of A (DATA_REUSE).
    pub features: bool,
    /// The kernels of B (WEIGHT_REUSE).
    pub weights: bool,
}

/// Which tasks reuse the operands that the task before them left in CBUF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ReuseRule {
    /// None: each task fetches both operands.
    #[default]
    Never,
    /// Tasks of the same M, K and N as the task before, whose weights all fit CBUF
    /// (E-reuse-equal).
    EqualResident,
    /// All tasks whose operand CBUF still holds.
    Always,
}

/// Options of a matmul's program. The default ran on the mainline driver in every
/// precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ProgramOptions {
    /// The form, which selects the blocks that start.
    pub form: MatmulForm,
    /// Whether features get one bank more than they fill, if the weights keep the
    /// banks that they need (E-spare-data-bank).
    pub spare_data_bank: bool,
    /// Which tasks reuse operands in CBUF.
    pub reuse: ReuseRule,
}
