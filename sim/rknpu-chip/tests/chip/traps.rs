// SPDX-License-Identifier: MIT OR Apache-2.0
//! The symptoms of traps, and traps that one program alone does not show.
//! rules.rs checks only that traps are reported.

use families::matmul::{FP16_FP32, INT4_INT16, INT8_INT32, INT16_INT32};
use families::{CONV, Words, amounts, write};
use rknpu_chip::{Effect, Level, NpuCore};
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma};
use rknpu_regcmd::{Block, EnableMask, Word};

use super::board::{Board, Outcome, PING_PONG, SENTINEL};
use super::board_matmul::{BoardMatmul, Size, assert_trap, small};
use super::golden;
use super::tensor::word_at;

#[test]
fn t05_the_words_that_are_fetched_are_the_program() {
    let mut matmul = small();
    let words = matmul.conv.task();
    let at = matmul.board.place_program(&words);
    let outcome = matmul.board.kick(0, at, words.len() - 4, 1);
    assert_trap(&outcome, "T05-no-enable-word", Effect::Hang);

    // A missing marker is no trap. An unknown word is ignored: a target of the
    // CNA with an offset of the DPU.
    let mut words = matmul.conv.words().0;
    let unknown = Word::new(Block::Cna.target(), dpu::DstBaseAddr::OFFSET, 0);
    let enable = Word::enable(EnableMask::from_bits_retain(CONV));
    words.extend([unknown, enable]);
    let outcome = matmul.board.run(&words);
    assert_trap(&outcome, "T05-unknown-word", Effect::Note);
    assert!(!matmul.is_untouched());
}

#[test]
fn t06_a_program_at_an_address_that_is_no_multiple_of_16() {
    for bit in 0..4 {
        let mut matmul = small();
        let words = matmul.conv.task();
        let at = matmul.board.place_program(&words);
        let trap = "T06-program-address";
        let outcome = matmul.board.kick(0, at | 1 << bit, words.len(), 1);
        assert_trap(&outcome, trap, Effect::Hang);
        assert!(matmul.is_untouched());

        // The same in the link of a chain: the first task still runs. With one
        // task, nothing follows the link.
        let link = (at | 1 << bit, amounts(&words));
        let first = matmul.conv.words().finish_linked(Some(link), CONV);
        let at = matmul.board.place_program(&first);
        matmul.board.kick(0, at, first.len(), 1).assert_clean();
        let outcome = matmul.board.kick(0, at, first.len(), 2);
        assert_trap(&outcome, trap, Effect::Hang);
        assert!(!matmul.is_untouched());
    }
}

/// Measurements of tasks that write only addresses (E-delta-in-group): `F` is a
/// whole task, `S` one of half the channels, `D` one of addresses.
#[test]
fn t07_a_program_of_changed_registers_runs_with_those_of_its_group() {
    const ONE_GROUP: u32 = 0x30;
    let mut right = small();
    right.run().assert_clean();
    for (job, pointer, whole) in [
        ("FSD", PING_PONG, true),
        ("SFD", PING_PONG, false),
        ("FFDDDD", PING_PONG, true),
        ("SSFD", PING_PONG, false),
        ("FD", ONE_GROUP, true),
        ("SFD", ONE_GROUP, true),
    ] {
        let mut matmul = small();
        for task in job.chars() {
            matmul.conv.c = matmul.board.reserve(matmul.len);
            let mut conv = matmul.conv.clone();
            if task == 'S' {
                conv.output.2 /= 2;
                conv.kernels /= 2;
            }
            let pointers = [0x1004, 0x3004, 0x4004];
            let mut words = pointers.map(|offset| write(offset, pointer)).to_vec();
            words.extend([
                write(cna::FeatureDataAddr::OFFSET, conv.a),
                write(cna::DcompAddr0::OFFSET, conv.b),
                write(dpu::DstBaseAddr::OFFSET, conv.c),
            ]);
            if task != 'D' {
                let rest = conv.words().0.into_iter();
                words.extend(rest.filter(|word| !pointers.contains(&word.offset())));
            }
            let outcome = matmul.board.run(&Words(words).finish(CONV));
            assert!(outcome.completed(), "{job}: {:#?}", outcome.diagnosis);
            let told = outcome.traps().contains(&"T07-delta-program");
            assert_eq!(told, task == 'D', "{job}");
        }
        let mut expected = right.out();
        if !whole {
            expected[matmul.len / 2..].fill(SENTINEL);
        }
        assert_eq!(matmul.out(), expected, "{job}, {pointer:#x}");
    }
}

/// The kernel's 0xE has the core's number in its top bits. A program that
/// writes another one hangs, as measured with 0x30 (E-core-number).
#[test]
fn another_cores_number_in_s_pointer_hangs() {
    for (core, pointer, right) in [
        (0, 0x30, true),
        (0, 0x1000_0030, false),
        (1, 0x30, false),
        (1, 0x1000_0030, true),
        (2, PING_PONG, false),
    ] {
        for offset in [cna::SPointer::OFFSET, core::SPointer::OFFSET] {
            let mut matmul = small();
            let mut words = matmul.conv.task();
            words.insert(0, write(offset, pointer));
            let outcome = matmul.board.run_on(core, &words);
            if right {
                outcome.assert_clean();
                continue;
            }
            assert_eq!(outcome.raw_status, 0, "core {core}, {pointer:#x}");
            assert_trap(&outcome, "H07-core-number", Effect::Hang);
            assert!(matmul.is_untouched());
        }
    }
}

#[test]
fn t12_a_core_that_hung_is_wedged_until_its_reset() {
    let mut matmul = small();
    let hang = matmul.conv.words().finish(0x05);
    let at = matmul.board.place_program(&hang);
    let good = matmul.conv.task();
    let good_at = matmul.board.place_program(&good);
    // Without the reset that the driver makes.
    let status = matmul.board.kick_alone(0, at, hang.len(), 1);
    assert_eq!(status.raw_status, 0);
    let status = matmul.board.kick_alone(0, good_at, good.len(), 1);
    assert_trap(&status, "T12-wedged", Effect::Hang);
    matmul.board.cores[0].reset();
    matmul.board.run(&good).assert_clean();
}

/// Registers of an earlier program act, and the diagnosis names them.
#[test]
fn t07_t14_t49_t51_registers_of_an_earlier_program_count() {
    let mut matmul = small();
    matmul.conv.qd = 1;
    matmul.conv.od_bypass = 0;
    matmul.run().assert_clean();
    let plain = matmul.out();
    type Changes = &'static [(u16, u32)];
    // Changes of both programs, and registers that the second leaves out.
    let cases: [(Changes, &[u16], _, _); 3] = [
        // Raw weights are not a valid stream, but decode to some values.
        (
            &[
                (cna::DcompCtrl::OFFSET, 1),
                (cna::DcompRegnum::OFFSET, 0x5555_5555),
            ],
            &[cna::DcompCtrl::OFFSET, cna::DcompRegnum::OFFSET],
            "T14-stale-decompression",
            ("DCOMP_CTRL", 1),
        ),
        (
            &[(dpu::BsOwOp::OFFSET, 5)],
            &[dpu::BsOwOp::OFFSET],
            "T07-stale-registers",
            ("BS_OW_OP", 5),
        ),
        // BN is on, with the scale that the first program left.
        (
            &[(dpu::BnMulCfg::OFFSET, 3 << 16), (dpu::BnCfg::OFFSET, 0x42)],
            &[dpu::BnMulCfg::OFFSET],
            "T07-stale-registers",
            ("BN_MUL_CFG", 3 << 16),
        ),
    ];
    for (changes, left_out, trap, register) in cases {
        // Once for each register group.
        for _ in 0..2 {
            matmul.run_with(changes, &[]).assert_clean();
        }
        let changed = matmul.out();
        assert_ne!(changed, plain);
        let outcome = matmul.run_with(changes, left_out);
        assert_trap(&outcome, trap, Effect::Garbage);
        assert_eq!(matmul.out(), changed);
        let mut told = outcome.diagnosis.iter().flat_map(|d| &d.registers);
        assert!(told.any(|shown| *shown == register));
        for _ in 0..2 {
            matmul.run().assert_clean();
        }
        assert_eq!(matmul.out(), plain);
    }
    // A register that no stage uses may hold any value.
    let unused = dpu::BnMulCfg::OFFSET;
    for _ in 0..2 {
        matmul.run_with(&[(unused, 3 << 16)], &[]).assert_clean();
    }
    matmul.run_with(&[], &[unused]).assert_clean();
}

#[test]
fn t20_lines_that_do_not_fit_read_as_weights() {
    // The measured cases: M = 144, K = 32 * 7, 21, 35. With banks for only
    // M * K bytes, the last rows are wrong; with one bank more, all are right.
    const M: usize = 144;
    for k in [7 * 32, 21 * 32, 35 * 32] {
        let size = (M, k, 32);
        let right = BoardMatmul::right(INT8_INT32, size);
        let mut wrong = BoardMatmul::new(INT8_INT32, size, Level::Faithful);
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
fn t26a_what_no_known_program_does_is_told_and_right() {
    // 24 KiB and 48 KiB of weights, and 32 of 64 kernels that take 64 KiB.
    for (k, n, weight_banks, trap) in [
        (384, 32, 1, None),
        (384, 64, 2, None),
        (384, 64, 1, Some("T26a-one-weight-bank")),
        (1024, 64, 2, None),
        (1024, 64, 1, Some("T26a-weight-block")),
    ] {
        let mut matmul = BoardMatmul::new(FP16_FP32, (4, k, n), Level::Strict);
        matmul.conv.data_banks = 12 - weight_banks;
        let outcome = matmul.run();
        // No source shows a failure.
        match trap {
            Some(trap) => assert_trap(&outcome, trap, Effect::Note),
            None => outcome.assert_clean(),
        }
        matmul.verify();
    }
}

#[test]
fn t29_reuse_ends_with_the_job() {
    let mut matmul = small();
    matmul.run().assert_clean();
    matmul.conv.data_reuse = true;
    matmul.run().assert_clean();
    matmul.board.memory.attachment += 1;
    assert_trap(&matmul.run(), "T29-stale-cbuf", Effect::Garbage);
    // No task ran in between, so the data is still there.
    matmul.verify();
}

#[test]
fn t30_values_that_their_fields_cut() {
    // 2^28 more than the stride: the same address, and a note.
    let mut matmul = BoardMatmul::new(INT8_INT32, (8, 64, 32), Level::Strict);
    let outcome = matmul.run_with(&[(cna::DmaCon2::OFFSET, 1 << 28 | 4)], &[]);
    assert_trap(&outcome, "T30-field-overflow", Effect::Note);
    matmul.verify();
    // A negative stride with its sign in all 32 bits does not overflow.
    let mut one = BoardMatmul::new(INT8_INT32, (1, 64, 32), Level::Strict);
    let negative = (cna::DmaCon2::OFFSET, -3i32 as u32);
    one.run_with(&[negative], &[]).assert_clean();
}

#[test]
fn t33_to_t37_groups_of_the_wrong_size() {
    // SIZE_E 3 where 7 is right: the upper half of each group stays.
    let right = BoardMatmul::right(INT8_INT32, (8, 64, 64));
    let mut matmul = small();
    matmul.conv.size_e = 3;
    assert_trap(&matmul.run(), "T33-size-e-small", Effect::NoWrite);
    let surface = 8 * 16;
    let out = matmul.out();
    let surfaces = out.chunks(surface).zip(right.chunks(surface));
    for (number, (got, expected)) in surfaces.enumerate() {
        if number % 8 < 4 {
            assert_eq!(got, expected);
        } else {
            assert!(got.iter().all(|&b| b == SENTINEL));
        }
    }

    // int16 with the geometry of int8: the first 16 columns are right.
    let right = BoardMatmul::right(INT16_INT32, (8, 32, 32));
    let mut matmul = BoardMatmul::new(INT16_INT32, (8, 32, 32), Level::Faithful);
    matmul.conv = matmul.conv.groups(7);
    // The groups reach further than the right ones.
    let room = 4 * matmul.len;
    matmul.conv.c = matmul.board.reserve(room);
    assert_trap(&matmul.run(), "T37-size-e-large", Effect::Garbage);
    assert_eq!(matmul.out()[..4 * surface], right[..4 * surface]);
    assert_ne!(matmul.out(), right);

    // Without the sum only 16 channels are written.
    let mut matmul = BoardMatmul::new(INT16_INT32, (8, 32, 32), Level::Faithful);
    matmul.conv.qd = 0;
    assert_trap(&matmul.run(), "T37-int16-without-sum", Effect::NoWrite);
    let (half, out) = (right.len() / 2, matmul.out());
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
    let mut matmul = BoardMatmul::new(INT4_INT16, (4, 1024, 64), Level::Strict);
    // All operands are -8.
    matmul.conv.a = matmul.board.place(&[0x88; 4 * 1024 / 2]);
    matmul.conv.b = matmul.board.place(&[0x88; 64 * 1024 / 2]);
    assert_trap(&matmul.run(), "T38-int16-saturates", Effect::Note);
    let out = matmul.out();
    assert!(
        out.chunks_exact(2)
            .all(|word| word == i16::MAX.to_le_bytes())
    );
}

/// Runs a transposed int16 matmul of M x K x N, with SIZE_E. Returns, by row and
/// channel, the sum and the 16 bits that were written, or `None`.
fn transposed((m, k, n): Size, size_e: u32, level: Level) -> (Outcome, Vec<(i32, Option<u16>)>) {
    const TP: u32 = 1 << 27;
    let bytes = 4 * 16 * m * 2;
    let plain = BoardMatmul::right(INT16_INT32, (m, k, n));
    let mut matmul = BoardMatmul::new(INT16_INT32, (m, k, n), level);
    matmul.conv.c = matmul.board.reserve(bytes);
    let groups = TP | size_e << 8 | size_e << 5 | size_e << 2 | 2;
    let channels = (dpu::WdmaSize0::OFFSET, TP | (n as u32 - 1));
    let outcome = matmul.run_with(&[(dpu::BsOwCfg::OFFSET, groups), channels], &[]);
    let out = matmul.board.bytes(matmul.conv.c, bytes);
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

/// The measurements (E-transposed-cut, E-transposed-hang, E-transposed-size): the
/// low 16 bits of sums, a hang after the last write of 16 channels, and half of
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

    for (m, trap, effect) in [
        (4, "T41-transposing-writer", Effect::Garbage),
        (16, "H08-transposed-group", Effect::Hang),
    ] {
        let (outcome, elements) = transposed((m, 32, 32), 3, Level::Faithful);
        assert_trap(&outcome, trap, effect);
        assert!(outcome.traps().contains(&"T41-transposing-writer"));
        let written = elements.iter().filter(|(_, got)| got.is_some());
        assert_eq!(written.count(), m * 32 / 2);
    }
    let (outcome, _) = transposed((4, 32, 64), 7, Level::Faithful);
    assert_trap(&outcome, "T41-transposing-writer", Effect::Garbage);
}

#[test]
fn faults_set_the_error_bits() {
    const READ_ERROR: u32 = 1 << 12;
    const WRITE_ERROR: u32 = 1 << 13;
    let mut matmul = small();
    matmul.conv.a = 0xffff_f000;
    let outcome = matmul.run();
    assert_eq!(outcome.raw_status, READ_ERROR);
    assert_trap(&outcome, "F01-iommu-fault", Effect::Hang);
    let mut matmul = small();
    matmul.conv.c = 0x8000_0000;
    assert_eq!(matmul.run().raw_status, WRITE_ERROR);
    let outcome = Board::new(4096).kick(0, 0x9000, 108, 1);
    assert_eq!(outcome.raw_status, READ_ERROR);
}

#[test]
fn levels_choose_between_symptom_and_refusal() {
    let run = |level| {
        let mut matmul = BoardMatmul::new(INT8_INT32, (8, 64, 64), level);
        matmul.conv.size_e = 3;
        matmul.run()
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
    let mut matmul = small();
    let core = &mut matmul.board.cores[0];
    let started = core.mmio_write(dpu_rdma::SrcBaseAddr::OFFSET.into(), 0x1230);
    assert!(started.is_none());
    assert_eq!(core.mmio_read(dpu_rdma::SrcBaseAddr::OFFSET.into()), 0x1230);
    assert_eq!(core.mmio_read(0x2000), 0);
    assert_eq!(core.mmio_read(0x12_0000), 0);
    core.reset();
    assert_eq!(core.mmio_read(dpu_rdma::SrcBaseAddr::OFFSET.into()), 0);
}
