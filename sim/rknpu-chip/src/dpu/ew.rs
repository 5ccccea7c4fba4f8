// SPDX-License-Identifier: MIT OR Apache-2.0
//! EW: an operation with an operand for each element, then the look-up
//! tables, then a rectifier.

use rknpu_regcmd::RegisterFile;
use rknpu_regcmd::regs::dpu;
use rknpu_regcmd::task::Reads;

use super::super::Contested;
use super::super::dma::{self, Dma};
use super::super::mac_array::{Ties, one_nan, saturate_i32, shift_right_rounded};
use super::super::precision::{Precision, decode_float, decode_int, u32_at};
use super::super::rdma::EwLayout;
use super::super::trap::Stop;
use super::lut::{Lut, LutConfig};
use super::stage::{AluOp, Relu};
use super::tile::{Delivered, DpuTile, Values};

const OPERAND_REGISTERS: usize = 8;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EwSource {
    /// EW_OP_VALUE_0..7: channel modulo 8 (inferred).
    Registers([u32; OPERAND_REGISTERS]),
    /// ERDMA.
    Memory(Delivered),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EwOperation {
    Alu(AluOp),
    /// With PReLU, only negative values are multiplied.
    Mul {
        prelu: bool,
    },
}

/// Conversion of an integer operand: `(b + OFFSET) * SCALE >> SHIFT`, or
/// `(b * SCALE + OFFSET) >> SHIFT` with CVT_TYPE 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OperandCvt {
    offset: i64,
    scale: i64,
    shift: u32,
    ties: Ties,
    add_first: bool,
}

impl OperandCvt {
    fn apply(&self, b: i32) -> i32 {
        let b = i64::from(b);
        let product = if self.add_first {
            (b + self.offset) * self.scale
        } else {
            b * self.scale + self.offset
        };
        saturate_i32(shift_right_rounded(product, self.shift, self.ties))
    }
}

/// The stage as the registers describe it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Ew {
    pub(crate) operation: Option<(EwOperation, EwSource)>,
    /// `None`: OP_CVT_BYPASS.
    cvt: Option<OperandCvt>,
    /// Right shift of integer products.
    truncate: u32,
    lut: Option<LutConfig>,
    relu: Relu,
}

impl Ew {
    /// Whether values go through the look-up tables.
    pub(crate) fn looks_up(regs: &RegisterFile) -> bool {
        let cfg = regs.get::<dpu::EwCfg>();
        cfg.ew_bypass() == 0 && cfg.ew_lut_bypass() == 0
    }

    pub(crate) fn decode(
        regs: &RegisterFile,
        reads: Option<&Reads>,
        flying: bool,
        float: bool,
        contested: Contested,
    ) -> Self {
        let cfg = regs.get::<dpu::EwCfg>();
        let scale = regs.get::<dpu::EwCvtScaleValue>();
        if cfg.ew_bypass() == 1 {
            return Self::default();
        }
        let lut = Self::looks_up(regs).then(|| LutConfig::decode(regs, contested));
        let operation = if cfg.ew_op_type() == 1 {
            EwOperation::Mul {
                prelu: cfg.ew_mul_prelu() == 1,
            }
        } else {
            EwOperation::Alu(AluOp::from_code(cfg.ew_alu_algo(), contested))
        };
        let memory = reads.filter(|_| cfg.ew_op_src() == 1).and_then(|reads| {
            let layout = EwLayout::new(reads, flying)?;
            let precision = reads.operand_precision(float)?;
            Some(EwSource::Memory(Delivered::new(reads, layout, precision)))
        });
        let source = memory.unwrap_or_else(|| EwSource::Registers(operand_registers(regs)));
        // librocketnpu's look-up programs leave the operation on, as a maximum
        // with a register of 0. Negative numbers still reach the table, so the
        // look-up replaces an operation with a register operand.
        let replaced = lut.is_some() && cfg.ew_op_src() == 0;
        // Behind CORE a float addition without the operand converter loses
        // its operand (measured by happyme531).
        let lost = float
            && !flying
            && cfg.ew_op_src() == 1
            && cfg.ew_op_type() == 0
            && cfg.ew_op_cvt_bypass() == 1;
        Self {
            operation: (cfg.ew_op_bypass() == 0 && !replaced && !lost)
                .then_some((operation, source)),
            cvt: (cfg.ew_op_cvt_bypass() == 0).then(|| OperandCvt {
                offset: i64::from(regs.get::<dpu::EwCvtOffsetValue>().ew_op_cvt_offset() as i32),
                scale: i64::from(scale.ew_op_cvt_scale()),
                shift: scale.ew_op_cvt_shift(),
                ties: Ties::from_round_type(cfg.ew_cvt_round()),
                add_first: cfg.ew_cvt_type() == 1,
            }),
            truncate: scale.ew_truncate(),
            lut,
            relu: Relu::new(
                cfg.ew_relu_bypass(),
                cfg.ew_relux_en(),
                regs.get::<dpu::EwReluxCmpValue>().ew_relux_cmp_dat(),
            ),
        }
    }

    pub(crate) fn apply(&self, dma: &Dma<'_>, lut: &Lut, tile: &mut DpuTile) -> Result<(), Stop> {
        let mut values = std::mem::take(&mut tile.values);
        match &mut values {
            Values::Int(values) => {
                if let Some((operation, source)) = &self.operation {
                    let operands = self.int_operands(dma, source, tile)?;
                    for (x, b) in values.iter_mut().zip(operands) {
                        *x = self.int(*operation, *x, b);
                    }
                }
                if let Some(config) = &self.lut {
                    values.iter_mut().for_each(|x| *x = config.look_up(lut, *x));
                }
                if self.relu != Relu::Off {
                    values.iter_mut().for_each(|x| *x = self.relu.int(*x));
                }
            }
            Values::Float(values) => {
                if let Some((operation, source)) = &self.operation {
                    let operands = float_operands(dma, *operation, source, tile)?;
                    for (x, b) in values.iter_mut().zip(operands) {
                        *x = float(*operation, *x, b);
                    }
                }
                if let Some(config) = &self.lut {
                    let look_up = |x| config.look_up_float(lut, x);
                    values.iter_mut().for_each(|x| *x = look_up(*x));
                }
                if self.relu != Relu::Off {
                    values.iter_mut().for_each(|x| *x = self.relu.float(*x));
                }
            }
        }
        tile.values = values;
        Ok(())
    }

    fn int(&self, operation: EwOperation, x: i32, b: i32) -> i32 {
        match operation {
            EwOperation::Alu(op) => op.int(x, b),
            EwOperation::Mul { prelu: true } if x >= 0 => x,
            // The multiplier takes 16 bits of its operand, whatever its size
            // (measured for int32 by rockchip-npu-notes).
            EwOperation::Mul { .. } => saturate_i32(shift_right_rounded(
                i64::from(x) * i64::from(b as i16),
                self.truncate,
                Ties::Even,
            )),
        }
    }

    fn int_operands(
        &self,
        dma: &Dma<'_>,
        source: &EwSource,
        tile: &DpuTile,
    ) -> Result<Vec<i32>, Stop> {
        let mut operands = match source {
            EwSource::Registers(values) => register_operands(values, tile, |word| word as i32)?,
            EwSource::Memory(delivered) => delivered.values(dma, tile, decode_int)?,
        };
        // The converter turns a 32-bit operand into the bits of a float (measured
        // as such garbage).
        let spoilt = matches!(source, EwSource::Memory(of) if of.precision == Precision::Int32);
        if let Some(cvt) = &self.cvt {
            for b in &mut operands {
                *b = if spoilt {
                    (*b as f32).to_bits() as i32
                } else {
                    cvt.apply(*b)
                };
            }
        }
        Ok(operands)
    }
}

/// Float operation: IEEE fp32.
fn float(operation: EwOperation, x: f32, b: f32) -> f32 {
    match operation {
        EwOperation::Alu(op) => op.float(x, b),
        EwOperation::Mul { prelu: true } if x >= 0.0 => x,
        EwOperation::Mul { .. } => one_nan(x * b),
    }
}

fn operand_registers(regs: &RegisterFile) -> [u32; OPERAND_REGISTERS] {
    std::array::from_fn(|i| regs.value(dpu::EwOpValue0::OFFSET + 4 * i as u16))
}

/// The register operands of a tile, one for each element.
fn register_operands<T: Copy + Default>(
    values: &[u32; OPERAND_REGISTERS],
    tile: &DpuTile,
    value: impl Fn(u32) -> T,
) -> Result<Vec<T>, Stop> {
    let mut out = dma::buffer(tile.pixels * tile.channels)?;
    for pixel in out.chunks_exact_mut(tile.channels.max(1)) {
        for (c, operand) in pixel.iter_mut().enumerate() {
            *operand = value(values[(tile.channel + c) % OPERAND_REGISTERS]);
        }
    }
    Ok(out)
}

/// Float operands. For a multiplier, a 32-bit word holds fp16 in its low half
/// (happyme531's per-channel scales, proven on silicon).
fn float_operands(
    dma: &Dma<'_>,
    operation: EwOperation,
    source: &EwSource,
    tile: &DpuTile,
) -> Result<Vec<f32>, Stop> {
    let half_of = |word: u32| half::f16::from_bits(word as u16).to_f32();
    let multiplies = matches!(operation, EwOperation::Mul { .. });
    match source {
        EwSource::Registers(values) if multiplies => register_operands(values, tile, half_of),
        EwSource::Registers(values) => register_operands(values, tile, f32::from_bits),
        EwSource::Memory(delivered) if multiplies && delivered.precision == Precision::Fp32 => {
            delivered.values(dma, tile, |_, atom: &[u8], out: &mut [f32]| {
                for (i, value) in out.iter_mut().enumerate() {
                    *value = half_of(u32_at(atom, i));
                }
            })
        }
        EwSource::Memory(delivered) => delivered.values(dma, tile, decode_float),
    }
}
