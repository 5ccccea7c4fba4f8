// SPDX-License-Identifier: MIT OR Apache-2.0
//! What of a matmul's program is a choice: the result is the same wherever the silicon
//! does what its sources say.

/// The two forms of the program that ran on silicon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MatmulForm {
    /// CNA, CORE and DPU. With DPU_RDMA not started, it cannot wait for data that
    /// nobody sends (E-mrdma-unfed). It ran with the vendor's driver (E-form-a-vendor);
    /// whether it runs on mainline is contested (E-form-a-mainline, E-form-a-hangs).
    A,
    /// DPU_RDMA started too, with its engines off. It ran on mainline
    /// (E-form-b-mainline).
    #[default]
    B,
}

/// What a task finds in CBUF of the task before it, and does not fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reuse {
    /// The rows of A (DATA_REUSE).
    pub features: bool,
    /// The kernels of B (WEIGHT_REUSE).
    pub weights: bool,
}

/// Which tasks use what the task before them left in CBUF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ReuseRule {
    /// None: each task fetches both operands.
    #[default]
    Never,
    /// Those of the same M, K and N as the task before, whose weights all fit CBUF
    /// (E-reuse-equal).
    EqualResident,
    /// All for which CBUF still holds the operand.
    Always,
}

/// How the program of a matmul is made. The default is what ran on the mainline driver
/// in every precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct ProgramOptions {
    /// The blocks that it starts.
    pub form: MatmulForm,
    /// Whether features get one bank more than they fill, where the weights keep what
    /// they need (E-spare-data-bank).
    pub spare_data_bank: bool,
    /// What a task may find in CBUF.
    pub reuse: ReuseRule,
}
