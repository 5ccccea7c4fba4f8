// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary: exit codes, JSON, dumps, pipes.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::{command, ends, fails, has, json, json_of, read_json, says, text};
use crate::planning::one_plan;
use serde_json::Value;

#[test]
fn alone_it_tests_and_says_on_what() {
    let said = says("", &["model", "C[64,64]", "int8", "seed 1", "words"]);
    // Output must not present the model's time as an NPU's.
    has(&said, &["PASS (software model) all 4096", "not an NPU"]);
}

#[test]
fn every_precision_and_odd_sizes() {
    assert_eq!(json("--dtype FP16")["problem"]["dtype"], "fp16");
    for dtype in ["int8", "fp16", "int4", "w8a8"] {
        for shape in ["64x64x64", "1x1x1", "5x700x33"] {
            says(
                &format!("--dtype {dtype} --shape {shape} --fds 2"),
                &["PASS", dtype],
            );
        }
    }
}

#[test]
fn a_trace_is_json_of_modelled_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json");
    let options = "--fds 2 --shape 64x64x300 --trace";
    says(&format!("{options} {}", file.display()), &["modelled time"]);
    let trace = read_json(file);
    let events = trace["traceEvents"].as_array().unwrap();
    let kicks = events.iter().filter(|event| event["name"] == "kick");
    assert!(kicks.count() >= 2);
}

#[test]
fn json_is_one_object_with_everything() {
    let report = json("--repeat 3 --seed 7");
    assert_eq!(report["result"], "PASS");
    assert_eq!(report["device"]["is_model"], true);
    assert_eq!(report["device"]["driver"], "rocket");
    assert_eq!(report["problem"]["seed"], 7);
    assert_eq!(report["program"]["tasks"], 1);
    assert!(report["program"]["words"].as_u64().unwrap() > 100);
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(run["comparison"]["elements"], 4096);
        assert_eq!(run["comparison"]["different"], 0);
    }
}

#[test]
fn a_calibration_ends_with_a_verdict_of_few_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let calibrate = format!("calibrate --device model --profile {}", file.display());
    let said = text(&calibrate);
    let verdict = "verdict    every experiment gave the software model's result\n";
    let (_, rest) = said.split_once(verdict).unwrap();
    assert!(rest.lines().count() <= 4, "{said}");
    assert!(!said.contains("int8-ties"), "{said}");
    let verbose = text(&format!("{calibrate} -v"));
    has(&verbose, &["int8-ties: same as the model\n"]);
}

#[test]
fn facts_are_on_the_sides_of_the_model() {
    let default_job: &[&str] = &[
        "tf32-operand: truncated (same as the model's default)",
        "wedge: not run: needs --risky, since it hangs a core on purpose",
        "int8-ties: same as the model\n",
        "0 different, 0 neither\n",
        "left out   ",
    ];
    // No fact is decided by a broken core.
    let broken_job = [
        "weight-room: group",
        "wedge: until-power-cycle (the model's default is until-reset)",
        "partial-group: not run: after an earlier experiment a plain matmul",
    ];
    // Facts that others depend on come first.
    let pooling_job = [
        "pooling-interrupt: ppu-only (the model's default is",
        "average-rounding: each (the model's default is",
    ];
    for (line, parts) in [
        ("all", default_job),
        (
            "tf32-operand --device model:tf32-operand=nearest",
            &["tf32-operand: nearest (the model's default is truncated)"],
        ),
        (
            "all --risky --device model:wedge=until-power-cycle",
            &broken_job,
        ),
        (
            "all --device model:pooling-interrupt=ppu-only,average-rounding=each",
            &pooling_job,
        ),
    ] {
        has(&text(&format!("calibrate --facts {line}")), parts);
    }
}

#[test]
fn facts_are_on_neither_side() {
    // A model that hangs where silicon only gives wrong results.
    let strict = "calibrate --facts small-exponent --device model:level=strict";
    let ended = "job 0 did not end, on the model it ended";
    has(&fails(strict, 1).0, &["small-exponent: neither", ended]);

    let report = json_of(command(strict), 1);
    assert_eq!(report["settled"], false);
    let fact = &report["facts"][0];
    assert_eq!(fact["outcome"], "neither");
    assert_eq!(fact["record"]["jobs"][0]["completed"], false);
    assert!(fact["record"]["outputs"][0]["bytes"].as_u64() > Some(16));
    assert_eq!(fact["shown"][0], ended);
}

#[test]
fn facts_are_told_as_json() {
    // Two facts, in the order of the experiments.
    let report = json("calibrate --facts wedge,tf32-operand");
    assert_eq!(report["settled"], true);
    assert_eq!(report["device"]["is_model"], true);
    let [tf32, wedge] = report["facts"].as_array().unwrap().as_slice() else {
        panic!("two facts: {report:#}");
    };
    assert_eq!(tf32["name"], "tf32-operand");
    assert_eq!(tf32["outcome"], "settled");
    assert_eq!(tf32["side"], "truncated");
    assert_eq!(tf32["is_default"], true);
    assert_eq!(tf32["exact"], true);
    assert!(tf32["record"].is_null());
    assert_eq!(wedge["outcome"], "not_run");
    has(wedge["reason"].as_str().unwrap(), &["--risky"]);
}

#[test]
fn exit_codes() {
    for (code, line) in [
        (0, "--help"),
        (0, "--version"),
        (0, "calibrate --facts nan-compare"),
        (2, "--shape 0x64x64"),
        (2, "--shape 64"),
        (2, "--shape 1x2x3x4"),
        (2, "--shape 1x-1x1"),
        (2, "--dtype int3"),
        (2, "--dtype w4a8"),
        (2, "--repeat 0"),
        (2, "--shape 3x3x3 doctor"),
        (2, "--json doctor"),
        (2, "--device model doctor"),
        (2, "--dump x decode y"),
        (2, "decode"),
        (2, "frobnicate"),
        (2, "doctor --device model"),
        (2, "asm --json -"),
        (2, "doctor --shape 1x1x1"),
        (2, "run --shape 1x1x1 -- true"),
        (2, "--shape 9999999999x9999999999x1"),
        (2, "asm /nonexistent/file"),
        (2, "bench 8x64"),
        (2, "bench 0x1x1"),
        (2, "bench 99999999999x99999999999x1"),
        (2, "bench --plan 0x1x1"),
        (2, "bench --plan 1x1x99999999999999"),
        (2, "bench --plan 1x1x1 --dtype w4a8"),
        (2, "--seconds 1 --processes 0"),
        (2, "--seconds 1 --dtype int8"),
        (2, "--kill"),
        (2, "calibrate --facts no-such-fact"),
        (2, "calibrate --facts all --profile file"),
        (2, "calibrate --seed 1"),
        (3, "calibrate --device /nonexistent/accel0"),
        (3, "--device /nonexistent/accel0"),
        (3, "bench --device /nonexistent/accel0"),
        (3, "soak --device /nonexistent --seconds 0"),
        (3, "--seconds 0 --device /nonexistent"),
    ] {
        let (_, err) = fails(line, code);
        // Exactly one of them prints something.
        assert_eq!(code == 0, err.is_empty(), "{line}:\n{err}");
    }
}

#[test]
fn the_environment_chooses_and_the_option_overrides() {
    let nowhere = "/nonexistent/accel0";
    for (line, code) in [("bench --plan", 3), ("bench --plan --device model", 0)] {
        let (_, err) = ends(command(line).env("ROCKET_DEVICE", nowhere), code);
        assert_eq!(err.contains(nowhere), code == 3);
    }
}

#[test]
fn a_dump_holds_all_and_can_be_replayed() {
    let base = tempfile::tempdir().unwrap();
    let directory = base.path().join("made/for it");
    let with = |line: &str, path: &Path| {
        let mut command = command(line);
        command.arg(path);
        json_of(command, 0)
    };
    for line in ["", "--dtype fp16 --shape 3x64x5"] {
        let printed = with(&format!("{line} --dump"), &directory);
        assert_eq!(read_json(directory.join("report.json")), printed);
        let replayed = with("replay", &directory.join("jobs.rkcap"));
        assert_eq!(replayed["result"], "PASS");
        assert!(replayed["jobs"][0]["bytes_compared"].as_u64() > Some(0));
    }
}

/// A failed run leaves a dump too, which is its purpose.
#[test]
fn a_dump_of_a_killed_job_says_so() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().display();
    let line = format!("--dump {path} --device model:job-limit=1,clock=1 --shape 256x512x256");
    let report = json_of(command(&line), 4);
    assert_eq!(report["result"], "FAIL");
    has(report["error"].as_str().unwrap(), &["killed"]);
    let decoded = json(&format!("decode {path}/jobs.rkcap"));
    has(&decoded["jobs"].to_string(), &["killed"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for line in ["", "--json", "bench --plan", "--help"] {
        let mut child = command(line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The only reading end is closed before the first write, or soon after.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let ended = (output.status.code(), &*output.stderr);
        assert_eq!(ended, (Some(0), &b""[..]), "{line}");
    }
}

#[test]
fn output_that_cannot_be_written_is_told() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        println!("SKIP output_that_cannot_be_written_is_told: there is no /dev/full");
        return;
    };
    for line in ["bench --plan", "--help", "model --help", "--version"] {
        let full = full.try_clone().unwrap();
        ends(command(line).stdout(full), 5);
    }
}

#[test]
fn decode_and_asm_survive_anything() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("input");
    for (code, content) in [
        (2, vec![0xff; 64]),
        (0, vec![0; 8]),
        (0, b"ffffffffffffffff 0x0 0x1,0x2".to_vec()),
        (2, Vec::new()),
        (2, vec![0; 7]),
        (2, b"not a program".to_vec()),
        (0, b"marker\nenable CNA".to_vec()),
        (2, b"marker\nenable CPU".to_vec()),
    ] {
        fs::write(&file, &content).unwrap();
        for tool in ["decode", "decode --json", "asm", "asm --bin"] {
            fails(&format!("{tool} {}", file.display()), code);
        }
    }
}

#[test]
fn asm_and_decode_take_each_others_output() {
    let base = tempfile::tempdir().unwrap();
    let file = |name: &str| base.path().join(name).display().to_string();
    let done = |command: &str, name: &str| text(&format!("{command} {}", file(name)));
    done("--record", "jobs.rkcap");
    let report = json(&format!("decode --job 0 {}", file("jobs.rkcap")));
    let lines = report["jobs"][0]["programs"][0]["disassembly"].as_array();
    let lines = lines.unwrap().iter().map(|line| line.as_str().unwrap());
    fs::write(
        file("recorded"),
        lines.collect::<Vec<_>>().join("\n") + "\n",
    )
    .unwrap();
    let hex = done("asm", "recorded");
    fs::write(file("task.words"), &hex).unwrap();

    // Findings are comments, so `asm` accepts the whole output.
    let decoded = done("decode", "task.words");
    for (name, command) in [("text", "decode"), ("source", "decode --statements")] {
        fs::write(file(name), done(command, "task.words")).unwrap();
        assert_eq!(done("asm", name), hex);
        assert_eq!(done("decode", name), decoded);
        for (command, made) in [("asm", "made.hex"), ("asm --bin", "made.bin")] {
            let out = format!("{command} {} -o", file(name));
            assert_eq!(done(&out, made), "");
            assert_eq!(done("decode", made), decoded);
            assert_eq!(done("asm", made), hex);
        }
    }
    let report = json(&format!("decode {}", file("made.bin")));
    let bytes = fs::metadata(file("made.bin")).unwrap().len();
    assert_eq!(report["words"], bytes / 8);
    let heading = report["tasks"][0].as_str().unwrap();
    has(heading, &["task 0: convolution: 1x64x64 of int8"]);
    assert!(decoded.starts_with(&format!("# {heading}\n")));

    // A manual change, and one that contradicts the rest of its line.
    let source = fs::read_to_string(file("source")).unwrap();
    let changed = source.replace(
        "CNA.CBUF_CON0 = 0x000000a2  data_bank=2",
        "CNA.CBUF_CON0 data_bank=1",
    );
    assert_ne!(source, changed);
    fs::write(file("changed.s"), &changed).unwrap();
    has(&done("asm", "changed.s"), &["\n0201000000a11040\n"]);
    let wrong = source.replace("data_bank=2", "data_bank=1");
    fs::write(file("wrong.s"), wrong).unwrap();
    let (_, err) = fails(&format!("asm {} -o {}", file("wrong.s"), file("never")), 2);
    let told = "wrong.s: line 14, column 39: the value 0x000000a2 has data_bank=2, not 1";
    has(&err, &[told]);
    assert!(!Path::new(&file("never")).exists());
    fails(&format!("asm {} -o /nonexistent/out", file("text")), 5);
}

#[test]
fn a_plan_needs_no_device() {
    let plan = |more: &str| one_plan(&format!("bench --plan 512x4096x4096 --dtype int8 {more}"));
    let all = plan("");
    let ms = |plan: &Value| plan["modelled_npu_ms"].as_f64().unwrap();
    let chosen = &all["chosen"];
    assert!(chosen["k_tiles"].as_u64() > Some(1));
    assert!(chosen["over_bound"].as_f64() >= Some(1.0));
    // A faster clock takes less time.
    assert!(ms(&plan("--clock 600")["chosen"]) < ms(chosen));

    // On a PC too, the tiles are those of a board.
    assert_eq!(all["unmeasured_tiles"], false);
    // Each K tile but the first is added.
    let number = |name: &str| chosen[name].as_u64().unwrap();
    let (c, k_tiles) = (512 * 4096 * 4, number("k_tiles"));
    assert_eq!(number("partial_sums"), (k_tiles - 1) * c / 4);
    assert_eq!(number("bytes_read"), k_tiles * c);
    assert_eq!(number("bytes_outputs"), k_tiles * c);
    assert_eq!(all["weights_bytes"], 4096 * 4096);
    says(
        "bench --plan 8x64x64 --dtype fp16",
        &["modelled", "tiling   1 K tile(s)"],
    );
}

#[test]
fn matmuls_are_measured() {
    let report = json("bench 8x64x96 3x100x32 --repeat 2 --fds 2");
    let measured = report["measurements"].as_array().unwrap();
    assert_eq!(measured.len(), 6, "{report:#}");
    for one in measured {
        let number = |name: &str| one[name].as_f64().unwrap();
        assert!((1.0..=2.0).contains(&number("submits")), "{one:#}");
        assert!(number("bytes_to_device") > 0.0 && number("gops") > 0.0);
        assert!(number("modelled_npu_ms") > number("bound_ms"), "{one:#}");
        // Nothing ran on an NPU.
        assert!(one["share_of_bound"].is_null(), "{one:#}");
    }
    assert_eq!(report["conditions"]["clock_mhz"], 200);
    says("bench 2x32x32 --dtype fp16", &["not an NPU", "modelled"]);
}

/// Exit codes of shells.
#[test]
fn a_program_that_cannot_be_run_has_its_own_exit_codes() {
    if test_support::emulated() {
        println!(
            "SKIP a_program_that_cannot_be_run_has_its_own_exit_codes: the emulator does not say \
             that a program could not be started"
        );
        return;
    }
    // A program that does not start loads no library, so any file will do.
    let library = env!("CARGO_BIN_EXE_npu-probe");
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let (_, err) = fails(&format!("run --preload {library} -- {program}"), code);
        has(&err, &[program]);
    }
}

#[test]
fn rust_log_chooses_what_is_logged() {
    let logged = |filter: &str| {
        let mut command = command("--shape 8x64x64");
        ends(command.env("RUST_LOG", filter), 0).1
    };
    assert_eq!(logged("info"), "");
    assert_eq!(logged("no_such_crate=trace"), "");
    assert_eq!(logged("no=such=filter"), "");
    has(&logged("trace"), &["npu_matmul"]);
    let rest = logged("trace,npu_matmul=off");
    assert!(!rest.contains("npu_matmul"), "{rest}");
}

#[test]
fn only_who_wants_colours_gets_them() {
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = command("");
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
            command.env_remove(name);
        }
        command.env("RUST_LOG", "trace");
        let (out, err) = ends(command.envs(variables.iter().copied()), 0);
        [out, err].map(|text| text.contains('\x1b'))
    };
    assert_eq!(coloured(&[]), [false; 2]);
    let force = ("CLICOLOR_FORCE", "1");
    assert_eq!(coloured(&[force]), [true; 2]);
    assert_eq!(coloured(&[force, ("NO_COLOR", "1")]), [false; 2]);
}
