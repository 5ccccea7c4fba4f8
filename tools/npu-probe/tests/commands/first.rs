// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe first` on models of boards with a defect, and `explain` of their archives.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::common::{command, compare, ends, has, json_of, read_json, rows};
use crate::evidence::unpacked;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A model of a board, and the home of its owner.
pub(crate) struct Board {
    device: String,
    home: TempDir,
}

impl Board {
    pub(crate) fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The path of a file of results.
    pub(crate) fn result(&self, name: &str) -> PathBuf {
        self.path("npu-evidence").join(name)
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = command(line);
        command
            .current_dir(self.home.path())
            .env("ROCKET_DEVICE", &self.device)
            .env("XDG_CONFIG_HOME", self.home.path())
            .env("USER", "wilhelmina");
        command
    }

    #[track_caller]
    fn json(&self, line: &str, code: i32) -> Value {
        json_of(self.command(line), code)
    }

    /// The only archive of the results.
    pub(crate) fn archive(&self) -> PathBuf {
        let all = fs::read_dir(self.result("")).unwrap();
        let all = all.map(|entry| entry.unwrap().path());
        let archives = all.filter(|path| path.extension().is_some_and(|end| end == "gz"));
        let [archive] = archives.collect::<Vec<_>>().try_into().unwrap();
        archive
    }

    /// Packs the archive's files again, the last one first.
    fn repack(&self) {
        let archive = self.archive();
        let files = unpacked(&archive);
        let packed = GzEncoder::new(Vec::new(), Compression::fast());
        let mut packed = tar::Builder::new(packed);
        for (name, bytes) in files.iter().rev() {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            packed.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        let bytes = packed.into_inner().unwrap().finish().unwrap();
        fs::write(archive, bytes).unwrap();
    }

    /// The report of `explain` on the archive.
    fn explain(&self, code: i32) -> Value {
        self.json(&format!("explain {}", self.archive().display()), code)
    }

    fn profile(&self) -> Option<Value> {
        let file = self.path("rocket-npu/profile.json");
        file.exists().then(|| read_json(file))
    }
}

/// More files than this belong to the rungs.
const LADDER: usize = 40;

fn causes(report: &Value) -> Vec<&str> {
    let causes = report["causes"].as_array().unwrap();
    causes
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect()
}

#[test]
fn each_board_is_told_its_cause_and_no_other() {
    if test_support::emulated() {
        println!("SKIP each_board_is_told_its_cause_and_no_other: the emulator starts no others");
        return;
    }
    let table = include_str!("boards.txt");
    let comments = table.lines().take_while(|line| line.starts_with('#'));
    let comments: Vec<_> = comments.map(|line| format!("{line}\n")).collect();
    // Boards that differ mostly wait for jobs that hang.
    const AT_ONCE: usize = 6;
    let boards = Mutex::new(rows(table).enumerate());
    let one = || boards.lock().unwrap().next();
    let worker = || std::iter::from_fn(one).map(|(at, board)| (at, told(board)));
    let told: BTreeMap<usize, String> = std::thread::scope(|scope| {
        let worker = || worker().collect::<Vec<_>>();
        let workers = [(); AT_ONCE].map(|()| scope.spawn(worker));
        workers
            .into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect()
    });
    let told: String = told.into_values().collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/boards.txt");
    compare(&file, &(comments.concat() + &told));
}

/// The line of `boards.txt` of one board, as `first` and `explain` tell.
fn told([what, device, verdict, ..]: [&str; 7]) -> String {
    let code = i32::from(verdict == "does-not-work");
    let board = Board::new(device);
    let report = board.json("first", code);
    let cause = causes(&report).join(", ");
    let sides = report["causes"][0]["as_model_with"].as_array();
    let sides = sides.into_iter().flatten().filter_map(Value::as_str);
    let side = sides.collect::<Vec<_>>().join(", ");
    if device == "model:core-idle-mainline=hangs" {
        // The register that causes the failure, and no unrelated one.
        let registers = report["causes"][0]["registers"].as_array().unwrap();
        let mask = "OPERATION_ENABLE 0x1d -> 0xd";
        let names_mask = |one: &Value| one.as_str().unwrap().contains(mask);
        assert!(registers.iter().any(names_mask), "{device}: {registers:?}");
        assert!(registers.len() <= 2, "{device}: {registers:?}");
        // A second run repeats no step, and its verdict is the same.
        assert_eq!(board.json("first", code), report, "{device}");
        // Nor does the order of the archive's files change it.
        board.repack();
    }
    // `explain` gives the same report from the archive.
    let archive = fs::metadata(board.archive()).unwrap();
    assert!(archive.len() < 4 << 20, "{device}");
    assert_eq!(board.explain(code), report, "{device}");
    // Nothing runs again; the text also says what the profile changes.
    let (text, _) = ends(&mut board.command("first"), code);
    let profile = text.lines().find(|line| line.starts_with("profile "));
    let changes = profile.and_then(|line| line.split_once('(')?.1.strip_suffix(')'));
    // If something must be avoided, the user gets a profile that avoids it.
    assert_eq!(board.profile().is_some(), changes.is_some(), "{device}");
    // What is unproven is allowed if it passed on this board.
    let found = board.result("first-profile.json");
    if found.exists() {
        let profile = read_json(found);
        let choices = &profile["profile"]["choices"];
        for dtype in ["int8", "int4"] {
            let rung = format!("{dtype}-reuse-large");
            let (value, evidence) = if report["rungs"][&rung]["state"] == "passed" {
                ("equal-resident", "npu-probe first")
            } else {
                ("never", "E-reuse-unseen")
            };
            let choice = &choices["reuse"][dtype];
            assert_eq!(choice["value"], value, "{device}, {dtype}");
            assert_eq!(choice["evidence"], evidence, "{device}, {dtype}");
        }
        // Weights stream where all rungs of it passed, as the user reads.
        for (dtype, rungs) in [
            ("int8", ["int8-streams", "int8-full"]),
            ("fp16", ["fp16-streams", "fp16-streams-large"]),
        ] {
            let passed = rungs.map(|rung| report["rungs"][rung]["state"] == "passed");
            let tiles = profile["profile"]["envelope"].as_array().unwrap();
            let streams = |tile: &&Value| tile["dtype"] == dtype && tile["n"] == 4096;
            let evidence = tiles.iter().find(streams).map(|tile| &tile["evidence"]);
            let sentence = format!("{dtype} weights may stream");
            let is_allowed = match changes {
                Some(told) => told.contains(&sentence),
                None => passed == [true; 2] && report["overlay"].is_null(),
            };
            let allowed = is_allowed.then(|| Value::from("npu-probe first"));
            assert_eq!(evidence, allowed.as_ref(), "{device}, {dtype}");
        }
    }
    if code == 0 && report["overlay"].is_null() {
        for dtype in ["int8", "fp16"] {
            let is_single = changes.is_some_and(|told| told.contains("one core"));
            let files = if is_single { 1 } else { 3 };
            let line = format!("--dtype {dtype} --shape 64x512x1024 --fds {files}");
            assert_eq!(board.json(&line, 0)["result"], "PASS", "{device}, {dtype}");
        }
    }
    let or_none = |cell: &str| if cell.is_empty() { "-" } else { cell }.to_owned();
    let verdict = report["verdict"].as_str().unwrap();
    let sentence = report["sentence"].as_str().unwrap();
    let cells = [
        what,
        device,
        verdict,
        &cause,
        &side,
        sentence,
        changes.unwrap_or_default(),
    ];
    cells.map(or_none).join(" | ") + "\n"
}

/// Under sudo all files are the user's, and a link leads to none of root's.
#[test]
fn files_belong_to_the_user_who_called_sudo() {
    const USER: u32 = 4242;
    // With int8 weights that do not stream, `first` writes a profile.
    let board = Board::new("model:weight-room=all");
    let home = board.path("");
    if fs::metadata(&home).unwrap().uid() != 0 || test_support::emulated() {
        println!("SKIP files_belong_to_the_user_who_called_sudo: needs root");
        return;
    }
    chown(&home, Some(USER), Some(USER)).unwrap();
    let sudo = |line| {
        let mut command = board.command(line);
        command.envs(["SUDO_UID", "SUDO_GID"].map(|name| (name, USER.to_string())));
        command
    };
    ends(&mut sudo("first"), 0);
    let mut folders = vec![home];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let about = entry.metadata().unwrap();
            assert_eq!(about.uid(), USER, "{}", entry.path().display());
            files += 1;
            if about.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    assert!(files > LADDER && board.profile().is_some(), "{files}");
    let roots = tempfile::tempdir().unwrap();
    let secret = roots.path().join("secret");
    fs::write(&secret, "as it was").unwrap();
    fs::set_permissions(roots.path(), Permissions::from_mode(0o700)).unwrap();
    symlink(&secret, board.path("report.html")).unwrap();
    ends(
        &mut sudo("report -o report.html npu-evidence/selftest-int4.json"),
        5,
    );
    assert_eq!(fs::read_to_string(secret).unwrap(), "as it was");
}

/// Results of another kernel do not count; after a boot only what crashed the machine does.
#[test]
fn another_kernel_or_a_boot_starts_anew() {
    if test_support::emulated() {
        return;
    }
    let board = Board::new("model");
    let said = |board: &Board| ends(&mut board.command("first"), 0).0;
    let first = said(&board);
    has(
        &first,
        &[
            "rung-driver              ok",
            "\nNext: run this command on a board",
        ],
    );
    assert!(!first.contains("Nothing ran"), "{first}");
    has(&said(&board), &["Nothing ran: these are the results of 20"]);
    let state = board.result("state.json");
    let done = read_json(&state);
    for (field, wanted) in [
        ("kernel", "the kernel was 6.1 and is "),
        ("boot", "the machine was booted"),
    ] {
        let mut other = done.clone();
        other[field] = "6.1".into();
        other["steps"]["rung-int4"] = json!({ "outcome": "machine_went_down" });
        fs::write(&state, other.to_string()).unwrap();
        let went_down = if field == "boot" {
            "THE MACHINE WENT DOWN"
        } else {
            "rung-int4                ok"
        };
        let text = said(&board);
        has(
            &text,
            &[
                "Starts anew: ",
                wanted,
                went_down,
                "rung-driver              ok",
            ],
        );
        assert!(!text.contains("Nothing ran"), "{text}");
    }
    // A run that was not done goes on behind a boot.
    let mut other = done.clone();
    other["boot"] = "another".into();
    other["finished"] = false.into();
    other["steps"].as_object_mut().unwrap().remove("rung-int4");
    fs::write(&state, other.to_string()).unwrap();
    let (text, steps) = ends(&mut board.command("first"), 0);
    assert!(!text.contains("anew"), "{text}");
    has(&steps, &["left] rung-int4\n"]);
    assert!(!steps.contains("rung-fp16\n"), "{steps}");
}

/// The files of a step that did not end may be partial, and contain private data.
#[test]
fn partial_results_of_a_crash_are_removed() {
    if test_support::emulated() {
        return;
    }
    let board = Board::new("model:core-idle-mainline=hangs");
    board.json("first", 0);
    let before = read_json(board.result("state.json"));
    let same = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for boot in ["another", same.trim()] {
        let mut begun = before.clone();
        let step = "rung-form-a-flips";
        assert_eq!(begun["steps"][step]["outcome"], "ended");
        begun["steps"][step] = json!({ "outcome": "begun", "boot": boot });
        fs::write(board.result("state.json"), begun.to_string()).unwrap();
        let partial = r#"{"rung": "/home/wilhelmina"#;
        fs::write(board.result("rung-form-a-flips.json"), partial).unwrap();
        fs::write(board.result("rung-form-a-flips-stderr.txt"), partial).unwrap();
        let report = board.json("first", 0);
        assert_eq!(causes(&report), ["form-a"]);
        assert_eq!(report["causes"][0]["registers"], json!([]));
        let files = unpacked(&board.archive());
        for end in [".json", "-stderr.txt"] {
            let text = String::from_utf8_lossy(&files[&format!("{step}{end}")]);
            assert!(text.contains("rung") && !text.contains("home"), "{text}");
        }
        assert_eq!(board.explain(0), report);
    }
}

/// A rung breaks a core until a power cycle. No process runs anything else on the core
/// before the power cycle; then `first` continues after that rung.
#[test]
fn a_wedged_core_is_told_until_power_is_cycled() {
    if test_support::emulated() {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let memory = files.path().join("wedged");
    let board = Board::new(&format!(
        "model:core-idle-mainline=hangs,wedge=until-power-cycle,wedge-memory={}",
        memory.display()
    ));
    // The second run finds the core as the first left it.
    for _ in 0..2 {
        let report = board.json("first", 1);
        assert_eq!(report["verdict"], "unfinished");
        assert_eq!(causes(&report), ["form-a"]);
        let told = report["sentence"].as_str().unwrap();
        has(told, &["rung-form-a", "power"]);
        assert_eq!(report["rungs"]["int8"]["state"], "not_run");
        assert_eq!(board.explain(1), report);
    }
    fs::remove_file(&memory).unwrap();
    let report = board.json("first", 0);
    assert_eq!(report["verdict"], "works");
    assert_eq!(causes(&report), ["form-a"]);
    assert_eq!(report["rungs"]["int4-reuse-streams"]["state"], "passed");
    assert!(!memory.exists(), "it was wedged again");
}

/// Only the jobs of one file in three are wrong, which identifies the core.
#[test]
fn a_wedged_core_is_told_from_no_power() {
    if test_support::emulated() {
        return;
    }
    for (device, wanted) in [("model:wedged=1", true), ("model:power=fails", false)] {
        let board = Board::new(device);
        let (record, _) = ends(&mut board.command("first --rung flying-add"), 1);
        let record: Value = serde_json::from_str(&record).unwrap();
        let jobs = record["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 3);
        for (index, job) in jobs.iter().enumerate() {
            let ended = job["completed"] == true;
            assert_eq!(ended, wanted && index % 3 != 1, "{device}, {index}");
            assert_eq!(job["raised"], json!([]));
        }
        let why = record["no_interrupts"].as_str().unwrap();
        assert!(why.contains("model"), "{why}");
    }
}

/// A rung that crashed the machine is not repeated; the others are judged without it.
#[test]
fn a_reboot_goes_on_behind_the_culprit() {
    if test_support::emulated() {
        return;
    }
    let board = Board::new("model");
    board.json("first", 0);
    let state = board.result("state.json");
    let record = board.result("rung-fp16-streams.json");
    let mut down = read_json(&state);
    down["steps"]["rung-fp16-streams"] = json!({ "outcome": "begun", "boot": "another" });
    for later in ["fp16-streams-large", "int8-streams", "int8-full", "tasks"] {
        let steps = down["steps"].as_object_mut().unwrap();
        steps.remove(&format!("rung-{later}")).unwrap();
    }
    fs::write(&state, down.to_string()).unwrap();
    fs::remove_file(&record).unwrap();
    let report = board.json("first", 0);
    assert_eq!(causes(&report), ["fp16-streams"]);
    assert_eq!(report["rungs"]["fp16-streams"]["state"], "died");
    assert_eq!(report["rungs"]["int8-streams"]["state"], "not_run");
    assert_eq!(report["rungs"]["tasks"]["state"], "passed");
    assert!(!record.exists());
    let profile = board.profile().unwrap();
    assert!(
        !profile["profile"].to_string().contains("4096"),
        "{profile:#}"
    );

    // A failed self-test is repeated with its jobs recorded.
    let mut failed = read_json(&state);
    failed["steps"]["selftest-fp16"] = json!({ "outcome": "ended", "code": 1, "ok": false });
    fs::write(&state, failed.to_string()).unwrap();
    board.json("first", 0);
    assert!(unpacked(&board.archive()).contains_key("recorded-fp16.rkcap"));
    let replayed = board.json("replay npu-evidence/recorded-fp16.rkcap", 0);
    assert_eq!(replayed["result"], "PASS");
}
