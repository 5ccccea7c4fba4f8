// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pooling.

use alloc::format;

use crate::precision::Precision;
use crate::regs::{ppu, ppu_rdma};
use crate::task::{POOL_AVERAGE, POOL_MAX, PoolTask};

/// Lines or columns below which a cube from one pooling is misread by another pooling
/// (E-small-pool).
const SMALL: usize = 4;

rules! { pub,
    "H05-pooling-input" [] [ppu::OperationModeCfg, ppu::DataCubeInWidth, ppu::DataCubeInHeight, ppu_rdma::CubeInWidth, ppu_rdma::CubeInHeight] Error Hang:
        "the PPU waits for more than PPU_RDMA delivers (inferred); input from the DPU is not modelled",
        "set FLYING_MODE, and the same size in both blocks",
        Pool |pool, regs| {
            let mode = regs.get::<ppu::OperationModeCfg>().flying_mode();
            (mode != 1 || short(pool)).then(|| format!("FLYING_MODE {mode}, {}", sizes(pool)))
        };
    "pooling-input" [] [ppu::DataCubeInWidth, ppu_rdma::CubeInWidth] Error:
        "PPU and PPU_RDMA disagree about the input's size",
        "write the same CUBE_IN_* to both",
        Pool |pool, _| (pool.input != pool.read.size && !short(pool)).then(|| sizes(pool));
    /// Types that are pooled as another type.
    POOLING_PRECISION "T58-pooling-precision" ["E-pool-width", "E-pooling-int8"] [ppu::DataFormat, ppu_rdma::DataFormat] Error Garbage, contested "byte-pooling":
        "with these two precisions the cube is read as fp16 (int8 with a width of 4 bits was measured to be wrong, with 8 and 16 bits right)",
        "fp16: 2 in both DATA_FORMAT registers; int8: 0 in the PPU's, 1 in PPU_RDMA's",
        Pool |pool, _| {
            let (ty, size) = (pool.precision, pool.read_size);
            (ty != pool.element()).then(|| format!("PPU precision {ty}, PPU_RDMA size code {size}"))
        };
    "T57-small-cube" ["E-small-pool"] [ppu::DataCubeInWidth, ppu::DataCubeInHeight] Note Note:
        "a cube of fewer than 4 lines or columns is misread if another pooling task wrote it (measured; how is not known, and the model reads it correctly)",
        "if pooling feeds pooling, keep at least 4 lines and columns in the cube between the two",
        Pool |pool, _| {
            let [width, height, _] = pool.input;
            (width.min(height) < SMALL).then(|| format!("the input is {width} x {height}"))
        };
    "T59-average-of-one" ["E-average-of-one"] [ppu::OperationModeCfg, ppu::PoolingKernelCfg] Error Garbage:
        "the reciprocal of a kernel of 1 is 65536, which fp16 cannot hold: the average is infinite",
        "average over two pixels or more in each direction",
        Pool |pool, _| {
            let [width, height] = pool.kernel;
            let fp16 = pool.method == POOL_AVERAGE && pool.element() == Precision::Fp16;
            (fp16 && (width == 1 || height == 1)).then(|| format!("over {width} x {height}"))
        };
    "average-reciprocal" ["E-pooling"] [ppu::RecipKernelWidth, ppu::RecipKernelHeight] Error:
        "averages are multiplied by reciprocals that are 0",
        "write the fp16 bits of 65536 / size",
        Pool |pool, regs| {
            let factors = [
                regs.get::<ppu::RecipKernelWidth>().recip_kernel_width(),
                regs.get::<ppu::RecipKernelHeight>().recip_kernel_height(),
            ];
            (pool.method == POOL_AVERAGE && factors.contains(&0))
                .then(|| format!("reciprocals {factors:#x?}"))
        };
    "T60-max-padding" ["E-max-padding"] [ppu::PaddingValue1, ppu::PoolingPaddingCfg] Warning Garbage:
        "padded cells take part in the maximum: 0 wins over negative inputs (measured)",
        "write the lowest value to PADDING_VALUE_1: 0xFC00 for fp16, 0x7FF80 for int8",
        Pool |pool, regs| {
            let pad = regs.get::<ppu::PoolingPaddingCfg>();
            let pads = pad.pad_left() + pad.pad_top() + pad.pad_right() + pad.pad_bottom();
            let value = regs.get::<ppu::PaddingValue1>().pad_value_0();
            let lowest = match pool.element() {
                Precision::Int8 => value as i8 == i8::MIN,
                Precision::Int16 => value as i16 == i16::MIN,
                _ => value as u16 == NEGATIVE_INFINITY,
            };
            (pool.method == POOL_MAX && pads != 0 && !lowest)
                .then(|| format!("the pad value is {value:#x}"))
        };
}

/// fp16 bits of minus infinity.
const NEGATIVE_INFINITY: u16 = 0xfc00;

/// Whether PPU_RDMA reads less than the PPU takes.
fn short(pool: &PoolTask) -> bool {
    let (read, [width, height, _]) = (pool.read.size, pool.input);
    read[0] < width || read[1] < height || read[2] < pool.written.size[2]
}

fn sizes(pool: &PoolTask) -> alloc::string::String {
    let (taken, read) = (pool.input, pool.read.size);
    format!("PPU takes {taken:?}, PPU_RDMA reads {read:?} (width, height, channels)")
}
