// SPDX-License-Identifier: MIT OR Apache-2.0
//! Register programs and register accesses on a core, at every level.
//!
//! The bytes are up to four operations on a core: programs of the known families with
//! a few words changed, programs of random words, register writes by the CPU, resets.
//! These must hold:
//!
//! - nothing panics; a kick moves a bounded number of bytes and ends within the
//!   modelled limit, or hangs;
//! - a second run gives the same registers, diagnoses, accesses and memory;
//! - `Silent` differs only in the diagnoses, and what `Strict` completes equals
//!   `Faithful`, with notes only;
//! - a refused access is a DMA error, and accesses lie within `extents`;
//! - afterwards a linked matmul is right.

use arbitrary::{Result, Unstructured};
use rknpu_chip::{Contested, Effect, Level};
use rknpu_regcmd::{
    Binding, BufferId, ChipProfile, Iova, MatmulTask, ProgramOptions, TaskType, Word, extents,
    tasks,
};

use crate::board::{Accesses, FuzzBoard, KickRecord, ObjectMemory, TASK_LIMIT, assert_within};
use crate::words;
use families::bytes;
use families::{A, B, C, D};

/// Addresses of buffer objects: those of the families, that of a file's first
/// object, and the very end of all addresses.
const PLACES: [u32; 6] = [0, A, B, C, D, u32::MAX - OBJECT_BYTES as u32 + 1];
const OBJECT_BYTES: usize = 64 << 10;
/// Address of programs: the tail of the first object, so that an output can
/// overwrite the program that writes it.
const PROGRAM: u32 = (OBJECT_BYTES - PROGRAM_BYTES) as u32;
const PROGRAM_BYTES: usize = 16 << 10;
/// Most operations of one input.
const OPERATIONS_MAX: u8 = 4;

/// Bytes that a kick may move. The modelled DMA moves 225 kB within the time
/// limit, and the model may read some data more than once. The bound catches
/// work that is not accounted for at all.
const TRAFFIC_MAX: u64 = 4 << 20;

enum Operation {
    Run {
        words: Vec<Word>,
        core: u32,
        tasks: u32,
        /// Whether the core is reset after a hang, as the driver does.
        reset: bool,
    },
    Write {
        offset: u32,
        value: u32,
    },
    Reset,
}

fn operation(u: &mut Unstructured<'_>) -> Result<Operation> {
    Ok(match u.int_in_range(0..=7)? {
        0 => Operation::Write {
            offset: if u.arbitrary()? {
                words::register(u)?.offset.into()
            } else {
                u.int_in_range(0..=0x1_0000)?
            },
            value: words::value(u)?,
        },
        1 => Operation::Reset,
        _ => Operation::Run {
            core: u.int_in_range(0..=2)?,
            tasks: if u.ratio(1, 4)? {
                u.int_in_range(0..=0xfff)?
            } else {
                1
            },
            reset: u.ratio(7, 8)?,
            words: words::program(u)?,
        },
    })
}

/// Runs programs on a core. Panics if work is not bounded, a second result
/// differs, an access leaves the extents, or the core is wrong afterwards.
pub fn pc_stream(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(input) = parse(&mut u) else {
        return;
    };
    let (operations, level) = (&input.operations, input.level);
    let (faithful, memory) = perform(&input, Level::Faithful);
    let (other, other_memory) = perform(&input, level);
    let mut same = true;
    for (one, two) in faithful.iter().zip(&other) {
        same = compare(one, two, level);
        if !same {
            break;
        }
    }
    if same {
        assert!(memory == other_memory, "memory differs at {level:?}");
    }
    if let Some(Operation::Run {
        words, tasks: 1, ..
    }) = operations.first()
        && let Some(task) = tasks(words).next()
        && let Ok(ranges) = extents(&task.regs, task.enable)
    {
        // Of a core's first program the registers are known.
        assert_within(&faithful[0].1, &ranges);
    }
}

/// The decoded input.
struct Input {
    operations: Vec<Operation>,
    /// The level of the second run.
    level: Level,
    contested: Contested,
    /// Seed of the contents of memory.
    seed: u8,
}

fn parse(u: &mut Unstructured<'_>) -> Result<Input> {
    let level = *u.choose(&[Level::Faithful, Level::Silent, Level::Strict])?;
    let seed = u.arbitrary()?;
    let contested = words::contested(u)?;
    let count = u.int_in_range(1..=OPERATIONS_MAX)?;
    let operations = (0..count).map(|_| operation(u)).collect::<Result<_>>()?;
    Ok(Input {
        operations,
        level,
        contested,
        seed,
    })
}

/// Result and accesses of a kick.
type Kicked = (KickRecord, Accesses);

fn perform(input: &Input, level: Level) -> (Vec<Kicked>, Vec<Vec<u8>>) {
    let mut board = FuzzBoard::new(level, input.contested);
    let mut memory = ObjectMemory::new(&PLACES, OBJECT_BYTES, input.seed);
    let mut kicks: Vec<Kicked> = Vec::new();
    for operation in &input.operations {
        match operation {
            Operation::Run {
                words,
                core,
                tasks,
                reset,
            } => {
                let mut program = bytes(words);
                program.truncate(PROGRAM_BYTES);
                memory.place(PROGRAM, &program);
                let outcome = board.kick(&mut memory, *core, PROGRAM, program.len() / 8, *tasks);
                let (accesses, refused) = memory.take_accesses();
                check(&outcome, &accesses, refused);
                if *reset && !outcome.completed {
                    board.reset();
                }
                kicks.push((outcome, accesses));
            }
            Operation::Write { offset, value } => {
                board.write(*offset, *value, &mut memory);
            }
            Operation::Reset => board.reset(),
        }
    }
    // A core that hung starts nothing more. A write may also start a program.
    let ended_well = kicks.last().is_some_and(|(last, _)| last.completed);
    if !(ended_well && matches!(input.operations.last(), Some(Operation::Run { .. }))) {
        board.reset();
    }
    // On one side of a contested fact not even a reset helps.
    let mut sides = input.contested.sides();
    if sides.any(|side| side == ("wedge", "until-reset")) {
        still_multiplies(&mut board);
    }
    (kicks, memory.contents())
}

fn check(outcome: &KickRecord, accesses: &Accesses, refused: u32) {
    let KickRecord {
        completed,
        dma_error,
        diagnosis,
        device_time,
        ..
    } = outcome;
    assert!(
        refused == 0 || (!completed && *dma_error),
        "a refused access raises no DMA error: {diagnosis:?}"
    );
    assert!(!completed || *device_time <= TASK_LIMIT, "{device_time:?}");
    let hangs = diagnosis.iter().any(|d| d.effect == Effect::Hang);
    assert!(!(*completed && hangs), "completes despite {diagnosis:?}");
    let bytes: u64 = accesses.values().map(|touched| touched.bytes).sum();
    assert!(
        bytes <= TRAFFIC_MAX,
        "{bytes} bytes moved in {device_time:?}: {accesses:?}"
    );
}

/// Compares a kick at two levels. Returns false if later results may differ.
fn compare(faithful: &Kicked, other: &Kicked, level: Level) -> bool {
    let silenced = (
        KickRecord {
            diagnosis: Vec::new(),
            ..faithful.0.clone()
        },
        faithful.1.clone(),
    );
    match level {
        Level::Faithful => assert_eq!(faithful, other, "a second run differs"),
        Level::Silent => assert_eq!(&silenced, other, "Silent changes more than the diagnosis"),
        Level::Strict if other.0.completed => {
            assert_eq!(
                faithful, other,
                "Strict completes with other results than Faithful"
            );
            let notes = other.0.diagnosis.iter().all(|d| d.effect == Effect::Note);
            assert!(notes, "Strict completes despite {:?}", other.0.diagnosis);
        }
        Level::Strict => return faithful == other,
    }
    true
}

/// Checks that a linked matmul depends on nothing that earlier programs left.
fn still_multiplies(board: &mut FuzzBoard) {
    const PAGE: u32 = 4096;
    let (a, b, c) = (BufferId(0), BufferId(1), BufferId(2));
    let task = MatmulTask {
        ty: TaskType::Int8ToInt32,
        m: 4,
        k: 32,
        n: 32,
        a: a.at(0),
        b: b.at(0),
        c: c.at(0),
    };
    let bind = |id, page| Binding {
        id,
        iova: Iova(page * PAGE),
        len: PAGE,
    };
    // Runs on each side of the contested facts about matmuls.
    let proven = ProgramOptions {
        spare_data_bank: true,
        ..ProgramOptions::default()
    };
    let program = task.program_with(&proven, &ChipProfile::RK3588).unwrap();
    let linked = program.link(&[bind(a, 0), bind(b, 1), bind(c, 2)]).unwrap();
    let mut memory = ObjectMemory::new(&[0], 4 * PAGE as usize, 0);
    memory.place(0, &vec![3; task.a_bytes() as usize]);
    memory.place(PAGE, &vec![0xfe; task.b_bytes() as usize]);
    memory.place(3 * PAGE, &bytes(linked.words()));
    let outcome = board.kick(&mut memory, 0, 3 * PAGE, linked.words().len(), 1);
    assert!(outcome.completed, "{:?}", outcome.diagnosis);
    // 32 products of 3 and -2.
    let expected = (-192i32)
        .to_le_bytes()
        .repeat((task.c_bytes() / 4) as usize);
    assert!(
        memory.bytes(2 * PAGE, expected.len()) == expected,
        "wrong matmul result"
    );
}
