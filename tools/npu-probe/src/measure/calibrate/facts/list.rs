// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contested facts, and the experiments that settle them.

use rknpu_chip::{Contested, Switch};

use crate::experiment::Experiment;
use crate::experiment::programs::{depthwise, flying, lookup, matmuls, observed, pooling};

/// A fact, and how it is settled or observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FactToSettle {
    /// The model's switch, or a name if the model has one variant only.
    pub(crate) name: &'static str,
    pub(crate) question: &'static str,
    /// Makes the experiment that answers it.
    pub(crate) experiment: fn() -> anyhow::Result<Experiment>,
    /// Why it runs on request only.
    pub(crate) risk: Option<&'static str>,
    /// A condition of the answer, printed with it.
    pub(crate) note: Option<&'static str>,
}

impl FactToSettle {
    /// The model's switch; none if the model has one variant only.
    pub(super) fn switch(&self) -> Option<&'static Switch> {
        Contested::SWITCHES
            .iter()
            .find(|switch| switch.name == self.name)
    }
}

/// The rows of a table: name, experiment, question; then, if present, the risk and a note.
macro_rules! facts {
    ($($name:literal: $experiment:expr, $question:literal
        $(risky: $risk:literal)? $(note: $note:literal)?;)*) => {
        &[$(FactToSettle {
            name: $name,
            question: $question,
            experiment: $experiment,
            risk: facts!(@ $($risk)?),
            note: facts!(@ $($note)?),
        }),*]
    };
    (@) => { None };
    (@ $text:literal) => { Some($text) };
}

/// The facts that experiments settle under the mainline driver, in this order: first the one that
/// needs a fresh core; facts before the experiments that depend on them; then facts that are only
/// observed; last experiments that may break a core.
pub(crate) const FACTS: &[FactToSettle] = facts! {
    "fresh-stages": flying::fresh_stages,
        "Do BS and BN pass data through before any program wrote their registers?"
        note: "valid only if no program ran since the NPU last lost power: leave the NPU idle for \
               one second before";
    "wide-rounding": matmuls::wide_rounding,
        "How does a shift round 32-bit results, with CVT_TYPE 1?";
    "output-ties": matmuls::output_ties,
        "How does the output converter round exact halves, with CVT_ROUND 1?";
    "output-scale": matmuls::output_scale,
        "Is an output scale of 0x8000 negative?";
    "tf32-operand": matmuls::tf32_operand,
        "Are the low 13 bits of a tf32 operand cut off or rounded?";
    "int16-without-sum": matmuls::int16_without_sum,
        "Does an int16 matmul with QD_EN 0 write all its columns?";
    "short-height": matmuls::short_height,
        "Is a cube of two or three lines fetched right in groups of four?";
    "line-rounding": matmuls::line_rounding,
        "Do lines in CBUF begin at multiples of 64 bytes?";
    "few-grains": matmuls::few_grains,
        "Is an fp16 matmul right with FEATURE_GRAINS below its height?";
    "depthwise-pad": depthwise::depthwise_pad,
        "What are channels 32 to 63 of a depthwise int8 group padded with?";
    "delta-program": matmuls::delta_program,
        "Does a program that writes only addresses run with the sizes in its register group?";
    "small-exponent": flying::small_exponent,
        "Does MINUS_EXP wrap an exponent that is smaller?";
    "nan-compare": flying::nan_compare,
        "What is the maximum of a number and a NaN?";
    "lut-index": lookup::lut_index,
        "How does a float select its entry in a look-up table?";
    "pooling-interrupt": pooling::pooling_interrupt,
        "Does a pooling task raise the DPU's interrupt, for which the driver waits?";
    "average-rounding": pooling::average_rounding,
        "How often is an average rounded?";
    "byte-pooling": pooling::byte_pooling,
        "Does pooling of bytes work with IN_PRECISION 1?";
    "lut-ends": lookup::lut_ends,
        "How do look-up tables of either sign round, and extrapolate beyond their ends?";
    "int8-ties": observed::int8_ties,
        "How does the conversion to int8 round ties, with CVT_ROUND 0 and 1?";
    "int8-to-fp16": observed::int8_to_fp16,
        "Is an int8 matmul of 64 columns right in fp16, in groups of four atoms?";
    "int16-columns": observed::int16_columns,
        "Is an int16 matmul of 256 columns right, in groups of four atoms?";
    "signed-zeros": observed::signed_zeros,
        "Which zero is greater, and how do infinities and subnormals compare?";
    "fp16-overflow": observed::fp16_overflow,
        "What are the results of sums beyond the fp16 range, and below its normal numbers?";
    "average-order": observed::average_order,
        "In which order, and how precisely, does pooling add?";
    "in-place": observed::in_place,
        "What is the result of an fp16 matmul that adds its own output?";
    "flying-dual": flying::flying_dual,
        "Does a flying operation on two operands work with COMB_USE 5?"
        risky: "on one side its task hangs";
    "weight-room": matmuls::weight_room,
        "Which weights must fit the weight banks at the same time?"
        risky: "on two of three sides its tasks hang";
    "wedge": matmuls::wedge,
        "Does a core that hung work again after its reset?"
        risky: "it hangs a core on purpose; on one side that core needs a power cycle"
        note: "the driver may power off an idle core, which resets it before the check";
    "partial-group": matmuls::partial_group,
        "Does a task complete if its int8 results end within a group of channels?"
        risky: "on one side, the likely one, its task hangs";
    "one-weight-bank": observed::one_weight_bank,
        "Do weights that do not fit one bank stream through it?"
        risky: "its task may hang";
    "no-lines": observed::no_lines,
        "What happens to a task whose input has no lines?"
        risky: "its task is likely to hang";
};
