// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the chip on which sources contradict each other, or that nobody
//! has isolated. Each is a switch, so that a client can be tested against every
//! side. The default is the side with the most evidence from silicon.
//! docs/chip.md has the evidence of each side (E-...), and shows how a board
//! settles each fact.

use std::fmt;

/// Name and sides of a switch of [`Contested`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Name, e.g. `tf32-operand`.
    pub name: &'static str,
    /// Sides; the first is the default.
    pub sides: &'static [&'static str],
}

/// Error for a text that names no switch, or no side of a switch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a contested fact: write NAME=SIDE, one of {}", choices(.name.as_deref()))]
pub struct UnknownSwitch {
    /// The text that was given.
    pub text: String,
    /// Name of the switch, if it is known and only the side is not.
    pub name: Option<String>,
}

/// The choices that an error shows: those of one switch, or all.
fn choices(name: Option<&str>) -> String {
    let wanted = |switch: &&Switch| name.is_none_or(|name| name == switch.name);
    let switches = Contested::SWITCHES.iter().filter(wanted);
    let choices = switches.map(|switch| format!("{}={}", switch.name, switch.sides.join("|")));
    choices.collect::<Vec<_>>().join(", ")
}

/// The selected side of every contested fact.
///
/// ```
/// use rknpu_chip::Contested;
///
/// let mut facts = Contested::default();
/// facts.set("tf32-operand=nearest")?;
/// assert!(facts.sides().any(|side| side == ("tf32-operand", "nearest")));
/// # Ok::<(), rknpu_chip::UnknownSwitch>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Contested {
    /// A bit for each [`OtherSide`].
    others: u32,
}

impl Contested {
    /// Whether a side other than the default is selected.
    pub(crate) fn has(self, side: OtherSide) -> bool {
        self.others >> side as u32 & 1 == 1
    }

    /// Selects one side: `NAME=SIDE`.
    ///
    /// # Errors
    /// [`UnknownSwitch`] with the valid choices.
    pub fn set(&mut self, text: &str) -> Result<(), UnknownSwitch> {
        let (name, side) = text.split_once('=').unwrap_or((text, ""));
        let unknown = |name: Option<&str>| UnknownSwitch {
            text: text.to_owned(),
            name: name.map(str::to_owned),
        };
        let mut switches = Self::SWITCHES.iter().zip(OTHERS);
        let (switch, others) = switches
            .find(|(switch, _)| switch.name == name)
            .ok_or_else(|| unknown(None))?;
        if !switch.sides.contains(&side) {
            return Err(unknown(Some(name)));
        }
        for (&text, &other) in switch.sides.iter().skip(1).zip(*others) {
            let bit = 1 << other as u32;
            self.others &= !bit;
            if text == side {
                self.others |= bit;
            }
        }
        Ok(())
    }

    /// Every switch, with the number of its selected side.
    fn selected(self) -> impl Iterator<Item = (&'static Switch, usize)> {
        let switches = Self::SWITCHES.iter().zip(OTHERS);
        switches.map(move |(switch, others)| {
            let other = others.iter().position(|&other| self.has(other));
            (switch, other.map_or(0, |index| index + 1))
        })
    }

    /// Every switch with its selected side.
    pub fn sides(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        self.selected()
            .map(|(switch, side)| (switch.name, switch.sides[side]))
    }

    /// Whether the switch `name` is on its first side.
    pub(crate) fn is_first(self, name: &str) -> bool {
        let mut selected = self.selected();
        selected.all(|(switch, side)| switch.name != name || side == 0)
    }
}

impl fmt::Debug for Contested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.sides()).finish()
    }
}

/// Declares the switches: `NAME: SIDES`. The first side is the default. Rules name the
/// switches that they depend on.
macro_rules! contested {
    ($($name:literal: $first:literal $(, $Other:ident = $other:literal)+;)+) => {
        /// A side of a contested fact that is not the default.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum OtherSide {
            $($($Other,)+)+
        }

        // Each is a bit of [`Contested`].
        const _: () = assert!([$($(OtherSide::$Other),+),+].len() <= 32);

        /// These sides of each switch, in order.
        const OTHERS: &[&[OtherSide]] = &[$(&[$(OtherSide::$Other),+]),+];

        impl Contested {
            /// All switches.
            pub const SWITCHES: &'static [Switch] = &[
                $(Switch { name: $name, sides: &[$first $(, $other)+] },)+
            ];
        }
    };
}

contested! {
    // Cubes of one to three lines fetched in groups of four: the address formula holds,
    // or the incomplete group is garbage whatever the strides are.
    "short-height": "formula", ShortHeightGarbage = "garbage";
    // Lines in CBUF: each starts at a multiple of 64 bytes, or all are dense.
    "line-rounding": "entries", LineRoundingDense = "dense";
    // Weights that must fit the weight banks together: one kernel group, 32 kernels,
    // or all weights of a task.
    "weight-room": "group", WeightRoomBlock = "block", WeightRoomAll = "all";
    // CNA and CORE in a later chained task that does not write their S_POINTER run that
    // task's registers, from the other group, or the first task's again, as DPU and
    // DPU_RDMA do.
    "chain-pointer": "follows", ChainPointerRepeats = "repeats";
    // int16 convolutions with QD_EN 0 write only output channels 0 to 15, or all: then
    // QD_EN only adds the sum for CPEND.
    "int16-without-sum": "first-16", Int16WithoutSumAll = "all";
    // int8 results of int8 convolutions whose DPU channels end within a group (32
    // kernels, or 64 channels of a depthwise task): the complete groups are written
    // and the task never ends, or the results are right.
    "partial-group": "hangs", PartialGroupWorks = "works";
    // Rounding of the integer output converter for 32-bit results with CVT_TYPE 1: to
    // nearest, or towards minus infinity.
    "wide-rounding": "nearest", WideRoundingFloor = "floor";
    // Exact halves in the integer output converter with CVT_ROUND 1: away from zero,
    // or up.
    "output-ties": "away", OutputTiesUp = "up";
    // OUT_CVT_SCALE values from 0x8000 on: negative, or positive.
    "output-scale": "signed", OutputScaleUnsigned = "unsigned";
    // Padding of channels 32 to 63 of a depthwise int8 group: the low byte of PAD_CON1,
    // or its 16-bit pattern, as for all other channels.
    "depthwise-pad": "low-byte", DepthwisePadPattern = "pattern";
    // MINUS_EXP subtracted from a smaller exponent field wraps within its five bits, or
    // gives zero.
    "small-exponent": "wraps", SmallExponentFlushes = "flushes";
    // A flying operation on two operands with COMB_USE 5 writes zeros, never completes,
    // or works as with COMB_USE 0.
    "flying-dual": "zeros", FlyingDualHangs = "hangs", FlyingDualWorks = "works";
    // Interrupts of a pooling task: the DPU's and the PPU's, or the PPU's only; then the
    // mainline driver waits in vain.
    "pooling-interrupt": "with-dpu", PoolingInterruptPpuOnly = "ppu-only";
    // Pooling of integers, with a PPU_RDMA width other than 4 bits, works, or reads fp16.
    "byte-pooling": "works", BytePoolingAsFp16 = "as-fp16";
    // tf32 operands on their way to the MAC array: cut to 10 bits of mantissa, or
    // rounded to nearest.
    "tf32-operand": "truncated", Tf32OperandNearest = "nearest";
    // fp16 operands below 2^-14 (subnormal) are computed like others, or count as 0.
    "fp16-subnormals": "computed", Fp16SubnormalsFlushed = "flushed";
    // Cubes that fit their banks, with FEATURE_GRAINS below their height, are right,
    // as lines stream, or fp16 lines beyond the grains are garbage, for some K.
    "few-grains": "streams", FewGrainsGarbage = "garbage";
    // Rounding of a float to its index in a look-up table: to nearest, or towards minus
    // infinity.
    "lut-index": "nearest", LutIndexFloor = "floor";
    // Roundings of an average: one, of the final value, or one after the sum and after
    // each reciprocal.
    "average-rounding": "once", AverageRoundingEach = "each";
    // Maximum and minimum of a number and a NaN: the number, or NaN.
    "nan-compare": "number", NanCompareNan = "nan";
    // BS, BN, EW and the output converter before a write to their registers do nothing,
    // or are on, with operands of 0: all registers are 0 after a reset.
    "fresh-stages": "bypassed", FreshStagesActive = "active";
    // Matmuls whose enable mask leaves DPU_RDMA out (form A) run under the mainline
    // driver, or never complete.
    "core-idle-mainline": "runs", CoreIdleMainlineHangs = "hangs";
    // int8 features that a later task of a job finds in CBUF (DATA_REUSE) are what the
    // previous task fetched, as with fp16, or garbage: no source is known to have run it.
    "int8-reuse": "works", Int8ReuseGarbage = "garbage";
    // int8 features that fill their data banks, without a spare bank, are right, or the
    // last group of lines is garbage.
    "int8-slack-bank": "unneeded", Int8SlackBankNeeded = "needed";
    // A program at IOVA 0 runs like any other, or nothing starts.
    "program-at-zero": "runs", ProgramAtZeroHangs = "hangs";
    // The feature fetch reads nothing behind the cube, or up to a CBUF bank, which must
    // be mapped.
    "over-read": "nothing", OverReadBank = "bank";
    // After a task that hung, a core works again after its reset, or hangs on every task
    // until a power cycle.
    "wedge": "until-reset", WedgeUntilPowerCycle = "until-power-cycle";
}

#[cfg(test)]
mod tests {
    use super::*;
    use rknpu_regcmd::Register;
    use rknpu_regcmd::regs::dpu;

    #[test]
    fn every_side_can_be_chosen_and_told() {
        for switch in Contested::SWITCHES {
            for (index, side) in switch.sides.iter().enumerate() {
                let mut facts = Contested::default();
                facts.set(&format!("{}={side}", switch.name)).unwrap();
                assert!(facts.sides().any(|told| told == (switch.name, *side)));
                assert_eq!(facts == Contested::default(), index == 0);
            }
        }
    }

    #[test]
    fn rules_depend_on_switches() {
        let rules = rknpu_regcmd::rules::TABLE.iter().copied().flatten();
        for name in rules.filter_map(|rule| rule.contested) {
            assert!(
                Contested::SWITCHES.iter().any(|switch| switch.name == name),
                "{name}"
            );
        }
    }

    #[test]
    fn unknown_switches_are_named_with_the_choices() {
        let mut facts = Contested::default();
        let error = facts.set("wedge").unwrap_err().to_string();
        assert!(error.ends_with("one of wedge=until-reset|until-power-cycle"));
        let error = facts.set("colour=blue").unwrap_err().to_string();
        assert!(error.contains("tf32-operand=truncated|nearest"));
        assert_eq!(facts, Contested::default());
    }

    /// The register table, with which programs are written and read, has the default side.
    #[test]
    fn the_register_table_agrees() {
        let fields = <dpu::OutCvtScale as Register>::INFO.fields;
        let scale = fields.iter().find(|field| field.name == "out_cvt_scale");
        let signed = !Contested::default().has(OtherSide::OutputScaleUnsigned);
        assert_eq!(scale.unwrap().signed, signed);
    }

    #[test]
    fn the_documentation_has_every_switch() {
        let text = include_str!("../../../docs/chip.md");
        for switch in Contested::SWITCHES {
            let row = format!("| `{}` | {} |", switch.name, switch.sides.join(", "));
            let evidence = text.lines().find_map(|line| line.strip_prefix(&row));
            assert!(evidence.is_some_and(|rest| rest.contains("E-")), "{row}");
        }
    }
}
