// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the ranges of `rknpu_regcmd::extents` with the chip's accesses.
//!
//! The safety of `rocket-uapi` rests on the computed ranges. The tests run programs on
//! a core, started as the driver does, and record every DMA access. Whatever is in the
//! registers, no access may be outside the ranges.

use std::time::Duration;

use npu_model::accesses::{AccessRecorder, DmaAccess};
use npu_model::driver::{Kicked, kick};
use proptest::prelude::*;
use proptest::sample::select;
use rknpu_chip::{Bus, ChipOptions, Core, Direction, Fault, Master};
use rknpu_regcmd::regs::dpu::FeatureModeCfg;
use rknpu_regcmd::{
    Binding, BufferId, ChipProfile, Extent, Iova, MatmulForm, MatmulTask, MatmulType, Register,
    Word, extents, tasks,
};

use crate::matmul::task;

/// Bytes of each operand. The operands lie one behind another, then the program.
const OPERAND_BYTES: u32 = 256 << 10;
const PROGRAM: u32 = 3 * OPERAND_BYTES;

/// Memory that records its accesses.
struct Memory {
    bytes: Vec<u8>,
    recorder: AccessRecorder,
}

impl Memory {
    fn touch(&mut self, master: Master, direction: Direction, at: u32, len: usize) -> &mut [u8] {
        let (start, len) = (at as usize, len);
        let range = u64::from(at)..u64::from(at) + len as u64;
        self.recorder.note(master, direction, range);
        &mut self.bytes[start..start + len]
    }
}

impl Bus for Memory {
    fn read(&mut self, master: Master, at: u32, out: &mut [u8]) -> Result<(), Fault> {
        out.copy_from_slice(self.touch(master, Direction::Read, at, out.len()));
        Ok(())
    }

    fn write(&mut self, master: Master, at: u32, data: &[u8]) -> Result<(), Fault> {
        let touched = self.touch(master, Direction::Write, at, data.len());
        touched.copy_from_slice(data);
        Ok(())
    }
}

/// Runs a program. Returns its accesses.
fn run(words: &[Word]) -> (Kicked, Vec<DmaAccess>) {
    let mut memory = Memory {
        bytes: vec![0; PROGRAM as usize],
        recorder: AccessRecorder::default(),
    };
    let program = words.iter().flat_map(|word| word.bits().to_le_bytes());
    memory.bytes.extend(program);
    // PC fetches words in pairs.
    memory.bytes.extend([0; 8]);
    let mut core = Core::new(&ChipOptions::default());
    let program = (PROGRAM, words.len() as u32);
    let limit = Duration::from_millis(500);
    let kicked = kick(&mut core, 0, program, &mut memory, limit);
    (kicked, memory.recorder.finish())
}

/// The accesses outside of `computed`.
fn outside(accesses: &[DmaAccess], computed: &[Extent]) -> Vec<String> {
    let covered = |access: &DmaAccess| {
        computed.iter().any(|extent| {
            access.master == extent.engine.into()
                && extent.start <= access.range.start
                && access.range.end <= extent.end
        })
    };
    let outside = accesses
        .iter()
        .filter(|access| access.master != Master::Fetch);
    let outside = outside.filter(|access| !covered(access));
    outside.map(|access| format!("{access:x?}")).collect()
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

    /// A matmul touches the computed ranges, from their first byte to their last.
    #[test]
    fn a_matmul_touches_just_what_was_computed((task, form) in matmul()) {
        prop_assume!(task.check(&ChipProfile::RK3588).is_ok());
        let bindings = [0, 1, 2].map(|index| Binding {
            id: BufferId(index),
            iova: Iova(index * OPERAND_BYTES),
            len: OPERAND_BYTES,
        });
        let program = task.program_in(form, &ChipProfile::RK3588).unwrap();
        let program = program.link(&bindings).unwrap();
        let (kicked, accesses) = run(program.words());
        prop_assert!(kicked.is_completed(), "{:?}", kicked);
        prop_assert_eq!(outside(&accesses, program.extents()), Vec::<String>::new());
        for extent in program.extents() {
            let touched = accesses.iter().filter(|a| a.master == extent.engine.into());
            let start = touched.clone().map(|access| access.range.start).min();
            let end = touched.map(|access| access.range.end).max();
            prop_assert_eq!((start, end), (Some(extent.start), Some(extent.end)), "{}", extent);
        }
    }
}

/// CORE is set to a direct convolution, the DPU to a depthwise one.
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
