// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of matmuls whose A or C is row-major: the known values, and the rules.

use proptest::prelude::*;
use rknpu_regcmd::{
    Before, LaidOutTask, Layouts, MatmulError, MatmulTask, MatmulType, MatrixLayout, Reuse,
    ReuseRule, row_major_rows,
};

use crate::helpers::{CHIP, form_a, task, values, warnings};
use families::happyme::{self, RowLayout};

fn row_major(task: MatmulTask, a: u32, c: u32) -> LaidOutTask {
    task.laid_out(Layouts {
        a: MatrixLayout::RowMajor { pitch: a },
        c: MatrixLayout::RowMajor { pitch: c },
    })
}

/// The values of happyme531's generator, with rows that may be wider, except QD_EN
/// and OD_BYPASS, with which it makes sums that nothing uses.
#[test]
fn row_major_matmuls_have_the_values_of_the_known_generator() {
    let layout = RowLayout::RowMajor;
    for (ty, (m, k, n), columns) in [
        (MatmulType::Int8ToInt32, (64, 2048, 96), 160),
        (MatmulType::Int8ToInt32, (4, 4096, 64), 64),
        (MatmulType::Fp16ToFp16, (20, 320, 64), 64),
        (MatmulType::Fp16ToFp16, (128, 32, 32), 96),
    ] {
        let half = ty == MatmulType::Fp16ToFp16;
        let mut known = if half {
            happyme::float(2, (2, 2), (m, k, n), layout)
        } else {
            happyme::int8((m, k, n), layout, layout)
        };
        (known.qd, known.od_bypass) = (half.into(), 1);
        (known.a, known.b, known.c) = (0, 0, 0);
        known.writer.notch = columns * ty.out_bytes() / 16 - 1;
        let pitches = (k * ty.operand().bits() / 8, columns * ty.out_bytes());
        let ours = row_major(task(ty, m, k, n), pitches.0, pitches.1);
        let ours = ours.program(&form_a(ReuseRule::Never), &CHIP).unwrap();
        assert_eq!(
            values(ours.words()),
            values(&known.task()),
            "{ty:?} {m}x{k}x{n}"
        );
    }
}

/// The tiles that were measured are legal, and four rows more are not.
#[test]
fn rows_end_where_measurements_do() {
    let ty = MatmulType::Int8ToInt32;
    for (k, rows) in [
        (32, 128),
        (2048, 128),
        (2080, 124),
        (3072, 85),
        (3104, 4),
        (3840, 4),
        (4096, 64),
        (4128, 32),
        (6144, 32),
        (6176, 16),
        (8192, 16),
        (8224, 1),
    ] {
        assert_eq!(row_major_rows(ty, k), rows, "{k}");
        let legal = rows / 4 * 4;
        let check = |m| row_major(task(ty, m, k, 32), k, 128).check(&CHIP);
        if legal > 0 {
            check(legal).unwrap();
        }
        let (m, max) = (legal + 4, rows);
        let expected = MatmulError::RowMajorRows { m, k, max };
        // From K = 4096 on, the weights leave no bank for more rows either.
        let refused = check(m).unwrap_err();
        let of_banks = matches!(refused, MatmulError::WeightBanks { .. });
        assert!(refused == expected || of_banks && k >= 4096, "{refused}");
    }
}

#[test]
fn pitches_are_whole_atoms_that_fit() {
    let ty = MatmulType::Int8ToInt32;
    let task = |n| task(ty, 4, 64, n);
    let refused = |pitches: (u32, u32)| row_major(task(32), pitches.0, pitches.1).check(&CHIP);
    refused((64, 128)).unwrap();
    refused((4096 * 16, 8192 * 16)).unwrap();
    for (pitches, operand, pitch, row, max) in [
        ((72, 128), "A", 72, 64, 65_536),
        ((48, 128), "A", 48, 64, 65_536),
        ((65_552, 128), "A", 65_552, 64, 65_536),
        ((64, 132), "C", 132, 128, 131_072),
        ((64, 112), "C", 112, 128, 131_072),
        ((64, 131_088), "C", 131_088, 128, 131_072),
    ] {
        let expected = MatmulError::Pitch {
            operand,
            pitch,
            row,
            max,
        };
        assert_eq!(refused(pitches), Err(expected));
    }
    let int4 = MatmulTask {
        ty: MatmulType::Int4ToInt16,
        ..task(64)
    };
    let refused = row_major(int4, 64, 128).check(&CHIP);
    assert_eq!(refused, Err(MatmulError::RowMajorInt4("A")));
}

#[test]
fn rows_fetched_in_another_layout_are_not_reused() {
    let task = task(MatmulType::Int8ToInt32, 16, 64, 32);
    let rows = row_major(task, 64, 128);
    let wider = row_major(task, 128, 128);
    let cube = task.laid_out(Layouts::default());
    let always = form_a(ReuseRule::Always);
    let reuse = |features| {
        Ok(Reuse {
            features,
            weights: true,
        })
    };
    assert_eq!(rows.reuse_after(&rows, &always, &CHIP), reuse(true));
    assert_eq!(rows.reuse_after(&wider, &always, &CHIP), reuse(false));
    assert_eq!(rows.reuse_after(&cube, &always, &CHIP), reuse(false));
    assert_eq!(cube.reuse_after(&rows, &always, &CHIP), reuse(false));
}

proptest! {
    #![proptest_config(test_support::cases(64))]

    /// A legal matmul has no finding above a note.
    #[test]
    fn legal_row_major_matmuls_pass_the_lint(
        ty in prop::sample::select(vec![
            MatmulType::Int8ToInt32, MatmulType::Fp16ToFp32, MatmulType::Fp16ToFp16,
        ]),
        m in 1..33_u32,
        k in 1..129_u32,
        n in 1..20_u32,
        a_beyond in 0..9_u32,
        c_beyond in 0..9_u32,
    ) {
        let task = task(ty, m * 4, k * 32, n * ty.n_multiple());
        let a = task.k * ty.operand().bits() / 8 + a_beyond * 16;
        let c = task.n * ty.out_bytes() + c_beyond * 16;
        let Ok(program) = row_major(task, a, c).program(&form_a(ReuseRule::Never), &CHIP) else {
            return Ok(());
        };
        prop_assert_eq!(warnings(program.words(), Before::Unknown), [""; 0]);
    }
}
