// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of rules: good programs, each with one change that breaks a rule.
//! The lint reports it, and the chip has the rule's effect.

use std::collections::BTreeSet;

use families::conv::ConvProgram;
use families::matmul::{FP16_FP16, FP16_FP32, INT8_INT32, INT16_INT32, accumulating, matmul};
use families::{A, C, D, Words, flying, write};
use rknpu_chip::{Direction, Effect, Level, NpuCore};
use rknpu_regcmd::rules::{Rule, TABLE};
use rknpu_regcmd::{
    Before, EnableMask, Iova, LintContext, RegisterFile, Severity, Word, lint, regs, tasks,
};

use super::board::{self, Board, Outcome, PROGRAM};

/// A changed program, and the rule that it breaks.
#[derive(Clone)]
struct Case {
    rule: &'static str,
    words: Words,
    context: LintContext,
    lint_only: bool,
}

impl Case {
    fn new(rule: &'static str, words: Vec<Word>) -> Self {
        Self {
            rule,
            words: Words(words),
            context: LintContext::default(),
            lint_only: false,
        }
    }

    /// A convolution, with DPU_RDMA if it has that part.
    fn conv(rule: &'static str, conv: &ConvProgram) -> Self {
        Self::new(rule, conv.task())
    }

    fn sample(rule: &'static str, name: &str) -> Self {
        Self::new(rule, sample(name))
    }

    /// Changes the value in every write of the register.
    fn set(mut self, offset: u16, value: u32) -> Self {
        self.words.change(offset, value);
        self
    }

    fn without(mut self, offset: u16) -> Self {
        self.words.remove(offset);
        self
    }

    /// Puts a word in front.
    fn first(self, word: Word) -> Self {
        self.edit(|words| words.insert(0, word))
    }

    /// Links to the program at `address`.
    fn link(self, address: u32) -> Self {
        self.edit(|words| {
            let link = words.len() - 4;
            words[link] = write(0x0010, address);
        })
    }

    fn edit(mut self, edit: impl FnOnce(&mut Vec<Word>)) -> Self {
        edit(&mut self.words.0);
        self
    }

    fn enable(mut self, mask: u32) -> Self {
        let last = self.words.0.last_mut().unwrap();
        *last = Word::enable(EnableMask::from_bits_retain(mask));
        self
    }

    /// Expects no effect on the chip, whose state is known.
    fn lint_only(mut self) -> Self {
        self.lint_only = true;
        self
    }

    fn placed(mut self, address: u32) -> Self {
        self.context.address = Some(Iova(address));
        self
    }

    fn before(mut self, before: Before) -> Self {
        self.context.before = before;
        self
    }

    /// Runs after a program that left this value in a register.
    fn after(self, offset: u16, value: u32) -> Self {
        let mut left = RegisterFile::new();
        left.set(offset, value);
        self.before(Before::Known(left))
    }

    fn rules(&self) -> BTreeSet<&'static str> {
        let findings = lint(&self.words.0, &self.context);
        findings.iter().map(|finding| finding.rule).collect()
    }

    fn is_told(&self) -> bool {
        self.rules().contains(self.rule)
    }

    /// Kicks the tasks one by one, as one job, on a core with the registers of
    /// `context.before`. Returns the last result, and whether the task wrote.
    fn run(&self, level: Level) -> Option<(Outcome, bool)> {
        let mut board = Board::of_zeros(&self.words.0, &board::at(level));
        if let Before::Known(left) = &self.context.before {
            for (offset, value) in left.written() {
                assert!(board.cores[0].mmio_write(offset.into(), value).is_none());
            }
        }
        let all = tasks(&self.words.0).map(|task| {
            let at = PROGRAM + 8 * task.words.start as u32;
            board.memory.accesses.clear();
            let outcome = board.kick_alone(0, at, task.words.len(), 1);
            let mut accesses = board.memory.accesses.iter();
            (outcome, accesses.any(|access| access.1 == Direction::Write))
        });
        all.last()
    }

    /// How the chip's behaviour differs from the expected one.
    fn misses(&self, rule: &Rule) -> Option<String> {
        let effect = rule.effect?;
        let (outcome, wrote) = self.run(Level::Faithful)?;
        let mut found = outcome.diagnosis.iter();
        let told = found.any(|found| found.trap == rule.id && found.effect == effect);
        let ends = outcome.completed() == (effect != Effect::Hang);
        // These write the first groups before the last one hangs.
        let late = ["H08-partial-group", "H08-transposed-group"].contains(&rule.id);
        let silent = !wrote || late || effect != Effect::Hang;
        let refused = effect == Effect::Note || !self.run(Level::Strict)?.0.completed();
        let right = told && ends && silent && refused;
        (right == self.lint_only).then(|| format!("{}: {outcome:#?}", self.rule))
    }
}

fn sample(name: &str) -> Vec<Word> {
    let mut all = families::all().into_iter();
    let found = all.find(|sample| sample.name.starts_with(name));
    found.unwrap_or_else(|| panic!("no sample {name}")).words
}

fn int8() -> ConvProgram {
    matmul(INT8_INT32, 64, 64, 64)
}

fn fp16() -> ConvProgram {
    matmul(FP16_FP32, 64, 64, 64)
}

fn form_a(rule: &'static str) -> Case {
    Case::conv(rule, &int8())
}

/// A matmul whose trailer links to `address`.
fn linked(rule: &'static str, address: u32) -> Case {
    form_a(rule).link(address)
}

/// A matmul that links to another program.
fn chain(rule: &'static str, second: Case) -> Case {
    linked(rule, 0x1000).edit(|words| words.extend(second.words.0))
}

fn reusing((data, weight): (u32, u32)) -> ConvProgram {
    ConvProgram {
        data_reuse: data == 1,
        weight_reuse: weight == 1,
        ..int8()
    }
}

/// A matmul that reuses what `before` left in CBUF.
fn reuse_after(reuse: (u32, u32), before: ConvProgram) -> Case {
    let mut words = before.task();
    words.extend(reusing(reuse).task());
    Case::new("T29-stale-cbuf", words)
}

fn form_b(rule: &'static str) -> Case {
    Case::conv(rule, &fp16().with_rdma())
}

fn add(rule: &'static str) -> Case {
    Case::conv(rule, &accumulating(0x1082_02c0, 64, 64, 64))
}

fn int32_add(rule: &'static str) -> Case {
    Case::new(rule, flying::int32_add(64, 64, 4, None))
}

fn max_pool(rule: &'static str) -> Case {
    Case::sample(rule, "librocketnpu pooling 16x16x32 by 3, max true")
}

fn average_pool(rule: &'static str) -> Case {
    Case::sample(rule, "librocketnpu pooling 16x16x32 by 3, max false")
}

fn structure() -> Vec<Case> {
    let late = form_a("late-pointer").edit(|words| words.swap(0, 60));
    assert_eq!(late.words.0[0].target(), write(0x4000, 0).target());
    let mut cases = vec![
        late,
        form_a("no-marker").edit(|words| words.retain(|&word| word != Word::MARKER)),
        form_a("T05-no-enable-word").edit(|words| words.truncate(words.len() - 1)),
        form_a("words-after-end").edit(|words| words.push(write(0x1010, 1))),
        form_a("odd-length").first(Word::NOP),
        form_a("T05-unknown-word").first(Word::new(0x0201, 0x4010, 0)),
        form_a("T05-unknown-word").first(Word::new(0x0301, 0x1010, 0)),
        form_a("undeclared-register").first(write(0x1ffc, 0)),
        // 1024 lines, one more than FEATURE_GRAINS holds: the chip waits for 0.
        form_a("T30-field-overflow")
            .set(0x1010, 1024 << 4)
            .lint_only(),
        form_a("T30-field-overflow").set(0x1080, 1 << 28 | 60),
        form_a("driver-register").first(write(0x0034, 0)),
        form_a("driver-register").first(write(0x4008, 1)),
        form_a("H07-core-number").first(write(0x1004, 0xe)),
        form_a("H07-core-number").first(write(0x3004, 0xe)),
        form_a("T05-no-pointer").without(0x4004),
        form_b("T05-no-pointer").without(0x5004),
        max_pool("T05-no-pointer").without(0x6004),
        max_pool("T05-no-pointer").without(0x7004),
        int32_add("T05-no-pointer-flying").without(0x4004),
        int32_add("T05-no-pointer-flying").without(0x5004),
        form_a("pointer-value").set(0x4004, 0xf),
        form_a("H05-enable-mask").enable(0),
        form_a("unknown-block").enable(0x8d),
        form_a("H05-enable-mask").enable(0x0c),
        form_a("H05-enable-mask").enable(0x09),
        form_a("H05-enable-mask").enable(0x05),
        form_a("H05-enable-mask").set(0x400c, 0x1e5),
        int32_add("H05-enable-mask").enable(0x08),
        int32_add("H05-enable-mask").enable(0x10),
        max_pool("H05-enable-mask").enable(0x20),
        max_pool("H05-enable-mask").enable(0x40),
        max_pool("H05-pooling-input").set(0x6024, 1),
        form_a("misaligned-address").set(0x1070, A + 8),
        chain("T08-core-pointer-in-chain", form_a("")),
        chain("T08-no-pointer-in-chain", form_a("").without(0x4004)),
        form_a("unknown-mode").set(0x100c, 1 << 16),
        form_a("H05-empty-input").set(0x1088, 0),
        form_a("H05-empty-input").set(0x1084, 1 << 16),
        form_a("H05-empty-input").set(0x1020, 1 << 16),
        form_a("H05-empty-input")
            .set(0x1084, 1 << 16)
            .set(0x1020, 1 << 16),
        form_a("H05-output-mode").set(0x400c, 0x1e2),
        form_a("out-of-range").set(0x4020, 0xffff_fff0),
    ];
    for bit in 0..4 {
        cases.push(linked("T06-program-address", 0x1000 | 1 << bit));
        cases.push(form_a("T06-program-address").placed(0x1000 | 1 << bit));
    }
    cases
}

fn registers() -> Vec<Case> {
    vec![
        form_a("T07-delta-program").without(0x1020),
        form_a("T07-delta-program").without(0x4020),
        form_a("T07-delta-program").without(0x100c).without(0x4010),
        form_a("register-left-alone")
            .without(0x4088)
            .before(Before::Reset),
        form_a("register-left-alone").without(0x4088),
        form_a("T07-stale-registers")
            .without(0x4088)
            .after(regs::dpu::OutCvtShift::OFFSET, 7),
        form_a("T14-stale-decompression")
            .without(0x1100)
            .after(regs::cna::DcompCtrl::OFFSET, 1),
        // The chip's registers are 0.
        form_a("T14-stale-decompression")
            .without(0x1100)
            .lint_only(),
        form_a("T14-stale-decompression")
            .without(0x1104)
            .lint_only(),
        Case::sample("operand-left-alone", "librocketnpu sigmoid").without(0x4068),
    ]
}

fn convolution() -> Vec<Case> {
    let depthwise = |rule| Case::sample(rule, "librocketnpu fp16 depthwise 8x8x32");
    let int16 = || matmul(INT16_INT32, 64, 64, 64);
    let row_major = |rule| Case::sample(rule, "happyme int8 RowMajor to RowMajor");
    // 144 rows of 7 * 32 bytes: 3.5 entries, rounded up to 4, 2 banks. Without
    // the rounding 1 bank of 32256 bytes would do.
    let resonance = matmul(INT8_INT32, 144, 224, 64);
    assert_eq!(resonance.data_banks, 2);
    let tight = ConvProgram {
        data_banks: 1,
        ..resonance
    };
    let banks = |data_banks| ConvProgram {
        data_banks,
        ..int8()
    };
    // A matmul of `m` rows with a given surface stride.
    let rows = |m: u32, surf_stride: i32| ConvProgram {
        surf_stride,
        ..matmul(FP16_FP32, m, 128, 32)
    };
    // The window of a captured program pads odd channels with 0.
    let captured = "captured int8 depthwise";
    let corrected = ConvProgram {
        od_bypass: 0,
        ow_op: 3,
        ..int8()
    };
    let wide = |rule, width| {
        let case = Case::sample(rule, "librocketnpu sigmoid, 4096");
        case.set(0x4030, width)
            .set(0x405c, width)
            .set(0x500c, width)
    };
    vec![
        depthwise("conv-mode").set(0x3010, 0x201),
        form_a("conv-mode").set(0x3010, 2),
        depthwise("conv-mode").set(0x400c, 0x1e4),
        form_a("precision-mismatch").set(0x3010, 0x200),
        form_a("precision-mismatch").set(0x4010, 0xa800_0002),
        form_a("precision-mismatch").set(0x100c, 0x20),
        form_a("H05-pixels").set(0x102c, 63),
        form_a("H05-pixels").set(0x3014, 64 << 16),
        form_a("H05-pixels").set(0x4034, 64),
        form_a("H05-pixels-left").set(0x4034, 62),
        form_a("H05-lines").set(0x1084, 1 << 16 | 63),
        form_a("H05-sizes-differ").set(0x1084, 1 << 16 | 65),
        form_a("output-channels").set(0x3018, 31),
        form_a("weight-bytes").set(0x1030, 64),
        form_a("T26-banks").set(0x1040, 0xc1),
        form_a("T26-banks").set(0x1040, 0xb0),
        form_a("T26-banks").set(0x1040, 0x0b),
        Case::conv("T20-line-rounding", &tight),
        form_a("T20-entries").set(0x1044, 0),
        // ARGB_IN below 8 packs no pixels.
        form_a("T20-entries").set(0x100c, 1 << 12).set(0x1044, 0),
        Case::conv("T26a-weight-banks", &matmul(FP16_FP32, 4, 12288, 16)).set(0x1040, 0xa2),
        Case::conv("T26a-weight-block", &matmul(FP16_FP32, 16, 4096, 32)).set(0x1040, 0x48),
        Case::conv("T26a-one-weight-bank", &matmul(FP16_FP32, 4, 384, 64)).set(0x1040, 0x1b),
        Case::conv("T27-kernel-size", &matmul(INT8_INT32, 4, 32800, 32)),
        form_a("T28-fc-data-bank").set(0x1040, 0x1b1),
        form_a("H06-decompression-mode").set(0x1100, 1),
        form_a("T29-stale-cbuf").set(0x1040, 0x10b1),
        form_a("T29-stale-cbuf").set(0x1040, 0x20b1),
        reuse_after((1, 0), banks(2)),
        reuse_after((0, 1), banks(2)),
        reuse_after((1, 0), matmul(INT8_INT32, 32, 64, 64)),
        reuse_after((0, 1), matmul(INT8_INT32, 64, 64, 32)),
        // 11 banks of weights that stream through 11.
        reuse_after((0, 1), int8()).set(0x1030, 11 * 32768 + 64),
        form_a("T23-grains").set(0x1010, 0),
        depthwise("T23-grains").set(0x1010, 2 << 4),
        form_a("T23-few-grains").set(0x1010, 1 << 4),
        Case::conv("grains-beyond-banks", &tight).set(0x1010, 144 << 4),
        form_a("grains-below-manual").set(0x1010, 2 << 4),
        Case::conv("T22-surface-pitch", &rows(6, 0)),
        Case::conv("T22-surface-pitch", &rows(2, -3)),
        Case::conv("T21-short-height", &rows(1, 0)),
        form_a("T24-line-strides-in-group-mode").set(0x107c, 16),
        form_a("T24-group-strides-in-line-mode").set(0x100c, 1 << 29),
        row_major("T22-surface-pitch").set(0x107c, 4),
        Case::conv("T22-surface-pitch", &rows(1, -4)),
        row_major("T25-line-pitch").set(0x107c, 8192),
        row_major("T25-line-pitch").set(0x107c, 4097),
        Case::conv("T31-measured-failures", &matmul(INT8_INT32, 8, 3840, 32))
            .set(0x100c, 1 << 29)
            .set(0x107c, 240)
            .set(0x1080, 0),
        form_a("T32-channels-not-padded").set(0x1024, 59 << 16 | 60),
        Case::sample("T50-pad-pattern", captured),
        Case::conv("T51-no-feature-sum", &corrected),
        Case::conv("T37-int16-without-sum", &ConvProgram { qd: 0, ..int16() }),
        // The writer.
        form_a("T33-size-e-small").set(0x4050, 0x36e),
        form_a("T33-size-e-small")
            .set(0x4010, 0x4000_0000)
            .set(0x4050, 0x126),
        Case::conv("T37-size-e-large", &int16()).set(0x4050, 0x7fe),
        Case::sample("T35-group-too-wide", "captured int8 depthwise").set(0x4010, 0x8000_0000),
        form_a("T34-output-overlap").set(0x40c0, (4 * 64) << 4),
        form_a("T34-output-overlap").set(0x4024, 32 << 4),
        row_major("T34-output-overlap").set(0x4038, 0),
        form_a("output-gaps").set(0x40c0, (16 * 64) << 4),
        form_a("writer-size").set(0x405c, 31 << 16),
        form_a("writer-size").set(0x4038, 1),
        wide("wide-flying", 4999),
        wide("T30-width", 8190),
        form_a("T41-transposing-writer").set(0x4050, 1 << 27 | 0x36e),
        Case::conv("H08-transposed-group", &int16())
            .set(0x4050, 1 << 27 | 0x36e)
            .set(0x4058, 1 << 27 | 31),
        Case::sample("H08-partial-group", "captured int8 depthwise").set(0x4058, 62),
    ]
}

fn operands() -> Vec<Case> {
    let biased = |rule| Case::sample(rule, "Mesa 1x1 4x4x8");
    let narrow = accumulating(0x1082_02c0, 4, 64, 64);
    vec![
        form_b("T01-mrdma-unfed").set(0x5044, 0x7800),
        form_b("T01-mrdma-unfed").set(0x5044, 0),
        int32_add("H05-flying-input").set(0x5044, 0x27880),
        int32_add("H05-flying-input").set(0x5044, 0x27891),
        int32_add("H05-channels").set(0x5014, 31),
        form_b("flying-mismatch").set(0x5044, 0x7811),
        int32_add("T02-flying-operand-not-used").set(0x4070, 0x383),
        add("H06-operand-mode").set(0x5034, 8),
        add("T02-operand-not-read").set(0x5034, 1),
        add("T02-operand-not-read").enable(0x0d),
        form_b("T02-operand-not-used").set(0x5034, 0x4000_0008),
        add("T03-erdma-without-mrdma").set(0x5044, 0x17d50),
        biased("T02-stage-operand-not-read").set(0x501c, 0),
        biased("T02-stage-operand-not-read").enable(0x0d),
        form_b("T02-stage-operand-not-read").set(0x4050, 0x36d),
        form_b("T02-stage-operand-not-read")
            .set(0x4040, 0x42)
            .set(0x4048, 2),
        biased("brdma-unused").set(0x4040, 0x53),
        form_b("brdma-unused").set(0x5028, 8),
        add("T43-no-surface-notch").set(0x504c, 0),
        add("T43-no-surface-notch").set(0x506c, 0),
        Case::conv("T42-surface-notch", &narrow),
        add("T44-in-place").set(0x4020, D),
        add("T45-operand-as-bytes").set(0x5044, 0x17d00),
        add("edata-size").set(0x5034, 0x4000_000c),
        int32_add("T46-operand-as-float").set(0x4070, 0x10c2_02c0),
        Case::conv("T46-wide-operand-behind-core", &int8().with_rdma())
            .set(0x4070, 0x10c2_03c0)
            .set(0x5034, 0x4000_000c)
            .set(0x5044, 0x17d40),
        add("T47-operand-ignored").set(0x4070, 0x1082_03c0),
        Case::sample("T48-comb-use-flying", "allbilly fp16 mul").set(0x5044, 0x17d49),
        Case::sample("T48-orig-channel", "allbilly fp16 mul").set(0x403c, 7),
        Case::sample("T47-converted-product", "allbilly fp16 mul").set(0x4070, 0x1080_02c4),
    ]
}

fn pooling() -> Vec<Case> {
    vec![
        average_pool("T59-average-of-one").set(0x6034, 0x0002),
        average_pool("average-reciprocal").set(0x6038, 0),
        max_pool("T60-max-padding").set(0x6044, 0),
        max_pool("T58-pooling-precision")
            .set(0x6084, 16 * 64)
            .set(0x7030, 0),
        max_pool("pooling-input").set(0x700c, 17),
        max_pool("H05-pooling-input").set(0x700c, 7),
        max_pool("T57-small-cube").set(0x600c, 2).set(0x700c, 2),
    ]
}

/// Rules whose effect needs a chain, values, another core, or the other side of a
/// contested fact: `chains.rs`, `contested.rs`, `robust.rs` and `traps*.rs` have
/// programs for them.
const ELSEWHERE: [&str; 17] = [
    "F01-iommu-fault",
    "F02-too-long",
    "F03-host-memory",
    "H07-core-number",
    "H09-core-idle",
    "H09-program-at-zero",
    "T06-program-address",
    "T07-delta-program",
    "T08-core-pointer-in-chain",
    "T08-no-pointer-in-chain",
    "T10-missing-link",
    "T12-wedged",
    "T21-short-group",
    "T23-lines-not-awaited",
    "T38-int16-saturates",
    "T52-exponent-wraps",
    "T55-upload-restarted",
];

#[test]
fn every_rule_is_told_and_has_its_effect() {
    let cases = [
        structure(),
        registers(),
        convolution(),
        operands(),
        pooling(),
    ]
    .concat();
    let mut wrong = Vec::new();
    let mut ids = BTreeSet::new();
    for rule in TABLE.iter().copied().flatten() {
        assert!(ids.insert(rule.id), "{} is there twice", rule.id);
        let rule_cases = || cases.iter().filter(|case| case.rule == rule.id);
        for case in rule_cases() {
            if !case.is_told() {
                wrong.push(format!("{}: the lint finds {:?}", case.rule, case.rules()));
            }
        }
        if !ELSEWHERE.contains(&rule.id) {
            wrong.extend(rule_cases().filter_map(|case| case.misses(rule)));
            if rule_cases().all(|case| case.lint_only) {
                wrong.push(format!("{}: no case", rule.id));
            }
        }
    }
    let unknown = cases.iter().filter(|case| !ids.contains(case.rule));
    wrong.extend(unknown.map(|case| format!("{}: no rule", case.rule)));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Programs that keep a rule.
#[test]
fn rules_are_not_told_in_vain() {
    let mut first_of_job = Case::conv("T29-stale-cbuf", &reusing((1, 1)));
    first_of_job.context.continues_job = true;
    let four_lines = ConvProgram {
        surf_stride: 0,
        ..matmul(FP16_FP32, 4, 128, 32)
    };
    let down = form_a("T22-surface-pitch").set(0x1080, 0x0fff_ffbc);
    down.run(Level::Strict).unwrap().0.assert_clean();
    for case in [
        linked("T06-program-address", 0x1010).placed(0x1010),
        form_a("T06-program-address").placed(0x1010),
        first_of_job,
        reuse_after((1, 0), int8()),
        reuse_after((0, 1), int8()),
        Case::conv("T21-short-height", &four_lines),
        // Surfaces may lie in descending order.
        down,
        // DATAIN_CHANNEL sets the multiplied channels, not DMA_CHANNEL.
        form_a("T32-channels-not-padded").set(0x1088, 60),
        // The DPU's mode sets the groups of the writer, not DW_EN. A whole group has
        // 64 channels in a depthwise task, 32 in this one.
        form_a("T33-size-e-small").set(0x3010, 2),
        // In place is fine for additions fed from memory (measured by happyme).
        int32_add("T44-in-place").set(0x4020, A),
        Case::conv("T44-in-place", &matmul(FP16_FP16, 64, 64, 64).with_rdma()).set(0x4020, C),
    ] {
        assert!(!case.is_told(), "{}", case.rule);
    }
}

/// Values of an earlier task of the same program count too.
#[test]
fn a_task_that_relies_on_the_one_before_is_found() {
    let mut words = fp16().task();
    let second = Case::conv("", &fp16()).without(0x4070);
    words.extend(second.words.0);
    let findings = lint(&words, &LintContext::default());
    let found = findings
        .iter()
        .find(|finding| finding.rule == "T07-stale-registers")
        .expect("EW_CFG is left at 0x383");
    assert_eq!(found.task, 1);
    assert_eq!(
        found.to_string(),
        "error[T07-stale-registers]: task 1: DPU.EW_CFG still holds 0x00000383 \
         [DPU.EW_CFG]; write every register that the task uses in every program"
    );
}

/// Measured on silicon, so no error: the group last written runs.
#[test]
fn a_flying_task_runs_without_pointers() {
    let case = int32_add("").without(0x4004).without(0x5004);
    let findings = lint(&case.words.0, &case.context);
    let told = findings
        .iter()
        .filter(|found| found.rule == "T05-no-pointer-flying");
    let severities: Vec<_> = told.map(|found| found.severity).collect();
    assert_eq!(severities, [Severity::Warning; 2]);
    assert!(case.run(Level::Strict).unwrap().0.completed());
}

/// Rules of chains apply neither to tasks that are kicked one by one, nor to
/// the first task of a chain.
#[test]
fn tasks_of_a_chain_are_told_from_others() {
    let found = |case: &Case| -> Vec<(usize, &str)> {
        let findings = lint(&case.words.0, &case.context);
        let found = findings.iter().map(|found| (found.task, found.rule));
        found
            .filter(|(_, rule)| *rule == "T08-core-pointer-in-chain")
            .collect()
    };
    let separate = form_a("").edit(|words| words.extend(int8().task()));
    assert_eq!(found(&separate), []);
    let both = chain("", form_a(""));
    assert_eq!(
        found(&both),
        [
            // CNA and CORE.
            (1, "T08-core-pointer-in-chain"),
            (1, "T08-core-pointer-in-chain"),
        ]
    );
    // A task that writes its pointers breaks no rule.
    let own = form_a("")
        .first(write(0x3004, 0xe))
        .first(write(0x1004, 0xe));
    assert_eq!(found(&chain("", own)), []);
    // CNA and CORE run for the first time in the second task.
    let addition = int32_add("").link(0x1000);
    let addition = addition.edit(|words| words.extend(int8().task()));
    assert_eq!(found(&addition), []);
    // A task after the end of a chain is not part of it.
    let tail = chain("", form_a("")).edit(|words| words.extend(int8().task()));
    assert!(found(&tail).iter().all(|(task, _)| *task < 2));
}
