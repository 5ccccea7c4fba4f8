// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operand of EW: its type, place and conversion.

use alloc::format;

use super::rdma::OPERAND;
use super::row::{DpuPart, Found, Shows};
use crate::ATOM_BYTES;
use crate::extent::{self, DmaEngine, Extent};
use crate::precision::Precision;
use crate::regs::{dpu, dpu_rdma};
use crate::task::{CONVOLUTION, ElementRead, FLYING, MainRead};

/// EDATA_SIZE of 16 bits.
const SIZE_16: u32 = 2;
/// EW_OP_TYPE of the ALU and of the multiplier.
const ALU: u32 = 0;
const MUL: u32 = 1;

const PAIR: Shows = shows![
    dpu::EwCfg,
    dpu_rdma::FeatureModeCfg,
    dpu_rdma::SurfNotch,
    dpu_rdma::EwSurfNotch
];

rules! { pub,
    "T45-operand-as-bytes" ["E-ew-precision-0"] [..OPERAND] Error Garbage:
        "with PROC_PRECISION 0 in DPU_RDMA an operand of 16 bits is read as int8 (measured)",
        "set PROC_PRECISION of DPU_RDMA to the type of the operand (0x17D40 for fp16)",
        Dpu |task| {
            let reads = task
                .reads
                .filter(|_| task.takes() && task.element().is_some())?;
            let wide = task.ew().edata_size() == SIZE_16;
            (wide && reads.proc_precision == Precision::Int8)
                .then(|| "a 16-bit operand with PROC_PRECISION 0".into())
        };
    "edata-size" [] [..OPERAND] Error:
        "EW and ERDMA disagree about the size of the operand",
        "write the same size to EDATA_SIZE and ERDMA_DATA_SIZE",
        Dpu |task| {
            task.element().filter(|_| task.takes())?;
            let ew = task.ew().edata_size();
            let read = task.regs.get::<dpu_rdma::ErdmaCfg>().erdma_data_size();
            (ew != read).then(|| format!("EDATA_SIZE is {ew}, ERDMA_DATA_SIZE {read}"))
        };
    "T46-operand-as-float" ["E-int32-add-cvt"] [..OPERAND] Error Garbage:
        "with the operand's conversion on, an int32 operand is converted to a float (measured)",
        "set OP_CVT_BYPASS (EW_CFG 0x10C203C0)",
        Dpu |task| {
            let operand = task.flying()?.operand_precision(task.float())?;
            let converted = task.operates(ALU) && task.ew().ew_op_cvt_bypass() == 0;
            (converted && operand == Precision::Int32).then(|| format!("an operand of {operand}"))
        };
    "T46-wide-operand-behind-core" [] [..PAIR] Error Garbage:
        "no source has a word that adds an int32 operand behind CORE",
        "add in a separate flying task",
        Dpu |task| {
            let operand = task.pair()?.operand;
            (operand == Precision::Int32).then(|| format!("an operand of {operand}"))
        };
    "T47-operand-ignored" ["E-fp16-add-bypass"] [..PAIR] Error Garbage:
        "behind CORE, a float ALU operation with OP_CVT_BYPASS ignores its operand (measured)",
        "clear OP_CVT_BYPASS (EW_CFG 0x108202C0 for fp16 addition)",
        Dpu |task| {
            task.pair()?;
            let bypass = task.ew().ew_op_cvt_bypass() == 1;
            (task.float() && task.operates(ALU) && bypass).then(|| "OP_CVT_BYPASS is 1".into())
        };
    "T47-converted-product" ["E-fp16-flying-cvt"] [dpu::EwCfg] Error Hang:
        "a flying float multiplication with the operand converter on never ends (measured)",
        "set OP_CVT_BYPASS (EW_CFG 0x108003C4)",
        Dpu |task| {
            task.flying()?;
            let converted = task.operates(MUL) && task.ew().ew_op_cvt_bypass() == 0;
            (task.float() && converted).then(|| "OP_CVT_BYPASS is 0".into())
        };
    "T43-no-surface-notch" ["E-ew-notch-0"] [..PAIR] Error Garbage:
        "MRDMA and ERDMA share the surfaces; without a notch each reads the other's, and only the first pair is right (measured)",
        "write the pixels of a surface to SURF_NOTCH and EW_SURF_NOTCH",
        Dpu |task| {
            let pair = task.pair()?;
            let none = pair.main.surface_notch == 0 || pair.element.surface_notch == 0;
            (pair.several && none).then(|| pair.describe())
        };
    "T42-surface-notch" ["E-ew-pitch-12"] [..PAIR] Error Garbage:
        "the notch skips more than a surface of a dense operand (measured for less than 12 rows)",
        "give the operand at least 12 rows, or store it with the notch's pitch",
        Dpu |task| {
            let pair = task.pair()?;
            let apart = i64::from(pair.element.base) - i64::from(pair.main.base);
            let dense = apart == pair.pixels as i64 * i64::from(ATOM_BYTES);
            let skips = pair.main.surface_notch > pair.pixels;
            (pair.several && skips && dense).then(|| pair.describe())
        };
    "T44-in-place" ["E-in-place"] [dpu::DstBaseAddr, dpu_rdma::SrcBaseAddr] Error Garbage:
        "a convolution adds to the cube that it writes: garbage (measured); the cause is not known, and the model's sums are right",
        "alternate two buffers between operand and result",
        Dpu in_place;
}

impl DpuPart<'_> {
    /// The operand that MRDMA and ERDMA share behind CORE.
    fn pair(&self) -> Option<Pair> {
        let reads = self.reads.filter(|_| self.shares())?;
        let operand = reads.operand_precision(self.float())?;
        Some(Pair {
            main: reads.main?,
            element: reads.element?,
            pixels: reads.pixels(),
            // One pair of surfaces needs no step.
            several: reads.cube[2] > 2 * operand.per_atom(),
            operand,
        })
    }
}

/// An operand whose surfaces two engines share.
struct Pair {
    main: MainRead,
    element: ElementRead,
    pixels: usize,
    several: bool,
    operand: Precision,
}

impl Pair {
    fn describe(&self) -> alloc::string::String {
        let notches = [self.main.surface_notch, self.element.surface_notch];
        format!(
            "notches {notches:?} with surfaces of {} pixels",
            self.pixels
        )
    }
}

fn in_place(task: &DpuPart<'_>) -> Found {
    task.pair()?;
    let extents = extent::extents(task.regs, CONVOLUTION | FLYING).ok()?;
    let of = |engine: DmaEngine| extents.iter().find(|extent| extent.engine == engine);
    let written = of(DmaEngine::DpuWrite)?;
    let meets = |read: &&Extent| read.start < written.end && written.start < read.end;
    let read = [DmaEngine::Mrdma, DmaEngine::Erdma]
        .into_iter()
        .filter_map(of)
        .find(meets)?;
    Some(format!("{read} meets {written}"))
}
