// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the chip on which sources contradict each other, or that nobody
//! has isolated. Each is a switch, so that a client can be tested against every
//! side. The default is the side with the most evidence from silicon.
//! docs/evidence.md has the evidence (E-...); docs/chip.md shows how a board
//! settles each fact.

use std::fmt;

use rknpu_regcmd::rules::RuleFact;

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

    /// Name of the switch of a fact that rules depend on, and whether it
    /// is on its first side. The rules hold on that side.
    #[must_use]
    pub fn of_rule(&self, fact: RuleFact) -> (&'static str, bool) {
        let name = rule_switch(fact);
        let mut selected = self.selected();
        let first = selected.all(|(switch, side)| switch.name != name || side == 0);
        (name, first)
    }
}

impl fmt::Debug for Contested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.sides()).finish()
    }
}

/// Declares the switches: `NAME of FACT: SIDES`. The first side is the default; `FACT`
/// is the one of the rules that hold on that side.
macro_rules! contested {
    ($($name:literal $(of $Rule:ident)?: $first:literal $(, $Other:ident = $other:literal)+;)+) => {
        /// A side of a contested fact that is not the default.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum OtherSide {
            $($($Other,)+)+
        }

        /// These sides of each switch, in order.
        const OTHERS: &[&[OtherSide]] = &[$(&[$(OtherSide::$Other),+]),+];

        impl Contested {
            /// All switches.
            pub const SWITCHES: &'static [Switch] = &[
                $(Switch { name: $name, sides: &[$first $(, $other)+] },)+
            ];
        }

        fn rule_switch(fact: RuleFact) -> &'static str {
            match fact {
                $($(RuleFact::$Rule => $name,)?)+
            }
        }
    };
}

contested! {
    // Cubes of one to three lines fetched in groups of four.
    "short-height" of ShortHeight:
        // The address formula holds: with the exact signed surface stride,
        // results are right (E-short-height-exact).
        "formula",
        // The incomplete group is garbage whatever the strides are
        // (E-short-height-garbage, E-short-slice).
        ShortHeightGarbage = "garbage";
    // Placement of lines in CBUF.
    "line-rounding" of LineRounding:
        // Each line starts at a multiple of 64 bytes (E-line-rounding).
        "entries",
        // Densely packed (E-line-dense).
        LineRoundingDense = "dense";
    // Weights that must fit the weight banks together.
    "weight-room" of WeightRoom:
        // One kernel group (E-weight-room-group).
        "group",
        // 32 kernels (E-weight-room-block).
        WeightRoomBlock = "block",
        // All weights of a task (E-weight-room-all).
        WeightRoomAll = "all";
    // CNA and CORE in a later chained task that does not write their
    // S_POINTER.
    "chain-pointer" of ChainPointer:
        // They run that task's registers, from the other group
        // (E-chain-follows).
        "follows",
        // They run the first task's registers again, as DPU and DPU_RDMA do
        // (E-chain-repeats).
        ChainPointerRepeats = "repeats";
    // int16 convolutions with QD_EN 0.
    "int16-without-sum" of Int16WithoutSum:
        // Only output channels 0 to 15 are written (E-int16-first-16).
        "first-16",
        // All channels are written: QD_EN only adds the sum for CPEND.
        Int16WithoutSumAll = "all";
    // int8 results of int8 convolutions whose DPU channels end within a group:
    // 32 kernels, or 64 channels of a depthwise task.
    "partial-group" of PartialGroup:
        // The complete groups are written, and the task never ends
        // (E-partial-group).
        "hangs",
        // The results are right.
        PartialGroupWorks = "works";
    // Rounding of the integer output converter for 32-bit results with
    // CVT_TYPE 1.
    "wide-rounding":
        // To nearest (E-out-cvt-even: 8-bit results, and fp32 ones with
        // CVT_TYPE 0).
        "nearest",
        // Towards minus infinity (E-out-cvt-floor).
        WideRoundingFloor = "floor";
    // Exact halves in the integer output converter with CVT_ROUND 1.
    "output-ties":
        // Away from zero (E-out-cvt-away).
        "away",
        // Up (E-out-cvt-up).
        OutputTiesUp = "up";
    // Sign of OUT_CVT_SCALE values from 0x8000 on.
    "output-scale":
        // Negative (E-scale-signed).
        "signed",
        // Positive (E-scale-unsigned).
        OutputScaleUnsigned = "unsigned";
    // Padding of channels 32 to 63 of a depthwise int8 group.
    "depthwise-pad":
        // The low byte of PAD_CON1 (E-depthwise-pad).
        "low-byte",
        // The 16-bit pattern, as for all other channels (E-pad-pattern).
        DepthwisePadPattern = "pattern";
    // MINUS_EXP subtracted from a smaller exponent field.
    "small-exponent" of SmallExponent:
        // Wraps within its five bits (E-zero-wraps).
        "wraps",
        // Becomes zero (E-exponent-flush).
        SmallExponentFlushes = "flushes";
    // A flying operation on two operands with COMB_USE 5.
    "flying-dual" of FlyingDual:
        // Writes zeros (E-flying-dual-zeros).
        "zeros",
        // Never completes (E-flying-dual-hangs).
        FlyingDualHangs = "hangs",
        // Works as with COMB_USE 0 (E-flying-dual-0).
        FlyingDualWorks = "works";
    // Interrupts that a pooling task raises.
    "pooling-interrupt":
        // The DPU's and the PPU's (E-pool-interrupt).
        "with-dpu",
        // The PPU's only; the mainline driver then waits in vain.
        PoolingInterruptPpuOnly = "ppu-only";
    // Pooling of integers, with a PPU_RDMA width other than 4 bits.
    "byte-pooling" of BytePooling:
        // Works (E-pooling-int8).
        "works",
        // Read as fp16 (E-pool-fp16-only).
        BytePoolingAsFp16 = "as-fp16";
    // tf32 operands on their way to the MAC array.
    "tf32-operand":
        // Cut to 10 bits of mantissa (E-tf32-cut).
        "truncated",
        // Rounded to nearest (E-tf32-rounded).
        Tf32OperandNearest = "nearest";
    // Cubes that fit their banks, with FEATURE_GRAINS below their height.
    "few-grains" of FewGrains:
        // Right: lines stream (E-grains-stream).
        "streams",
        // fp16 lines beyond the grains are garbage, for some K (E-grains).
        FewGrainsGarbage = "garbage";
    // Rounding of a float to its index in a look-up table.
    "lut-index":
        // Rounded to the nearest integer (E-lut-rounding).
        "nearest",
        // Rounded towards minus infinity.
        LutIndexFloor = "floor";
    // Number of roundings of an average.
    "average-rounding":
        // One, of the final value (E-pooling-fp16).
        "once",
        // One after the sum, and one after each reciprocal.
        AverageRoundingEach = "each";
    // Maximum and minimum of a number and a NaN.
    "nan-compare":
        // The number (nobody measured it: E-signed-zeros).
        "number",
        // NaN.
        NanCompareNan = "nan";
    // BS, BN, EW and the output converter before a write to their registers.
    "fresh-stages":
        // They do nothing (E-fresh-stages).
        "bypassed",
        // They are on, with operands of 0: all registers are 0 after a reset.
        FreshStagesActive = "active";
    // Matmuls whose enable mask leaves DPU_RDMA out (form A), under the mainline
    // driver.
    "core-idle-mainline" of CoreIdleMainline:
        // They run (E-form-a-mainline).
        "runs",
        // They never complete (E-form-a-hangs).
        CoreIdleMainlineHangs = "hangs";
    // int8 features that a later task of a job finds in CBUF (DATA_REUSE).
    "int8-reuse":
        // They are what the previous task fetched, as with fp16 (E-reuse).
        "works",
        // Garbage: no source is known to have run it.
        Int8ReuseGarbage = "garbage";
    // int8 features that fill their data banks, without a spare bank.
    "int8-slack-bank":
        // They are right (E-spare-data-bank).
        "unneeded",
        // The last group of lines is garbage (E-spare-data-bank).
        Int8SlackBankNeeded = "needed";
    // A program at IOVA 0.
    "program-at-zero" of ProgramAtZero:
        // It runs like a program at any other address.
        "runs",
        // Nothing starts (E-guard-page).
        ProgramAtZeroHangs = "hangs";
    // Bytes that the feature fetch reads behind the cube.
    "over-read":
        // None.
        "nothing",
        // Up to a CBUF bank, which must be mapped (E-over-read).
        OverReadBank = "bank";
    // State of a core after a task that hung.
    "wedge" of Wedge:
        // It works again after its reset (E-wedge).
        "until-reset",
        // It hangs on every task until a power cycle.
        WedgeUntilPowerCycle = "until-power-cycle";
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
    fn what_is_no_switch_is_told_with_the_choices() {
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
