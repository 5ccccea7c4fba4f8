// SPDX-License-Identifier: MIT OR Apache-2.0
//! What silicon punishes: each trap's symptom and its diagnosis.

use rknpu_chip::{ChipOptions, Effect, Level};
use rknpu_regcmd::regs::{cna, core, dpu, dpu_rdma, pc};
use rknpu_regcmd::{Block, EnableMask, Word};

use super::board::{Board, Outcome, PING_PONG, SENTINEL};
use super::programs::{Conv, MatType, Words};
use super::tensor::{Numbers, pack_a, pack_b, value};

pub(crate) struct Product {
    pub(crate) board: Board,
    pub(crate) conv: Conv,
    len: usize,
}

impl Product {
    pub(crate) fn out(&self) -> Vec<u8> {
        self.board.bytes(self.conv.c, self.len)
    }

    /// Columns of row 0 that differ from `other`'s, int32.
    fn differing_rows(&self, other: &Self) -> Vec<usize> {
        let (a, b) = (self.out(), other.out());
        let m = self.conv.output.1 as usize;
        (0..m)
            .filter(|row| {
                (0..self.len / 16 / m).any(|s| {
                    let at = (s * m + row) * 16;
                    a[at..at + 16] != b[at..at + 16]
                })
            })
            .collect()
    }
}

/// A product of random operands, ready to run.
pub(crate) fn product(ty: MatType, shape: (usize, usize, usize), level: Level) -> Product {
    let options = ChipOptions {
        level,
        ..ChipOptions::default()
    };
    product_with(ty, shape, &options)
}

pub(crate) fn product_with(
    ty: MatType,
    (m, k, n): (usize, usize, usize),
    options: &ChipOptions,
) -> Product {
    let mut numbers = Numbers::new(1);
    let mut board = Board::with_options(8 << 20, options);
    let mut values = |len| {
        (0..len)
            .map(|_| value(ty, &mut numbers))
            .collect::<Vec<_>>()
    };
    let (a, b) = (values(m * k), values(n * k));
    let len = m * n * ty.out_bytes();
    let at = (
        board.place(&pack_a(ty, m, k, &a)),
        board.place(&pack_b(ty, k, &b)),
        board.reserve(len),
    );
    let conv = ty.matmul(m as u32, k as u32, n as u32, at);
    Product { board, conv, len }
}

pub(crate) fn small() -> Product {
    product(MatType::Int8Int32, (8, 64, 64), Level::Faithful)
}

#[track_caller]
pub(crate) fn assert_trap(outcome: &Outcome, trap: &str, effect: Effect) {
    let found = outcome.diagnosis.iter().find(|d| d.trap == trap);
    let Some(found) = found else {
        panic!("{trap} is not in {:#?}", outcome.diagnosis);
    };
    assert_eq!(found.effect, effect);
    assert!(!found.rule.is_empty() && !found.remedy.is_empty());
}

/// The task hangs with this diagnosis and writes nothing.
#[track_caller]
fn assert_hangs(mut product: Product, words: Vec<Word>, trap: &str) {
    let outcome = product.board.run(&words);
    assert_eq!(outcome.raw_status, 0, "{trap} raises no interrupt");
    assert_trap(&outcome, trap, Effect::Hang);
    assert!(
        product.out().iter().all(|&b| b == SENTINEL),
        "{trap} writes"
    );
    // The core works again after its reset.
    product.board.run(&product.conv.program()).assert_clean();
}

#[test]
fn t05_programs_without_an_end_or_a_pointer() {
    let product = small();
    let mut words = product.conv.program();
    words.truncate(words.len() - 1);
    assert_hangs(product, words, "T05-no-enable-word");

    let product = small();
    let mut words = product.conv.words();
    words.without::<dpu::SPointer>();
    assert_hangs(product, words.finish(0x0d), "T05-no-pointer");

    // Too few words are fetched.
    let mut product = small();
    let words = product.conv.program();
    let at = product.board.place_program(&words);
    let outcome = product.board.kick(0, at, words.len() - 4, 1);
    assert_trap(&outcome, "T05-no-enable-word", Effect::Hang);
}

#[test]
fn t05_a_missing_marker_is_no_trap_and_an_unknown_word_is_ignored() {
    let mut product = small();
    let mut words = product.conv.words();
    // The target of the CNA with an offset of the DPU.
    words
        .0
        .push(Word::new(Block::Cna.target(), dpu::DstBaseAddr::OFFSET, 0));
    words
        .0
        .push(Word::enable(EnableMask::from_bits_retain(0x0d)));
    let outcome = product.board.run(&words.0);
    assert!(outcome.completed());
    assert_trap(&outcome, "T05-unknown-word", Effect::Note);
    assert!(product.out().iter().any(|&b| b != SENTINEL));
}

#[test]
fn t06_a_program_at_an_address_that_is_no_multiple_of_16() {
    for bit in 0..4 {
        let mut product = small();
        let words = product.conv.program();
        let at = product.board.place_program(&words);
        let trap = "T06-program-address";
        let outcome = product.board.kick(0, at | 1 << bit, words.len(), 1);
        assert_eq!(outcome.raw_status, 0, "bit {bit}");
        assert_trap(&outcome, trap, Effect::Hang);
        assert!(product.out().iter().all(|&b| b == SENTINEL));

        // The same in the link of a chain: the first task still runs. Where
        // one task is asked for, nobody follows the link.
        let mut first = product.conv.words();
        first.set::<pc::BaseAddress>(at | 1 << bit);
        let first = first.finish_linked(&words, 0x0d);
        let at = product.board.place_program(&first);
        product.board.kick(0, at, first.len(), 1).assert_clean();
        let outcome = product.board.kick(0, at, first.len(), 2);
        assert_eq!(outcome.raw_status, 0, "bit {bit} of the link");
        assert_trap(&outcome, trap, Effect::Hang);
        assert!(product.out().iter().any(|&b| b != SENTINEL));
    }
}

/// What was measured of tasks that write addresses only (E-delta-in-group): `F` is
/// a whole task, `S` one of half the channels, `D` one of addresses.
#[test]
fn t07_a_program_of_changed_registers_runs_with_those_of_its_group() {
    const ONE_GROUP: u32 = 0x30;
    let mut right = small();
    right.board.run(&right.conv.program()).assert_clean();
    for (job, pointer, whole) in [
        ("FSD", PING_PONG, true),
        ("SFD", PING_PONG, false),
        ("FFDDDD", PING_PONG, true),
        ("SSFD", PING_PONG, false),
        ("FD", ONE_GROUP, true),
        ("SFD", ONE_GROUP, true),
    ] {
        let mut product = small();
        for task in job.chars() {
            product.conv.c = product.board.reserve(product.len);
            let mut conv = product.conv.clone();
            if task == 'S' {
                conv.output.2 /= 2;
                conv.kernels /= 2;
            }
            let mut words = Words::default();
            words
                .set::<cna::SPointer>(pointer)
                .set::<core::SPointer>(pointer)
                .set::<dpu::SPointer>(pointer)
                .set::<cna::FeatureDataAddr>(conv.a)
                .set::<cna::DcompAddr0>(conv.b)
                .set::<dpu::DstBaseAddr>(conv.c);
            if task != 'D' {
                let pointers = [0x1004, 0x3004, 0x4004];
                let rest = conv.words().0.into_iter();
                words
                    .0
                    .extend(rest.filter(|word| !pointers.contains(&word.offset())));
            }
            let outcome = product.board.run(&words.finish(0x0d));
            assert!(outcome.completed(), "{job}: {:#?}", outcome.diagnosis);
            let told = outcome.traps().contains(&"T07-delta-program");
            assert_eq!(told, task == 'D', "{job}");
        }
        let mut expected = right.out();
        if !whole {
            expected[product.len / 2..].fill(SENTINEL);
        }
        assert_eq!(product.out(), expected, "{job}, {pointer:#x}");
    }
}

/// The kernel's 0xE has the core's number on top. A program that writes another
/// one hangs, which was measured with 0x30 (E-core-number).
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
            let mut product = small();
            let mut words = product.conv.program();
            let block = Block::of_offset(offset).unwrap();
            words.insert(0, Word::new(block.target(), offset, pointer));
            let at = product.board.place_program(&words);
            let outcome = product.board.kick(core, at, words.len(), 1);
            if right {
                outcome.assert_clean();
                continue;
            }
            assert_eq!(outcome.raw_status, 0, "core {core}, {pointer:#x}");
            assert_trap(&outcome, "H07-core-number", Effect::Hang);
            assert!(product.out().iter().all(|&b| b == SENTINEL));
        }
    }
}

#[test]
fn t14_decompression_that_was_left_on() {
    let mut product = small();
    let mut words = product.conv.words();
    words.patch::<cna::DcompCtrl>(1);
    words.patch::<cna::DcompRegnum>(0x5555_5555);
    // Raw weights are no stream, but decode to something.
    product.board.run_in_both_groups(&words.finish(0x0d));
    let spoiled = product.out();
    let mut words = product.conv.words();
    words.without::<cna::DcompCtrl>();
    words.without::<cna::DcompRegnum>();
    let outcome = product.board.run(&words.finish(0x0d));
    assert!(outcome.completed());
    assert_trap(&outcome, "T14-stale-decompression", Effect::Garbage);
    assert_eq!(product.out(), spoiled);
    product.board.run(&product.conv.program()).assert_clean();
    assert_ne!(product.out(), spoiled);
}

#[test]
fn t20_lines_that_do_not_fit_read_as_weights() {
    // The measured cases: M = 144, K = 32 * 7, 21, 35 with the bank count of
    // M * K bytes are wrong in the last rows, one bank more is right.
    for k in [7 * 32, 21 * 32, 35 * 32] {
        let shape = (144, k, 32);
        let mut right = product(MatType::Int8Int32, shape, Level::Strict);
        right.board.run(&right.conv.program()).assert_clean();
        let mut wrong = product(MatType::Int8Int32, shape, Level::Faithful);
        wrong.conv.data_banks = (144 * k as u32).div_ceil(32768);
        assert_eq!(wrong.conv.data_banks + 1, right.conv.data_banks);
        let outcome = wrong.board.run(&wrong.conv.program());
        assert!(outcome.completed());
        assert_trap(&outcome, "T20-line-rounding", Effect::Garbage);
        let rows = wrong.differing_rows(&right);
        let line = (k as u32).div_ceil(64) * 64;
        let excess = 144 * line - wrong.conv.data_banks * 32768;
        let first = 144 - excess.div_ceil(line) as usize;
        assert_eq!(rows, (first..144).collect::<Vec<_>>());
    }
}

#[test]
fn t21_t22_a_wrong_surface_stride_spoils_all_but_the_first_channels() {
    // The stride of mtx512's formula for M = 6, and a clamped one for M = 2.
    for (m, stride) in [(6usize, 0), (2, 0)] {
        let shape = (m, 64, 32);
        let mut right = product(MatType::Int8Int32, shape, Level::Strict);
        right.board.run(&right.conv.program()).assert_clean();
        let mut wrong = product(MatType::Int8Int32, shape, Level::Faithful);
        wrong.conv.surf_stride = stride;
        assert!(wrong.board.run(&wrong.conv.program()).completed());
        assert_ne!(wrong.out(), right.out());
    }
}

#[test]
fn t29_features_of_another_job() {
    let mut right = small();
    right.board.run(&right.conv.program()).assert_clean();
    let mut stale = small();
    stale.conv.data_reuse = true;
    let outcome = stale.board.run(&stale.conv.program());
    assert!(outcome.completed());
    assert_trap(&outcome, "T29-stale-cbuf", Effect::Garbage);
    assert_ne!(stale.out(), right.out());
}

#[test]
fn t33_to_t37_groups_of_the_wrong_size() {
    // SIZE_E 3 where 7 is right: the upper half of each group stays.
    let mut right = small();
    right.board.run(&right.conv.program()).assert_clean();
    let mut product = small();
    product.conv.size_e = 3;
    let outcome = product.board.run(&product.conv.program());
    assert_trap(&outcome, "T33-size-e-small", Effect::NoWrite);
    let (m, got, expected) = (8, product.out(), right.out());
    for surface in 0..16 {
        let range = surface * m * 16..(surface + 1) * m * 16;
        if surface % 8 < 4 {
            assert_eq!(got[range.clone()], expected[range]);
        } else {
            assert!(got[range].iter().all(|&b| b == SENTINEL));
        }
    }

    let mut product = small();
    product.conv.writer.4 = 4 * 8;
    let outcome = product.board.run(&product.conv.program());
    assert_trap(&outcome, "T34-output-overlap", Effect::Garbage);

    // int16 with the geometry of int8: the first 16 columns are right.
    let ty = MatType::Int16Int32;
    let mut right = self::product(ty, (8, 32, 32), Level::Strict);
    right.board.run(&right.conv.program()).assert_clean();
    let mut product = self::product(ty, (8, 32, 32), Level::Faithful);
    product.conv.size_e = 7;
    product.conv.writer.4 = 8 * 8;
    // The groups reach further than the right ones.
    let room = product.board.reserve(4 * product.len);
    product.conv.c = room;
    let outcome = product.board.run(&product.conv.program());
    assert_trap(&outcome, "T37-size-e-large", Effect::Garbage);
    assert_eq!(product.out()[..4 * m * 16], right.out()[..4 * m * 16]);
    assert_ne!(product.out(), right.out());
}

#[test]
fn t38_int4_sums_saturate() {
    let ty = MatType::Int4Int16;
    let mut board = Board::strict(1 << 20);
    let (m, k, n) = (4usize, 1024usize, 64usize);
    let at = (
        board.place(&pack_a(ty, m, k, &vec![-8.0; m * k])),
        board.place(&pack_b(ty, k, &vec![-8.0; n * k])),
        board.reserve(m * n * 2),
    );
    let conv = ty.matmul(m as u32, k as u32, n as u32, at);
    let outcome = board.run(&conv.program());
    assert!(outcome.completed());
    assert_trap(&outcome, "T38-int16-saturates", Effect::Note);
    for word in board.bytes(at.2, m * n * 2).chunks_exact(2) {
        assert_eq!(i16::from_le_bytes([word[0], word[1]]), i16::MAX);
    }
}

#[test]
fn t51_a_stale_correction() {
    let mut right = small();
    right.conv.qd = 1;
    right.conv.od_bypass = 0;
    right.board.run(&right.conv.program()).assert_clean();

    let mut product = small();
    product.conv.qd = 1;
    product.conv.od_bypass = 0;
    product.conv.ow_op = 5;
    product.board.run_in_both_groups(&product.conv.program());
    let mut words = product.conv.words();
    words.without::<dpu::BsOwOp>();
    let outcome = product.board.run(&words.finish(0x0d));
    assert_trap(&outcome, "T07-stale-registers", Effect::Garbage);
    assert_ne!(product.out(), right.out());
}

#[test]
fn blocks_that_wait_for_each_other_hang() {
    let product = small();
    let words = product.conv.words().finish(0x05);
    assert_hangs(product, words, "H05-enable-mask");
}

#[test]
fn faults_set_the_error_bits() {
    const READ_ERROR: u32 = 1 << 12;
    const WRITE_ERROR: u32 = 1 << 13;
    let mut product = small();
    product.conv.a = 0xffff_f000;
    let outcome = product.board.run(&product.conv.program());
    assert_eq!(outcome.raw_status, READ_ERROR);
    assert_trap(&outcome, "F01-iommu-fault", Effect::Hang);
    let mut product = small();
    product.conv.c = 0x8000_0000;
    let outcome = product.board.run(&product.conv.program());
    assert_eq!(outcome.raw_status, WRITE_ERROR);
    let mut board = Board::new(4096);
    let outcome = board.kick(0, 0x9000, 108, 1);
    assert_eq!(outcome.raw_status, READ_ERROR);
}

#[test]
fn levels_choose_between_symptom_and_refusal() {
    let run = |level| {
        let mut product = product(MatType::Int8Int32, (8, 64, 64), level);
        product.conv.size_e = 3;
        product.board.run(&product.conv.program())
    };
    let strict = run(Level::Strict);
    assert_eq!(strict.raw_status, 0);
    assert_trap(&strict, "T33-size-e-small", Effect::NoWrite);
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
