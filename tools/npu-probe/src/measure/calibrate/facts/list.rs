// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contested facts, and the experiments that settle them.

use SettlingMethod::{Impossible, Run};

use rknpu_chip::{Contested, Switch};

use crate::experiment::Experiment;
use crate::experiment::programs::{depthwise, flying, lookup, matmuls, observed, pooling};

/// How an experiment settles a fact, if possible.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SettlingMethod {
    Run(fn() -> anyhow::Result<Experiment>),
    /// Not possible with the mainline driver, and why.
    Impossible(&'static str),
}

/// A fact, and how it is settled or observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FactToSettle {
    /// The model's switch, or a name if the model has one variant only.
    pub(crate) name: &'static str,
    pub(crate) question: &'static str,
    /// How the experiment answers it, if that is possible.
    pub(crate) method: SettlingMethod,
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

/// The rows of a table: name, method, question; then, if present, the risk and a note.
macro_rules! facts {
    ($($name:literal: $method:expr, $question:literal
        $(risky: $risk:literal)? $(note: $note:literal)?;)*) => {
        &[$(FactToSettle {
            name: $name,
            question: $question,
            method: $method,
            risk: facts!(@ $($risk)?),
            note: facts!(@ $($note)?),
        }),*]
    };
    (@) => { None };
    (@ $text:literal) => { Some($text) };
}

/// Why facts about chains are not settled here.
const NO_CHAINS: &str = "needs chained kicks; the mainline driver starts each task by itself";

/// Why facts that decide whether plain matmuls run are not settled here.
const BY_FIRST: &str = "`npu-probe first` settles it: plain matmuls depend on it";

/// All facts, in the order in which they are settled: first the one that needs a fresh
/// core; facts before the experiments that depend on them; then facts that are only
/// observed; last experiments that may break a core.
pub(crate) const FACTS: &[FactToSettle] = facts! {
    "fresh-stages": Run(flying::fresh_stages),
        "Do BS and BN pass data through before any program wrote their registers?"
        note: "valid only if no program ran since the NPU last lost power: leave the NPU idle for \
               one second before";
    "wide-rounding": Run(matmuls::wide_rounding),
        "How does a shift round 32-bit results, with CVT_TYPE 1?";
    "output-ties": Run(matmuls::output_ties),
        "How does the output converter round exact halves, with CVT_ROUND 1?";
    "output-scale": Run(matmuls::output_scale),
        "Is an output scale of 0x8000 negative?";
    "tf32-operand": Run(matmuls::tf32_operand),
        "Are the low 13 bits of a tf32 operand cut off or rounded?";
    "int16-without-sum": Run(matmuls::int16_without_sum),
        "Does an int16 matmul with QD_EN 0 write all its columns?";
    "short-height": Run(matmuls::short_height),
        "Is a cube of two or three lines fetched right in groups of four?";
    "line-rounding": Run(matmuls::line_rounding),
        "Do lines in CBUF begin at multiples of 64 bytes?";
    "few-grains": Run(matmuls::few_grains),
        "Is an fp16 matmul right with FEATURE_GRAINS below its height?";
    "depthwise-pad": Run(depthwise::depthwise_pad),
        "What are channels 32 to 63 of a depthwise int8 group padded with?";
    "delta-program": Run(matmuls::delta_program),
        "Does a program that writes only addresses run with the sizes in its register group?";
    "small-exponent": Run(flying::small_exponent),
        "Does MINUS_EXP wrap an exponent that is smaller?";
    "nan-compare": Run(flying::nan_compare),
        "What is the maximum of a number and a NaN?";
    "lut-index": Run(lookup::lut_index),
        "How does a float select its entry in a look-up table?";
    "pooling-interrupt": Run(pooling::pooling_interrupt),
        "Does a pooling task raise the DPU's interrupt, for which the driver waits?";
    "average-rounding": Run(pooling::average_rounding),
        "How often is an average rounded?";
    "byte-pooling": Run(pooling::byte_pooling),
        "Does pooling of bytes work with IN_PRECISION 1?";
    "lut-ends": Run(lookup::lut_ends),
        "How do look-up tables of either sign round, and extrapolate beyond their ends?";
    "int8-ties": Run(observed::int8_ties),
        "How does the conversion to int8 round ties, with CVT_ROUND 0 and 1?";
    "int8-to-fp16": Run(observed::int8_to_fp16),
        "Is an int8 matmul of 64 columns right in fp16, in groups of four atoms?";
    "int16-columns": Run(observed::int16_columns),
        "Is an int16 matmul of 256 columns right, in groups of four atoms?";
    "signed-zeros": Run(observed::signed_zeros),
        "Which zero is greater, and how do infinities and subnormals compare?";
    "fp16-overflow": Run(observed::fp16_overflow),
        "What are the results of sums beyond the fp16 range, and below its normal numbers?";
    "average-order": Run(observed::average_order),
        "In which order, and how precisely, does pooling add?";
    "in-place": Run(observed::in_place),
        "What is the result of an fp16 matmul that adds its own output?";
    "chain-pointer": Impossible(NO_CHAINS),
        "Do CNA and CORE in later tasks of a chain need a separate S_POINTER write?";
    "core-idle-mainline": Impossible(BY_FIRST),
        "Does a matmul run if its program does not start DPU_RDMA?";
    "fp16-subnormals": Impossible(BY_FIRST),
        "Are fp16 operands below 2^-14 (subnormal) computed exactly?";
    "int8-reuse": Impossible(BY_FIRST),
        "Are int8 features right if a task reuses them from CBUF?";
    "int8-slack-bank": Impossible(BY_FIRST),
        "Are int8 features right if they leave no spare data bank?";
    "program-at-zero": Impossible(BY_FIRST),
        "Does a program at IOVA 0 run?";
    "over-read": Impossible(BY_FIRST),
        "Does the feature fetch read past the end of its cube?";
    "flying-dual": Run(flying::flying_dual),
        "Does a flying operation on two operands work with COMB_USE 5?"
        risky: "on one side its task hangs";
    "weight-room": Run(matmuls::weight_room),
        "Which weights must fit the weight banks at the same time?"
        risky: "on two of three sides its tasks hang";
    "wedge": Run(matmuls::wedge),
        "Does a core that hung work again after its reset?"
        risky: "it hangs a core on purpose; on one side that core needs a power cycle"
        note: "the driver may power off an idle core, which resets it before the check";
    "partial-group": Run(matmuls::partial_group),
        "Does a task complete if its int8 results end within a group of channels?"
        risky: "on one side, the likely one, its task hangs";
    "one-weight-bank": Run(observed::one_weight_bank),
        "Do weights that do not fit one bank stream through it?"
        risky: "its task may hang";
    "no-lines": Run(observed::no_lines),
        "What happens to a task whose input has no lines?"
        risky: "its task is likely to hang";
};
