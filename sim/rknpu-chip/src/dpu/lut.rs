// SPDX-License-Identifier: MIT OR Apache-2.0
//! The look-up tables of the EW stage: two of 513 entries, with linear
//! interpolation.
//!
//! Semantics: measured to within one output count on the sibling RK3576;
//! librocketnpu's activations, proven on RK3588, have the same numbers. The
//! roundings, and the values beyond the tables, are inferred from the
//! accuracies that librocketnpu publishes (API.md, its notes on the tables).
//! These rules, and no similar ones, give all accuracies but that of tanh to
//! the last printed digit:
//!
//! * A float looks up the nearest integer. Ties go to even; no figure shows
//!   whether they go there, up, or away from zero.
//! * Interpolated values are rounded down, on falling tables too.
//! * Beyond its end a table continues as a line, but not below zero. No figure
//!   shows what happens if the first or last entry is negative.
//!
//! LUT_CFG, LE_END and LO_START are ignored: in the known programs LE serves
//! the negative numbers and LO the others.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;

use super::super::Contested;
use super::super::contested::OtherSide;
use super::super::mac_array::saturate_i32;

/// Entries of a table.
pub(crate) const ENTRIES: usize = 513;

/// The tables and the place of the next entry. They outlive tasks.
#[derive(Clone, Debug)]
pub(crate) struct Lut {
    /// LE and LO.
    tables: [Box<[i16; ENTRIES]>; 2],
    table: usize,
    next: usize,
    writing: bool,
    /// Whether an upload restarted before its table was full.
    restarted: bool,
}

impl Default for Lut {
    fn default() -> Self {
        Self {
            tables: [Box::new([0; ENTRIES]), Box::new([0; ENTRIES])],
            table: 0,
            next: 0,
            writing: false,
            restarted: false,
        }
    }
}

impl Lut {
    /// A write to LUT_ACCESS_CFG. It sets the address, also between entries.
    pub(crate) fn access(&mut self, config: dpu::LutAccessCfg) {
        let within = self.writing && (1..ENTRIES).contains(&self.next);
        let same = self.table == config.lut_table_id() as usize;
        self.restarted |= within && same && config.lut_access_type() == 1;
        self.table = config.lut_table_id() as usize;
        self.next = config.lut_addr() as usize;
        self.writing = config.lut_access_type() == 1;
    }

    /// Whether an upload restarted within its table since the last call.
    pub(crate) fn take_restarted(&mut self) -> bool {
        std::mem::take(&mut self.restarted)
    }

    /// A write to LUT_ACCESS_DATA: one entry. Behind the last entry, and
    /// without write access, it does nothing.
    pub(crate) fn write(&mut self, data: dpu::LutAccessData) {
        if !self.writing {
            return;
        }
        if let Some(entry) = self.tables[self.table].get_mut(self.next) {
            *entry = data.lut_access_data() as i16;
        }
        self.next += 1;
    }

    /// The value `distance` behind the first entry of a table, whose entries are
    /// `2^step` apart.
    fn interpolate(&self, table: usize, distance: i64, step: u32) -> i64 {
        let entries = &self.tables[table];
        let index = usize::try_from(distance >> step).unwrap_or(0);
        let fraction = distance & ((1 << step) - 1);
        let low = i64::from(entries[index.min(ENTRIES - 1)]);
        let high = i64::from(entries[(index + 1).min(ENTRIES - 1)]);
        low + (((high - low) * fraction) >> step)
    }
}

/// The line that continues a table beyond its first or last entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slope {
    scale: i64,
    /// Right shift of the product.
    shift: u32,
}

impl Slope {
    /// The value `distance` behind `entry`: at least zero, or at least the
    /// entry if that is negative.
    fn beyond(self, entry: i16, distance: i64) -> i64 {
        let entry = i64::from(entry);
        let line = entry + ((distance * self.scale) >> self.shift);
        line.max(entry.min(0))
    }
}

/// Configuration of the tables for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LutConfig {
    start: i64,
    end: i64,
    /// log2 of the distance between entries, for LE and LO.
    steps: (u32, u32),
    underflow: Slope,
    overflow: Slope,
    /// Whether a float is rounded down to an index, instead of to nearest.
    floor: bool,
}

impl LutConfig {
    /// Steps beyond this make every index 0.
    const STEP_MAX: u32 = 40;

    pub(crate) fn decode(regs: &RegisterFile, contested: Contested) -> Self {
        let info = regs.get::<dpu::LutInfo>();
        let below = regs.get::<dpu::LutLeSlopeScale>();
        let above = regs.get::<dpu::LutLoSlopeScale>();
        Self {
            start: regs.get::<dpu::LutLeStart>().lut_le_start().into(),
            end: regs.get::<dpu::LutLoEnd>().lut_lo_end().into(),
            steps: (
                info.lut_le_index_select().min(Self::STEP_MAX),
                info.lut_lo_index_select().min(Self::STEP_MAX),
            ),
            underflow: Slope {
                scale: below.lut_le_slope_uflow_scale().into(),
                shift: regs
                    .get::<dpu::LutLeSlopeShift>()
                    .lut_le_slope_uflow_shift(),
            },
            overflow: Slope {
                scale: above.lut_lo_slope_oflow_scale().into(),
                shift: regs
                    .get::<dpu::LutLoSlopeShift>()
                    .lut_lo_slope_oflow_shift(),
            },
            floor: contested.has(OtherSide::LutIndexFloor),
        }
    }

    /// The value for a float.
    pub(crate) fn look_up_float(&self, lut: &Lut, x: f32) -> f32 {
        self.look_up(lut, float_index(x, self.floor)) as f32
    }

    /// The value for `v`. The domain excludes its end: `v == end` overflows.
    pub(crate) fn look_up(&self, lut: &Lut, v: i32) -> i32 {
        let v = i64::from(v);
        let y = if v < self.start {
            self.underflow.beyond(lut.tables[0][0], v - self.start)
        } else if v >= self.end {
            let last = lut.tables[1][ENTRIES - 1];
            self.overflow.beyond(last, v - self.end)
        } else if v < 0 {
            lut.interpolate(0, v - self.start, self.steps.0)
        } else {
            lut.interpolate(1, v, self.steps.1)
        };
        saturate_i32(y)
    }
}

/// The integer that a float looks up.
fn float_index(x: f32, floor: bool) -> i32 {
    let index = if floor {
        x.floor()
    } else {
        x.round_ties_even()
    };
    // `as` saturates, and turns NaN into 0.
    index as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use rknpu_regcmd::Register;

    fn ramp() -> (Lut, LutConfig) {
        let mut lut = Lut::default();
        for table in 0..2u32 {
            lut.access(dpu::LutAccessCfg::from_bits(0x20000 | table << 16));
            for i in 0..ENTRIES as i32 {
                let value = if table == 0 { i - 512 } else { i } * 32;
                lut.write(dpu::LutAccessData::from_bits(value as u32 & 0xffff));
            }
        }
        let config = LutConfig {
            start: -16384,
            end: 16384,
            steps: (5, 5),
            underflow: Slope { scale: 1, shift: 0 },
            overflow: Slope { scale: 0, shift: 0 },
            floor: false,
        };
        (lut, config)
    }

    #[test]
    fn a_ramp_gives_its_argument() {
        let (lut, config) = ramp();
        for v in [-16384, -16383, -1, 0, 1, 17, 4711, 16383] {
            assert_eq!(config.look_up(&lut, v), v);
        }
        assert_eq!(config.look_up(&lut, i32::MAX), 16384);
    }

    #[test]
    fn between_entries_values_go_down() {
        let (mut lut, config) = ramp();
        for (at, value) in [(1, 3), (2, 0)] {
            lut.access(dpu::LutAccessCfg::from_bits(0x30000 | at));
            lut.write(dpu::LutAccessData::from_bits(value));
        }
        // 3 * 31 / 32 above 0, on the way up and on the way down.
        assert_eq!(config.look_up(&lut, 31), 2);
        assert_eq!(config.look_up(&lut, 33), 2);
        assert_eq!(config.look_up(&lut, 63), 0);
    }

    #[test]
    fn beyond_the_ends_values_stop_at_zero() {
        let slope = Slope { scale: 1, shift: 1 };
        let back = Slope { scale: -1, ..slope };
        assert_eq!(slope.beyond(10, -3), 8);
        assert_eq!(slope.beyond(10, -30), 0);
        assert_eq!(slope.beyond(0, -1), 0);
        assert_eq!(back.beyond(10, 30), 0);
        assert_eq!(back.beyond(10, -30), 25);
        // Nor below an entry that is negative itself.
        assert_eq!(slope.beyond(-10, -3), -10);
        assert_eq!(slope.beyond(-10, 30), 5);
    }

    #[test]
    fn the_end_is_overflow() {
        let (lut, mut config) = ramp();
        config.overflow = Slope { scale: 2, shift: 1 };
        assert_eq!(config.look_up(&lut, 16384), 16384);
        assert_eq!(config.look_up(&lut, 16386), 16386);
    }

    #[test]
    fn an_access_word_between_entries_starts_over() {
        let (mut lut, config) = ramp();
        lut.access(dpu::LutAccessCfg::from_bits(0x30000));
        lut.write(dpu::LutAccessData::from_bits(7));
        lut.access(dpu::LutAccessCfg::from_bits(0x30000));
        lut.write(dpu::LutAccessData::from_bits(9));
        assert_eq!(config.look_up(&lut, 0), 9);
        // Writes with read access, or behind the end, do nothing.
        lut.access(dpu::LutAccessCfg::from_bits(0x10000));
        lut.write(dpu::LutAccessData::from_bits(1));
        assert_eq!(config.look_up(&lut, 0), 9);
        lut.access(dpu::LutAccessCfg::from_bits(0x20000 | 1023));
        lut.write(dpu::LutAccessData::from_bits(1));
    }

    #[test]
    fn floats_saturate_to_an_index() {
        let nearest = |x| float_index(x, false);
        assert_eq!(nearest(2.5), 2);
        assert_eq!(nearest(f32::INFINITY), i32::MAX);
        assert_eq!(nearest(f32::NAN), 0);
        assert_eq!(float_index(-0.25, true), -1);
    }
}
