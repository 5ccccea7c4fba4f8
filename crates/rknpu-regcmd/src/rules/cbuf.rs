// SPDX-License-Identifier: MIT OR Apache-2.0
//! CBUF: its division, and the data that must fit it.

use alloc::format;

use super::row::{Found, Shows};
use crate::chip::{CBUF_ENTRY_BYTES, ChipProfile};
use crate::precision::Precision;
use crate::regs::cna;
use crate::task::{ConvTask, compressed_lanes};

const CHIP: ChipProfile = ChipProfile::RK3588;

const WEIGHTS: Shows = shows![
    cna::CbufCon0,
    cna::WeightSize0,
    cna::WeightSize1,
    cna::WeightSize2
];
const GRAINS: Shows = shows![cna::ConvCon2, cna::WeightSize2, cna::ConvCon3];
const LINES: Shows = shows![
    cna::CbufCon0,
    cna::CbufCon1,
    cna::ConvCon2,
    cna::FcDataSize0,
    cna::FcDataSize1
];

rules! { pub,
    "T26-banks" ["E-cbuf-size", "E-bank-split"] [cna::CbufCon0] Error Hang:
        "features and weights share 12 banks and need at least one each; otherwise the core hangs or computes garbage (stated)",
        "give the weights the banks that the features leave free",
        Conv |conv, _| {
            let (data, weight) = conv.cbuf.split();
            let broken = data == 0 || weight == 0 || data + weight > CHIP.cbuf_banks as usize;
            broken.then(|| format!("{data} data and {weight} weight banks"))
        };
    "T27-kernel-size" ["E-kernel-bytes"] [..WEIGHTS] Error Hang:
        "a kernel is larger than a CBUF bank, which every generator refuses",
        "split the channels over several tasks and add the results",
        Conv |conv, _| {
            let kernel = kernel_bytes(conv)?;
            (kernel > CHIP.kernel_bytes_max.into()).then(|| format!("a kernel has {kernel} bytes"))
        };
    /// Weights that must be in CBUF at the same time; see [`weights_without_room`].
    WEIGHT_ROOM "T26a-weight-banks" ["E-weight-room-group", "E-deep-tf32"] [..WEIGHTS] Error Hang, contested "weight-room":
        "not even one kernel group fits the weight banks: no known program does that, and tf32 with K = 5120, whose groups take 10 of 12 banks, timed out already (inferred)",
        "give the weights more banks, or split the channels",
        Conv |conv, _| weights_without_room(conv, conv.weights.precision.kernel_group());
    "T26a-one-weight-bank" ["E-one-weight-bank"] [..WEIGHTS] Note Note:
        "weights stream through one bank: no known program does that, and whether it works is not known",
        "give weights that do not fit one bank at least two banks",
        Conv |conv, _| {
            let few = conv.cbuf.weight_banks < CHIP.weight_banks_min as usize;
            weights_without_room(conv, usize::MAX).filter(|_| few)
        };
    "T26a-weight-block" ["E-weight-room-block"] [..WEIGHTS] Note Note:
        "generators that were measured keep 32 kernels in CBUF; whether fewer are enough is not known",
        "WEIGHT_BANK >= max(2, ceil(min(N, 32) x bytes per kernel / 32768))",
        Conv |conv, _| weights_without_room(conv, CHIP.resident_kernels as usize);
    "weight-bytes" [] [..WEIGHTS] Error:
        "WEIGHT_SIZE0 is 0, or not bytes per kernel x kernels",
        "make the weight sizes agree",
        Conv |conv, _| {
            let weights = &conv.weights;
            let (total, each) = (weights.bytes, weights.kernel_bytes);
            let differs = u64::from(total) != u64::from(each) * weights.kernels as u64;
            (total == 0 || differs && !conv.depthwise)
                .then(|| format!("{total} bytes in all, {} kernels of {each}", weights.kernels))
        };
    "H06-decompression-mode" ["E-dcomp"] [cna::DcompCtrl, cna::DcompRegnum] Warning Note:
        "only DCOMP_REGNUM 0x55555555 with int8 weights is known; it is decoded as that",
        "write 0x55555555 to DCOMP_REGNUM",
        Conv |conv, regs| {
            let on = compressed_lanes(regs).is_some();
            let mode = regs.get::<cna::DcompRegnum>().decomp_regnum();
            let ty = conv.weights.precision;
            let known = mode == DCOMP_KNOWN_MODE && ty == Precision::Int8;
            (on && !conv.cbuf.weight_reuse && !known)
                .then(|| format!("mode {mode:#x} with {ty} weights"))
        };
    "T28-fc-data-bank" ["E-fc-data-bank"] [cna::CbufCon0] Error Garbage:
        "the features are read from other banks than those that hold them (measured)",
        "write 0 to FC_DATA_BANK",
        Conv |conv, _| {
            let bank = conv.cbuf.fc_data_bank;
            (bank != 0).then(|| format!("FC_DATA_BANK is {bank}"))
        };
    "T23-grains" ["E-grains"] [..GRAINS] Error Hang:
        "computing starts with fewer lines than a window has (inferred)",
        "use the input height + 1, at most 1023",
        Conv |conv, _| Grains::of(conv).describe(|grains| grains.present < grains.lines);
    "T23-few-grains" ["E-grains"] [..GRAINS] Warning Note:
        "fewer lines than kernel height + vertical stride were seen to corrupt some shapes (measured)",
        "use the input height + 1, at most 1023",
        Conv |conv, _| Grains::of(conv).describe(Grains::few);
    "grains-below-manual" [] [..GRAINS] Note:
        "the manual's minimum is kernel height + vertical stride + 1 lines",
        "use one more",
        Conv |conv, _| {
            Grains::of(conv).describe(|grains| {
                let least = grains.lines + grains.stride;
                grains.streams() && grains.present == least
            })
        };
    "T20-entries" ["E-entries"] [..LINES] Error Note:
        "a line needs more CBUF space than DATA_ENTRIES gives it; no known program does that",
        "use ceil(width x channels x bytes / 64)",
        Conv |conv, _| {
            let (needed, entries) = (line_bytes(conv)?.div_ceil(ENTRY), conv.cbuf.entries);
            (entries < needed).then(|| format!("a line takes {needed} entries, DATA_ENTRIES is {entries}"))
        };
    /// Lines that do not fit the data banks.
    LINE_ROUNDING "T20-line-rounding" ["E-line-rounding"] [..LINES] Error Garbage, contested "line-rounding":
        "lines that do not fit the data banks read as weights: the last rows are garbage (measured)",
        "use ceil(lines x DATA_ENTRIES x 64 / 32768) data banks, or smaller tiles",
        Conv lines_without_room;
    "grains-beyond-banks" [] [..LINES] Error:
        "the lines that must be there before computing starts do not fit the data banks",
        "lower FEATURE_GRAINS, or give the features more banks",
        Conv |conv, _| {
            let grains = Grains::of(conv);
            let present = grains.present;
            let room = conv.cbuf.data_banks * CHIP.cbuf_bank_bytes as usize;
            let bytes = present * conv.cbuf.line_bytes();
            let streams = conv.features.packed.is_none() && grains.streams();
            (streams && room != 0 && bytes > room)
                .then(|| format!("{present} lines take {bytes} bytes of {room}"))
        };
}

/// DCOMP_REGNUM of the known programs.
const DCOMP_KNOWN_MODE: u32 = 0x5555_5555;

const ENTRY: usize = CBUF_ENTRY_BYTES as usize;

/// Bytes of a kernel: the larger of those counted from its size, channels and type, and those in
/// WEIGHT_SIZE1; `None` for a depthwise task.
fn kernel_bytes(conv: &ConvTask) -> Option<u64> {
    let weights = &conv.weights;
    let elements = weights.taps() * conv.features.window[2];
    let counted = weights.precision.bytes(elements as u64);
    (!conv.depthwise).then(|| counted.max(weights.kernel_bytes.into()))
}

/// The problem if `together` kernels, or all there are, do not fit the weight banks.
#[must_use]
pub fn weights_without_room(conv: &ConvTask, together: usize) -> Found {
    let kernel = kernel_bytes(conv)?;
    let together = together.min(conv.weights.kernels);
    let banks = conv.cbuf.weight_banks;
    let room = banks as u64 * u64::from(CHIP.cbuf_bank_bytes);
    ((together as u64).saturating_mul(kernel) > room)
        .then(|| format!("{together} kernels of {kernel} bytes do not fit {banks} weight banks"))
}

/// Bytes of a fetched line; `None` for packed pixels.
fn line_bytes(conv: &ConvTask) -> Option<usize> {
    let cube = conv.features.cube()?;
    Some(cube.width * cube.surfaces.count * crate::ATOM_BYTES as usize)
}

fn lines_without_room(conv: &ConvTask, _: &crate::RegisterFile) -> Found {
    let bytes = line_bytes(conv)?;
    let (height, cbuf) = (conv.features.fetched[1], &conv.cbuf);
    // With no more grains than lines, the lines stream through CBUF.
    if cbuf.data_reuse || cbuf.fc_data_bank != 0 || cbuf.grains <= height {
        return None;
    }
    let fit = cbuf.lines_that_fit(bytes);
    (fit < height).then(|| {
        let (room, banks) = (cbuf.line_bytes(), cbuf.data_banks);
        format!("{fit} of {height} lines of {room} bytes fit {banks} data banks")
    })
}

/// Lines in CBUF before computing starts, and lines of a window.
struct Grains {
    present: usize,
    /// Lines of a window; `stride` is the distance to the next window.
    lines: usize,
    stride: usize,
    /// Lines of all features.
    height: usize,
}

impl Grains {
    fn of(conv: &ConvTask) -> Self {
        Self {
            present: conv.cbuf.grains,
            lines: conv.weights.kernel[1].min(conv.features.window[1]),
            stride: conv.window.stride.1,
            height: conv.features.fetched[1],
        }
    }

    const fn streams(&self) -> bool {
        self.present <= self.height
    }

    const fn few(&self) -> bool {
        self.streams() && self.present >= self.lines && self.present < self.lines + self.stride
    }

    fn describe(&self, broken: impl Fn(&Self) -> bool) -> Found {
        let Self {
            present,
            lines,
            stride,
            height,
        } = self;
        broken(self).then(|| {
            format!("FEATURE_GRAINS is {present} of {height} lines; a window has {lines}, the next is {stride} below")
        })
    }
}
