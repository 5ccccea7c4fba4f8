// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory of the host a task takes beside its buffer objects.
//!
//! `cargo test -p rknpu-chip --test scratch -- --nocapture` prints the figures
//! of docs/model.md.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "chip/programs.rs"]
#[allow(dead_code, unreachable_pub)]
mod programs;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use programs::{Conv, MatType};
use rknpu_chip::{Bus, ChipOptions, Core, Fault, Master};
use rknpu_regcmd::regs::{cna, core, pc};
use rknpu_regcmd::{Register, Word};

/// Interrupts DPU_0 and DPU_1.
const DPU_DONE: u32 = 0x300;
/// Most that any program may take: a band of features (4 MiB) and lines or
/// windows of them, a kernel group and its rows, a tile of sums.
const SCRATCH_MAX: usize = 16 << 20;
/// Most that a product takes whose tiles fill two thirds of CBUF.
const PRODUCT_SCRATCH_MAX: usize = 4 << 20;

/// Counts what is allocated, and the most of it.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(held, Relaxed);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` came from `alloc` above, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A program from address 0 on; all other memory reads as the address.
struct Everywhere(Vec<u8>);

impl Bus for Everywhere {
    fn read(&mut self, _: Master, iova: u32, out: &mut [u8]) -> Result<(), Fault> {
        let start = iova as usize;
        match self.0.get(start..start + out.len()) {
            Some(program) => out.copy_from_slice(program),
            None => out.fill(iova as u8),
        }
        Ok(())
    }

    fn write(&mut self, _: Master, _: u32, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }
}

/// Runs a program and returns the bytes that it took of the host, and whether
/// it came to its end.
fn scratch(words: &[Word]) -> (usize, bool) {
    let mut bytes: Vec<u8> = words.iter().flat_map(|w| w.bits().to_le_bytes()).collect();
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    let mut bus = Everywhere(bytes);
    let mut core = Core::new(&ChipOptions::default());
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut write = |offset: u16, value| core.mmio_write(offset.into(), value);
    write(pc::BaseAddress::OFFSET, 1);
    write(cna::SPointer::OFFSET, 0xe);
    write(core::SPointer::OFFSET, 0xe);
    write(pc::BaseAddress::OFFSET, 0);
    write(
        pc::RegisterAmounts::OFFSET,
        (words.len() as u32).div_ceil(2) - 1,
    );
    write(pc::InterruptMask::OFFSET, DPU_DONE);
    write(pc::InterruptClear::OFFSET, DPU_DONE);
    write(pc::TaskCon::OFFSET, 0x7001);
    let kick = write(pc::OperationEnable::OFFSET, 1).unwrap();
    let finished = kick.run(&mut bus, Duration::from_millis(500));
    let outcome = core.complete(finished).unwrap();
    let status = core.mmio_read(pc::InterruptRawStatus::OFFSET.into());
    if status & DPU_DONE == 0 {
        println!("{:#?}", outcome.diagnosis);
    }
    (PEAK.load(Relaxed) - before, status & DPU_DONE != 0)
}

/// A 3x3 convolution of an image with any pitch.
fn image(ty: MatType, (width, height, channels): (u32, u32, u32), output: (u32, u32)) -> Conv {
    let mut conv = ty.matmul(4, channels, channels, (1 << 16, 1 << 28, 1 << 29));
    conv.input = (width, height, channels);
    conv.output = (output.0, output.1, channels);
    conv.kernel = (3, 3);
    conv.pad = (1, 1);
    conv.kernel_bytes *= 9;
    conv.weight_bytes = conv.kernel_bytes * channels;
    conv.entries = (width * channels * ty.half_bytes() as u32).div_ceil(128);
    conv.data_banks = 9;
    conv.grains = 8;
    conv.line_stride = 4 * width;
    conv.surf_stride = (width * height) as i32 - 4 * width as i32;
    let pixels = output.0 * output.1;
    conv.writer = (output.0, output.1, pixels, 0, (conv.size_e + 1) * pixels);
    conv
}

/// One test, since others would allocate at the same time.
#[test]
fn a_task_takes_no_more_than_its_bound() {
    // Of 512x4096x4096, in tiles of 1024 columns: the rows that fill 256 KiB.
    let (m, k, n, columns) = (512usize, 4096usize, 4096usize, 1024);
    for (ty, name) in [(MatType::Int8Int32, "int8"), (MatType::Fp16Fp32, "fp16")] {
        let element = ty.half_bytes() / 2;
        let rows = 256 * 1024 / (k * element);
        let at = (1 << 16, 1 << 28, 1 << 29);
        let tile = ty.matmul(rows as u32, k as u32, columns, at);
        let (bytes, done) = scratch(&tile.program());
        let objects = (m * k + k * n) * element + m * n * ty.out_bytes();
        println!("{name} {m}x{k}x{n}: scratch of a core {bytes}, buffer objects {objects}");
        assert!(done && bytes <= PRODUCT_SCRATCH_MAX, "{bytes}");
        // Three cores at once, of the same objects.
        assert!(objects + 3 * bytes <= objects * 6 / 5, "{bytes}");
    }
    let conv = image(MatType::Int8Int32, (56, 56, 64), (56, 56));
    let (bytes, done) = scratch(&conv.program());
    let objects = 56 * 56 * 64 * 5 + 9 * 64 * 64;
    println!("int8 conv 3x3 56x56x64: scratch of a core {bytes}, buffer objects {objects}");
    assert!(done && bytes <= PRODUCT_SCRATCH_MAX, "{bytes}");

    // 512 MB of features, in the largest plane that the fields hold, of which
    // next to nothing is used.
    let mut hostile = image(MatType::Int8Int32, (2047, 2047, 128), (16, 4));
    hostile.entries = 1;
    // Lines far apart are needed together.
    hostile.stride = (1, 7);
    // 1 GB of weights.
    let mut weights = MatType::Int8Int32.matmul(1, 64, 64, (1 << 16, 1 << 28, 1 << 29));
    weights.weight_bytes = 1 << 30;
    for (name, words) in [
        ("features", hostile.program()),
        ("weights", weights.program()),
    ] {
        let (bytes, done) = scratch(&words);
        println!("hostile {name}: scratch of a core {bytes}");
        assert!(done, "{name} are to be computed");
        assert!(bytes <= SCRATCH_MAX, "{name}: {bytes}");
    }
    // What cannot be had by parts is refused: 1 GB of expanded weights.
    let mut compressed = weights.program();
    let trailer = compressed.split_off(compressed.len() - 4);
    let control = cna::DcompCtrl::INFO;
    compressed.push(Word::new(control.block.target(), control.offset, 1));
    compressed.extend(trailer);
    let (bytes, done) = scratch(&compressed);
    println!("hostile compressed weights: scratch of a core {bytes}");
    assert!(!done && bytes <= SCRATCH_MAX, "{bytes}");
}
