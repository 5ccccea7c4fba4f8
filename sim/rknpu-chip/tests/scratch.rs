// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the host memory of a task, without its buffer objects.
//!
//! `cargo test -p rknpu-chip --test scratch -- --nocapture` prints the figures
//! of docs/model.md.

#![allow(missing_docs, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use families::conv::ConvProgram;
use families::matmul::{FP16_FP32, INT8_INT32, OperandTypes};
use families::{CONV, DPU_DONE};
use rknpu_chip::{Bus, ChipOptions, Core, Fault, Master, NpuCore};
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::{cna, pc};

/// Most bytes of any program: a band of features (4 MiB) and lines or windows
/// of them, a kernel group and its rows, a tile of sums.
const SCRATCH_MAX: usize = 16 << 20;
/// Addresses of A, B and the result.
const AT: (u32, u32, u32) = (1 << 16, 1 << 28, 1 << 29);
/// Most bytes of a matmul whose tiles fill two thirds of CBUF.
const MATMUL_SCRATCH_MAX: usize = 4 << 20;

/// Counts allocated bytes, and their peak.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call goes to the system's allocator unchanged.
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

/// A program at address 0. Other memory reads as its address's low byte.
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

/// Runs a program. Returns the bytes of host memory that it took, and whether
/// it completed.
fn scratch(words: &[Word]) -> (usize, bool) {
    let mut bus = Everywhere(families::bytes(words));
    let mut core = Core::new(&ChipOptions::default());
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let writes = families::kick(0, 0, words.len(), 1);
    let [.., kick] = writes.map(|(offset, value)| core.mmio_write(offset, value));
    let kick = kick.unwrap();
    let finished = kick.run(&mut bus, Duration::from_millis(500));
    let outcome = core.complete(finished).unwrap();
    let status = core.mmio_read(pc::InterruptRawStatus::OFFSET.into());
    if status & DPU_DONE == 0 {
        println!("{:#?}", outcome.diagnosis);
    }
    (PEAK.load(Relaxed) - before, status & DPU_DONE != 0)
}

/// A 3x3 convolution of an image with any pitch.
fn image(ty: OperandTypes, input: (u32, u32, u32), output: (u32, u32)) -> ConvProgram {
    ConvProgram {
        pad: (1, 1),
        data_banks: 9,
        grains: 8,
        ..ty.conv(input, (output.0, output.1, input.2), (3, 3), AT)
    }
}

/// A single test, since others would allocate at the same time.
#[test]
fn a_task_takes_no_more_than_its_bound() {
    // Tiles of 512x4096x4096: 1024 columns, and the rows that fill 256 KiB.
    let (m, k, n, columns) = (512usize, 4096usize, 4096usize, 1024);
    for (ty, name) in [(INT8_INT32, "int8"), (FP16_FP32, "fp16")] {
        let element = ty.bytes(1);
        let rows = 256 * 1024 / (k * element);
        let tile = ty.matmul(rows as u32, k as u32, columns, AT);
        let (bytes, done) = scratch(&tile.task());
        let objects = (m * k + k * n) * element + m * n * ty.out_bytes();
        println!("{name} {m}x{k}x{n}: scratch of a core {bytes}, buffer objects {objects}");
        assert!(done && bytes <= MATMUL_SCRATCH_MAX, "{bytes}");
        // Three cores at once, of the same objects.
        assert!(objects + 3 * bytes <= objects * 6 / 5, "{bytes}");
    }
    let conv = image(INT8_INT32, (56, 56, 64), (56, 56));
    let (bytes, done) = scratch(&conv.task());
    let objects = 56 * 56 * 64 * 5 + 9 * 64 * 64;
    println!("int8 conv 3x3 56x56x64: scratch of a core {bytes}, buffer objects {objects}");
    assert!(done && bytes <= MATMUL_SCRATCH_MAX, "{bytes}");

    // 512 MB of features, in the largest plane that the fields hold. Almost
    // none of them are used.
    let mut hostile = image(INT8_INT32, (2047, 2047, 128), (16, 4));
    hostile.entries = 1;
    // Lines far apart are needed together.
    hostile.stride = (1, 7);
    // 1 GB of weights.
    let mut weights = INT8_INT32.matmul(1, 64, 64, AT);
    weights.weight_bytes = 1 << 30;
    for (name, words) in [("features", hostile.task()), ("weights", weights.task())] {
        let (bytes, done) = scratch(&words);
        println!("hostile {name}: scratch of a core {bytes}");
        assert!(done, "{name} are to be computed");
        assert!(bytes <= SCRATCH_MAX, "{name}: {bytes}");
    }
    // Weights that cannot be read in parts are refused: 1 GB when expanded.
    let mut compressed = weights.words();
    compressed.change(cna::DcompCtrl::OFFSET, 1);
    let (bytes, done) = scratch(&compressed.finish(CONV));
    println!("hostile compressed weights: scratch of a core {bytes}");
    assert!(!done && bytes <= SCRATCH_MAX, "{bytes}");
}
