// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `rknpu_regcmd::extents` computes against what the model touches.
//!
//! The safety of `rocket-uapi` rests on the computed ranges. Here programs
//! run on the whole stack, driver and chip, with every DMA access recorded:
//! nothing outside the computed ranges may be touched, whatever is in the
//! registers.

use npu_model::trace::TaskTrace;
use npu_model::{Model, ModelOptions};
use proptest::prelude::*;
use proptest::sample::select;
use rknpu_chip::Master;
use rknpu_regcmd::regs::dpu::FeatureModeCfg;
use rknpu_regcmd::{
    BufferId, ChipProfile, Extent, MatmulForm, MatmulTask, MatmulType, Register, Word, extents,
    tasks,
};

use crate::product::{File, task};

/// What was touched outside of `computed`.
fn outside(trace: &TaskTrace, computed: &[Extent]) -> Vec<String> {
    let covered = |access: &npu_model::trace::DmaAccess| {
        computed.iter().any(|extent| {
            access.master == extent.engine.into()
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
    let form = select(vec![MatmulForm::A, MatmulForm::B]);
    let ty = select(MatmulType::ALL.to_vec());
    (ty, form, 1u32..16, 1u32..8, 1u32..5).prop_map(|(ty, form, m, k, n)| {
        let task = MatmulTask {
            ty,
            m: m * 4,
            k: k * 64,
            n: n * 64,
            a: BufferId(0).at(16),
            b: BufferId(1).at(32),
            c: BufferId(2).at(0),
        };
        (task, form)
    })
}

proptest! {
    #![proptest_config(test_support::cases(48))]

    /// A product touches the computed ranges from end to end.
    #[test]
    fn a_product_touches_just_what_was_computed((task, form) in matmul()) {
        prop_assume!(task.check(&ChipProfile::RK3588).is_ok());
        let model = Model::new(ModelOptions {
            trace: true,
            ..ModelOptions::default()
        });
        let file = File::open(&model);
        let program = file.link(&task, form);
        file.write(program.words());
        file.submit(&[program.words().len()], &[]);
        file.wait();
        let [trace] = <[TaskTrace; 1]>::try_from(model.take_traces()).unwrap();
        prop_assert!(trace.completed, "{:?}", model.events());
        prop_assert_eq!(outside(&trace, program.extents()), Vec::<String>::new());
        for extent in program.extents() {
            let touched = trace.accesses.iter().filter(|a| a.master == extent.engine.into());
            let start = touched.clone().map(|access| access.range.start).min();
            let end = touched.map(|access| access.range.end).max();
            prop_assert_eq!((start, end), (Some(extent.start), Some(extent.end)), "{}", extent);
        }
    }
}

/// CORE counts groups as of a direct convolution, the DPU as of a depthwise one.
#[test]
fn blocks_that_disagree_about_depthwise_have_no_extents() {
    let program = task().program(&ChipProfile::RK3588).unwrap();
    let depthwise = |word: &Word| {
        if word.offset() != FeatureModeCfg::OFFSET {
            return *word;
        }
        let mode = FeatureModeCfg::from_bits(word.value()).with_conv_mode(3);
        Word::new(word.target(), word.offset(), mode.unwrap().bits())
    };
    let words: Vec<_> = program.words().iter().map(depthwise).collect();
    let is_known = |words| tasks(words).all(|task| extents(&task.regs, task.enable).is_ok());
    assert!(is_known(program.words()) && !is_known(&words));
}
