// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe exec` with real programs: matmuls of 64 x 64 matrices, written to
//! files, run by the binary, compared with a loop over the elements.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{command, ends, has, json_of, rows};
use rknpu_regcmd::{
    Binding, BufferId, ChipProfile, Iova, MatmulTask, MatmulType, Word, disassemble,
};
use serde_json::{Value, json};

/// Rows, depth and columns.
const N: usize = 64;
/// Channels of one INT8 atom, and of one INT32 atom.
const ATOM_INT8: usize = 16;
const ATOM_INT32: usize = 4;
/// Kernels, and channels, of one block of INT8 weights.
const GROUP: usize = 32;
/// Addresses of a program: far apart, and not where a driver would place
/// buffers.
const APART: [u32; 3] = [0x0010_0000, 0x4000_0000, 0x8000_0000];

/// A directory with a matmul: matrices in the NPU's layouts, its program for
/// some addresses, and the expected C.
struct Matmul {
    directory: tempfile::TempDir,
    places: [u32; 3],
    words: Vec<Word>,
    expected: Vec<i32>,
}

impl Matmul {
    fn new(places: [u32; 3]) -> Self {
        let bytes = |factor: usize| -> Vec<u8> {
            let mixed = |index: usize| (index + 1).wrapping_mul(factor) >> 16;
            (0..N * N).map(|index| mixed(index) as u8).collect()
        };
        let (a_bytes, b_bytes) = (bytes(3 * 2_654_435_761), bytes(5 * 2_654_435_761));
        let a = |row: usize, k: usize| {
            let byte = a_bytes[(k / ATOM_INT8 * N + row) * ATOM_INT8 + k % ATOM_INT8];
            i32::from(byte.cast_signed())
        };
        let b = |row: usize, k: usize| {
            let block = row / GROUP * (N / GROUP) + k / GROUP;
            let byte = b_bytes[(block * GROUP + row % GROUP) * GROUP + k % GROUP];
            i32::from(byte.cast_signed())
        };
        let element = |at: usize| (0..N).map(|k| a(at / N, k) * b(at % N, k)).sum();
        let expected = (0..N * N).map(element).collect();
        let matmul = Self {
            directory: tempfile::tempdir().unwrap(),
            places,
            words: program(places),
            expected,
        };
        fs::write(matmul.path("a.bin"), a_bytes).unwrap();
        fs::write(matmul.path("b.bin"), b_bytes).unwrap();
        matmul.save("program", &matmul.words);
        matmul
    }

    /// Writes words as assembler text.
    fn save(&self, name: &str, words: &[Word]) {
        fs::write(self.path(name), disassemble(words)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path of a file, as text.
    fn name(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// `npu-probe exec` of `program` with A, B and `more`. The environment selects an unusable
    /// device, which `exec` must ignore.
    fn exec_inputs(&self, program: &str, more: &str) -> Command {
        let [program, a_file, b_file] = [program, "a.bin", "b.bin"].map(|name| self.name(name));
        let [a, b, _] = self.places;
        let inputs = format!("--bo {a:#x}:{a_file} --bo {b}:{b_file}");
        let mut command = command(&format!("exec {program} {inputs} {more}"));
        command.env("ROCKET_DEVICE", "/nonexistent/accel0");
        command
    }

    /// `npu-probe exec` of `program` with A, B and C, and `more`.
    fn exec(&self, program: &str, more: &str) -> Command {
        let (c, file) = (self.places[2], self.name("c.bin"));
        self.exec_inputs(
            program,
            &format!("--out {c:#x}:{}:{file} {more}", N * N * 4),
        )
    }

    /// The program with another value of a register.
    fn with(&self, target: u16, offset: u16, value: impl Fn(u32) -> u32) -> Vec<Word> {
        let changed = |word: &Word| match (word.target(), word.offset()) {
            place if place == (target, offset) => Word::new(target, offset, value(word.value())),
            _ => *word,
        };
        self.words.iter().map(changed).collect()
    }

    fn check(&self) {
        let bytes = fs::read(self.path("c.bin")).unwrap();
        for row in 0..N {
            for column in 0..N {
                let atom = (column / ATOM_INT32 * N + row) * ATOM_INT32 + column % ATOM_INT32;
                let element = i32::from_le_bytes(bytes[atom * 4..][..4].try_into().unwrap());
                assert_eq!(element, self.expected[row * N + column], "{row}, {column}");
            }
        }
        fs::remove_file(self.path("c.bin")).unwrap();
    }
}

fn program(places: [u32; 3]) -> Vec<Word> {
    let ids = [0, 1, 2].map(BufferId);
    let size = N as u32;
    let task = MatmulTask {
        ty: MatmulType::Int8ToInt32,
        m: size,
        k: size,
        n: size,
        a: ids[0].at(0),
        b: ids[1].at(0),
        c: ids[2].at(0),
    };
    let bindings = [0, 1, 2].map(|index| Binding {
        id: ids[index],
        iova: Iova(places[index]),
        len: size * size * 4,
    });
    let program = task.program(&ChipProfile::RK3588).unwrap();
    program.link(&bindings).unwrap().words().to_vec()
}

#[track_caller]
fn succeeded(mut command: Command) -> String {
    ends(&mut command, 0).0
}

/// The output of a command that must end with `code`, and with this error.
#[track_caller]
fn failed(mut command: Command, code: i32, with: &str) -> String {
    let (out, err) = ends(&mut command, code);
    has(&err, &[with]);
    out
}

#[test]
fn a_matmul_in_every_form_of_program() {
    let matmul = Matmul::new(APART);
    let words = matmul.words.iter().map(|word| word.bits());
    let hex: String = words
        .clone()
        .map(|word| format!("{word:#018x}\n"))
        .collect();
    fs::write(matmul.path("program.hex"), hex).unwrap();
    let binary: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    fs::write(matmul.path("program.bin"), binary).unwrap();
    for form in ["program", "program.hex", "program.bin"] {
        let text = succeeded(matmul.exec(form, ""));
        has(
            &text,
            &[
                "core 0 of the software model's chip",
                "126 words, at 0xfffff000",
                "interrupts 0x00100 dpu=1",
                "us of modelled device time",
                "completed",
            ],
        );
        assert!(!text.contains("event"), "{text}");
        matmul.check();
    }
    // The last core, another address, and the strictest level.
    let more = "--core 2 --device model:level=strict --at 0x20000000";
    let text = succeeded(matmul.exec("program", more));
    has(&text, &["core 2", "at 0x20000000"]);
    matmul.check();
}

#[test]
fn what_is_touched_is_told() {
    let matmul = Matmul::new(APART);
    let report = json_of(matmul.exec("program", "--trace"), 0);
    assert_eq!(report["completed"], true);
    assert_eq!(report["interrupts"], 0x100);
    assert!(report["modelled_ns"].as_u64().unwrap() > 0);
    assert_eq!(report["events"], json!([]));
    let [a, b, c] = APART.map(u64::from);
    let (one, four) = ((N * N) as u64, (4 * N * N) as u64);
    let touched = [
        ("Fetch", "Read", 0xffff_f000, 126 * 8),
        ("Feature", "Read", a, one),
        ("Weight", "Read", b, one),
        ("DpuWrite", "Write", c, four),
    ];
    let touched = touched.map(|(master, direction, start, bytes)| {
        json!({ "master": master, "direction": direction, "start": start, "end": start + bytes })
    });
    assert_eq!(report["accesses"], json!(touched));
    let text = succeeded(matmul.exec("program", "--trace"));
    let written = "DpuWrite  Write 0x80000000..0x80004000, 16384 bytes";
    has(&text, &[written]);
    matmul.check();
}

#[test]
fn a_file_is_written_back_where_that_is_asked_for() {
    let matmul = Matmul::new(APART);
    // C lies behind other bytes, in a file that ends within a page.
    let c = matmul.path("c");
    fs::write(&c, vec![0x55; 4 * N * N + 5]).unwrap();
    let run = |rw: &str| {
        let [c, part] = ["c", "part"].map(|name| matmul.name(name));
        let (at, part_at) = (APART[2], APART[2] + 16);
        // A part of it is also written to a separate file.
        let more = format!("--bo {at}:{c}{rw} --out {part_at}:16:{part}");
        matmul.exec_inputs("program", &more)
    };
    succeeded(run(""));
    assert!(fs::read(&c).unwrap().iter().all(|&byte| byte == 0x55));
    succeeded(run(":rw"));
    let bytes = fs::read(&c).unwrap();
    assert_eq!(bytes.len(), 4 * N * N + 5);
    assert_eq!(bytes[4 * N * N..], [0x55; 5]);
    assert_eq!(bytes[16..32], fs::read(matmul.path("part")).unwrap());
    fs::write(matmul.path("c.bin"), &bytes[..4 * N * N]).unwrap();
    matmul.check();
}

#[test]
fn programs_that_fail_are_told_apart() {
    let matmul = Matmul::new(APART);
    // The program writes C to unmapped memory.
    let elsewhere = matmul.with(0x1001, 0x4020, |_| 0x9000_0000);
    matmul.save("fault", &elsewhere);
    let stopped = "did not complete: stopped by an IOMMU fault";
    let text = failed(matmul.exec("fault", ""), 4, stopped);
    let fault = "IOMMU fault: Write by DpuWrite at IOVA 0x90000000";
    has(&text, &[fault, "interrupts 0x02000 dma_write_error=1"]);
    // The output file is written all the same.
    assert_eq!(fs::read(matmul.path("c.bin")).unwrap(), vec![0; 4 * N * N]);

    // No block is started: no interrupt.
    let idle = [&matmul.words[..matmul.words.len() - 1], &[Word::NOP]].concat();
    matmul.save("idle", &idle);
    let told = "did not complete: no completion interrupt";
    failed(matmul.exec("idle", ""), 4, told);
}

/// Options, their values, and the expected error.
const WRONG_MEMORY: &str = "\
--bo | 0x10:FILE | is not a multiple of 0x1000; the IOMMU maps whole pages
--bo | 0x100000:FILE | a.bin (0x100000..0x101000) overlap
--bo | 0x0:EMPTY | empty is empty
--bo | 0x0:/nonexistent/file | cannot read /nonexistent/file
--bo | 0x0:FOLDER | cannot read
--bo | 0x0 | expected the form IOVA:FILE
--out | 0xfffff000:0x2000:x | would end at 0x100001000, beyond the 4 GiB
--out | 0xff000:0x2000:x | is partly in
--out | 0x0:0x100000000:x | is not a number below 2^32
--at | 0x100000 | the program (0x100000..0x101000) overlap
--at | 0x8 | the address of the program, 0x8,
--at | -1 | unexpected argument
--core | 3 | no core 3: this chip has 3 cores
--device | /dev/accel/accel0 | --unsafe-device /dev/accel/accel0 to run on the device
--device | model:level=lax | does not accept `lax`
--unsafe-device | auto | needs the path of a device
";

#[test]
fn wrong_memory_is_refused() {
    let matmul = Matmul::new(APART);
    let (file, empty) = (matmul.name("a.bin"), matmul.name("empty"));
    fs::write(&empty, "").unwrap();
    let folder = matmul.directory.path().to_str().unwrap();
    for [option, value, with] in rows(WRONG_MEMORY) {
        let value = value.replace("FILE", &file).replace("EMPTY", &empty);
        let value = value.replace("FOLDER", folder);
        failed(
            matmul.exec("program", &format!("{option} {value}")),
            2,
            with,
        );
    }
    let nowhere = "/nonexistent/accel0";
    let on_nothing = matmul.exec("program", &format!("--unsafe-device {nowhere}"));
    failed(on_nothing, 3, nowhere);
    failed(
        matmul.exec("nothing.hex", ""),
        2,
        "nothing.hex: No such file",
    );
    let program = matmul.name("program");
    let large = command(&format!("exec {program} --out 0x0:0x80000000:x"));
    failed(large, 2, "the output for x has more than 0x7ffff000 bytes");
    // An unwritable output is reported after the run.
    let unwritable = matmul.exec("program", "--out 0x0:16:/nonexistent/out");
    failed(unwritable, 5, "cannot write /nonexistent/out");
}

#[test]
fn a_driver_gets_a_changed_program() {
    let matmul = Matmul::new(APART);
    let on_model = "--unsafe-device model";
    let told = json_of(matmul.exec("program", on_model), 0);
    assert_eq!(told["interrupts"], Value::Null);
    // Buffers by address, one after another: A, B, C, the program.
    let [a, b, c] = APART;
    let moved = [[a, 0], [b, 0x1000], [c, 0x2000], [0xffff_f000, 0x6000]];
    assert_eq!(told["moved"], json!(moved));
    let changed = told["changed_words"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| {
            let number = |name: &str| change[name].as_u64().unwrap();
            let word = matmul.words[number("word") as usize];
            assert_eq!(u64::from(word.value()), number("from"));
            (change["register"].as_str().unwrap(), number("to"))
        });
    let expected = [
        ("CNA.FEATURE_DATA_ADDR", 0),
        ("CNA.DCOMP_ADDR0", 0x1000),
        ("DPU.DST_BASE_ADDR", 0x2000),
    ];
    assert!(changed.eq(expected), "{told:#}");
    matmul.check();

    // If the kernel's addresses are the requested ones, nothing is changed, and
    // any program may run.
    let matmul = Matmul::new([0, 0x1000, 0x2000]);
    let told = json_of(matmul.exec("program", on_model), 0);
    assert_eq!(told["changed_words"], json!([]));
    matmul.check();
}

#[test]
fn a_driver_does_not_get_what_cannot_be_changed() {
    let matmul = Matmul::new(APART);
    // An input precision that no source describes, so the read range is
    // unknown.
    let unknown = matmul.with(0x0201, 0x100c, |value| value | 0x50);
    matmul.save("unknown", &unknown);
    let on_model = "--unsafe-device model";
    let told = "the program cannot be changed to match: the memory accesses of task 0 are unknown";
    failed(matmul.exec("unknown", on_model), 2, told);

    // An address that no word writes.
    let mut without = matmul.words.clone();
    without.retain(|word| word.offset() != 0x1070);
    matmul.save("without", &without);
    let told = "is not within one of the buffers";
    failed(matmul.exec("without", on_model), 2, told);
    assert!(!matmul.path("c.bin").exists());

    // The driver kills a program that hangs, and reports it.
    let matmul = Matmul::new([0, 0x1000, 0x2000]);
    matmul.save("idle", &matmul.words[..matmul.words.len() - 1]);
    let strict = matmul.exec("idle", "--unsafe-device model:level=strict");
    has(&failed(strict, 4, "the driver killed the job"), &["event"]);
}
