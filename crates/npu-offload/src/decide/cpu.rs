// SPDX-License-Identifier: MIT OR Apache-2.0
//! Speed of the CPU alone, from published figures. This project measured none of them.

use npu_matmul::Profile;
use npu_matmul::profile::CostSide;

use crate::decide::format::{FormatClass, NumberFormat};

/// Speed of a CPU in the work that the NPU is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSpeed {
    /// Multiply-adds a second in matmuls of many rows, with weights in floating point.
    pub float: u64,
    /// With weights of eight bits.
    pub eight_bits: u64,
    /// With weights of fewer bits.
    pub fewer_bits: u64,
    /// Multiply-adds a second in attention, on the likely side.
    pub attention: u64,
    /// On the side of the upper bound.
    pub attention_most: u64,
    /// Bytes of weights a second in matmuls of one row.
    pub weight_bytes: u64,
    /// Bytes a second in all other operations, which read and write and hardly compute.
    pub bytes: u64,
}

impl CpuSpeed {
    /// llama.cpp on the four Cortex-A76 and four A55 of an RK3588, eight threads, by published
    /// rates of whole models (E-llm-cpu):
    ///
    /// * Ministral-3-8B, 7.42 G multiply-adds a token, a prompt of 512 tokens: 7.2 tokens/s in F16,
    ///   6.9 in Q8_0, 6.5 in Q4_K_M. Without attention that is 54, 52 and 49 G/s.
    /// * Attention, with matmuls on the NPU and attention on the CPU: a token of a 2048-token prompt
    ///   takes 10.2 ms longer than one of 512 tokens with the same model, 5.8 ms with Llama-3.2-3B,
    ///   for 0.21 and 0.13 G multiply-adds more: 22 G/s. By the CPU alone with Llama-3.2-3B it is
    ///   5.0 ms in Q8_0 and 3.0 in F16: up to 50 G/s.
    /// * Token generation: 1.43 tokens/s in F16, 2.47 in Q8_0: at least 21 GB/s of weights.
    /// * All other operations at the memory's bandwidth, 17 GB/s (E-time-lpddr).
    pub const RK3588: Self = Self {
        float: 54_000_000_000,
        eight_bits: 52_000_000_000,
        fewer_bits: 49_000_000_000,
        attention: 22_000_000_000,
        attention_most: 50_000_000_000,
        weight_bytes: 21_000_000_000,
        bytes: 17_000_000_000,
    };

    /// [`Self::RK3588`], with what the profile of the board measured in its place.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        let published = Self::RK3588;
        let measured = profile.attention_macs_per_second;
        Self {
            attention: measured.unwrap_or(published.attention),
            attention_most: measured.unwrap_or(published.attention_most),
            ..published
        }
    }

    /// Multiply-adds a second in attention, on this side.
    #[must_use]
    pub const fn attention_on(&self, side: CostSide) -> u64 {
        match side {
            CostSide::Likely => self.attention,
            CostSide::Upper => self.attention_most,
        }
    }

    /// The mean of both sides' times for attention with so many multiply-adds, picoseconds. It
    /// decides what is offloaded: a wrong decision costs least if neither side is true.
    #[must_use]
    pub fn mean_attention_ps(&self, macs: u64) -> u64 {
        ps(macs, self.attention).midpoint(ps(macs, self.attention_most))
    }

    /// Multiply-adds a second with weights of this format.
    #[must_use]
    pub const fn macs(&self, weights: NumberFormat) -> u64 {
        match weights.class {
            FormatClass::Float | FormatClass::Other => self.float,
            FormatClass::Quantised if weights.is_within_bits(7) => self.fewer_bits,
            FormatClass::Quantised => self.eight_bits,
        }
    }

    /// Time of `rows` rows times weights of `n x k`, picoseconds: the longer of computing and
    /// reading the weights.
    #[must_use]
    pub fn matmul_ps(&self, weights: NumberFormat, [n, k]: [usize; 2], rows: usize) -> u64 {
        let elements = (n as u64).saturating_mul(k as u64);
        let macs = elements.saturating_mul(rows as u64);
        let read = weights.bytes(elements);
        ps(macs, self.macs(weights)).max(ps(read, self.weight_bytes))
    }
}

/// Picoseconds of `amount` at `rate` a second.
pub(crate) fn ps(amount: u64, rate: u64) -> u64 {
    let ps = u128::from(amount) * 1_000_000_000_000 / u128::from(rate.max(1));
    u64::try_from(ps).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_rate_replaces_both_sides() {
        let mut profile = Profile::clone(&Profile::built_in());
        assert_eq!(CpuSpeed::of(&profile), CpuSpeed::RK3588);
        profile.attention_macs_per_second = Some(30_000_000_000);
        let cpu = CpuSpeed::of(&profile);
        for side in [CostSide::Likely, CostSide::Upper] {
            assert_eq!(cpu.attention_on(side), 30_000_000_000);
        }
        assert_eq!(cpu.mean_attention_ps(30), 1000);
    }
}
