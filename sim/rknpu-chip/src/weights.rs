// SPDX-License-Identifier: MIT OR Apache-2.0
//! CNA, weight side: decodes the stream in memory into the kernels of a group.
//!
//! The stream is dense. Order of a direct convolution, outermost first:
//! kernel group, channel group, ky, kx, kernel of the group, channel of the
//! group; the last groups may be smaller than the rest (E-partial-groups). Order
//! of a depthwise one: channel group, ky, kx, channel (E-weight-order).

use std::ops::Range;

use super::precision::Precision;
use super::rows::{MacOperand, OperandRows};
use super::trap::Stop;

/// The kernels as the registers describe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WeightShape {
    pub(crate) precision: Precision,
    /// WEIGHT_KERNELS.
    pub(crate) kernels: usize,
    /// DATAIN_CHANNEL: channels of a kernel.
    pub(crate) channels: usize,
    /// WEIGHT_WIDTH * WEIGHT_HEIGHT.
    pub(crate) taps: usize,
}

impl WeightShape {
    /// Elements of a kernel, in the order (tap, channel).
    pub(crate) fn row_len(&self) -> usize {
        self.taps * self.channels
    }

    /// Bytes of `elements` elements of the stream.
    pub(crate) fn bytes(&self, elements: usize) -> usize {
        self.precision.bytes(elements as u64) as usize
    }

    /// Elements of the whole kernel groups that `kernels` are in.
    pub(crate) fn groups_of(&self, kernels: &Range<usize>) -> Range<usize> {
        let group = self.precision.kernel_group();
        let start = kernels.start / group * group;
        let end = self.kernels.min(kernels.end.next_multiple_of(group));
        start * self.row_len()..end * self.row_len()
    }

    /// Whether the last group of a depthwise stream of `len` bytes is padded.
    pub(crate) fn is_padded(&self, len: usize) -> bool {
        let group = self.precision.depthwise_group();
        len >= self.bytes(self.taps * self.channels.next_multiple_of(group))
    }

    /// Elements of the whole channel groups of a depthwise stream.
    pub(crate) fn channels_of(&self, channels: &Range<usize>, padded: bool) -> Range<usize> {
        let group = self.precision.depthwise_group();
        let start = channels.start / group * group;
        let whole = channels.end.next_multiple_of(group);
        let end = if padded {
            whole
        } else {
            whole.min(self.channels)
        };
        start * self.taps..end * self.taps
    }

    /// Fills `rows` with `kernels`, in the order (tap, channel). Kernels that do
    /// not exist are rows of zeros. `stream` starts at element `from`, at the
    /// latest with their group.
    pub(crate) fn rows<T: MacOperand>(
        &self,
        stream: &[u8],
        from: usize,
        kernels: Range<usize>,
        rows: &mut OperandRows<T>,
    ) -> Result<(), Stop> {
        rows.reshape(kernels.len(), self.row_len())?;
        let first = kernels.start;
        let end = kernels.end.min(self.kernels.max(first));
        for missing in end..kernels.end {
            rows.row_mut(missing - first).fill(T::default());
        }
        let group = self.precision.kernel_group();
        let run = self.precision.channel_group();
        for start in (first / group * group..end).step_by(group) {
            // The stream of a group is read from end to end.
            let size = group.min(self.kernels.saturating_sub(start));
            let kernels = first.max(start)..end.min(start + size);
            let mut at = start * self.row_len() - from;
            for channel in (0..self.channels).step_by(run) {
                let width = run.min(self.channels - channel);
                for tap in 0..self.taps {
                    let place = tap * self.channels + channel;
                    for n in kernels.clone() {
                        let out = &mut rows.row_mut(n - first)[place..place + width];
                        T::decode(self.precision, stream, at + (n - start) * width, out);
                    }
                    at += size * width;
                }
            }
        }
        Ok(())
    }

    /// Position in the stream of a depthwise weight. A last group of fewer
    /// channels is dense, unless the stream has room for a whole one
    /// (E-partial-groups).
    fn depthwise_element(&self, tap: usize, channel: usize, padded: bool) -> usize {
        let group = self.precision.depthwise_group();
        let first = channel / group * group;
        let pitch = if padded {
            group
        } else {
            group.min(self.channels.saturating_sub(first))
        };
        first * self.taps + tap * pitch + channel % group
    }

    /// [`Self::rows`] of the depthwise weights of `channels`: a row for each tap.
    /// Channels beyond the stream are 0.
    pub(crate) fn depthwise_rows<T: MacOperand>(
        &self,
        stream: &[u8],
        from: usize,
        channels: Range<usize>,
        padded: bool,
        rows: &mut OperandRows<T>,
    ) -> Result<(), Stop> {
        rows.reshape(self.taps, channels.len())?;
        let group = self.precision.depthwise_group();
        let end = if padded {
            channels.end
        } else {
            channels.end.min(self.channels)
        };
        for tap in 0..self.taps {
            let row = &mut rows.row_mut(tap)[..channels.len()];
            row[end.saturating_sub(channels.start)..].fill(T::default());
            let mut channel = channels.start;
            while channel < end {
                // A run ends with its channel group.
                let next = end.min((channel + 1).next_multiple_of(group));
                let at = self.depthwise_element(tap, channel, padded) - from;
                let out = &mut row[channel - channels.start..next - channels.start];
                T::decode(self.precision, stream, at, out);
                channel = next;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The order, as the loops that write the stream.
    fn walk(shape: &WeightShape, mut visit: impl FnMut(usize, usize, usize)) {
        let group = shape.precision.kernel_group();
        let run = shape.precision.channel_group();
        for n0 in (0..shape.kernels).step_by(group) {
            for c0 in (0..shape.channels).step_by(run) {
                for tap in 0..shape.taps {
                    for n in n0..shape.kernels.min(n0 + group) {
                        for c in c0..shape.channels.min(c0 + run) {
                            visit(n, tap, c);
                        }
                    }
                }
            }
        }
    }

    fn shapes() -> impl Strategy<Value = WeightShape> {
        let codes = prop::sample::select(vec![0u32, 1, 2, 6, 7]);
        (codes, 1usize..140, 1usize..80, 1usize..5).prop_map(|(code, kernels, channels, taps)| {
            WeightShape {
                precision: Precision::from_code(code),
                kernels,
                channels,
                taps,
            }
        })
    }

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn rows_follow_the_order_of_the_stream(
            shape in shapes(),
            first in 0usize..70,
            count in 1usize..70,
            // A stream may end early.
            len in 0u32..90_000,
        ) {
            let byte = |i: u32| i.wrapping_mul(0x9e37_79b1).to_le_bytes()[3];
            let stream: Vec<u8> = (0..len).map(byte).collect();
            let mut rows = OperandRows::<i16>::default();
            shape.rows(&stream, 0, first..first + count, &mut rows).unwrap();
            // A stream that starts with the kernels' group; tf32 has more bytes than `i16`.
            if shape.precision != Precision::Tf32 {
                let from = shape.groups_of(&(first..first + count)).start;
                let part = stream.get(shape.bytes(from)..).unwrap_or_default();
                let mut part_rows = OperandRows::default();
                shape.rows(part, from, first..first + count, &mut part_rows).unwrap();
                prop_assert!(part_rows == rows);
            }
            let mut at = 0;
            walk(&shape, |n, tap, c| {
                let mut element = [0];
                i16::decode(shape.precision, &stream, at, &mut element);
                if (first..first + count).contains(&n) {
                    assert_eq!(rows.row(n - first)[tap * shape.channels + c], element[0]);
                }
                at += 1;
            });
            for missing in shape.kernels.max(first)..first + count {
                prop_assert!(rows.row(missing - first).iter().all(|&value| value == 0));
            }
        }
    }
}
