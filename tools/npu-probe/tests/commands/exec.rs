// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe exec` with real programs: matmuls of 64 x 64 matrices, written to
//! files, run by the binary, compared with a loop over the elements.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use crate::common::{command, has, stderr, stdout};
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
        let element = |seed: usize, index: usize| {
            let mixed = (index + 1)
                .wrapping_mul(2654435761)
                .wrapping_mul(2 * seed + 1);
            (mixed >> 16) as u8 as i8
        };
        let a = |m: usize, k: usize| element(1, m * N + k);
        let b = |n: usize, k: usize| element(2, n * N + k);
        let (mut a_bytes, mut b_bytes) = (vec![0; N * N], vec![0; N * N]);
        let mut expected = Vec::new();
        for row in 0..N {
            for k in 0..N {
                let cube = (k / ATOM_INT8 * N + row) * ATOM_INT8 + k % ATOM_INT8;
                a_bytes[cube] = a(row, k) as u8;
                let block = row / GROUP * (N / GROUP) + k / GROUP;
                b_bytes[(block * GROUP + row % GROUP) * GROUP + k % GROUP] = b(row, k) as u8;
            }
            for column in 0..N {
                let products = (0..N).map(|k| i32::from(a(row, k)) * i32::from(b(column, k)));
                expected.push(products.sum());
            }
        }
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

    /// Runs `npu-probe exec` on `program` with A, B and `more`.
    fn exec_inputs(&self, program: &str, more: &[&str]) -> Output {
        let [a, b, _] = self.places;
        let mut command = probe();
        command.args(["exec", &self.name(program)]);
        command.args(["--bo", &format!("{a:#x}:{}", self.name("a.bin"))]);
        command.args(["--bo", &format!("{b}:{}", self.name("b.bin"))]);
        command.args(more).output().unwrap()
    }

    /// Runs `npu-probe exec` on `program` with A, B and C, and `more`.
    fn exec(&self, program: &str, more: &[&str]) -> Output {
        let c = format!("{:#x}:{}:{}", self.places[2], N * N * 4, self.name("c.bin"));
        self.exec_inputs(program, &[&["--out", &c], more].concat())
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

/// The tool; the environment selects an unusable device, which `exec` must
/// ignore.
fn probe() -> std::process::Command {
    let mut command = command(&[]);
    command.env("ROCKET_DEVICE", "/nonexistent/accel0");
    command
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
fn succeeded(output: &Output) -> String {
    failed(output, 0, "");
    stdout(output)
}

#[track_caller]
fn report(output: &Output) -> Value {
    serde_json::from_str(&succeeded(output)).unwrap()
}

#[track_caller]
fn failed(output: &Output, code: i32, with: &str) {
    let err = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{}{err}", stdout(output));
    assert!(err.contains(with), "no `{with}` in: {err}");
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
        let text = succeeded(&matmul.exec(form, &[]));
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
    let strict = "model:level=strict";
    let more = ["--core", "2", "--device", strict, "--at", "0x20000000"];
    let text = succeeded(&matmul.exec("program", &more));
    has(&text, &["core 2", "at 0x20000000"]);
    matmul.check();
}

#[test]
fn what_is_touched_is_told() {
    let matmul = Matmul::new(APART);
    let report = report(&matmul.exec("program", &["--trace", "--json"]));
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
    let text = succeeded(&matmul.exec("program", &["--trace"]));
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
        let bo = format!("{}:{}{rw}", APART[2], matmul.name("c"));
        // A part of it is also written to a separate file.
        let part = format!("{}:16:{}", APART[2] + 16, matmul.name("part"));
        matmul.exec_inputs("program", &["--bo", &bo, "--out", &part])
    };
    succeeded(&run(""));
    assert!(fs::read(&c).unwrap().iter().all(|&byte| byte == 0x55));
    succeeded(&run(":rw"));
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
    let output = matmul.exec("fault", &[]);
    failed(&output, 4, "did not complete: stopped by an IOMMU fault");
    let text = stdout(&output);
    let fault = "IOMMU fault: Write by DpuWrite at IOVA 0x90000000";
    has(&text, &[fault, "interrupts 0x02000 dma_write_error=1"]);
    // The output file is written all the same.
    assert_eq!(fs::read(matmul.path("c.bin")).unwrap(), vec![0; 4 * N * N]);

    // No block is started: no interrupt.
    let idle = [&matmul.words[..matmul.words.len() - 1], &[Word::NOP]].concat();
    matmul.save("idle", &idle);
    let output = matmul.exec("idle", &[]);
    failed(&output, 4, "did not complete: no completion interrupt");
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
    for [option, value, with] in crate::common::rows(WRONG_MEMORY) {
        let value = value.replace("FILE", &file).replace("EMPTY", &empty);
        let value = value.replace("FOLDER", folder);
        failed(&matmul.exec("program", &[option, &value]), 2, with);
    }
    let nowhere = "/nonexistent/accel0";
    let output = matmul.exec("program", &["--unsafe-device", nowhere]);
    failed(&output, 3, nowhere);
    let output = matmul.exec("nothing.hex", &[]);
    failed(&output, 2, "nothing.hex: No such file");
    let mut large = probe();
    large.arg("exec").arg(matmul.path("program"));
    let output = large.args(["--out", "0x0:0x80000000:x"]).output();
    let with = "the output for x has more than 0x7ffff000 bytes";
    failed(&output.unwrap(), 2, with);
    // An unwritable output is reported after the run.
    let out = ["--out", "0x0:16:/nonexistent/out"];
    let output = matmul.exec("program", &out);
    failed(&output, 5, "cannot write /nonexistent/out");
}

#[test]
fn a_driver_gets_a_changed_program() {
    let matmul = Matmul::new(APART);
    let on_model = ["--unsafe-device", "model", "--json"];
    let told = report(&matmul.exec("program", &on_model));
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
    let told = report(&matmul.exec("program", &on_model));
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
    let output = matmul.exec("unknown", &["--unsafe-device", "model"]);
    failed(
        &output,
        2,
        "the program cannot be changed to match: the memory accesses of task 0 are unknown",
    );

    // An address that no word writes.
    let mut without = matmul.words.clone();
    without.retain(|word| word.offset() != 0x1070);
    matmul.save("without", &without);
    let output = matmul.exec("without", &["--unsafe-device", "model"]);
    failed(&output, 2, "is not within one of the buffers");
    assert!(!matmul.path("c.bin").exists());

    // The driver kills a program that hangs, and reports it.
    let matmul = Matmul::new([0, 0x1000, 0x2000]);
    matmul.save("idle", &matmul.words[..matmul.words.len() - 1]);
    let output = matmul.exec("idle", &["--unsafe-device", "model:level=strict"]);
    failed(&output, 4, "the driver killed the job");
    assert!(stdout(&output).contains("event"), "{}", stdout(&output));
}
