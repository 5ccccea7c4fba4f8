// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments that settle what the sources about the chip contradict each
//! other on: programs whose results tell the sides of one fact apart.
//!
//! An [`Experiment`] is data: buffers, and jobs on them. `bench` runs it, on a
//! device or on a model that plays one side; `judge` compares what they showed.
//! All programs are small changes of programs that are known to run on silicon.

pub(crate) mod bench;
pub(crate) mod cores;
mod depthwise;
mod flying;
pub(crate) mod judge;
mod lookup;
mod observed;
mod pooling;
mod products;
pub(crate) mod report;
mod template;

use rknpu_regcmd::BufferId;
use template::TaskTemplate;

/// The output of every experiment.
pub(crate) const OUT: BufferId = BufferId(0);

/// Input `index` of an experiment.
pub(crate) const fn input(index: u32) -> BufferId {
    BufferId(index + 1)
}

/// Jobs on buffers, and how to read what they show.
#[derive(Clone, Debug)]
pub(crate) struct Experiment {
    /// Contents of the inputs, [`input`] 0 on.
    pub(crate) inputs: Vec<Vec<u8>>,
    /// Bytes of the output.
    pub(crate) output: usize,
    /// What runs, one after another.
    pub(crate) jobs: Vec<ExperimentJob>,
    /// How outcomes are read.
    pub(crate) reading: Reading,
    /// Sides on which part of the output is wrong in a way that nobody knows:
    /// there, other wrong values than the model's are taken for them too.
    pub(crate) spoiled: &'static [&'static str],
}

/// Programs that run one after another on one core.
#[derive(Clone, Debug)]
pub(crate) struct ExperimentJob {
    pub(crate) tasks: Vec<TaskTemplate>,
    /// Whether what becomes of it belongs to what is seen.
    pub(crate) observed: bool,
}

/// What is seen of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// What each job did.
    EachJob,
    /// What jobs did, whichever: they are all alike, and run on cores that
    /// nobody can choose.
    AnyOrder,
}

impl Experiment {
    /// One job with one task.
    fn of(inputs: Vec<Vec<u8>>, output: usize, task: TaskTemplate) -> Self {
        Self::of_each(inputs, output, [task])
    }

    /// Jobs of one task each.
    fn of_each(
        inputs: Vec<Vec<u8>>,
        output: usize,
        tasks: impl IntoIterator<Item = TaskTemplate>,
    ) -> Self {
        let jobs = tasks.into_iter().map(|task| ExperimentJob::of(vec![task]));
        Self {
            inputs,
            output,
            jobs: jobs.collect(),
            reading: Reading::EachJob,
            spoiled: &[],
        }
    }

    fn spoiled_on(mut self, sides: &'static [&'static str]) -> Self {
        self.spoiled = sides;
        self
    }
}

impl ExperimentJob {
    const fn of(tasks: Vec<TaskTemplate>) -> Self {
        Self {
            tasks,
            observed: true,
        }
    }
}

/// How a fact is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    /// An experiment settles it.
    Run(fn() -> anyhow::Result<Experiment>),
    /// Not through the mainline driver, and why not.
    Impossible(&'static str),
}

/// A fact and how it is settled, or how it is at least looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The model's switch, or a name where the model has one way only.
    pub(crate) name: &'static str,
    /// The question that the experiment answers.
    pub(crate) question: &'static str,
    /// How it is answered, if it can be.
    pub(crate) plan: Plan,
    /// Why it is run on request only.
    pub(crate) risk: Option<&'static str>,
    /// What to know about an answer.
    pub(crate) note: Option<&'static str>,
}

impl Entry {
    const fn new(name: &'static str, question: &'static str, plan: Plan) -> Self {
        Self {
            name,
            question,
            plan,
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

/// All facts, in the order in which they are settled: first what needs a fresh
/// core, facts before those whose experiments depend on them, then what is only
/// looked at, last what may leave a core behind that does not work.
pub(crate) const ENTRIES: &[Entry] = &[
    Entry::new(
        "fresh-stages",
        "Do BS and BN pass data through before any program wrote their registers?",
        Plan::Run(flying::fresh_stages),
    )
    .noting(
        "an answer only if no program ran since the NPU last lost power: \
         leave it idle for a second first",
    ),
    Entry::new(
        "wide-rounding",
        "How does a shift round 32-bit results, with CVT_TYPE 1?",
        Plan::Run(products::wide_rounding),
    ),
    Entry::new(
        "output-ties",
        "Where does the output converter send exact halves, with CVT_ROUND 1?",
        Plan::Run(products::output_ties),
    ),
    Entry::new(
        "output-scale",
        "Is an output scale of 0x8000 negative?",
        Plan::Run(products::output_scale),
    ),
    Entry::new(
        "tf32-operand",
        "Are the low 13 bits of a tf32 operand cut off or rounded?",
        Plan::Run(products::tf32_operand),
    ),
    Entry::new(
        "int16-without-sum",
        "Does an int16 product with QD_EN 0 write all its columns?",
        Plan::Run(products::int16_without_sum),
    ),
    Entry::new(
        "short-height",
        "Is a cube of two or three lines fetched right in groups of four?",
        Plan::Run(products::short_height),
    ),
    Entry::new(
        "line-rounding",
        "Do lines in CBUF begin at multiples of 64 bytes?",
        Plan::Run(products::line_rounding),
    ),
    Entry::new(
        "few-grains",
        "Is an fp16 product right with FEATURE_GRAINS below its height?",
        Plan::Run(products::few_grains),
    ),
    Entry::new(
        "depthwise-pad",
        "What are channels 32 to 63 of a depthwise int8 group padded with?",
        Plan::Run(depthwise::depthwise_pad),
    ),
    Entry::new(
        "delta-program",
        "Does a program of addresses run with the sizes of its register group?",
        Plan::Run(cores::delta_program),
    ),
    Entry::new(
        "small-exponent",
        "Does MINUS_EXP wrap an exponent that is smaller?",
        Plan::Run(flying::small_exponent),
    ),
    Entry::new(
        "nan-compare",
        "What is the maximum of a number and a NaN?",
        Plan::Run(flying::nan_compare),
    ),
    Entry::new(
        "lut-index",
        "How does a float choose its place in a look-up table?",
        Plan::Run(lookup::lut_index),
    ),
    Entry::new(
        "pooling-interrupt",
        "Does a pooling task raise the DPU's interrupt, for which the driver waits?",
        Plan::Run(pooling::pooling_interrupt),
    ),
    Entry::new(
        "average-rounding",
        "How often is an average rounded?",
        Plan::Run(pooling::average_rounding),
    ),
    Entry::new(
        "byte-pooling",
        "Does pooling of bytes work with IN_PRECISION 1?",
        Plan::Run(pooling::byte_pooling),
    ),
    Entry::new(
        "lut-ends",
        "How do look-up tables of either sign round, and go on beyond their ends?",
        Plan::Run(lookup::lut_ends),
    ),
    Entry::new(
        "int8-ties",
        "How are ties rounded on the way to int8, with CVT_ROUND 0 and 1?",
        Plan::Run(observed::int8_ties),
    ),
    Entry::new(
        "int8-to-fp16",
        "Is an int8 product of 64 columns right in fp16, in groups of four atoms?",
        Plan::Run(observed::int8_to_fp16),
    ),
    Entry::new(
        "int16-columns",
        "Is an int16 product of 256 columns right, in groups of four atoms?",
        Plan::Run(observed::int16_columns),
    ),
    Entry::new(
        "signed-zeros",
        "Which zero is the greater, and what of infinities and subnormals?",
        Plan::Run(observed::signed_zeros),
    ),
    Entry::new(
        "fp16-overflow",
        "What are sums beyond fp16, and below its normal numbers?",
        Plan::Run(observed::fp16_overflow),
    ),
    Entry::new(
        "average-order",
        "In which order, and how precisely, does pooling add?",
        Plan::Run(observed::average_order),
    ),
    Entry::new(
        "in-place",
        "What becomes of an fp16 product that adds its own output?",
        Plan::Run(observed::in_place),
    ),
    Entry::new(
        "chain-pointer",
        "Do CNA and CORE in later tasks of a chain need an S_POINTER write of their own?",
        Plan::Impossible(NO_CHAINS),
    ),
    Entry::new(
        "flying-dual",
        "Does a flying operation on two operands work with COMB_USE 5?",
        Plan::Run(flying::flying_dual),
    )
    .risky("on one side its task hangs"),
    Entry::new(
        "weight-room",
        "Which weights must fit their banks together?",
        Plan::Run(products::weight_room),
    )
    .risky("on two of three sides its tasks hang"),
    Entry::new(
        "wedge",
        "Does a core that hung work again after its reset?",
        Plan::Run(cores::wedge),
    )
    .risky("it hangs a core on purpose; on one side that core needs a power cycle")
    .noting("the driver may cut the power of an idle core, which cures it before it is looked at"),
    Entry::new(
        "partial-group",
        "Does a task end whose int8 results end within a group of channels?",
        Plan::Run(products::partial_group),
    )
    .risky("on one side, the likely one, its task hangs"),
    Entry::new(
        "one-weight-bank",
        "Do weights that do not fit one bank stream through it?",
        Plan::Run(observed::one_weight_bank),
    )
    .risky("its task may hang"),
    Entry::new(
        "no-lines",
        "What becomes of a task whose input has no lines?",
        Plan::Run(observed::no_lines),
    )
    .risky("its task is likely to hang"),
];
