// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of matmul programs: the values of the known generators, the rules, the
//! buffers.

use proptest::prelude::*;
use rknpu_regcmd::{
    Before, DmaEngine, Extent, Iova, MatmulError, MatmulForm, MatmulTask, ProgramOptions, Reuse,
    ReuseRule, TaskType,
};

use crate::helpers::{CHIP, IDS, bind, form_a, lengths, task, values, warnings};
use families::matmul::{self, OperandTypes};
use families::{A, B, C};

fn types(ty: TaskType) -> OperandTypes {
    match ty {
        TaskType::Int8ToInt32 => matmul::INT8_INT32,
        TaskType::Fp16ToFp32 => matmul::FP16_FP32,
        TaskType::Fp16ToFp16 => matmul::FP16_FP16,
        TaskType::Int4ToInt16 => matmul::INT4_INT16,
    }
}

/// Reuses every operand that CBUF still holds.
const ALWAYS: ProgramOptions = form_a(ReuseRule::Always);

/// A task reuses what it may of the task before it, and its program fetches the rest.
#[test]
fn a_task_reuses_what_the_one_before_left() {
    let ty = TaskType::Int8ToInt32;
    let (small, wide) = (task(ty, 64, 256, 64), task(ty, 64, 256, 8192));
    let moved = |task: MatmulTask, a, b| MatmulTask {
        a: IDS[0].at(a),
        b: IDS[1].at(b),
        ..task
    };
    let reuse = |features, weights| Reuse { features, weights };
    let none = Reuse::default();
    for (before, after, expected) in [
        (small, small, reuse(true, true)),
        (small, moved(small, 0, 64), reuse(true, false)),
        (small, moved(small, 64, 0), reuse(false, true)),
        (small, moved(small, 64, 64), none),
        // The same A, another number of kernels.
        (wide, small, reuse(true, false)),
        // 2 MiB of weights streamed through.
        (wide, moved(wide, 64, 0), none),
        // 64 rows take one bank, 192 two.
        (small, moved(task(ty, 192, 256, 64), 64, 0), none),
        // The same number of banks, other rows.
        (small, task(ty, 60, 256, 64), reuse(false, true)),
        // Another K at the same address.
        (small, task(ty, 64, 224, 64), none),
        (small, task(TaskType::Int4ToInt16, 64, 256, 64), none),
    ] {
        assert_eq!(
            after.reuse_after(&before, &ALWAYS, &CHIP),
            Ok(expected),
            "{after:?}"
        );
        let program = after.program_after(&before, &ALWAYS, &CHIP).unwrap();
        let cbuf = values(program.words())[&(0x0201, 0x1040)];
        assert_eq!(cbuf >> 12 & 1 == 1, expected.features);
        assert_eq!(cbuf >> 13 & 1 == 1, expected.weights);
        let mut plain = values(after.program_with(&ALWAYS, &CHIP).unwrap().words());
        plain.insert((0x0201, 0x1040), cbuf);
        assert_eq!(values(program.words()), plain);
    }
    // Weights of 8 and of 9 banks: in nine banks only the first leave one to spare.
    for (n, stays) in [(256, true), (288, false)] {
        let full = task(ty, 96, 1024, n);
        assert_eq!(full.check(&CHIP).unwrap().weight_banks, 9);
        assert_eq!(
            full.reuse_after(&full, &ALWAYS, &CHIP).unwrap().weights,
            stays
        );
    }
}

/// No known program reused different operands, other sizes, or weights that stream.
#[test]
fn only_equal_tasks_with_resident_weights_reuse_by_default_rules() {
    let [equal, never] = [ReuseRule::EqualResident, ReuseRule::Never].map(form_a);
    let of = |m, k, n| task(TaskType::Fp16ToFp32, m, k, n);
    let reused = |before: MatmulTask, after: MatmulTask, options| {
        let reuse = after.reuse_after(&before, options, &CHIP).unwrap();
        reuse.features || reuse.weights
    };
    let (small, streamed) = (of(64, 256, 128), of(64, 256, 2048));
    assert!(reused(small, small, &equal));
    assert!(!reused(small, small, &never));
    assert!(!reused(small, of(64, 256, 64), &equal), "another N");
    assert!(reused(small, of(64, 256, 64), &ALWAYS));
    assert!(!reused(streamed, streamed, &equal), "weights stream");
    assert!(reused(streamed, streamed, &ALWAYS));
}

/// Features get one bank more, unless the weights would then have to stream or not
/// get through.
#[test]
fn a_spare_data_bank_leaves_the_weights_theirs() {
    let spare = ProgramOptions {
        spare_data_bank: true,
        ..ProgramOptions::default()
    };
    let ty = TaskType::Int8ToInt32;
    for (m, k, n, banks) in [
        (64, 64, 32, (2, 10)),
        // 8 data banks hold all rows; the weights fill 4 banks, or 3.
        (256, 1024, 128, (8, 4)),
        (256, 1024, 96, (9, 3)),
        // The weights stream either way.
        (256, 1024, 2048, (9, 3)),
        // As mtx512 ran it, with the minimum of banks that streaming needs.
        (544, 544, 4096, (10, 2)),
    ] {
        let program = task(ty, m, k, n);
        let program = program.program_with(&spare, &CHIP).unwrap();
        let cbuf = values(program.words())[&(0x0201, 0x1040)];
        assert_eq!((cbuf & 0xf, cbuf >> 4 & 0xf), banks, "{m} x {k} x {n}");
    }
}

fn legal_task() -> impl Strategy<Value = MatmulTask> {
    (
        prop::sample::select(&TaskType::ALL[..]),
        1u32..=255,
        1u32..=96,
        1u32..=64,
    )
        .prop_map(|(ty, m, k, n)| task(ty, 4 * m, ty.k_multiple() * k, ty.n_multiple() * n))
        .prop_filter("legal", |task| task.check(&CHIP).is_ok())
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// Both forms have exactly the words of the known generators.
    #[test]
    fn programs_are_those_of_the_known_generators(task in legal_task(), with_rdma: bool) {
        let form = if with_rdma { MatmulForm::B } else { MatmulForm::A };
        let linked = task
            .program_in(form, &CHIP)
            .unwrap()
            .link(&bind([A, B, C], lengths(&task)))
            .unwrap();
        let known = matmul::matmul(types(task.ty), task.m, task.k, task.n);
        let known = if with_rdma { known.with_rdma() } else { known }.task();
        prop_assert_eq!(linked.words().len(), known.len());
        prop_assert_eq!(values(linked.words()), values(&known));
    }

    /// A matmul touches its three buffers, each from end to end.
    #[test]
    fn matmuls_touch_their_buffers_and_nothing_else(task in legal_task()) {
        let bindings = bind([0, B, C], lengths(&task));
        let linked = task.program(&CHIP).unwrap().link(&bindings).unwrap();
        let engines = [DmaEngine::Feature, DmaEngine::Weight, DmaEngine::DpuWrite];
        let expected = [0, 1, 2].map(|i| Extent {
            engine: engines[i],
            start: bindings[i].iova.0.into(),
            end: u64::from(bindings[i].iova.0) + u64::from(bindings[i].len),
        });
        prop_assert_eq!(linked.extents(), &expected);
        let last = C + bindings[2].len - 16;
        prop_assert_eq!(linked.last_written_atom(), Some(Iova(last)));
        prop_assert_eq!(warnings(linked.words(), Before::Unknown), [""; 0]);
    }

    /// Any sizes give a program or the error of a rule.
    #[test]
    fn illegal_sizes_are_refused(
        ty in prop::sample::select(&TaskType::ALL[..]),
        m: u32,
        k: u32,
        n: u32,
        offset: u32,
    ) {
        let mut task = task(ty, m, k, n);
        task.a.offset = offset;
        let program = task.program(&CHIP);
        prop_assert_eq!(program.is_ok(), task.check(&CHIP).is_ok());
        let _ = (task.a_bytes(), task.b_bytes(), task.c_bytes());
    }
}

#[test]
fn each_rule_has_its_error() {
    use TaskType::{Fp16ToFp32 as F16, Int4ToInt16 as I4, Int8ToInt32 as I8};
    let refused = |ty, [m, k, n]: [u32; 3]| task(ty, m, k, n).check(&CHIP).unwrap_err();
    for (ty, sizes, expected) in [
        (I8, [0, 32, 32], "M = 0 is not a positive multiple of 4"),
        (I8, [1, 32, 32], "M = 1 is not a positive multiple of 4"),
        (I8, [6, 32, 32], "M = 6 is not a positive multiple of 4"),
        (
            I8,
            [1019, 32, 32],
            "M = 1019 is not a positive multiple of 4",
        ),
        (I8, [4, 0, 32], "K = 0 is not a positive multiple of 32"),
        (I8, [4, 16, 32], "K = 16 is not a positive multiple of 32"),
        (I8, [4, 33, 32], "K = 33 is not a positive multiple of 32"),
        (I8, [4, 32, 0], "N = 0 is not a positive multiple of 32"),
        (I8, [4, 32, 16], "N = 16 is not a positive multiple of 32"),
        (I8, [4, 32, 33], "N = 33 is not a positive multiple of 32"),
        (I4, [4, 32, 32], "N = 32 is not a positive multiple of 64"),
        (I8, [1024, 32, 32], "M = 1024 is more than the 1020"),
        (I8, [4, 32, 8224], "N = 8224 is more than the 8192"),
        (I4, [4, 16416, 64], "K = 16416 is more than the 16384"),
        (F16, [4, 16384, 16], "the rows of A take 4 CBUF banks"),
        (F16, [1020, 384, 16], "1020 rows of K = 384 take 24"),
    ] {
        let error = refused(ty, sizes).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    // A kernel larger than a bank cannot pass the other rules on RK3588; on a chip
    // that counts more channels it could.
    let mut wide = CHIP;
    wide.input_channels_max = 1 << 16;
    let (k, bytes, max) = (32800, 32800, 32768);
    let error = MatmulError::KernelTooLarge { k, bytes, max };
    assert_eq!(task(I8, 4, k, 32).check(&wide), Err(error));
    let mut unaligned = task(I8, 4, 32, 32);
    unaligned.c.offset = 8;
    let (operand, offset) = ("C", 8);
    let error = MatmulError::Unaligned { operand, offset };
    assert_eq!(unaligned.check(&CHIP), Err(error));
}

/// The largest K with four rows, and the line rounding of int8.
#[test]
fn cbuf_is_divided_by_the_exact_rule() {
    use TaskType::{Fp16ToFp32, Int8ToInt32};
    let split = |ty, m, k, n| {
        let split = task(ty, m, k, n).check(&CHIP)?;
        Ok::<_, MatmulError>((split.data_banks, split.weight_banks))
    };
    assert_eq!(split(Fp16ToFp32, 4, 9216, 16), Ok((3, 9)));
    assert!(split(Fp16ToFp32, 4, 9248, 16).is_err());
    assert_eq!(split(Int8ToInt32, 4, 10240, 32), Ok((2, 10)));
    assert!(split(Int8ToInt32, 4, 10272, 32).is_err());
    // 144 rows of 224 bytes are 32256 bytes, but take 256 bytes each.
    assert_eq!(split(Int8ToInt32, 144, 224, 32), Ok((2, 10)));
    assert_eq!(split(Int8ToInt32, 144, 192, 32), Ok((1, 11)));
}
