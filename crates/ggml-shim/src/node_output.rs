// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the outputs of a node are written.

#[derive(Debug)]
pub(crate) enum NodeOutput<'a> {
    /// To the data of the node.
    InPlace(&'a mut [f32]),
    /// To separate memory, because others still need what the data of the node holds.
    Aside(Vec<f32>),
}

impl NodeOutput<'_> {
    pub(crate) fn values(&self) -> &[f32] {
        match self {
            Self::InPlace(values) => values,
            Self::Aside(values) => values,
        }
    }

    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        match self {
            Self::InPlace(values) => values,
            Self::Aside(values) => values,
        }
    }

    /// The outputs, if they are set aside.
    pub(crate) fn aside(self) -> Option<Vec<f32>> {
        match self {
            Self::InPlace(_) => None,
            Self::Aside(values) => Some(values),
        }
    }
}
