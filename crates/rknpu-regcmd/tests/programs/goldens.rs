// SPDX-License-Identifier: MIT OR Apache-2.0
//! Golden programs: the words of matmuls, hex and meaning side by side, under
//! `goldens/`. A difference means that a program changed, so the test prints it in
//! full. `BLESS=1` accepts the new programs.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use rknpu_regcmd::{MatmulForm, TaskType, assemble, disassemble};

use crate::helpers::{CHIP, bind, lengths, task};

const BLESS: &str = "BLESS";

/// Shapes by type: the smallest, a common one, one whose lines end within a CBUF
/// entry where the type allows it, one of large K, one of large N.
fn shapes(ty: TaskType) -> [(u32, u32, u32); 5] {
    match ty {
        TaskType::Int8ToInt32 => [
            (4, 32, 32),
            (64, 64, 64),
            (144, 224, 96),
            (4, 10240, 32),
            (32, 512, 8192),
        ],
        TaskType::Fp16ToFp32 | TaskType::Fp16ToFp16 => [
            (4, 32, 16),
            (64, 64, 64),
            (144, 224, 48),
            (4, 9216, 16),
            (32, 512, 8192),
        ],
        TaskType::Int4ToInt16 => [
            (4, 32, 64),
            (64, 64, 64),
            (288, 160, 128),
            (4, 480, 64),
            (32, 512, 8192),
        ],
    }
}

/// The program with A at 16 MiB, B at 1 GiB, C at 2 GiB.
fn golden(ty: TaskType, (m, k, n): (u32, u32, u32), form: MatmulForm) -> String {
    let task = task(ty, m, k, n);
    let program = task.program_in(form, &CHIP).unwrap();
    let bindings = bind([0x0100_0000, 0x4000_0000, 0x8000_0000], lengths(&task));
    let linked = program.link(&bindings).unwrap();
    let mut text = format!("# {ty:?}, M={m} K={k} N={n}, form {form:?}\n");
    for extent in linked.extents() {
        writeln!(text, "# {extent}").unwrap();
    }
    let last = linked.last_written_atom().unwrap();
    writeln!(text, "# last atom written: {last}").unwrap();
    text += &disassemble(linked.words());
    // The text, with its comments, is assembler text.
    assert_eq!(assemble(&text).unwrap(), linked.words());
    text
}

#[test]
fn programs_are_as_they_were() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens");
    let mut differences = String::new();
    // Only one experiment of `npu-probe first` uses form A: one type shows it.
    let form_b = TaskType::ALL.map(|ty| (ty, MatmulForm::B, "b"));
    let all = [(TaskType::Int8ToInt32, MatmulForm::A, "a")].into_iter();
    for (ty, form, suffix) in all.chain(form_b) {
        let mut text = String::new();
        // One shape shows what form B adds.
        let count = if form == MatmulForm::A { 5 } else { 2 };
        for shape in &shapes(ty)[..count] {
            if !text.is_empty() {
                text.push('\n');
            }
            text += &golden(ty, *shape, form);
        }
        let (operand, result) = (ty.operand(), ty.result());
        let file = directory.join(format!("matmul_{operand}_{result}_form_{suffix}.txt"));
        compare(&file, &text, &mut differences);
    }
    assert!(
        differences.is_empty(),
        "programs changed; if they should have, set BLESS=1 and read the diff\n{differences}"
    );
}

/// Notes every line of `file` that differs from `text`, or writes the file.
fn compare(file: &PathBuf, text: &str, differences: &mut String) {
    if std::env::var_os(BLESS).is_some_and(|value| value == "1") {
        std::fs::write(file, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(file).unwrap_or_default();
    if golden == text {
        return;
    }
    writeln!(differences, "{}:", file.display()).unwrap();
    let (old, new): (Vec<&str>, Vec<&str>) = (golden.lines().collect(), text.lines().collect());
    for line in 0..old.len().max(new.len()) {
        let [old, new] = [&old, &new].map(|text| text.get(line).copied().unwrap_or_default());
        if old != new {
            writeln!(differences, "{:5} -{old}\n      +{new}", line + 1).unwrap();
        }
    }
}
