// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tile in the DPU: some pixels and some channels.

/// Values in the type of the pipeline, ordered (pixel, channel).
///
/// The DPU has two pipelines: 32-bit integers, and floats. PROC_PRECISION of
/// DPU.DATA_FORMAT selects one for a task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    Int(Vec<i32>),
    Float(Vec<f32>),
}

/// No values.
impl Default for Values {
    fn default() -> Self {
        Self::Int(Vec::new())
    }
}

/// A rectangle of the output: consecutive pixels of the stream, consecutive
/// channels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DpuTile {
    /// First pixel.
    pub(crate) pixel: usize,
    /// Number of pixels.
    pub(crate) pixels: usize,
    /// First channel.
    pub(crate) channel: usize,
    /// Number of channels.
    pub(crate) channels: usize,
    pub(crate) values: Values,
}

impl DpuTile {
    /// Moves the tile to the pipeline that the DPU is set to. A main input of
    /// the other type keeps its bits.
    pub(crate) fn enter_pipeline(&mut self, float: bool) {
        self.values = match std::mem::take(&mut self.values) {
            Values::Int(values) if float => Values::Float(
                values
                    .into_iter()
                    .map(|v| f32::from_bits(v as u32))
                    .collect(),
            ),
            Values::Float(values) if !float => {
                Values::Int(values.into_iter().map(|v| v.to_bits() as i32).collect())
            }
            values => values,
        };
    }
}
