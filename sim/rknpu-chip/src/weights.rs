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

    /// Position in the stream of the element of kernel `n`, tap and channel.
    /// This defines the order; [`Self::rows`] is tested against it.
    pub(crate) fn element(&self, n: usize, tap: usize, channel: usize) -> usize {
        let group_size = self.precision.kernel_group();
        let channel_size = self.precision.channel_group();
        let (group, channels) = (n / group_size, channel / channel_size);
        let kernels_here = group_size.min(self.kernels - group * group_size);
        let channels_here = channel_size.min(self.channels - channels * channel_size);
        group * group_size * self.row_len()
            + channels * channel_size * self.taps * kernels_here
            + (tap * kernels_here + n % group_size) * channels_here
            + channel % channel_size
    }

    /// The whole kernel groups that `kernels` are in: their shape, the place of
    /// the first kernel in it, and its bytes of the stream.
    pub(crate) fn groups_of(&self, kernels: Range<usize>) -> (Self, usize, Range<usize>) {
        let group = self.precision.kernel_group();
        let start = kernels.start / group * group;
        let end = self.kernels.min(kernels.end.next_multiple_of(group));
        let part = Self {
            kernels: end.saturating_sub(start),
            ..*self
        };
        let bytes = self.bytes(start * self.row_len())..self.bytes(end * self.row_len());
        (part, kernels.start - start, bytes)
    }

    fn bytes(&self, elements: usize) -> usize {
        self.precision.bytes(elements as u64) as usize
    }

    /// Whether the last group of a depthwise stream of `len` bytes is padded.
    pub(crate) fn is_padded(&self, len: usize) -> bool {
        let group = self.precision.depthwise_group();
        len >= self.bytes(self.taps * self.channels.next_multiple_of(group))
    }

    /// [`Self::groups_of`] for the channel groups of a depthwise stream.
    pub(crate) fn channels_of(
        &self,
        channels: Range<usize>,
        padded: bool,
    ) -> (Self, usize, Range<usize>) {
        let group = self.precision.depthwise_group();
        let start = channels.start / group * group;
        let whole = channels.end.next_multiple_of(group);
        let end = if padded {
            whole
        } else {
            whole.min(self.channels)
        };
        let part = Self {
            channels: self.channels.saturating_sub(start),
            ..*self
        };
        let bytes = self.bytes(start * self.taps)..self.bytes(end * self.taps);
        (part, channels.start - start, bytes)
    }

    /// Fills `rows` with the kernels `first..first + count`, in the order (tap,
    /// channel). Kernels that do not exist are rows of zeros.
    pub(crate) fn rows<T: MacOperand>(
        &self,
        stream: &[u8],
        first: usize,
        count: usize,
        rows: &mut OperandRows<T>,
    ) -> Result<(), Stop> {
        rows.reshape(count, self.row_len())?;
        let present = count.min(self.kernels.saturating_sub(first));
        for missing in present..count {
            rows.row_mut(missing).fill(T::default());
        }
        let group = self.precision.kernel_group();
        let mut done = 0;
        while done < present {
            // Part of one kernel group: `skip..skip + take` of its kernels.
            let skip = (first + done) % group;
            let start = first + done - skip;
            let size = group.min(self.kernels - start);
            let take = (size - skip).min(present - done);
            let at = start * self.row_len();
            self.group_rows(stream, at, size, skip..skip + take, rows, done);
            done += take;
        }
        Ok(())
    }

    /// [`Self::rows`], element by element.
    pub(crate) fn rows_literally<T: MacOperand>(
        &self,
        stream: &[u8],
        first: usize,
        count: usize,
        rows: &mut OperandRows<T>,
    ) -> Result<(), Stop> {
        *rows = OperandRows::zeroed(count, self.row_len())?;
        for n in first..self.kernels.min(first + count) {
            for tap in 0..self.taps {
                for channel in 0..self.channels {
                    let place = tap * self.channels + channel;
                    let out = &mut rows.row_mut(n - first)[place..=place];
                    let at = self.element(n, tap, channel);
                    T::decode(self.precision, stream, at, out);
                }
            }
        }
        Ok(())
    }

    /// Decodes `kernels` of a group of `size` kernels into the rows from `row` on.
    /// The elements of the group begin at `at`; its stream is read from end to end.
    fn group_rows<T: MacOperand>(
        &self,
        stream: &[u8],
        mut at: usize,
        size: usize,
        kernels: Range<usize>,
        rows: &mut OperandRows<T>,
        row: usize,
    ) {
        let run = self.precision.channel_group();
        for channel in (0..self.channels).step_by(run) {
            let width = run.min(self.channels - channel);
            for tap in 0..self.taps {
                let place = tap * self.channels + channel;
                for (row, n) in (row..).zip(kernels.clone()) {
                    let out = &mut rows.row_mut(row)[place..place + width];
                    T::decode(self.precision, stream, at + n * width, out);
                }
                at += size * width;
            }
        }
    }

    /// Position in the stream of a depthwise weight. A last group of fewer
    /// channels is dense, unless the stream has room for a whole one
    /// (E-partial-groups).
    pub(crate) fn depthwise_element(&self, tap: usize, channel: usize, padded: bool) -> usize {
        let group = self.precision.depthwise_group();
        let first = channel / group * group;
        let pitch = if padded {
            group
        } else {
            group.min(self.channels.saturating_sub(first))
        };
        first * self.taps + tap * pitch + channel % group
    }

    /// Fills `rows` with the depthwise weights of the channels
    /// `first..first + count`: a row for each tap. Channels beyond the stream
    /// are 0.
    pub(crate) fn depthwise_rows<T: MacOperand>(
        &self,
        stream: &[u8],
        first: usize,
        count: usize,
        padded: bool,
        rows: &mut OperandRows<T>,
    ) -> Result<(), Stop> {
        rows.reshape(self.taps, count)?;
        let group = self.precision.depthwise_group();
        let present = if padded {
            count
        } else {
            count.min(self.channels.saturating_sub(first))
        };
        for tap in 0..self.taps {
            let row = &mut rows.row_mut(tap)[..count];
            let mut done = 0;
            while done < present {
                // A run ends with its channel group.
                let channel = first + done;
                let run = (group - channel % group).min(present - done);
                let at = self.depthwise_element(tap, channel, padded);
                T::decode(self.precision, stream, at, &mut row[done..done + run]);
                done += run;
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

    proptest! {
        #![proptest_config(test_support::cases(32))]

        #[test]
        fn the_stream_is_dense_and_in_order(
            code in prop::sample::select(vec![0u32, 1, 2, 6, 7]),
            kernels in 1usize..140,
            channels in 1usize..80,
            taps in 1usize..5,
        ) {
            let shape = WeightShape { precision: Precision::from_code(code), kernels, channels, taps };
            let mut at = 0;
            walk(&shape, |n, tap, c| {
                assert_eq!(shape.element(n, tap, c), at);
                at += 1;
            });
        }
    }
}
