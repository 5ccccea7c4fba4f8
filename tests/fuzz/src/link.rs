// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with symbolic addresses: a linked program stays within its buffers,
//! whatever a core held before.
//!
//! The bytes are matmuls of any size, placed anywhere, and changed programs of the
//! known families. Legal matmuls in large enough buffers link, get no warning and run
//! without a diagnosis. Every linked program stays within its extents on a core with
//! any old register values.

use arbitrary::{Result, Unstructured};
use rknpu_chip::{Bus, Contested, Direction, Fault, Level, Master};
use rknpu_regcmd::{
    Binding, Block, BufferId, ChipProfile, EnableMask, Extent, Iova, Item, LinkedProgram,
    LintContext, MatmulForm, MatmulTask, Program, Severity, TaskType, decode, lint,
};

use crate::board::{Accesses, FuzzBoard, assert_within, note};
use crate::words;
use families::bytes;
use families::{A, B, C, D};

/// Page size of the IOMMU: buffer objects begin at its multiples.
const PAGE: u32 = 4096;
/// Largest M, K and N that are tried.
const SIZE_MAX: u32 = 20_000;
/// Most register writes before a program.
const LEFTOVERS_MAX: u8 = 16;

/// Links matmuls and changed programs of the known families to buffers of any
/// place and size, and runs the linked programs.
pub fn link(data: &[u8]) {
    let mut u = Unstructured::new(data);
    if u.arbitrary().unwrap_or(true) {
        let _ = matmul(&mut u);
    } else {
        let _ = replayed(&mut u);
    }
}

/// Checks a matmul: its own rules say whether it is legal and whether it links.
fn matmul(u: &mut Unstructured<'_>) -> Result<()> {
    let ids = [BufferId(0), BufferId(1), BufferId(u.int_in_range(0..=2)?)];
    let task = MatmulTask {
        ty: *u.choose(&TaskType::ALL)?,
        m: size(u, 4)?,
        k: size(u, 32)?,
        n: size(u, 64)?,
        a: ids[0].at(offset(u)?),
        b: ids[1].at(offset(u)?),
        c: ids[2].at(offset(u)?),
    };
    let form = *u.choose(&[MatmulForm::A, MatmulForm::B])?;
    let legal = task.check(&ChipProfile::RK3588);
    let program = task.program_in(form, &ChipProfile::RK3588);
    assert_eq!(legal.is_ok(), program.is_ok(), "{legal:?} {program:?}");
    let Ok(program) = program else {
        return Ok(());
    };
    let sizes = [task.a_bytes(), task.b_bytes(), task.c_bytes()];
    let mut bindings = Vec::new();
    for ((id, size), at) in ids.into_iter().zip(sizes).zip([task.a, task.b, task.c]) {
        let exact = size + u64::from(at.offset);
        bindings.push(Binding {
            id,
            iova: Iova(page(u)?),
            len: if u.ratio(7, 8)? {
                u32::try_from(exact).unwrap_or(u32::MAX)
            } else {
                words::value(u)?
            },
        });
    }
    let roomy = |binding: &Binding, bytes: u64, offset: u32| {
        u64::from(binding.len) >= bytes + u64::from(offset)
            && u64::from(binding.iova.0) + u64::from(binding.len) <= Iova::END
    };
    let all_fit = bindings
        .iter()
        .zip(sizes)
        .zip([task.a, task.b, task.c])
        .all(|((binding, bytes), at)| roomy(binding, bytes, at.offset));
    let distinct = ids[2].0 == 2;
    let linked = program.link(&bindings);
    assert!(
        linked.is_ok() || !all_fit || !distinct,
        "a legal matmul in large enough buffers does not link: {linked:?}"
    );
    if let Ok(linked) = linked {
        for finding in lint(linked.words(), &LintContext::default()) {
            assert!(finding.severity < Severity::Warning, "{finding}");
        }
        run(u, &linked, &bindings, true)?;
    }
    Ok(())
}

/// A size, mostly legal.
fn size(u: &mut Unstructured<'_>, multiple: u32) -> Result<u32> {
    Ok(if u.ratio(7, 8)? {
        u32::from(u.arbitrary::<u8>()?) * multiple
    } else {
        u.int_in_range(0..=SIZE_MAX)?
    })
}

fn offset(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(match u.int_in_range(0..=3)? {
        0 | 1 => 0,
        2 => u32::from(u.arbitrary::<u8>()?) * 16,
        _ => words::value(u)?,
    })
}

fn page(u: &mut Unstructured<'_>) -> Result<u32> {
    Ok(u32::from(u.arbitrary::<u16>()?) * PAGE)
}

/// Links a changed program of a known family, with unchanged addresses.
fn replayed(u: &mut Unstructured<'_>) -> Result<()> {
    let words = words::program(u)?;
    let mut written = Vec::new();
    let mut enable = EnableMask::empty();
    for item in decode(&words) {
        match item {
            Item::Write { register, .. } if register.block != Block::Pc => {
                written.push(item.word());
            }
            Item::Enable(mask) => enable = mask,
            _ => {}
        }
    }
    let program = Program::of_words(written, Vec::new(), enable);
    let mut bindings = Vec::new();
    for (id, place) in [A, B, C, D, 0].into_iter().enumerate() {
        bindings.push(Binding {
            id: BufferId(id as u32),
            iova: Iova(place),
            len: match u.int_in_range(0..=3)? {
                0 => u.int_in_range(0..=16 * PAGE)?,
                _ => 256 * PAGE,
            },
        });
    }
    if let Ok(linked) = program.link(&bindings) {
        run(u, &linked, &bindings, false)?;
    }
    Ok(())
}

/// Runs a linked program on a core that held anything before.
fn run(
    u: &mut Unstructured<'_>,
    linked: &LinkedProgram,
    bindings: &[Binding],
    good: bool,
) -> Result<()> {
    let words = linked.words();
    assert!(words.len().is_multiple_of(2));
    let bound = |extent: &Extent| bindings.iter().any(|b| extent.within(b.iova, b.len));
    assert!(linked.extents().iter().all(bound));
    if let Some(Iova(last)) = linked.last_written_atom() {
        let (start, end) = (u64::from(last), u64::from(last) + 16);
        assert!(
            linked.extents().iter().any(|extent| {
                extent.engine.direction() == Direction::Write
                    && extent.start <= start
                    && end <= extent.end
            }),
            "the last atom is at {last:#x}, of {:x?}",
            linked.extents()
        );
    }
    let contested = words::contested(u)?;
    // A legal program may break a rule on another side of a fact.
    let good = good && contested == Contested::default();
    let mut board = FuzzBoard::new(Level::Faithful, contested);
    let mut bus = Zeros {
        program: bytes(words),
        accesses: Accesses::new(),
    };
    for _ in 0..u.int_in_range(0..=LEFTOVERS_MAX)? {
        let register = words::register(u)?;
        // Programs leave no values in the driver's registers.
        if register.block != Block::Pc && !register.is_pointer() {
            board.write(register.offset.into(), words::value(u)?, &mut bus);
        }
    }
    let outcome = board.kick(&mut bus, 0, PROGRAM, words.len(), 1);
    assert_within(&bus.accesses, linked.extents());
    let too_long = outcome.diagnosis.iter().any(|d| d.trap == TOO_LONG);
    assert!(
        !good || too_long || (outcome.completed && outcome.diagnosis.is_empty()),
        "{:?}",
        outcome.diagnosis
    );
    Ok(())
}

const PROGRAM: u32 = 0xf000_0000;
/// The diagnosis of a task that is too long to compute.
const TOO_LONG: &str = "F02-too-long";

/// A bus with the program and zeros everywhere else.
struct Zeros {
    program: Vec<u8>,
    accesses: Accesses,
}

impl Bus for Zeros {
    fn read(
        &mut self,
        master: Master,
        iova: u32,
        out: &mut [u8],
    ) -> std::result::Result<(), Fault> {
        if master == Master::Fetch {
            let fault = Fault {
                address: iova.into(),
                direction: Direction::Read,
                master,
            };
            let at = iova.checked_sub(PROGRAM).ok_or(fault)? as usize;
            out.copy_from_slice(self.program.get(at..at + out.len()).ok_or(fault)?);
            return Ok(());
        }
        note(
            &mut self.accesses,
            (master, Direction::Read),
            iova,
            out.len(),
        );
        out.fill(0);
        Ok(())
    }

    fn write(&mut self, master: Master, iova: u32, data: &[u8]) -> std::result::Result<(), Fault> {
        let write = (master, Direction::Write);
        note(&mut self.accesses, write, iova, data.len());
        Ok(())
    }
}
