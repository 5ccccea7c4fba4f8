// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures that others published, each with what the timing model says.

/// What a published figure was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FigureRole {
    /// A parameter was chosen by it.
    Fitted,
    /// Nothing was; the model predicts it.
    HeldOut,
}

/// A published figure and what the model says.
#[derive(Clone, Debug)]
pub(super) struct FigureRow {
    pub(super) what: String,
    pub(super) unit: &'static str,
    pub(super) published: f64,
    pub(super) modelled: f64,
    pub(super) role: FigureRole,
}

impl FigureRow {
    pub(super) fn fitted(mut self) -> Self {
        self.role = FigureRole::Fitted;
        self
    }

    pub(super) fn error(&self) -> f64 {
        self.modelled / self.published - 1.0
    }
}

/// Figures of one subject, measured under the same conditions.
#[derive(Debug)]
pub(super) struct FigureTable {
    pub(super) title: &'static str,
    pub(super) conditions: &'static str,
    pub(super) rows: Vec<FigureRow>,
}

/// A figure that nothing was chosen by.
pub(super) fn row(
    what: impl Into<String>,
    unit: &'static str,
    published: f64,
    modelled: f64,
) -> FigureRow {
    FigureRow {
        what: what.into(),
        unit,
        published,
        modelled,
        role: FigureRole::HeldOut,
    }
}
