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
#[error("{text:?} is not a contested fact: write NAME=SIDE, one of {}", Listed(.name.as_deref()))]
pub struct UnknownSwitch {
    /// The text that was given.
    pub text: String,
    /// Name of the switch, if it is known and only the side is not.
    pub name: Option<String>,
}

/// The choices that an error shows: those of one switch, or all.
struct Listed<'a>(Option<&'a str>);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = |switch: &&Switch| self.0.is_none_or(|name| name == switch.name);
        for (index, switch) in Contested::SWITCHES.iter().filter(wanted).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{}={}", switch.name, switch.sides.join("|"))?;
        }
        Ok(())
    }
}

macro_rules! contested {
    (@match $self:ident, $fact:ident, [$($arms:tt)*]) => {
        match $fact { $($arms)* }
    };
    (@match $self:ident, $fact:ident, [$($arms:tt)*]
        [$field:ident $Type:ident $name:literal $First:ident of_rules] $($rest:tt)*) => {
        contested!(@match $self, $fact, [$($arms)*
            RuleFact::$Type => ($name, $self.$field == $Type::$First),] $($rest)*)
    };
    (@match $self:ident, $fact:ident, [$($arms:tt)*] [$($other:tt)*] $($rest:tt)*) => {
        contested!(@match $self, $fact, [$($arms)*] $($rest)*)
    };
    ($(
        $(#[$doc:meta])*
        $field:ident: $Type:ident, $name:literal $(, $of_rules:ident)? {
            $(#[$first_doc:meta])*
            $First:ident = $first:literal,
            $($(#[$side_doc:meta])* $Side:ident = $side:literal,)+
        }
    )+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub enum $Type {
                $(#[$first_doc])*
                #[default]
                $First,
                $($(#[$side_doc])* $Side,)+
            }
        )+

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
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Contested {
            $($(#[$doc])* pub $field: $Type,)+
        }

        impl Contested {
            /// All switches.
            pub const SWITCHES: &'static [Switch] = &[
                $(Switch { name: $name, sides: &[$first, $($side,)+] },)+
            ];

            /// Selects one side: `NAME=SIDE`.
            ///
            /// # Errors
            /// [`UnknownSwitch`] with the valid choices.
            pub fn set(&mut self, text: &str) -> Result<(), UnknownSwitch> {
                let (name, side) = text.split_once('=').unwrap_or((text, ""));
                let unknown = |known: bool| UnknownSwitch {
                    text: text.to_owned(),
                    name: known.then(|| name.to_owned()),
                };
                match name {
                    $($name => {
                        self.$field = match side {
                            $first => $Type::$First,
                            $($side => $Type::$Side,)+
                            _ => return Err(unknown(true)),
                        };
                        Ok(())
                    })+
                    _ => Err(unknown(false)),
                }
            }

            /// Name of the switch of a fact that rules depend on, and whether it
            /// is on its first side. The rules hold on that side.
            #[must_use]
            pub fn of_rule(&self, fact: RuleFact) -> (&'static str, bool) {
                contested!(@match self, fact, [] $([$field $Type $name $First $($of_rules)?])+)
            }

            /// Every switch with its selected side.
            pub fn sides(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
                [$(($name, match self.$field {
                    $Type::$First => $first,
                    $($Type::$Side => $side,)+
                }),)+].into_iter()
            }
        }
    };
}

contested! {
    /// Cubes of one to three lines fetched in groups of four.
    short_height: ShortHeight, "short-height", of_rules {
        /// The address formula holds: with the exact signed surface stride,
        /// results are right (E-short-height-exact).
        Formula = "formula",
        /// The incomplete group is garbage whatever the strides are
        /// (E-short-height-garbage, E-short-slice).
        Garbage = "garbage",
    }
    /// Placement of lines in CBUF.
    line_rounding: LineRounding, "line-rounding", of_rules {
        /// Each line starts at a multiple of 64 bytes (E-line-rounding).
        Entries = "entries",
        /// Densely packed (E-line-dense).
        Dense = "dense",
    }
    /// Weights that must fit the weight banks together.
    weight_room: WeightRoom, "weight-room", of_rules {
        /// One kernel group (E-weight-room-group).
        Group = "group",
        /// 32 kernels (E-weight-room-block).
        Block = "block",
        /// All weights of a task (E-weight-room-all).
        All = "all",
    }
    /// CNA and CORE in a later chained task that does not write their
    /// S_POINTER.
    chain_pointer: ChainPointer, "chain-pointer", of_rules {
        /// They run that task's registers, from the other group
        /// (E-chain-follows).
        Follows = "follows",
        /// They run the first task's registers again, as DPU and DPU_RDMA do
        /// (E-chain-repeats).
        Repeats = "repeats",
    }
    /// int16 convolutions with QD_EN 0.
    int16_without_sum: Int16WithoutSum, "int16-without-sum", of_rules {
        /// Only output channels 0 to 15 are written (E-int16-first-16).
        First16 = "first-16",
        /// All channels are written: QD_EN only adds the sum for CPEND.
        All = "all",
    }
    /// int8 results of int8 convolutions whose DPU channels end within a group:
    /// 32 kernels, or 64 channels of a depthwise task.
    partial_group: PartialGroup, "partial-group", of_rules {
        /// The complete groups are written, and the task never ends
        /// (E-partial-group).
        Hangs = "hangs",
        /// The results are right.
        Works = "works",
    }
    /// Rounding of the integer output converter for 32-bit results with
    /// CVT_TYPE 1.
    wide_rounding: WideRounding, "wide-rounding" {
        /// To nearest (E-out-cvt-even: 8-bit results, and fp32 ones with
        /// CVT_TYPE 0).
        Nearest = "nearest",
        /// Towards minus infinity (E-out-cvt-floor).
        Floor = "floor",
    }
    /// Exact halves in the integer output converter with CVT_ROUND 1.
    output_ties: OutputTies, "output-ties" {
        /// Away from zero (E-out-cvt-away).
        Away = "away",
        /// Up (E-out-cvt-up).
        Up = "up",
    }
    /// Sign of OUT_CVT_SCALE values from 0x8000 on.
    output_scale: OutputScale, "output-scale" {
        /// Negative (E-scale-signed).
        Signed = "signed",
        /// Positive (E-scale-unsigned).
        Unsigned = "unsigned",
    }
    /// Padding of channels 32 to 63 of a depthwise int8 group.
    depthwise_pad: DepthwisePad, "depthwise-pad" {
        /// The low byte of PAD_CON1 (E-depthwise-pad).
        LowByte = "low-byte",
        /// The 16-bit pattern, as for all other channels (E-pad-pattern).
        Pattern = "pattern",
    }
    /// MINUS_EXP subtracted from a smaller exponent field.
    small_exponent: SmallExponent, "small-exponent", of_rules {
        /// Wraps within its five bits (E-zero-wraps).
        Wraps = "wraps",
        /// Becomes zero (E-exponent-flush).
        Flushes = "flushes",
    }
    /// A flying operation on two operands with COMB_USE 5.
    flying_dual: FlyingDual, "flying-dual", of_rules {
        /// Writes zeros (E-flying-dual-zeros).
        Zeros = "zeros",
        /// Never completes (E-flying-dual-hangs).
        Hangs = "hangs",
        /// Works as with COMB_USE 0 (E-flying-dual-0).
        Works = "works",
    }
    /// Interrupts that a pooling task raises.
    pooling_interrupt: PoolingInterrupt, "pooling-interrupt" {
        /// The DPU's and the PPU's (E-pool-interrupt).
        WithDpu = "with-dpu",
        /// The PPU's only; the mainline driver then waits in vain.
        PpuOnly = "ppu-only",
    }
    /// Pooling of integers, with a PPU_RDMA width other than 4 bits.
    byte_pooling: BytePooling, "byte-pooling", of_rules {
        /// Works (E-pooling-int8).
        Works = "works",
        /// Read as fp16 (E-pool-fp16-only).
        AsFp16 = "as-fp16",
    }
    /// tf32 operands on their way to the MAC array.
    tf32_operand: Tf32Operand, "tf32-operand" {
        /// Cut to 10 bits of mantissa (E-tf32-cut).
        Truncated = "truncated",
        /// Rounded to nearest (E-tf32-rounded).
        Nearest = "nearest",
    }
    /// Cubes that fit their banks, with FEATURE_GRAINS below their height.
    few_grains: FewGrains, "few-grains", of_rules {
        /// Right: lines stream (E-grains-stream).
        Streams = "streams",
        /// fp16 lines beyond the grains are garbage, for some K (E-grains).
        Garbage = "garbage",
    }
    /// Rounding of a float to its index in a look-up table.
    lut_index: LutIndex, "lut-index" {
        /// Rounded to the nearest integer (E-lut-rounding).
        Nearest = "nearest",
        /// Rounded towards minus infinity.
        Floor = "floor",
    }
    /// Number of roundings of an average.
    average_rounding: AverageRounding, "average-rounding" {
        /// One, of the final value (E-pooling-fp16).
        Once = "once",
        /// One after the sum, and one after each reciprocal.
        Each = "each",
    }
    /// Maximum and minimum of a number and a NaN.
    nan_compare: NanCompare, "nan-compare" {
        /// The number (nobody measured it: E-signed-zeros).
        Number = "number",
        /// NaN.
        Nan = "nan",
    }
    /// BS, BN, EW and the output converter before a write to their registers.
    fresh_stages: FreshStages, "fresh-stages" {
        /// They do nothing (E-fresh-stages).
        Bypassed = "bypassed",
        /// They are on, with operands of 0: all registers are 0 after a reset.
        Active = "active",
    }
    /// Matmuls whose enable mask leaves DPU_RDMA out (form A), under the mainline
    /// driver.
    core_idle_mainline: CoreIdleMainline, "core-idle-mainline", of_rules {
        /// They run (E-form-a-mainline).
        Runs = "runs",
        /// They never complete (E-form-a-hangs).
        Hangs = "hangs",
    }
    /// int8 features that a later task of a job finds in CBUF (DATA_REUSE).
    int8_reuse: Int8Reuse, "int8-reuse" {
        /// They are what the previous task fetched, as with fp16 (E-reuse).
        Works = "works",
        /// Garbage: no source is known to have run it.
        Garbage = "garbage",
    }
    /// int8 features that fill their data banks, without a spare bank.
    int8_slack_bank: Int8SlackBank, "int8-slack-bank" {
        /// They are right (E-spare-data-bank).
        Unneeded = "unneeded",
        /// The last group of lines is garbage (E-spare-data-bank).
        Needed = "needed",
    }
    /// A program at IOVA 0.
    program_at_zero: ProgramAtZero, "program-at-zero", of_rules {
        /// It runs like a program at any other address.
        Runs = "runs",
        /// Nothing starts (E-guard-page).
        Hangs = "hangs",
    }
    /// Bytes that the feature fetch reads behind the cube.
    over_read: OverRead, "over-read" {
        /// None.
        Nothing = "nothing",
        /// Up to a CBUF bank, which must be mapped (E-over-read).
        Bank = "bank",
    }
    /// State of a core after a task that hung.
    wedge: Wedge, "wedge", of_rules {
        /// It works again after its reset (E-wedge).
        UntilReset = "until-reset",
        /// It hangs on every task until a power cycle.
        UntilPowerCycle = "until-power-cycle",
    }
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
        let signed = OutputScale::default() == OutputScale::Signed;
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
