// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what linking refuses.

use proptest::prelude::*;
use rknpu_regcmd::regs::{cna, core, dpu, pc};
use rknpu_regcmd::{
    Binding, Block, BufferId, Direction, EnableMask, ExtentError, Iova, Item, LinkError,
    MatmulTask, Program, TaskType, Word, decode,
};

use crate::helpers::{self, CHIP};
use crate::random::{KNOWN, any_word};
use families::{Sample, write};

fn task() -> MatmulTask {
    helpers::task(TaskType::Int8ToInt32, 64, 64, 64)
}

fn program(task: &MatmulTask) -> Program {
    task.program(&CHIP).unwrap()
}

/// A at 0, B behind it, C at 64 KiB.
fn bindings() -> [Binding; 3] {
    helpers::bind([0, 4096, 0x10000], [4096, 4096, 16384])
}

/// One binding of all addresses but the last 4 KiB.
const EVERYWHERE: Binding = Binding {
    id: BufferId(0),
    iova: Iova(0),
    len: u32::MAX - 4095,
};

/// Offsets of registers, each with its new value; `None` if nothing writes it.
type Edits<'a> = &'a [(u16, Option<u32>)];

/// The program of these words, edited and not completed.
fn rebuild(words: &[Word], edits: Edits<'_>) -> Program {
    let mut written = Vec::new();
    let mut enable = EnableMask::empty();
    for item in decode(words) {
        match item {
            Item::Write { register, value } if register.block != Block::Pc => {
                let edit = edits.iter().find(|edit| edit.0 == register.offset);
                let value = edit.map_or(Some(value), |edit| edit.1);
                written.extend(value.map(|value| register.write(value)));
            }
            Item::Enable(mask) => enable = mask,
            _ => {}
        }
    }
    Program::of_words(written, Vec::new(), enable)
}

/// Links these words to no buffers.
fn linked(words: &[Word], enable: EnableMask) -> Result<(), LinkError> {
    let program = Program::of_words(words.to_vec(), Vec::new(), enable);
    program.link(&[]).map(drop)
}

fn link_edited(edits: Edits<'_>) -> Result<(), LinkError> {
    let linked = program(&task()).link(&bindings()).unwrap();
    rebuild(linked.words(), edits).link(&[EVERYWHERE]).map(drop)
}

#[test]
fn buffers_are_bound_once_aligned_and_large_enough() {
    let [a, b, c] = bindings();
    let (iova, len) = (Iova(u32::MAX - 4095), 4097);
    let beyond = Binding { iova, len, ..a };
    let odd = Binding { iova: Iova(8), ..a };
    let short = |binding: Binding| Binding {
        len: binding.len - 1,
        ..binding
    };
    let at = |offset| {
        let mut task = task();
        task.b.offset = offset;
        program(&task)
    };
    let refused = |offset, bindings: &[Binding], expected| {
        let error = at(offset).link(bindings).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    };
    refused(0, &[a, b], "buffer 12 is used by word");
    refused(0, &[a, b, c, a], "buffer 10 is bound twice");
    for (bindings, expected) in [
        ([beyond, b, c], "buffer 10 at 0xfffff000 with 4097 bytes"),
        ([short(a), b, c], "feature fetch: 0x00000000..0x1000 is not"),
        ([a, short(b), c], "weight fetch: 0x00001000..0x2000 is not"),
        ([a, b, short(c)], "DPU writer: 0x00010000..0x14000 is not"),
        ([odd, b, c], "FEATURE_DATA_ADDR is 0x00000008"),
    ] {
        refused(0, &bindings, expected);
    }
    refused(16, &[a, b, c], "weight fetch: 0x00001010..0x2010 is not");
    let beyond_buffer = at(4096).link(&[a, b, c]);
    let error = beyond_buffer.unwrap_err().to_string();
    assert!(
        error.contains("points 4096 bytes into buffer 11"),
        "{error}"
    );
    // A buffer may lie at the end of the address space.
    let last = Binding {
        len: 4096,
        ..beyond
    };
    assert!(at(0).link(&[last, b, c]).is_ok());
}

/// A program must write every register that determines addresses.
#[test]
fn nothing_that_matters_is_left_to_earlier_programs() {
    for offset in [
        cna::FeatureDataAddr::OFFSET,
        cna::DmaCon2::OFFSET,
        cna::DcompCtrl::OFFSET,
        cna::CbufCon0::OFFSET,
        cna::WeightSize0::OFFSET,
        core::MiscCfg::OFFSET,
        dpu::DstBaseAddr::OFFSET,
        dpu::SurfaceAdd::OFFSET,
        dpu::BsOwCfg::OFFSET,
        dpu::FeatureModeCfg::OFFSET,
    ] {
        let result = link_edited(&[(offset, None)]);
        assert!(
            matches!(result, Err(LinkError::Unwritten(_) | LinkError::Extent(_))),
            "{offset:#x}: {result:?}"
        );
    }
    // Registers that only change results need not be written.
    let result = link_edited(&[(dpu::OutCvtShift::OFFSET, None)]);
    assert_eq!(result, Ok(()));
}

#[test]
fn values_go_to_the_register_group_that_runs() {
    let group = LinkError::RegisterGroup(Block::Dpu);
    for pointer in [Some(0xf), None] {
        assert_eq!(link_edited(&[(dpu::SPointer::OFFSET, pointer)]), Err(group));
    }
    // The kernel writes the S_POINTER of CNA, with the number of the core.
    let kernels = linked(&[write(cna::SPointer::OFFSET, 0xe)], EnableMask::empty());
    assert_eq!(kernels, Err(LinkError::RegisterGroup(Block::Cna)));
    let late = [
        write(dpu::BsCfg::OFFSET, 0),
        write(dpu::SPointer::OFFSET, 0xe),
    ];
    assert_eq!(linked(&late, EnableMask::DPU), Err(group));
}

#[test]
fn registers_of_the_kernel_and_unknown_bits_are_refused() {
    for register in [
        pc::TaskDmaBaseAddr::OFFSET,
        pc::BaseAddress::OFFSET,
        cna::OperationEnable::OFFSET,
    ] {
        assert!(matches!(
            linked(&[write(register, 0)], EnableMask::empty()),
            Err(LinkError::ForeignRegister { word: 0, .. })
        ));
    }
    let stray = link_edited(&[(dpu::DstSurfStride::OFFSET, Some(64 << 4 | 1))]);
    assert!(matches!(stray, Err(LinkError::UnknownWord { .. })));
    let unknown = link_edited(&[(cna::ConvCon1::OFFSET, Some(1 << 16))]);
    assert!(matches!(
        unknown,
        Err(LinkError::Extent(ExtentError::UnknownMode { .. }))
    ));
    // CORE is set to a direct convolution, the DPU to a depthwise one.
    let depthwise = link_edited(&[(dpu::FeatureModeCfg::OFFSET, Some(0x1fc))]);
    assert!(matches!(
        depthwise,
        Err(LinkError::Extent(ExtentError::Disagreement { .. }))
    ));
    let blocks = linked(&[], EnableMask::from_bits_retain(0x80));
    assert!(matches!(
        blocks,
        Err(LinkError::Extent(ExtentError::UnknownBlocks(0x80)))
    ));
}

/// The last atom shows that a job ran, so a task must have certainly written it.
#[test]
fn the_last_atom_is_one_that_is_surely_written() {
    let words = program(&task()).link(&bindings()).unwrap().words().to_vec();
    let last = |edits: &[(u16, u32)]| {
        let edits: Vec<_> = edits.iter().map(|&(at, to)| (at, Some(to))).collect();
        let edited = rebuild(&words, &edits).link(&[EVERYWHERE]);
        edited.unwrap().last_written_atom()
    };
    // 16 surfaces of 64 atoms.
    assert_eq!(last(&[]), Some(Iova(0x10000 + 16 * (16 * 64 - 1))));
    // 36 channels: the last one is in the first atom of the second group, and
    // whether the rest of the group is written is not known.
    let partial = [(0x3018, 35), (0x403c, 35), (0x4058, 35)];
    assert_eq!(last(&partial), Some(Iova(0x10000 + 16 * (9 * 64 - 1))));
    // Half of the atoms of each group: the fourth is the last.
    assert_eq!(
        last(&[(0x4050, 0x36e)]),
        Some(Iova(0x10000 + 16 * (12 * 64 - 1)))
    );
    // Shapes that disagree, and output that does not go to memory.
    assert_eq!(last(&[(0x405c, 31 << 16 | 1)]), None);
    assert_eq!(last(&[(0x400c, 0x1e0)]), None);
    // int16 without the sum of inputs stops after 16 channels.
    let int16 = [
        (0x100c, 0x90),
        (0x3010, 0x100),
        (0x4010, 0x8400_0001),
        (0x4050, 0x36e),
    ];
    assert_eq!(last(&int16), None);
}

fn single_task(sample: &&Sample) -> bool {
    sample.words.iter().filter(|word| word.is_enable()).count() == 1
}

/// Known programs that write every register that matters can be linked. Those of
/// happyme and the look-up programs leave registers unwritten.
#[test]
fn complete_known_programs_link() {
    let (mut linked, mut left) = (0, 0);
    for sample in families::all().iter().filter(single_task) {
        match rebuild(&sample.words, &[]).link(&[EVERYWHERE]) {
            Ok(_) => linked += 1,
            Err(LinkError::Unwritten(_) | LinkError::RegisterGroup(_)) => {
                assert!(
                    sample.name.contains("happyme") || sample.name.contains("sigmoid"),
                    "{}",
                    sample.name
                );
                left += 1;
            }
            Err(error) => panic!("{}: {error}", sample.name),
        }
    }
    assert!(linked > 100 && left < linked, "{linked} linked, {left} not");
}

proptest! {
    #![proptest_config(test_support::cases(256))]

    /// A program that links stays within its buffers, and its last atom is within its
    /// output.
    #[test]
    fn linked_programs_are_proven(
        sample in any::<prop::sample::Index>(),
        changes in prop::collection::vec(any_word(), 0..6),
        start in 0u32..0x4000_0000,
        len in 0x8000_0000u32..,
    ) {
        let mut words = sample.get(&KNOWN).words.clone();
        for change in changes {
            for word in &mut words {
                if word.offset() == change.offset() && word.target() == change.target() {
                    *word = change;
                }
            }
        }
        let binding = Binding { id: BufferId(0), iova: Iova(start), len: len - start };
        if let Ok(linked) = rebuild(&words, &[]).link(&[binding]) {
            for extent in linked.extents() {
                prop_assert!(extent.within(binding.iova, binding.len));
            }
            if let Some(last) = linked.last_written_atom() {
                let last = u64::from(last.0);
                let writes = linked.extents().iter().filter(|e| e.engine.direction() == Direction::Write);
                prop_assert!(writes.clone().any(|e| e.start <= last && last + 16 <= e.end));
            }
        }
    }
}
