// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `rknpu_regcmd::extents` computes against what the model touches.
//!
//! The safety of `rocket-uapi` rests on the computed ranges. Here programs
//! run on the whole stack, driver and chip, with every DMA access recorded:
//! nothing outside the computed ranges may be touched, whatever is in the
//! registers.

#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use npu_model::driver::DriverProfile;
use npu_model::trace::TaskTrace;
use npu_model::{Backing, Model, ModelOptions};
use proptest::prelude::*;
use rknpu_chip::Master;
use rknpu_regcmd::{
    Binding, BufferId, ChipProfile, Extent, LinkedProgram, MatmulForm, MatmulTask, MatmulType,
    Word, extents, lookup, tasks,
};
use rocket_uapi::{Backend, ByteLen, Deadline, RawBo, RawJob, RawTask};

const A: BufferId = BufferId(0);
const B: BufferId = BufferId(1);
const C: BufferId = BufferId(2);

/// Bytes of the buffer objects: enough for the products below.
const BO_BYTES: usize = 256 << 10;

/// A device with one program and three operands.
struct Stack {
    model: Arc<Model>,
    backend: Arc<dyn Backend>,
    program: RawBo,
    operands: [RawBo; 3],
}

impl Stack {
    fn new() -> Self {
        let model = Model::new(ModelOptions {
            cores: 1,
            hang_timeout: Duration::ZERO,
            // Random registers can mean a second of device time: minutes.
            driver: DriverProfile {
                job_limit: Duration::from_millis(1),
                ..DriverProfile::default()
            },
            backing: Backing::Memfd,
            trace: true,
            ..ModelOptions::default()
        });
        let backend = model.open();
        let bo = || backend.create_bo(ByteLen::new(BO_BYTES).unwrap()).unwrap();
        let (program, operands) = (bo(), [bo(), bo(), bo()]);
        Self {
            model,
            backend,
            program,
            operands,
        }
    }

    fn link(&self, task: &MatmulTask, form: MatmulForm) -> LinkedProgram {
        let bindings = [A, B, C].map(|id| Binding {
            id,
            iova: self.operands[id.0 as usize].iova,
            len: BO_BYTES as u32,
        });
        let program = task.program_in(form, &ChipProfile::RK3588).unwrap();
        program.link(&bindings).unwrap()
    }

    /// Runs the words as one task and returns what it touched.
    fn run(&self, words: &[Word]) -> TaskTrace {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.bits().to_le_bytes()).collect();
        assert!(bytes.len() <= self.program.memory.len());
        let target = self.program.memory.as_ptr();
        // SAFETY: the mapping is writable and as long as just checked; no
        // job is in flight, as each call waits for its own.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        let out = self.operands[2].handle;
        let job = RawJob {
            tasks: &[RawTask {
                regcmd: self.program.iova,
                words: words.len() as u32,
            }],
            reads: &[self.program.handle],
            writes: &[out],
        };
        // SAFETY: no slice of these buffers exists while the job runs.
        unsafe { self.backend.submit(&[job]) }.unwrap();
        self.backend.prep_bo(out, Deadline::FOREVER).unwrap();
        let mut traces = self.model.take_traces();
        assert_eq!(traces.len(), 1);
        traces.remove(0)
    }
}

/// What was touched outside of `computed`.
fn outside(trace: &TaskTrace, computed: &[Extent]) -> Vec<String> {
    let covered = |access: &npu_model::trace::DmaAccess| {
        computed.iter().any(|extent| {
            Some(extent.engine) == access.master.engine()
                && extent.start <= access.range.start
                && access.range.end <= extent.end
        })
    };
    trace
        .accesses
        .iter()
        .filter(|access| access.master != Master::Fetch && !covered(access))
        .map(|access| format!("{access:x?}"))
        .collect()
}

fn matmul() -> impl Strategy<Value = (MatmulTask, MatmulForm)> {
    let ty = prop::sample::select(MatmulType::ALL.to_vec());
    let form = prop::sample::select(vec![MatmulForm::A, MatmulForm::B]);
    (ty, form, 1u32..16, 1u32..8, 1u32..5).prop_map(|(ty, form, m, k, n)| {
        let task = MatmulTask {
            ty,
            m: m * 4,
            k: k * 64,
            n: n * 64,
            a: A.at(16),
            b: B.at(32),
            c: C.at(0),
        };
        (task, form)
    })
}

/// A change to one word of a program.
#[derive(Clone, Debug)]
enum Change {
    /// Another bit.
    Flip(u32),
    /// Any value.
    Set(u32),
    /// A small value: counts and modes.
    SetSmall(u32),
}

fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, Change)>> {
    let change = prop_oneof![
        (0u32..32).prop_map(Change::Flip),
        any::<u32>().prop_map(Change::Set),
        (0u32..600).prop_map(Change::SetSmall),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), change), 1..6)
}

fn changed(words: &[Word], changes: &[(prop::sample::Index, Change)]) -> Vec<Word> {
    let mut words = words.to_vec();
    for (index, change) in changes {
        let word = index.get_mut(&mut words);
        if word.is_marker() || word.target() == 0 {
            continue;
        }
        let value = match change {
            Change::Flip(bit) => word.value() ^ 1 << bit,
            Change::Set(value) | Change::SetSmall(value) => *value,
        };
        *word = Word::new(word.target(), word.offset(), value);
    }
    words
}

/// The registers that differ, by name: value before, value now.
fn differences(before: &[Word], now: &[Word]) -> Vec<(&'static str, u32, u32)> {
    let name = |word: &Word| lookup(word.offset()).map_or("?", |info| info.name);
    let pairs = before.iter().zip(now).filter(|(before, now)| before != now);
    pairs
        .map(|(before, now)| (name(now), before.value(), now.value()))
        .collect()
}

/// What the words as a whole may touch: what their tasks may.
fn computed(words: &[Word]) -> Option<Vec<Extent>> {
    let mut all = Vec::new();
    for task in tasks(words) {
        all.extend(extents(&task.regs, task.enable).ok()?);
    }
    Some(all)
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    /// A product touches the computed ranges from end to end.
    #[test]
    #[cfg_attr(miri, ignore = "needs memfd and minutes")]
    fn a_product_touches_just_what_was_computed((task, form) in matmul()) {
        prop_assume!(task.check(&ChipProfile::RK3588).is_ok());
        let stack = Stack::new();
        let program = stack.link(&task, form);
        let trace = stack.run(program.words());
        prop_assert!(trace.completed, "{:?}", stack.model.events());
        prop_assert_eq!(outside(&trace, program.extents()), Vec::<String>::new());
        for extent in program.extents() {
            let touched = trace.accesses.iter().filter(|a| a.master.engine() == Some(extent.engine));
            let start = touched.clone().map(|access| access.range.start).min();
            let end = touched.map(|access| access.range.end).max();
            prop_assert_eq!((start, end), (Some(extent.start), Some(extent.end)), "{}", extent);
        }
    }
}

proptest! {
    #![proptest_config(test_support::cases(500))]

    /// Whatever is in the registers, the model stays inside what is computed
    /// from them, or nothing is computed and no client would run it.
    #[test]
    #[cfg_attr(miri, ignore = "needs memfd and minutes")]
    fn a_changed_program_stays_inside_what_was_computed(
        (task, form) in matmul(),
        changes in changes(),
    ) {
        prop_assume!(task.check(&ChipProfile::RK3588).is_ok());
        let stack = Stack::new();
        let good = stack.link(&task, form);
        let words = changed(good.words(), &changes);
        if let Some(computed) = computed(&words) {
            let trace = stack.run(&words);
            prop_assert_eq!(
                outside(&trace, &computed),
                Vec::<String>::new(),
                "{:x?} with {:x?}",
                computed,
                differences(good.words(), &words)
            );
        }
    }
}

/// Found by the property above: CORE counting groups as of a direct
/// convolution and the DPU as of a depthwise one.
#[test]
fn blocks_that_disagree_about_depthwise_have_no_extents() {
    use rknpu_regcmd::Register;
    use rknpu_regcmd::regs::dpu::FeatureModeCfg;

    let task = MatmulTask {
        ty: MatmulType::Int8ToInt32,
        m: 4,
        k: 64,
        n: 64,
        a: A.at(0),
        b: B.at(0),
        c: C.at(0),
    };
    let program = task.program(&ChipProfile::RK3588).unwrap();
    let words: Vec<Word> = program
        .words()
        .iter()
        .map(|word| {
            if word.offset() != FeatureModeCfg::OFFSET {
                return *word;
            }
            let mode = FeatureModeCfg::from_bits(word.value());
            let depthwise = mode.with_conv_mode(3).unwrap();
            Word::new(word.target(), word.offset(), depthwise.bits())
        })
        .collect();
    assert!(computed(program.words()).is_some());
    assert_eq!(computed(&words), None);
}
