// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks on one core of the chip, with a plain vector as memory.

use std::time::Duration;

use rknpu_chip::{ChipOptions, Core, NpuCore};
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::pc;

use families::DPU_DONE;
use families::conv::ConvProgram;
use families::matmul::{INT8_INT32, OperandTypes};
use families::pooling::{Padding, PoolProgram};

/// Programs in memory, ready to be kicked.
pub(crate) struct ChipPrograms {
    core: Core,
    memory: Vec<u8>,
    /// Address and words of each program.
    programs: Vec<(u32, u32)>,
    /// The program that [`Self::run_next`] runs.
    next: usize,
    /// Bytes of the features.
    pub(crate) input: usize,
}

impl ChipPrograms {
    fn new(bytes: usize, input: usize, programs: &[Vec<Word>]) -> Self {
        let mut memory: Vec<u8> = (0..bytes).map(filler).collect();
        let placed = place(&mut memory, programs);
        memory.resize(memory.len().next_multiple_of(4096), 0);
        Self {
            core: Core::new(&ChipOptions::default()),
            memory,
            programs: placed,
            next: 0,
            input,
        }
    }

    /// int8 3x3, padded, on 56x56x64, to 64 int32 channels.
    pub(crate) fn convolution() -> Self {
        let (side, channels) = (56, 64);
        let conv = image(INT8_INT32, side, channels);
        let input = (side * side * channels) as usize;
        Self::new(conv.c as usize + input * 4, input, &[conv.task()])
    }

    /// int8 3x3 depthwise, padded, requantised, on 112x112x64: `copies`
    /// programs, each with separate operands and results.
    pub(crate) fn depthwise(copies: u32) -> Self {
        let (side, channels) = (112, 64);
        let mut conv = image(INT8_INT32, side, channels).groups(3);
        conv.depthwise = true;
        conv.kernels = 1;
        conv.kernel_bytes = 9 * channels;
        conv.weight_bytes = conv.kernel_bytes;
        conv.po = 0;
        conv.qd = 1;
        conv.out_offset = -5i32 as u32;
        conv.out_scale = 0x6543;
        conv.out_shift = 22;
        let input = side * side * channels;
        let span = (conv.c + input).next_multiple_of(4096);
        let programs: Vec<Vec<Word>> = (0..copies)
            .map(|copy| {
                let mut conv = conv.clone();
                for address in [&mut conv.a, &mut conv.b, &mut conv.c] {
                    *address += copy * span;
                }
                conv.task()
            })
            .collect();
        Self::new((copies * span) as usize, input as usize, &programs)
    }

    /// fp16 maximum of 3x3 windows, stride 2, on 112x112x64.
    pub(crate) fn pooling() -> Self {
        let (side, channels) = (112u32, 64);
        let input = (side * side * channels) as usize * 2;
        let pool = PoolProgram {
            output: (side / 2, side / 2),
            channels,
            stride: (2, 2),
            pad: Padding {
                left: 1,
                top: 1,
                ..Padding::default()
            },
            pad_value: 0xfc00,
            ..PoolProgram::new(1, (side, side), (3, 3), (0, input as u32))
        };
        Self::new(2 * input, input, &[pool.program()])
    }

    /// Runs the next program on core 0.
    pub(crate) fn run_next(&mut self) {
        let (at, words) = self.programs[self.next];
        kick(&mut self.core, &mut self.memory, at, words);
        self.next = (self.next + 1) % self.programs.len();
    }

    /// Runs all programs on core 0, as the mainline driver kicks them.
    pub(crate) fn run(&mut self) {
        for &(at, words) in &self.programs {
            kick(&mut self.core, &mut self.memory, at, words);
        }
    }
}

/// Appends programs to memory; returns the address and words of each.
pub(crate) fn place(memory: &mut Vec<u8>, programs: &[Vec<Word>]) -> Vec<(u32, u32)> {
    let mut placed = Vec::new();
    for words in programs {
        memory.resize(memory.len().next_multiple_of(16), 0);
        placed.push((memory.len() as u32, words.len() as u32));
        memory.extend(words.iter().flat_map(|word| word.bits().to_le_bytes()));
    }
    placed
}

/// Input bytes: all values except fp16 infinities and NaNs.
pub(crate) fn filler(index: usize) -> u8 {
    (index as u32).wrapping_mul(0x9e37_79b1).to_le_bytes()[3] & 0xbb
}

/// A padded 3x3 convolution of a square image; the output lies behind the
/// weights.
fn image(ty: OperandTypes, side: u32, channels: u32) -> ConvProgram {
    let size = (side, side, channels);
    let input = side * side * channels;
    let weights = 9 * channels * channels;
    ConvProgram {
        pad: (1, 1),
        // Lines stream through the banks that the weights leave.
        data_banks: 9,
        grains: 56,
        ..ty.conv(size, size, (3, 3), (0, input, input + weights))
    }
}

/// Rows and columns of a tile; its features fill two thirds of CBUF.
pub(crate) fn tile(ty: OperandTypes, k: usize) -> (usize, usize) {
    const FEATURE_BYTES: usize = 8 * 32 * 1024;
    const COLUMNS: usize = 1024;
    (FEATURE_BYTES / ty.bytes(k), COLUMNS)
}

/// The programs of a matmul with operands and results at `a`, `b` and `c`, for
/// the columns `columns`.
pub(crate) fn tiles(
    ty: OperandTypes,
    (m, k, _): (usize, usize, usize),
    columns: std::ops::Range<usize>,
    (a, b, c): (u32, u32, u32),
) -> Vec<Vec<Word>> {
    let (rows, width) = tile(ty, k);
    let bytes = |elements: usize| ty.bytes(elements) as u32;
    let mut programs = Vec::new();
    for column in columns.clone().step_by(width) {
        let width = width.min(columns.end - column);
        for row in (0..m).step_by(rows) {
            let rows = rows.min(m - row);
            let tile = (column - columns.start) * m + row * width;
            let at = (
                a + bytes(row * k),
                b + bytes((column - columns.start) * k),
                c + (tile * ty.out_bytes()) as u32,
            );
            programs.push(ty.matmul(rows as u32, k as u32, width as u32, at).task());
        }
    }
    programs
}

/// The programs of a whole matmul.
pub(crate) fn matmul(ty: OperandTypes, (m, k, n): (usize, usize, usize)) -> ChipPrograms {
    let bytes = |elements: usize| ty.bytes(elements);
    let (a, b) = (bytes(m * k), bytes(k * n));
    let at = (0, a as u32, (a + b) as u32);
    let programs = tiles(ty, (m, k, n), 0..n, at);
    ChipPrograms::new(a + b + m * n * ty.out_bytes(), a, &programs)
}

fn kick(core: &mut Core, bus: &mut Vec<u8>, at: u32, words: u32) {
    let writes = families::kick(0, at, words as usize, 1);
    let [.., kick] = writes.map(|(offset, value)| core.mmio_write(offset, value));
    let finished = kick.unwrap().run(bus, Duration::from_millis(500));
    let outcome = core.complete(finished).unwrap();
    let status = core.mmio_read(pc::InterruptRawStatus::OFFSET.into());
    assert!(status & DPU_DONE != 0, "{:#?}", outcome.diagnosis);
    let spoilt = outcome
        .diagnosis
        .iter()
        .find(|d| d.effect != rknpu_chip::Effect::Note);
    assert!(spoilt.is_none(), "{spoilt:#?}");
    core.mmio_write(pc::OperationEnable::OFFSET.into(), 0);
    core.mmio_write(pc::InterruptClear::OFFSET.into(), 0x1_ffff);
}
