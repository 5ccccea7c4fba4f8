// SPDX-License-Identifier: MIT OR Apache-2.0
//! What silicon punishes: the symptoms of traps, where rules.rs has only that
//! they are told, and traps that one program by itself does not show.

use families::matmul::{FP16_FP32, INT4_INT16, INT8_INT32, INT16_INT32};
use families::{CONV, Words, amounts};
use rknpu_chip::{Effect, Level};
use rknpu_regcmd::regs::{cna, dpu, dpu_rdma};
use rknpu_regcmd::{Block, EnableMask, Word};

use super::board::{Board, SENTINEL};
use super::golden;
use super::product::{Product, assert_trap, small};
use super::tensor::{pack_a, pack_b, word_at};

#[test]
fn t05_the_words_that_are_fetched_are_the_program() {
    let mut product = small();
    let words = product.conv.task();
    let at = product.board.place_program(&words);
    let outcome = product.board.kick(0, at, words.len() - 4, 1);
    assert_trap(&outcome, "T05-no-enable-word", Effect::Hang);

    // A missing marker is no trap, and an unknown word is ignored: the target of
    // the CNA with an offset of the DPU.
    let mut words = product.conv.words().0;
    let unknown = Word::new(Block::Cna.target(), dpu::DstBaseAddr::OFFSET, 0);
    let enable = Word::enable(EnableMask::from_bits_retain(CONV));
    words.extend([unknown, enable]);
    let outcome = product.board.run(&words);
    assert_trap(&outcome, "T05-unknown-word", Effect::Note);
    assert!(!product.is_untouched());
}

#[test]
fn t06_a_program_at_an_address_that_is_no_multiple_of_16() {
    for bit in 0..4 {
        let mut product = small();
        let words = product.conv.task();
        let at = product.board.place_program(&words);
        let trap = "T06-program-address";
        let outcome = product.board.kick(0, at | 1 << bit, words.len(), 1);
        assert_trap(&outcome, trap, Effect::Hang);
        assert!(product.is_untouched());

        // The same in the link of a chain: the first task still runs. Where
        // one task is asked for, nobody follows the link.
        let link = (at | 1 << bit, amounts(&words));
        let first = product.conv.words().finish_linked(Some(link), CONV);
        let at = product.board.place_program(&first);
        product.board.kick(0, at, first.len(), 1).assert_clean();
        let outcome = product.board.kick(0, at, first.len(), 2);
        assert_trap(&outcome, trap, Effect::Hang);
        assert!(!product.is_untouched());
    }
}

#[test]
fn t12_a_core_that_hung_is_wedged_until_its_reset() {
    let mut product = small();
    let hang = product.conv.words().finish(0x05);
    let at = product.board.place_program(&hang);
    let good = product.conv.task();
    let good_at = product.board.place_program(&good);
    // Without the reset that the driver makes.
    let status = product.board.kick_without_reset(at, hang.len());
    assert_eq!(status.raw_status, 0);
    let status = product.board.kick_without_reset(good_at, good.len());
    assert_trap(&status, "T12-wedged", Effect::Hang);
    product.board.cores[0].reset();
    product.board.run(&good).assert_clean();
}

/// Registers that an earlier program left act, and are named.
#[test]
fn t07_t14_t49_t51_registers_of_an_earlier_program_count() {
    let mut product = small();
    product.conv.qd = 1;
    product.conv.od_bypass = 0;
    product.run().assert_clean();
    let plain = product.out();
    type Change = fn(&mut Words);
    let cases: [(Change, Change, &str, (&str, u32)); 3] = [
        // Raw weights are no stream, but decode to something.
        (
            |words| {
                words.patch::<cna::DcompCtrl>(1);
                words.patch::<cna::DcompRegnum>(0x5555_5555);
            },
            |words| {
                words.without::<cna::DcompCtrl>();
                words.without::<cna::DcompRegnum>();
            },
            "T14-stale-decompression",
            ("DCOMP_CTRL", 1),
        ),
        (
            |words| {
                words.patch::<dpu::BsOwOp>(5);
            },
            |words| {
                words.without::<dpu::BsOwOp>();
            },
            "T07-stale-registers",
            ("BS_OW_OP", 5),
        ),
        // The first program leaves a scale in BN; the second switches BN on and
        // does not say by how much.
        (
            |words| {
                words.patch::<dpu::BnMulCfg>(3 << 16);
                words.patch::<dpu::BnCfg>(0x42);
            },
            |words| {
                words.patch::<dpu::BnCfg>(0x42);
                words.without::<dpu::BnMulCfg>();
            },
            "T07-stale-registers",
            ("BN_MUL_CFG", 3 << 16),
        ),
    ];
    for (leave, rely, trap, register) in cases {
        product.run_with(leave).assert_clean();
        let changed = product.out();
        assert_ne!(changed, plain);
        let outcome = product.run_with(rely);
        assert_trap(&outcome, trap, Effect::Garbage);
        assert_eq!(product.out(), changed);
        let mut told = outcome.diagnosis.iter().flat_map(|d| &d.registers);
        assert!(told.any(|shown| *shown == register));
        product.run().assert_clean();
        assert_eq!(product.out(), plain);
    }
    // A register that no stage uses may hold what it likes.
    let leave = product.run_with(|words| {
        words.patch::<dpu::BnMulCfg>(3 << 16);
    });
    leave.assert_clean();
    let rely = product.run_with(|words| {
        words.without::<dpu::BnMulCfg>();
    });
    rely.assert_clean();
}

#[test]
fn t20_lines_that_do_not_fit_read_as_weights() {
    // The measured cases: M = 144, K = 32 * 7, 21, 35 with the bank count of
    // M * K bytes are wrong in the last rows, one bank more is right.
    const M: usize = 144;
    for k in [7 * 32, 21 * 32, 35 * 32] {
        let size = (M, k, 32);
        let right = Product::right(INT8_INT32, size);
        let mut wrong = Product::new(INT8_INT32, size, Level::Faithful);
        wrong.conv.data_banks -= 1;
        assert_eq!(wrong.conv.data_banks, ((M * k) as u32).div_ceil(32768));
        assert_trap(&wrong.run(), "T20-line-rounding", Effect::Garbage);
        let out = wrong.out();
        let differs = |row: &usize| {
            let atoms = (0..out.len() / 16 / M).map(|surface| (surface * M + row) * 16);
            atoms
                .clone()
                .any(|at| out[at..at + 16] != right[at..at + 16])
        };
        let line = k.next_multiple_of(64);
        let excess = M * line - wrong.conv.data_banks as usize * 32768;
        let first = M - excess.div_ceil(line);
        let rows: Vec<usize> = (0..M).filter(differs).collect();
        assert_eq!(rows, (first..M).collect::<Vec<_>>());
    }
}

#[test]
fn t21_t22_a_wrong_surface_stride_spoils_all_but_the_first_channels() {
    // The stride of mtx512's formula for M = 6, and a clamped one for M = 2.
    for size in [(6, 64, 32), (2, 64, 32)] {
        let mut wrong = Product::new(INT8_INT32, size, Level::Faithful);
        wrong.conv.surf_stride = 0;
        assert!(wrong.run().completed());
        assert_ne!(wrong.out(), Product::right(INT8_INT32, size));
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
        let mut product = Product::new(FP16_FP32, (4, k, n), Level::Strict);
        product.conv.data_banks = 12 - weight_banks;
        let outcome = product.run();
        // Nobody knows that it fails.
        match trap {
            Some(trap) => assert_trap(&outcome, trap, Effect::Note),
            None => outcome.assert_clean(),
        }
        product.verify();
    }
}

#[test]
fn t29_reuse_ends_with_the_job() {
    let mut product = small();
    product.run().assert_clean();
    product.conv.data_reuse = true;
    product.run().assert_clean();
    product.board.memory.attachment += 1;
    assert_trap(&product.run(), "T29-stale-cbuf", Effect::Garbage);
    // Nobody ran in between: by luck the data is still there.
    product.verify();
}

#[test]
fn t30_values_that_their_fields_cut() {
    // 2^28 more than the stride: the same address, and a note.
    let mut product = Product::new(INT8_INT32, (8, 64, 32), Level::Strict);
    let outcome = product.run_with(|words| {
        words.patch::<cna::DmaCon2>(1 << 28 | 4);
    });
    assert_trap(&outcome, "T30-field-overflow", Effect::Note);
    product.verify();
    // A negative stride with its sign in all 32 bits is none.
    let mut one = Product::new(INT8_INT32, (1, 64, 32), Level::Strict);
    let outcome = one.run_with(|words| {
        words.patch::<cna::DmaCon2>(-3i32 as u32);
    });
    outcome.assert_clean();
}

#[test]
fn t33_to_t37_groups_of_the_wrong_size() {
    // SIZE_E 3 where 7 is right: the upper half of each group stays.
    let right = Product::right(INT8_INT32, (8, 64, 64));
    let mut product = small();
    product.conv.size_e = 3;
    assert_trap(&product.run(), "T33-size-e-small", Effect::NoWrite);
    let surface = 8 * 16;
    let out = product.out();
    let surfaces = out.chunks(surface).zip(right.chunks(surface));
    for (number, (got, expected)) in surfaces.enumerate() {
        if number % 8 < 4 {
            assert_eq!(got, expected);
        } else {
            assert!(got.iter().all(|&b| b == SENTINEL));
        }
    }

    // int16 with the geometry of int8: the first 16 columns are right.
    let right = Product::right(INT16_INT32, (8, 32, 32));
    let mut product = Product::new(INT16_INT32, (8, 32, 32), Level::Faithful);
    product.conv = product.conv.groups(7);
    // The groups reach further than the right ones.
    let room = 4 * product.len();
    product.conv.c = product.board.reserve(room);
    assert_trap(&product.run(), "T37-size-e-large", Effect::Garbage);
    assert_eq!(product.out()[..4 * surface], right[..4 * surface]);
    assert_ne!(product.out(), right);

    // Without the sum only 16 channels are written.
    let mut product = Product::new(INT16_INT32, (8, 32, 32), Level::Faithful);
    product.conv.qd = 0;
    assert_trap(&product.run(), "T37-int16-without-sum", Effect::NoWrite);
    let (half, out) = (right.len() / 2, product.out());
    assert_eq!(out[..half], right[..half]);
    assert!(out[half..].iter().all(|&b| b == SENTINEL));
}

#[test]
fn t35_a_depthwise_group_that_is_too_wide_is_interleaved() {
    const PIXELS: usize = 64;
    let mut board = Board::new(1 << 20);
    let mut conv = golden::captured(&mut board).groups(15);
    conv.od_bypass = 1;
    conv.po = 4;
    conv.out_offset = 0;
    conv.out_scale = 1;
    conv.out_shift = 0;
    conv.size_e = 7;
    conv.c = board.reserve(PIXELS * 64 * 4);
    let outcome = board.run(&conv.task());
    assert_trap(&outcome, "T35-group-too-wide", Effect::NoWrite);
    let out = board.bytes(conv.c, PIXELS * 64 * 4);
    // The same sums through the int8 output, of the upper left pixel.
    let at = |channel: usize| word_at(&out, channel / 4 * PIXELS * 4 + channel % 4);
    for (k, sum) in golden::direct_sums().into_iter().enumerate().take(16) {
        assert_eq!(at(2 * k), sum, "channel {k}");
        assert_eq!(at(2 * k + 1), 0);
    }
    assert_eq!(at(32), i32::from_le_bytes([SENTINEL; 4]));
}

#[test]
fn t38_int4_sums_saturate() {
    let ty = INT4_INT16;
    let mut product = Product::new(ty, (4, 1024, 64), Level::Strict);
    let (a, b) = (vec![-8.0; 4 * 1024], vec![-8.0; 64 * 1024]);
    product.conv.a = product.board.place(&pack_a(ty, 4, 1024, &a));
    product.conv.b = product.board.place(&pack_b(ty, 1024, &b));
    assert_trap(&product.run(), "T38-int16-saturates", Effect::Note);
    let out = product.out();
    assert!(
        out.chunks_exact(2)
            .all(|word| word == i16::MAX.to_le_bytes())
    );
}

#[test]
fn t41_the_transposing_writer_is_right_up_to_32_channels() {
    let transposed = |product: &mut Product| {
        let channels = product.conv.output.2;
        product.run_with(|words| {
            words.patch::<dpu::BsOwCfg>(1 << 27 | 0x36e);
            words.patch::<dpu::WdmaSize0>(1 << 27 | (channels - 1));
        })
    };
    for (m, n) in [(4usize, 16usize), (8, 32), (32, 32)] {
        let size = (m, 32, n);
        let plain = Product::right(INT16_INT32, size);
        let mut product = Product::new(INT16_INT32, size, Level::Strict);
        product.conv.c = product.board.reserve(4 * 16 * m * 2);
        let outcome = transposed(&mut product);
        assert!(outcome.completed());
        assert_eq!(outcome.traps(), ["T38-int16-saturates"]);
        let out = product.board.bytes(product.conv.c, 4 * 16 * m * 2);
        for (row, channel) in (0..m).flat_map(|row| (0..n).map(move |n| (row, n))) {
            let sum = word_at(&plain, (channel / 4 * m + row) * 4 + channel % 4);
            let slot = 4 * row + channel / 4 % 4 + channel / 16 * 4 * m + channel % 4 * 16 * m;
            let got = i16::from_le_bytes([out[2 * slot], out[2 * slot + 1]]);
            let expected = sum.clamp(i16::MIN.into(), i16::MAX.into());
            assert_eq!(i32::from(got), expected, "row {row}, channel {channel}");
        }
    }
    let mut wide = Product::new(INT16_INT32, (4, 32, 64), Level::Faithful);
    let outcome = transposed(&mut wide);
    assert_trap(&outcome, "T41-transposing-writer", Effect::Garbage);
}

#[test]
fn faults_set_the_error_bits() {
    const READ_ERROR: u32 = 1 << 12;
    const WRITE_ERROR: u32 = 1 << 13;
    let mut product = small();
    product.conv.a = 0xffff_f000;
    let outcome = product.run();
    assert_eq!(outcome.raw_status, READ_ERROR);
    assert_trap(&outcome, "F01-iommu-fault", Effect::Hang);
    let mut product = small();
    product.conv.c = 0x8000_0000;
    assert_eq!(product.run().raw_status, WRITE_ERROR);
    let outcome = Board::new(4096).kick(0, 0x9000, 108, 1);
    assert_eq!(outcome.raw_status, READ_ERROR);
}

#[test]
fn levels_choose_between_symptom_and_refusal() {
    let run = |level| {
        let mut product = Product::new(INT8_INT32, (8, 64, 64), level);
        product.conv.size_e = 3;
        product.run()
    };
    let strict = run(Level::Strict);
    assert_eq!(strict.raw_status, 0);
    assert_eq!(strict.traps(), ["T33-size-e-small"]);
    assert!(run(Level::Faithful).completed());
    let silent = run(Level::Silent);
    assert!(silent.completed() && silent.diagnosis.is_empty());
}

#[test]
fn registers_read_back_and_reset() {
    let mut product = small();
    let core = &mut product.board.cores[0];
    let started = core.mmio_write(dpu_rdma::SrcBaseAddr::OFFSET.into(), 0x1230);
    assert!(started.is_none());
    assert_eq!(core.mmio_read(dpu_rdma::SrcBaseAddr::OFFSET.into()), 0x1230);
    assert_eq!(core.mmio_read(0x2000), 0);
    assert_eq!(core.mmio_read(0x12_0000), 0);
    core.reset();
    assert_eq!(core.mmio_read(dpu_rdma::SrcBaseAddr::OFFSET.into()), 0);
}
