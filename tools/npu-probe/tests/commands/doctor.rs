// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe doctor` on directories that replace machines. `BLESS=1` accepts the
//! printed output as expected.

use std::fs;

use serde_json::Value;

use crate::common::{command, compare, has};
use crate::machine::{TestMachine, files, lists};

const MACHINES: &str = "board container disabled vendor rights rk3576 pc";

/// Directory of the cores that the driver has bound, and their device names.
const ROCKET: &str = "sys/bus/platform/drivers/rocket";
const CORES: [&str; 3] = ["fdab0000", "fdac0000", "fdad0000"];

/// Exit code and output.
fn doctor(machine: &TestMachine, options: &str) -> (Option<i32>, String) {
    let mut command = command(&format!("doctor {options} --root"));
    let output = command.arg(machine.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), text)
}

fn text(machine: &TestMachine, options: &str) -> String {
    doctor(machine, options).1
}

fn json(machine: &TestMachine) -> Value {
    serde_json::from_str(&text(machine, "--json")).unwrap()
}

fn rows(report: &Value, topic: &str) -> Vec<Value> {
    let rows = report["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["topic"] == topic).cloned().collect()
}

/// The first row of a topic, whose text contains all these parts.
#[track_caller]
fn row_with(machine: &TestMachine, topic: &str, state: &str, parts: &[&str]) -> String {
    let row = rows(&json(machine), topic).remove(0);
    assert_eq!(row["state"], state, "{row}");
    let row = row.to_string();
    has(&row, parts);
    row
}

#[test]
fn each_machine_is_told_what_it_lacks() {
    for name in MACHINES.split(' ') {
        let machine = TestMachine::new(name);
        let (code, text) = doctor(&machine, "");
        compare(&lists().join(format!("{name}.txt")), &text);
        let usable = text.contains("The NPU is usable");
        assert_eq!(code, Some(if usable { 0 } else { 3 }), "{name}");
        // JSON has the rows of the text.
        let report = json(&machine);
        assert_eq!(report["usable_node"].is_string(), usable, "{name}");
        for row in report["rows"].as_array().unwrap() {
            assert!(text.contains(row["found"].as_str().unwrap()), "{row}");
            assert_eq!(row["remedy"].is_string(), row["state"] != "ok", "{row}");
        }
    }
}

#[test]
fn a_paste_has_nothing_private() {
    let machine = TestMachine::new("board");
    let paste = text(&machine, "--paste");
    compare(&lists().join("board.paste.txt"), &paste);
    // A node with the user's group.
    machine.apply("file dev/accel/accel0 261:0 0660 1000 usable");
    for options in ["--paste", "--paste --json"] {
        let own = text(&machine, options);
        for word in [
            "lovelace",
            "lovelaces-board",
            "home",
            "5e51a1bee5",
            "de:ad",
            "1000.slice",
        ] {
            assert!(
                !own.contains(word) && !paste.contains(word),
                "{word}:\n{own}"
            );
        }
        assert!(own.contains("group 1000"), "{own}");
    }
    assert!(text(&machine, "").contains("group lovelace"));
}

#[test]
fn differences_from_the_board_are_told() {
    let table = fs::read_to_string(lists().join("differences.txt")).unwrap();
    for entry in table.split("\n= ").skip(1) {
        let (row, difference) = entry.split_once('\n').unwrap();
        let [topic, state, part] = row.split(" | ").collect::<Vec<_>>().try_into().unwrap();
        let machine = TestMachine::new("board");
        machine.apply(difference);
        let found = rows(&json(&machine), topic);
        let matches = |row: &Value| row["state"] == state && row.to_string().contains(part);
        assert!(found.iter().any(matches), "{difference}: {found:#?}");
    }
}

#[test]
fn a_variable_that_chooses_the_device_is_told() {
    let machine = TestMachine::new("board");
    assert!(rows(&json(&machine), "device choice").is_empty());
    let environment = machine.path().join("proc/self/environ");
    let before = fs::read(&environment).unwrap_or_default();
    fs::write(
        &environment,
        [&before[..], b"\0ROCKET_DEVICE=model\0"].concat(),
    )
    .unwrap();
    row_with(&machine, "device choice", "note", &["ROCKET_DEVICE=model"]);
}

/// Writes the driver's lines to the board's log, readable for the user.
fn log(machine: &TestMachine, cores: [(&str, usize); 3]) {
    let lines = cores.map(|(core, number)| {
        let told = format!("rocket {core}.npu: Rockchip NPU core {number} version: 1179210309");
        format!("| 6,400,7000,-;{told}\n")
    });
    machine.apply(&format!("text dev/kmsg\n{}", lines.concat()));
}

#[test]
fn cores_that_were_probed_out_of_order_are_told() {
    let machine = TestMachine::new("board");
    let told = |state: &str, parts: &[&str]| row_with(&machine, "core numbers", state, parts);
    told("note", &["/dev/kmsg"]);
    machine.apply("file proc/sys/kernel/dmesg_restrict 1");
    told("note", &["for root only"]);

    let [first, second, third] = CORES;
    log(&machine, [(first, 0), (second, 1), (third, 2)]);
    told("ok", &[]);
    log(&machine, [(second, 0), (third, 1), (first, 2)]);
    let wrong = [
        "fdab0000.npu is 2",
        "fdac0000.npu is 0",
        "fdad0000.npu is 1",
    ];
    told("problem", &wrong);
    assert!(text(&machine, "").contains("but fix `core numbers`"));

    // The lines are overwritten, and core 0 is missing.
    machine.apply(&format!(
        "file dev/kmsg 6,1,1,-;x\nremove {ROCKET}/{first}.npu"
    ));
    told("note", &["is missing"]);
    // Missing only the last core is not a gap.
    let last = format!("file {ROCKET}/{first}.npu/x -\nremove {ROCKET}/{third}.npu");
    machine.apply(&last);
    told("note", &["not checked"]);
}

/// As in a virtual machine: the numbers of such cores are unknown, so they are not
/// judged.
#[test]
fn cores_at_other_addresses_are_not_judged_as_those_of_an_rk3588() {
    let machine = TestMachine::new("board");
    for (core, elsewhere) in [("fdab0000", "10000000"), ("fdac0000", "10010000")] {
        machine.apply(&format!(
            "remove {ROCKET}/{core}.npu\nfile {ROCKET}/{elsewhere}.npu/x -"
        ));
    }
    let readable = [("10010000", 0), ("10000000", 1), ("fdad0000", 2)];
    for logged in [None, Some(readable)] {
        if let Some(cores) = logged {
            log(&machine, cores);
        }
        let wanted = "10000000.npu, 10010000.npu is not a core of an RK3588";
        let row = row_with(&machine, "core numbers", "note", &[wanted]);
        assert!(!row.contains("is missing"), "{row}");
    }
}

/// rocket is a module, and its supply was switched off before it was loaded.
#[test]
fn a_supply_that_was_switched_off_before_the_module_came_is_told() {
    let off = "file sys/class/regulator/regulator.9/state disabled";
    let logged = "file dev/kmsg 6,512,31654000,-;vdd_npu_s0: disabling";
    let no_core = &CORES
        .map(|core| format!("remove {ROCKET}/{core}.npu\n"))
        .concat();
    let not_loaded = &format!("remove {ROCKET}");
    let built_in =
        "file boot/config-7.2.13-arm64 CONFIG_DRM_ACCEL_ROCKET=y\\nCONFIG_ROCKCHIP_IOMMU=y";
    for (changes, named) in [
        (vec![off, no_core], true),
        (vec![logged, no_core], true),
        (vec![off, not_loaded], true),
        (vec![no_core], false),
        (vec![not_loaded], false),
        (vec![off, no_core, built_in], false),
        // The cores sleep, so their supply is off.
        (vec![off], false),
    ] {
        let machine = TestMachine::new("board");
        for change in &changes {
            machine.apply(change);
        }
        let row = rows(&json(&machine), "driver").remove(0).to_string();
        for part in ["vdd_npu_s0 is off", "initramfs"] {
            assert_eq!(row.contains(part), named, "{changes:?}: {row}");
        }
    }
}

#[test]
fn no_content_makes_it_fail() {
    let hostile: [Vec<u8>; 5] = [
        Vec::new(),
        vec![0xff; 1 << 16],
        b"0::/../../../..\n18446744073709551615: 99999999999-0, fdab0000.npu \x1b[1m\n".to_vec(),
        b"\x1b[31m\x1f\x8b\x08\x00..\x00npu\n:\n=\n-\n,\n".to_vec(),
        [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3][..], &[0xff; 64]].concat(),
    ];
    for content in &hostile {
        let machine = TestMachine::new("board");
        for file in files(machine.path()) {
            fs::write(file, content).unwrap();
        }
        ends(&machine, "all files");
    }
    let machine = TestMachine::new("board");
    machine.apply(
        "remove sys/bus/platform/drivers/rocket/fdac0000.npu\n\
         file sys/kernel/debug/devices_deferred -\n\
         file sys/kernel/debug/clk/clk_summary -\n\
         file sys/class/devfreq/fdab0000.npu/cur_freq -",
    );
    for file in files(machine.path()) {
        let before = fs::read(&file).unwrap();
        fs::write(&file, &hostile[2]).unwrap();
        ends(&machine, &file.display().to_string());
        fs::write(&file, before).unwrap();
    }
}

/// Checks that the report is printed, without control characters.
fn ends(machine: &TestMachine, what: &str) {
    let (code, text) = doctor(machine, "");
    assert!(matches!(code, Some(0 | 3)), "{what}: {code:?}");
    let plain = |c: char| c == '\n' || !c.is_control();
    assert!(text.chars().all(plain), "{what}: {text:?}");
}

/// A pipe without a writer, and a file without an end.
#[test]
fn pipes_and_endless_files_do_not_block() {
    let machine = TestMachine::new("board");
    let meminfo = machine.path().join("proc/meminfo");
    fs::remove_file(&meminfo).unwrap();
    nix::unistd::mkfifo(&meminfo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    machine.apply("remove proc/interrupts\nlink proc/interrupts /dev/zero");
    let report = json(&machine);
    assert_eq!(rows(&report, "memory")[0]["found"], "not readable");
    assert_eq!(rows(&report, "interrupts")[0]["state"], "note");
}
