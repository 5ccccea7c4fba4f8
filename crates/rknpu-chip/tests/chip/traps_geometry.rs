// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traps of sizes, strides and persisting registers: symptom and diagnosis.

use rknpu_chip::{Effect, Level};
use rknpu_regcmd::regs::{cna, dpu};

use super::board::{Board, Outcome, SENTINEL};
use super::golden;
use super::programs::{Flying, MatType, Pool};
use super::traps::{assert_trap, product, small};

const INT8: MatType = MatType::Int8Int32;

#[test]
fn t12_a_core_that_hung_is_wedged_until_its_reset() {
    let mut product = small();
    let hang = product.conv.words().finish(0x05);
    let at = product.board.place_program(&hang);
    let good = product.conv.program();
    let good_at = product.board.place_program(&good);
    // Without the reset that the driver makes.
    let status = product.board.kick_without_reset(at, hang.len());
    assert_eq!(status.raw_status, 0);
    let status = product.board.kick_without_reset(good_at, good.len());
    assert_eq!(status.raw_status, 0);
    assert_trap(&status, "T12-wedged", Effect::Hang);
    product.board.cores[0].reset();
    product.board.run(&good).assert_clean();
}

#[test]
fn t30_values_that_their_fields_cut() {
    // 2^28 more than the stride: the same address, and a note.
    let mut right = product(INT8, (8, 64, 32), Level::Strict);
    right.board.run(&right.conv.program()).assert_clean();
    for (patch, clean) in [(1 << 28 | 4, false), (4, true)] {
        let mut product = product(INT8, (8, 64, 32), Level::Strict);
        let mut words = product.conv.words();
        words.patch::<cna::DmaCon2>(patch);
        let outcome = product.board.run(&words.finish(0x0d));
        assert!(outcome.completed());
        assert_eq!(product.out(), right.out());
        if clean {
            outcome.assert_clean();
        } else {
            assert_trap(&outcome, "T30-field-overflow", Effect::Note);
        }
    }
    // A negative stride with its sign in all 32 bits is none.
    let mut one = product(INT8, (1, 64, 32), Level::Strict);
    let mut words = one.conv.words();
    words.patch::<cna::DmaCon2>(-3i32 as u32);
    one.board.run(&words.finish(0x0d)).assert_clean();
}

#[test]
fn the_exact_strides_of_any_number_of_rows_are_clean() {
    for m in [1, 2, 3, 5, 6, 7] {
        let mut right = product(INT8, (m, 64, 32), Level::Strict);
        right.board.run(&right.conv.program()).assert_clean();
    }
}

#[test]
fn t26a_what_no_known_program_does_is_told_and_right() {
    // 24 KiB and 48 KiB of weights, and 32 of 64 kernels that take 64 KiB.
    for (k, n, weight_banks, trap) in [
        (384, 32, 1, None),
        (384, 64, 2, None),
        (384, 64, 1, Some("T26a-one-weight-bank")),
        (1024, 64, 2, None),
        (1024, 64, 1, Some("T26a-weight-block")),
    ] {
        let mut product = product(MatType::Fp16Fp32, (4, k, n), Level::Strict);
        product.board.run(&product.conv.program()).assert_clean();
        let right = product.out();
        let mut words = product.conv.words();
        words.patch::<cna::CbufCon0>(weight_banks << 4 | (12 - weight_banks));
        let words = words.finish(0x0d);
        let outcome = product.board.run(&words);
        // Nobody knows that it fails.
        assert!(outcome.completed());
        assert_eq!(product.out(), right);
        if let Some(trap) = trap {
            assert_trap(&outcome, trap, Effect::Note);
        } else {
            outcome.assert_clean();
        }
    }
}

#[test]
fn a_task_of_no_lines_is_told_and_does_not_end() {
    const HEIGHT: u32 = 8;
    for (fetched, convolved) in [(0, HEIGHT), (HEIGHT, 0), (0, 0)] {
        let mut product = small();
        let mut words = product.conv.words();
        words.patch::<cna::FcDataSize0>(1 << 16 | fetched);
        words.patch::<cna::DataSize0>(1 << 16 | convolved);
        let words = words.finish(0x0d);
        let outcome = product.board.run(&words);
        assert_eq!(outcome.raw_status, 0);
        assert_trap(&outcome, "H05-empty-input", Effect::Hang);
        assert!(product.out().iter().all(|&b| b == SENTINEL));
    }
}

#[test]
fn t29_reuse_ends_with_the_job() {
    let mut product = small();
    product.board.run(&product.conv.program()).assert_clean();
    product.conv.data_reuse = true;
    product.board.run(&product.conv.program()).assert_clean();
    let right = product.out();
    product.board.memory.attachment += 1;
    let outcome = product.board.run(&product.conv.program());
    assert_trap(&outcome, "T29-stale-cbuf", Effect::Garbage);
    // Nobody ran in between: by luck the data is still there.
    assert_eq!(product.out(), right);
}

#[test]
fn t30_the_widest_lines_lose_their_end() {
    let cols = 8192u32;
    let bytes = vec![0x3c; cols as usize * 16];
    let mut board = Board::new(1 << 20);
    let (a, b) = (board.place(&bytes), board.place(&bytes));
    let d = board.reserve(bytes.len());
    let mut copy = Flying::fp16(cols, 0x383, (a, b, d));
    copy.erdma = 1;
    let outcome = board.run(&copy.program());
    assert!(outcome.completed());
    assert_trap(&outcome, "T30-width", Effect::Garbage);
    let out = board.bytes(d, bytes.len());
    let wrong = out.chunks_exact(2).filter(|pair| *pair != [0x3c, 0x3c]);
    assert_eq!(wrong.count(), 54);
    assert!(out[..out.len() - 108].iter().all(|&b| b == 0x3c));
}

#[test]
fn t35_a_depthwise_group_that_is_too_wide_is_interleaved() {
    let mut right = Board::new(1 << 20);
    let mut conv = golden::captured(&mut right);
    conv.od_bypass = 1;
    conv.po = 4;
    conv.out_offset = 0;
    conv.out_scale = 1;
    conv.out_shift = 0;
    conv.size_e = 7;
    let pixels = 64usize;
    conv.writer = (8, 8, 64, 0, 16 * 64);
    conv.c = right.reserve(pixels * 64 * 4);
    let outcome = right.run(&conv.program());
    assert!(outcome.completed());
    assert_trap(&outcome, "T35-group-too-wide", Effect::NoWrite);
    let out = right.bytes(conv.c, pixels * 64 * 4);
    // The same sums through the int8 output, of the upper left pixel.
    let at = |channel: usize| {
        let at = channel / 4 * pixels * 16 + channel % 4 * 4;
        i32::from_le_bytes(out[at..at + 4].try_into().unwrap())
    };
    let expected = golden::direct_sums();
    for (k, sum) in expected.into_iter().enumerate().take(16) {
        assert_eq!(at(2 * k), sum, "channel {k}");
        assert_eq!(at(2 * k + 1), 0);
    }
    assert_eq!(at(32), i32::from_le_bytes([SENTINEL; 4]));
}

#[test]
fn t37_int16_without_the_sum_writes_sixteen_channels() {
    let mut right = product(MatType::Int16Int32, (8, 32, 32), Level::Strict);
    right.board.run(&right.conv.program()).assert_clean();
    let mut product = product(MatType::Int16Int32, (8, 32, 32), Level::Faithful);
    product.conv.qd = 0;
    let outcome = product.board.run(&product.conv.program());
    assert!(outcome.completed());
    assert_trap(&outcome, "T37-int16-without-sum", Effect::NoWrite);
    let (got, expected) = (product.out(), right.out());
    let half = got.len() / 2;
    assert_eq!(got[..half], expected[..half]);
    assert!(got[half..].iter().all(|&b| b == SENTINEL));
}

#[test]
fn t39_a_notch_that_is_too_small_lets_rows_overlap() {
    let row_major = |notch: u32| {
        let mut product = product(INT8, (8, 64, 64), Level::Faithful);
        product.conv.writer = (1, 8, 1, notch, 8);
        product
    };
    let mut right = row_major(64 / 4 - 1);
    right.board.run(&right.conv.program()).assert_clean();
    let mut wrong = row_major(12);
    let outcome = wrong.board.run(&wrong.conv.program());
    assert!(outcome.completed());
    assert_trap(&outcome, "T34-output-overlap", Effect::Garbage);
    assert_ne!(wrong.out(), right.out());
}

/// A transposed int16 product of M x K x N, with SIZE_E: what its sums are and, by
/// row and channel, which 16 bits were written, or `None`.
fn transposed(
    (m, k, n): (usize, usize, usize),
    size_e: u32,
    level: Level,
) -> (Outcome, Vec<(i32, Option<u16>)>) {
    const TP: u32 = 1 << 27;
    let bytes = 4 * 16 * m * 2;
    let ty = MatType::Int16Int32;
    let mut right = product(ty, (m, k, n), Level::Strict);
    right.board.run(&right.conv.program()).assert_clean();
    let plain = right.out();
    let mut product = product(ty, (m, k, n), level);
    product.conv.c = product.board.reserve(bytes);
    let mut words = product.conv.words();
    words.patch::<dpu::BsOwCfg>(TP | size_e << 8 | size_e << 5 | size_e << 2 | 2);
    words.patch::<dpu::WdmaSize0>(TP | (n as u32 - 1));
    let outcome = product.board.run(&words.finish(0x0d));
    let out = product.board.bytes(product.conv.c, bytes);
    let mut elements = Vec::new();
    for (row, channel) in (0..m).flat_map(|row| (0..n).map(move |channel| (row, channel))) {
        let at = ((channel / 4) * m + row) * 16 + channel % 4 * 4;
        let sum = i32::from_le_bytes(plain[at..at + 4].try_into().unwrap());
        let slot = 4 * row + channel / 4 % 4 + channel / 16 * 4 * m + channel % 4 * 16 * m;
        let got = out.get(2 * slot..2 * slot + 2).map(|two| [two[0], two[1]]);
        let written = got.filter(|&two| two != [SENTINEL; 2]);
        elements.push((sum, written.map(u16::from_le_bytes)));
    }
    (outcome, elements)
}

/// What was measured (E-transposed-cut, E-transposed-hang, E-transposed-size): the
/// low 16 bits of sums, a hang behind the last write of 16 channels, and half of
/// the channels with SIZE_E 3.
#[test]
fn t41_the_transposing_writer_cuts_its_results() {
    let mut cut = 0;
    for (m, n) in [(8, 32), (32, 32)] {
        let (outcome, elements) = transposed((m, 32, n), 7, Level::Strict);
        outcome.assert_clean();
        for (sum, got) in elements {
            assert_eq!(got, Some(sum as u16), "{sum}");
            cut += usize::from(i16::try_from(sum).is_err());
        }
    }
    assert!(cut > 0);

    let (outcome, elements) = transposed((12, 64, 16), 7, Level::Faithful);
    assert_eq!(outcome.raw_status, 0);
    assert_trap(&outcome, "H08-transposed-group", Effect::Hang);
    assert!(elements.iter().all(|&(sum, got)| got == Some(sum as u16)));

    for (m, ends) in [(4, true), (16, false)] {
        let (outcome, elements) = transposed((m, 32, 32), 3, Level::Faithful);
        assert_eq!(outcome.completed(), ends);
        assert_trap(&outcome, "T41-transposing-writer", Effect::Garbage);
        let written = elements.iter().filter(|(_, got)| got.is_some());
        assert_eq!(written.count(), m * 32 / 2);
    }
    let (outcome, _) = transposed((4, 32, 64), 7, Level::Faithful);
    assert_trap(&outcome, "T41-transposing-writer", Effect::Garbage);
}

#[test]
fn t49_registers_of_an_earlier_program_are_named() {
    // The first program leaves a scale in BN; the second switches BN on and
    // does not say by how much.
    let run = |stale: bool| {
        let mut product = small();
        let mut words = product.conv.words();
        words.patch::<dpu::BnMulCfg>(3 << 16);
        words.patch::<dpu::BnCfg>(0x42);
        if stale {
            product.board.run_in_both_groups(&words.finish(0x0d));
            words = product.conv.words();
            words.patch::<dpu::BnCfg>(0x42);
            words.without::<dpu::BnMulCfg>();
        }
        let outcome = product.board.run(&words.finish(0x0d));
        (outcome, product.out())
    };
    let (outcome, right) = run(false);
    outcome.assert_clean();
    let (outcome, got) = run(true);
    assert!(outcome.completed());
    assert_trap(&outcome, "T07-stale-registers", Effect::Garbage);
    assert_eq!(outcome.diagnosis[0].registers, [("BN_MUL_CFG", 3 << 16)]);
    assert_eq!(got, right);

    // A register that no stage uses may hold what it likes.
    let mut product = small();
    let mut words = product.conv.words();
    words.patch::<dpu::BnMulCfg>(3 << 16);
    product.board.run_in_both_groups(&words.finish(0x0d));
    let mut words = product.conv.words();
    words.without::<dpu::BnMulCfg>();
    product.board.run(&words.finish(0x0d)).assert_clean();
}

#[test]
fn t55_an_upload_that_begins_anew_is_told() {
    let mut board = Board::new(1 << 16);
    let (a, d) = (board.place(&[0; 128]), board.reserve(128));
    let mut copy = Flying::fp16(8, 0x383, (a, a, d));
    copy.erdma = 1;
    let mut words = copy.words();
    words
        .set::<dpu::LutAccessCfg>(0x20000)
        .set::<dpu::LutAccessData>(1)
        .set::<dpu::LutAccessCfg>(0x20000)
        .set::<dpu::LutAccessData>(2);
    let outcome = board.run(&words.finish(0x18));
    assert_trap(&outcome, "T55-upload-restarted", Effect::Note);
}

#[test]
fn t59_t60_pooling() {
    let pool = |change: &dyn Fn(&mut Pool)| {
        let mut board = Board::new(1 << 16);
        let mut pool = Pool {
            input: (6, 6),
            output: (5, 5),
            channels: 8,
            method: 1,
            kernel: (2, 2),
            stride: (1, 1),
            pad: (0, 0, 0, 0),
            pad_value: 0,
            // Negative numbers: padding with 0 would win.
            src: board.place(&[0xbc; 6 * 6 * 16]),
            dst: board.reserve(8 * 8 * 16),
        };
        change(&mut pool);
        let outcome = board.run(&pool.program());
        assert!(outcome.completed());
        (outcome, board.bytes(pool.dst, 16))
    };
    pool(&|_| {}).0.assert_clean();
    let (outcome, bytes) = pool(&|pool| {
        pool.method = 0;
        pool.kernel = (1, 2);
        pool.output = (6, 5);
    });
    assert_trap(&outcome, "T59-average-of-one", Effect::Garbage);
    // Minus infinity: the reciprocal overflowed.
    assert_eq!(bytes[..2], [0x00, 0xfc]);
    let (outcome, bytes) = pool(&|pool| {
        pool.pad = (1, 1, 0, 0);
        pool.output = (6, 6);
    });
    assert_trap(&outcome, "T60-max-padding", Effect::Garbage);
    assert_eq!(bytes, [0; 16], "0 beats every negative number");
}
