// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments that settle contradictions between sources about the chip: programs whose
//! results differ between the sides of a fact.
//!
//! An [`Experiment`] is data: buffers, and jobs on them. `runner` runs it, on a
//! device or on a model that plays one side; `judge` compares what they showed.
//! All programs are small changes of programs that are known to run on silicon.

mod cores;
pub(crate) mod depthwise;
pub(crate) mod flying;
mod judge;
pub(crate) mod lookup;
pub(crate) mod observed;
mod pooling;
mod products;
pub(crate) mod report;
mod run;

use crate::experiment::Experiment;
pub(crate) use run::{choose, is_healthy, settle};

/// How an experiment settles a fact, if possible.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SettlingMethod {
    /// An experiment settles it.
    Run(fn() -> anyhow::Result<Experiment>),
    /// Not possible with the mainline driver, and why.
    Impossible(&'static str),
}

/// A fact, and how it is settled or observed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FactToSettle {
    /// The model's switch, or a name where the model has one way only.
    pub(crate) name: &'static str,
    /// The question that the experiment answers.
    pub(crate) question: &'static str,
    /// How it is answered, if possible.
    pub(crate) method: SettlingMethod,
    /// Why it is run on request only.
    pub(crate) risk: Option<&'static str>,
    /// A condition of the answer, printed with it.
    pub(crate) note: Option<&'static str>,
}

impl FactToSettle {
    const fn new(name: &'static str, question: &'static str, method: SettlingMethod) -> Self {
        Self {
            name,
            question,
            method,
            risk: None,
            note: None,
        }
    }

    const fn risky(mut self, why: &'static str) -> Self {
        self.risk = Some(why);
        self
    }

    const fn noting(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }
}

/// Why facts about chains are not settled here.
const NO_CHAINS: &str = "needs chained kicks; the mainline driver starts each task by itself";

/// Why facts that decide whether plain products run are not settled here.
const BY_FIRST: &str = "`npu-probe first` settles it: plain matmuls depend on it";

/// All facts, in the order in which they are settled: first what needs a fresh
/// core, facts before those whose experiments depend on them, then what is only
/// looked at, last what may leave a core behind that does not work.
pub(crate) const FACTS: &[FactToSettle] = &[
    FactToSettle::new(
        "fresh-stages",
        "Do BS and BN pass data through before any program wrote their registers?",
        SettlingMethod::Run(flying::fresh_stages),
    )
    .noting(
        "valid only if no program ran since the NPU last lost power: leave it idle for a second \
         first",
    ),
    FactToSettle::new(
        "wide-rounding",
        "How does a shift round 32-bit results, with CVT_TYPE 1?",
        SettlingMethod::Run(products::wide_rounding),
    ),
    FactToSettle::new(
        "output-ties",
        "Where does the output converter send exact halves, with CVT_ROUND 1?",
        SettlingMethod::Run(products::output_ties),
    ),
    FactToSettle::new(
        "output-scale",
        "Is an output scale of 0x8000 negative?",
        SettlingMethod::Run(products::output_scale),
    ),
    FactToSettle::new(
        "tf32-operand",
        "Are the low 13 bits of a tf32 operand cut off or rounded?",
        SettlingMethod::Run(products::tf32_operand),
    ),
    FactToSettle::new(
        "int16-without-sum",
        "Does an int16 matmul with QD_EN 0 write all its columns?",
        SettlingMethod::Run(products::int16_without_sum),
    ),
    FactToSettle::new(
        "short-height",
        "Is a cube of two or three lines fetched right in groups of four?",
        SettlingMethod::Run(products::short_height),
    ),
    FactToSettle::new(
        "line-rounding",
        "Do lines in CBUF begin at multiples of 64 bytes?",
        SettlingMethod::Run(products::line_rounding),
    ),
    FactToSettle::new(
        "few-grains",
        "Is an fp16 matmul right with FEATURE_GRAINS below its height?",
        SettlingMethod::Run(products::few_grains),
    ),
    FactToSettle::new(
        "depthwise-pad",
        "What are channels 32 to 63 of a depthwise int8 group padded with?",
        SettlingMethod::Run(depthwise::depthwise_pad),
    ),
    FactToSettle::new(
        "delta-program",
        "Does a program of addresses run with the sizes of its register group?",
        SettlingMethod::Run(cores::delta_program),
    ),
    FactToSettle::new(
        "small-exponent",
        "Does MINUS_EXP wrap an exponent that is smaller?",
        SettlingMethod::Run(flying::small_exponent),
    ),
    FactToSettle::new(
        "nan-compare",
        "What is the maximum of a number and a NaN?",
        SettlingMethod::Run(flying::nan_compare),
    ),
    FactToSettle::new(
        "lut-index",
        "How does a float choose its place in a look-up table?",
        SettlingMethod::Run(lookup::lut_index),
    ),
    FactToSettle::new(
        "pooling-interrupt",
        "Does a pooling task raise the DPU's interrupt, for which the driver waits?",
        SettlingMethod::Run(pooling::pooling_interrupt),
    ),
    FactToSettle::new(
        "average-rounding",
        "How often is an average rounded?",
        SettlingMethod::Run(pooling::average_rounding),
    ),
    FactToSettle::new(
        "byte-pooling",
        "Does pooling of bytes work with IN_PRECISION 1?",
        SettlingMethod::Run(pooling::byte_pooling),
    ),
    FactToSettle::new(
        "lut-ends",
        "How do look-up tables of either sign round, and extrapolate beyond their ends?",
        SettlingMethod::Run(lookup::lut_ends),
    ),
    FactToSettle::new(
        "int8-ties",
        "How are ties rounded on the way to int8, with CVT_ROUND 0 and 1?",
        SettlingMethod::Run(observed::int8_ties),
    ),
    FactToSettle::new(
        "int8-to-fp16",
        "Is an int8 matmul of 64 columns right in fp16, in groups of four atoms?",
        SettlingMethod::Run(observed::int8_to_fp16),
    ),
    FactToSettle::new(
        "int16-columns",
        "Is an int16 matmul of 256 columns right, in groups of four atoms?",
        SettlingMethod::Run(observed::int16_columns),
    ),
    FactToSettle::new(
        "signed-zeros",
        "Which zero is greater, and how do infinities and subnormals compare?",
        SettlingMethod::Run(observed::signed_zeros),
    ),
    FactToSettle::new(
        "fp16-overflow",
        "What are sums beyond fp16, and below its normal numbers?",
        SettlingMethod::Run(observed::fp16_overflow),
    ),
    FactToSettle::new(
        "average-order",
        "In which order, and how precisely, does pooling add?",
        SettlingMethod::Run(observed::average_order),
    ),
    FactToSettle::new(
        "in-place",
        "What is the result of an fp16 matmul that adds its own output?",
        SettlingMethod::Run(observed::in_place),
    ),
    FactToSettle::new(
        "chain-pointer",
        "Do CNA and CORE in later tasks of a chain need a separate S_POINTER write?",
        SettlingMethod::Impossible(NO_CHAINS),
    ),
    FactToSettle::new(
        "core-idle-mainline",
        "Does a matmul run if its program does not start DPU_RDMA?",
        SettlingMethod::Impossible(BY_FIRST),
    ),
    FactToSettle::new(
        "int8-reuse",
        "Are int8 features right if a task reuses them from CBUF?",
        SettlingMethod::Impossible(BY_FIRST),
    ),
    FactToSettle::new(
        "int8-slack-bank",
        "Are int8 features right if they leave no spare data bank?",
        SettlingMethod::Impossible(BY_FIRST),
    ),
    FactToSettle::new(
        "program-at-zero",
        "Does a program at IOVA 0 run?",
        SettlingMethod::Impossible(BY_FIRST),
    ),
    FactToSettle::new(
        "over-read",
        "Does the feature fetch read behind its cube?",
        SettlingMethod::Impossible(BY_FIRST),
    ),
    FactToSettle::new(
        "flying-dual",
        "Does a flying operation on two operands work with COMB_USE 5?",
        SettlingMethod::Run(flying::flying_dual),
    )
    .risky("on one side its task hangs"),
    FactToSettle::new(
        "weight-room",
        "Which weights must fit their banks together?",
        SettlingMethod::Run(products::weight_room),
    )
    .risky("on two of three sides its tasks hang"),
    FactToSettle::new(
        "wedge",
        "Does a core that hung work again after its reset?",
        SettlingMethod::Run(cores::wedge),
    )
    .risky("it hangs a core on purpose; on one side that core needs a power cycle")
    .noting("the driver may power off an idle core, which resets it before the check"),
    FactToSettle::new(
        "partial-group",
        "Does a task complete if its int8 results end within a group of channels?",
        SettlingMethod::Run(products::partial_group),
    )
    .risky("on one side, the likely one, its task hangs"),
    FactToSettle::new(
        "one-weight-bank",
        "Do weights that do not fit one bank stream through it?",
        SettlingMethod::Run(observed::one_weight_bank),
    )
    .risky("its task may hang"),
    FactToSettle::new(
        "no-lines",
        "What happens to a task whose input has no lines?",
        SettlingMethod::Run(observed::no_lines),
    )
    .risky("its task is likely to hang"),
];
