// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the bytes and clocks of the timing model.

use proptest::prelude::*;
use rknpu_regcmd::regs::{self, cna};
use rknpu_regcmd::timing::{Machine, Stage, TaskWork, WorkError};
use rknpu_regcmd::{DmaEngine, EnableMask, RegisterFile, TaskType, extents, tasks};

use crate::helpers::{CHIP, task};

/// The bytes that a task moves and the range of its memory come from the same
/// registers, by different formulas.
#[test]
fn known_programs_move_what_their_ranges_hold() {
    for sample in families::all() {
        for task in tasks(&sample.words) {
            let work = TaskWork::of(&task.regs, task.enable)
                .unwrap_or_else(|error| panic!("{}: {error}", sample.name));
            let extents = extents(&task.regs, task.enable).unwrap();
            for engine in DmaEngine::ALL {
                let moved = work.bytes.of(engine);
                let range = extents.iter().find(|extent| extent.engine == engine);
                let range = range.map_or(0, |extent| extent.end - extent.start);
                // Packed pixels are counted by the byte; their range is the larger of
                // two interpretations of their stride.
                assert!(moved <= range, "{}: {engine} {moved} {range}", sample.name);
                assert_eq!(moved > 0, range > 0, "{}: {engine}", sample.name);
            }
            assert!(work.total_bytes() > 0);
            let spans = work.spans(&Machine::RK3588);
            let moved: u64 = spans.iter().map(|span| span.bytes).sum();
            assert_eq!(moved, work.total_bytes(), "{}", sample.name);
            let computes = spans.iter().any(|span| span.busy_ps > 0);
            assert!(computes, "{}", sample.name);
        }
    }
}

#[test]
fn a_matmul_moves_its_matrices_and_pads_its_groups() {
    for ty in TaskType::ALL {
        let task = task(ty, 64, 256, 128);
        let program = task.program(&CHIP).unwrap();
        let found = tasks(program.words()).next().unwrap();
        let work = TaskWork::of(&found.regs, found.enable).unwrap();
        assert_eq!(work.bytes.of(DmaEngine::Feature), task.a_bytes());
        assert_eq!(work.bytes.of(DmaEngine::Weight), task.b_bytes());
        assert_eq!(work.bytes.of(DmaEngine::DpuWrite), task.c_bytes());
        assert_eq!(work.feature_fill_bytes, task.a_bytes());
        let group = u64::from(ty.n_multiple());
        assert_eq!(work.weight_fill_bytes, task.b_bytes() * group / 128);
        assert_eq!(work.drain_bytes, task.c_bytes() * group / 128);
        assert_eq!(work.macs, 64 * 256 * 128);
        // RK3588 TRM: multiplications of a clock.
        let rate = match ty {
            TaskType::Int4ToInt16 => 2048,
            TaskType::Int8ToInt32 => 1024,
            TaskType::Fp16ToFp32 | TaskType::Fp16ToFp16 => 512,
        };
        assert_eq!(work.mac_clocks, work.macs / rate);

        let mut regs = found.regs.clone();
        let cbuf = regs.get::<cna::CbufCon0>();
        regs.put(cbuf.with_data_reuse(1).unwrap());
        let reusing = TaskWork::of(&regs, found.enable).unwrap();
        assert_eq!(reusing.bytes.of(DmaEngine::Feature), 0);
        assert_eq!(reusing.feature_fill_bytes, 0);
        let machine = Machine::RK3588;
        assert!(reusing.duration_ps(&machine) < work.duration_ps(&machine));
        for work in [work, reusing] {
            assert_eq!(work.parts(&machine).total_ps(), work.duration_ps(&machine));
        }
        // A matmul does not pool.
        let stages = work.spans(&machine);
        assert!(stages.iter().all(|span| span.stage != Stage::Ppu));
    }
}

#[test]
fn blocks_that_cannot_end_are_refused() {
    let regs = RegisterFile::new();
    let of = |bits| TaskWork::of(&regs, EnableMask::from_bits_retain(bits));
    assert_eq!(of(0x80), Err(WorkError::UnknownBlocks(0x80)));
    for mask in [0, 0x01, 0x05, 0x08, 0x18, 0x20, 0x4d] {
        assert_eq!(of(mask), Err(WorkError::Incomplete(mask)));
    }
    assert!(of(0x0d).is_ok() && of(0x60).is_ok() && of(0x6d).is_ok());
}

proptest! {
    #![proptest_config(test_support::cases(512))]

    /// With any registers there is no panic and no overflow, and spans lie within the
    /// task.
    #[test]
    fn any_registers_have_a_time(
        values in prop::collection::vec(any::<u32>(), regs::all().count()),
        ones in prop::bool::weighted(0.1),
        enable in 0u32..0x80,
        clock_hz in prop_oneof![Just(0), Just(600_000_000), any::<u64>()],
    ) {
        let mut file = RegisterFile::new();
        for (register, value) in regs::all().zip(values) {
            file.set(register.offset, if ones { u32::MAX } else { value });
        }
        let machine = Machine::RK3588.at_clock(clock_hz);
        if let Ok(work) = TaskWork::of(&file, EnableMask::from_bits_retain(enable)) {
            let work = work.fetching(u64::MAX);
            for span in work.spans(&machine) {
                prop_assert!(span.start_ps <= span.end_ps && span.end_ps <= work.duration_ps(&machine));
            }
        }
    }
}
