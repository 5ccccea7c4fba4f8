// SPDX-License-Identifier: MIT OR Apache-2.0
//! Like [`super::literal`], for both ends of a convolution: images of packed
//! pixels with their converter, and look-up tables.

use proptest::prelude::*;
use rknpu_regcmd::Word;
use rknpu_regcmd::regs::{cna, dpu};

use super::literal::{assert_most_complete, assert_same, convolution, convolution_of};
use super::tensor::Numbers;
use families::Words;
use families::conv::ConvProgram;
use families::matmul::{FP16_FP16, FP16_FP32, INT8_FP32, INT8_INT32};

/// Enabled blocks: CNA, CORE and DPU.
const BLOCKS: u32 = 0x0d;
/// EW with look-up only, as in librocketnpu's activations; with its converter;
/// with its rectifier.
const LOOK_UPS: [u32; 3] = [0x300, 0x200, 0x100];
const ENTRIES: usize = 513;

/// A convolution of bytes or halves whose features are pixels of 1 to 4
/// channels, converted in any way.
fn packed() -> impl Strategy<Value = Vec<Word>> {
    let types = prop::sample::select(vec![INT8_INT32, INT8_FP32, FP16_FP32, FP16_FP16]);
    let scale = || prop_oneof![Just(16384u32 << 16 | 65408), any::<u32>()];
    let converter = (
        prop_oneof![Just(0x038e_38e0u32), Just(1), any::<u32>()],
        [scale(), scale(), scale(), scale()],
        prop_oneof![Just(0xffffu32), any::<u32>()],
    );
    let pixels = (8u32..12, 0u32..40, any::<bool>());
    (types.prop_flat_map(convolution_of), pixels, converter).prop_map(
        |(mut conv, (argb, behind, dense), (how, scales, mask))| {
            let (width, _, channels) = conv.input;
            if dense {
                conv.line_stride = width + behind;
            }
            conv.grains = conv.input.1 + 1;
            let mode = if conv.depthwise { 3 } else { 0 };
            let mut words = conv.words();
            words
                .patch::<cna::ConvCon1>(3 << 29 | argb << 12 | conv.p << 7 | conv.p << 4 | mode)
                .patch::<cna::DataSize1>((argb - 8) << 16 | channels)
                .patch::<cna::CvtCon0>(how)
                .patch::<cna::CvtCon1>(scales[0])
                .patch::<cna::CvtCon2>(scales[1])
                .patch::<cna::CvtCon3>(scales[2])
                .patch::<cna::CvtCon4>(scales[3])
                .patch::<cna::CvtCon5>(mask);
            words.finish(BLOCKS)
        },
    )
}

/// Registers of the tables, for look-ups of any value.
#[derive(Clone, Debug)]
struct Tables {
    info: (u32, u32),
    start: u32,
    end: u32,
    slopes: [u32; 4],
}

fn tables() -> impl Strategy<Value = Tables> {
    (
        (0u32..32, 0u32..32),
        prop_oneof![Just(0xffff_c000u32), any::<u32>()],
        prop_oneof![Just(0x4000u32), any::<u32>()],
        any::<[u32; 4]>(),
    )
        .prop_map(|(info, start, end, slopes)| Tables {
            info,
            start,
            end,
            slopes,
        })
}

/// A convolution whose results are looked up. Its program uploads the entries,
/// or uses those of an earlier program.
fn looked_up(conv: &ConvProgram, tables: &Tables, upload: Option<u64>) -> Vec<Word> {
    let mut words = Words::default();
    if let Some(seed) = upload {
        let mut numbers = Numbers::new(seed);
        for table in 0..2 {
            words.set::<dpu::LutAccessCfg>(0x20000 | table << 16);
            for _ in 0..ENTRIES {
                words.set::<dpu::LutAccessData>(numbers.next() as u32 & 0xffff);
            }
        }
    }
    words.0.extend(conv.words().0);
    words
        .patch::<dpu::LutCfg>(0x68)
        .patch::<dpu::LutInfo>(tables.info.0 << 16 | tables.info.1 << 8)
        .set::<dpu::LutLeStart>(tables.start)
        .set::<dpu::LutLoEnd>(tables.end)
        .set::<dpu::LutLeSlopeScale>(tables.slopes[0])
        .set::<dpu::LutLeSlopeShift>(tables.slopes[1])
        .set::<dpu::LutLoSlopeScale>(tables.slopes[2])
        .set::<dpu::LutLoSlopeShift>(tables.slopes[3]);
    words.finish(BLOCKS)
}

fn with_tables() -> impl Strategy<Value = (ConvProgram, Tables)> {
    let look_up = prop::sample::select(LOOK_UPS.to_vec());
    (convolution(), tables(), look_up).prop_map(|(mut conv, tables, look_up)| {
        conv.ew_cfg = look_up;
        (conv, tables)
    })
}

#[test]
fn most_random_programs_complete() {
    assert_most_complete(&packed());
    assert_most_complete(
        &with_tables().prop_map(|(conv, tables)| looked_up(&conv, &tables, Some(1))),
    );
}

proptest! {
    #![proptest_config(test_support::cases(96))]

    #[test]
    fn packed_pixels(words in packed(), seed: u64) {
        assert_same(&[words], seed)?;
    }

    #[test]
    fn look_ups(first in with_tables(), second in with_tables(), seed: u64) {
        let programs = [
            looked_up(&first.0, &first.1, Some(seed)),
            looked_up(&second.0, &second.1, None),
        ];
        assert_same(&programs, seed)?;
    }
}
