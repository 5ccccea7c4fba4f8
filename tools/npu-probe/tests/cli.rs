// SPDX-License-Identifier: MIT OR Apache-2.0
//! The binary as its users run it: exit codes, JSON, dumps, pipes.
#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests: a failed unwrap is a failed test"
)]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

use common::{command, json, stderr, stdout};
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

#[test]
fn alone_it_tests_and_says_on_what() {
    let output = run(&[]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in [
        "model",
        "C[64,64]",
        "int8",
        "seed 1",
        "words",
        "PASS (software model) all 4096",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    // The model's time must not be taken for the NPU's.
    assert!(text.contains("not an NPU"), "{text}");
}

#[test]
fn every_precision_and_odd_sizes() {
    for dtype in ["int8", "fp16", "int4"] {
        for shape in ["64x64x64", "1x1x1", "5x700x33"] {
            let sizes = ["--dtype", dtype, "--shape", shape, "--fds", "2"];
            let output = run(&sizes);
            let text = stdout(&output) + &stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{sizes:?}:\n{text}");
        }
    }
}

#[test]
fn a_trace_is_json_of_modelled_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.json");
    let file = file.to_str().unwrap();
    let output = run(&["--trace", file, "--fds", "2", "--shape", "64x64x300"]);
    let text = stdout(&output) + &stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("modelled time"), "{text}");
    let trace: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let kicks = events.iter().filter(|event| event["name"] == "kick");
    assert!(kicks.count() >= 2);
    // Where it cannot be written, that is the error.
    let output = run(&["--trace", "/no/such/directory/trace.json"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
}

#[test]
fn json_is_one_object_with_everything() {
    let report = json(&["--repeat", "3", "--seed", "7"]);
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
fn info_names_device_and_reason() {
    let output = run(&["info"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("driver     rocket"));
    assert_eq!(json(&["info"])["is_model"], true);
}

#[test]
fn a_calibration_ends_with_a_verdict_of_few_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profile.json");
    let calibrate = [
        "calibrate",
        "--device",
        "model",
        "--out",
        file.to_str().unwrap(),
    ];
    let text = stdout(&run(&calibrate));
    let verdict = text.find("verdict    every experiment gave the software model's result\n");
    assert!(
        verdict.is_some_and(|at| text[at..].lines().count() <= 5),
        "{text}"
    );
    assert!(!text.contains("int8-ties"), "{text}");
    let verbose = stdout(&run(&[&calibrate[..], &["-v"]].concat()));
    assert!(
        verbose.contains("int8-ties: same as the model\n"),
        "{verbose}"
    );
}

#[test]
fn facts_are_on_the_sides_of_the_model() {
    let output = run(&["calibrate", "--facts", "all"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in [
        "tf32-operand: truncated (same as the model's default)",
        "chain-pointer: not possible here: needs chained kicks",
        "wedge: not run: needs --risky, since it hangs a core on purpose",
        "int8-ties: same as the model\n",
        "0 different, 0 neither\n",
        "left out   ",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn facts_are_on_another_side_or_on_none() {
    let output = run(&[
        "calibrate",
        "--facts",
        "tf32-operand",
        "--device",
        "model:tf32-operand=nearest",
    ]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    assert!(text.contains("tf32-operand: nearest (the model's default is truncated)"));

    // A model that hangs wherever silicon only computes something wrong.
    let strict = [
        "calibrate",
        "--facts",
        "small-exponent",
        "--device",
        "model:level=strict",
    ];
    let output = run(&strict);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("small-exponent: neither"), "{text}");
    assert!(
        text.contains("job 0 did not end, on the model it ended"),
        "{text}"
    );

    let output = run(&[&strict[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["settled"], false);
    let fact = &report["facts"][0];
    assert_eq!(fact["outcome"], "neither");
    assert_eq!(fact["record"]["jobs"][0]["completed"], false);
    assert!(fact["record"]["outputs"][0]["bytes"].as_u64() > Some(16));
    assert!(fact["shown"][0].as_str().unwrap().contains("did not end"));
}

#[test]
fn no_fact_is_told_on_the_word_of_a_broken_core() {
    let device = "model:wedge=until-power-cycle";
    let output = run(&["calibrate", "--facts", "all", "--risky", "--device", device]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in [
        "weight-room: group",
        "wedge: until-power-cycle (the model's default is until-reset)",
        "partial-group: not run: after an earlier experiment a plain matmul",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn facts_that_others_depend_on_come_first() {
    let sides = "pooling-interrupt=ppu-only,average-rounding=each";
    let device = format!("model:{sides}");
    let output = run(&["calibrate", "--facts", "all", "--device", &device]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for side in sides.split(',') {
        let line = format!("{} (the model's default is", side.replace('=', ": "));
        assert!(text.contains(&line), "no `{line}` in:\n{text}");
    }
}

#[test]
fn facts_are_told_as_json() {
    // Two facts, in the order in which they are settled.
    let report = json(&["calibrate", "--facts", "wedge,tf32-operand"]);
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
    assert!(wedge["reason"].as_str().unwrap().contains("--risky"));
}

#[test]
fn exit_codes() {
    for (code, arguments) in [
        (0, &["--help"][..]),
        (0, &["--version"]),
        (2, &["--shape", "0x64x64"]),
        (2, &["--dtype", "int3"]),
        (2, &["--shape", "3x3x3", "info"]),
        (2, &["--json", "info"]),
        (2, &["--device", "model", "info"]),
        (2, &["doctor", "--device", "model"]),
        (2, &["asm", "--json", "-"]),
        (2, &["--shape", "9999999999x9999999999x1"]),
        (2, &["decode", "/nonexistent/file"]),
        (2, &["asm", "/nonexistent/file"]),
        (2, &["asm", "--hex", "--bin", "-"]),
        (2, &["calibrate", "--facts", "no-such-fact"]),
        (2, &["calibrate", "--facts", "all", "--out", "file"]),
        (2, &["calibrate", "--seed", "1"]),
        (0, &["calibrate", "--facts", "nan-compare"]),
        (3, &["calibrate", "--device", "/nonexistent/accel0"]),
        (3, &["--device", "/nonexistent/accel0"]),
        (3, &["info", "--device", "/nonexistent/accel0"]),
        (3, &["--device", "/dev/null"]),
    ] {
        let output = run(arguments);
        let (out, err) = (stdout(&output), stderr(&output));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}:\n{out}{err}"
        );
        // Exactly one of them speaks, and never by a panic.
        assert_eq!(code == 0, err.is_empty(), "{arguments:?}:\n{err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

#[test]
fn the_environment_chooses_and_the_option_overrides() {
    let nowhere = "/nonexistent/accel0";
    let output = command(&["info"])
        .env("ROCKET_DEVICE", nowhere)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains(nowhere));
    let output = command(&["info", "--device", "model"])
        .env("ROCKET_DEVICE", nowhere)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
}

/// The first program of a recording of the self-test, as `decode` prints it.
fn recorded_program(recording: &str) -> String {
    let report = json(&["decode", "--job", "0", recording]);
    let lines = report["jobs"][0]["programs"][0]["disassembly"].as_array();
    let lines = lines.unwrap().iter().map(|line| line.as_str().unwrap());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn a_dump_holds_all_and_can_be_replayed() {
    let base = tempfile::tempdir().unwrap();
    let directory = base.path().join("made/for it");
    let path = directory.to_str().unwrap();
    for (dtype, shape) in [("int8", "64x64x64"), ("fp16", "3x64x5")] {
        let printed = json(&["--dump", path, "--dtype", dtype, "--shape", shape]);
        let dumped: Value =
            serde_json::from_slice(&fs::read(directory.join("report.json")).unwrap()).unwrap();
        assert_eq!(dumped, printed);
        let jobs = directory.join("jobs.rkcap");
        let replayed = json(&["replay", jobs.to_str().unwrap()]);
        assert_eq!(replayed["result"], "PASS");
        assert!(replayed["jobs"][0]["bytes_compared"].as_u64() > Some(0));
    }

    // The program as text, and as binary, says the same.
    let file = |name: &str| base.path().join(name).to_str().unwrap().to_owned();
    let text = recorded_program(directory.join("jobs.rkcap").to_str().unwrap());
    assert!(text.contains("CNA"), "{text}");
    fs::write(file("text.s"), text).unwrap();
    let made = run(&["asm", "--bin", &file("text.s"), "-o", &file("task.bin")]);
    assert_eq!(made.status.code(), Some(0), "{}", stderr(&made));
    let from_text = run(&["decode", &file("text.s")]);
    let from_binary = run(&["decode", &file("task.bin")]);
    assert_eq!(stdout(&from_text), stdout(&from_binary));
    let report = json(&["decode", &file("task.bin")]);
    let bytes = fs::metadata(file("task.bin")).unwrap().len();
    assert_eq!(report["words"], bytes / 8);
    let heading = report["tasks"][0].as_str().unwrap();
    assert!(
        heading.starts_with("task 0: convolution: 1x4x64 of fp16"),
        "{heading}"
    );
    assert!(stdout(&from_text).starts_with(&format!("# {heading}\n")));
}

/// Also of a run that failed, which is what it is for.
#[test]
fn a_dump_of_a_killed_job_says_so() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().to_str().unwrap();
    let device = "model:job-limit=1,clock=1";
    let shape = "256x512x256";
    let output = run(&[
        "--dump", path, "--device", device, "--shape", shape, "--json",
    ]);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["result"], "FAIL");
    assert!(
        report["error"].as_str().unwrap().contains("killed"),
        "{report:#}"
    );
    let jobs = base.path().join("jobs.rkcap");
    let decoded = json(&["decode", jobs.to_str().unwrap()]);
    assert!(
        decoded["jobs"].to_string().contains("killed"),
        "{decoded:#}"
    );
}

#[test]
fn a_dump_that_cannot_be_written_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = run(&["--dump", file.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("directory"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for arguments in [&[][..], &["--json"], &["info"], &["--help"]] {
        let mut child = command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The only reading end is closed before anything can be written to it,
        // or soon after.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_told() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        println!("SKIP output_that_cannot_be_written_is_told: there is no /dev/full");
        return;
    };
    let output = command(&["info"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
}

#[test]
fn decode_and_asm_survive_anything() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("input");
    let path = file.to_str().unwrap();
    for (code, content) in [
        (0, vec![0xff; 64]),
        (0, vec![0; 8]),
        (0, b"ffffffffffffffff 0x0 0x1,0x2".to_vec()),
        (2, Vec::new()),
        (2, vec![0; 7]),
        (2, b"not a program".to_vec()),
        (0, b"marker\nenable CNA".to_vec()),
        (2, b"marker\nenable CPU".to_vec()),
    ] {
        fs::write(&file, &content).unwrap();
        for arguments in [
            &["decode", path][..],
            &["decode", "--json", path],
            &["asm", path],
            &["asm", "--bin", path],
        ] {
            let output = run(arguments);
            let err = stderr(&output);
            assert_eq!(output.status.code(), Some(code), "{content:?}: {err}");
            assert!(!err.contains("panicked"), "{err}");
        }
    }
}

#[test]
fn asm_and_decode_take_each_others_output() {
    let base = tempfile::tempdir().unwrap();
    let file = |name: &str| base.path().join(name).to_str().unwrap().to_owned();
    let done = |arguments: &[&str]| {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        output.stdout
    };
    done(&["--record", &file("jobs.rkcap")]);
    fs::write(file("recorded"), recorded_program(&file("jobs.rkcap"))).unwrap();
    let words = file("task.words");
    done(&["asm", &file("recorded"), "-o", &words]);
    let hex = fs::read_to_string(&words).unwrap();

    // Findings are comments, so that all that is printed can go on.
    let decoded = done(&["decode", &words]);
    for (name, arguments) in [
        ("text", &["decode"][..]),
        ("source", &["decode", "--statements"]),
    ] {
        let text = done(&[arguments, &[words.as_str()]].concat());
        fs::write(file(name), &text).unwrap();
        assert_eq!(done(&["asm", &file(name)]), hex.as_bytes());
        assert_eq!(done(&["decode", &file(name)]), decoded);
        for (option, made) in [("--hex", "made.hex"), ("--bin", "made.bin")] {
            assert_eq!(done(&["asm", option, &file(name), "-o", &file(made)]), b"");
            assert_eq!(done(&["decode", &file(made)]), decoded);
            assert_eq!(done(&["asm", &file(made)]), hex.as_bytes());
        }
    }

    // A change by hand, and one that contradicts the rest of its line.
    let source = fs::read_to_string(file("source")).unwrap();
    let changed = source.replace(
        "CNA.CBUF_CON0 = 0x000000a2  data_bank=2",
        "CNA.CBUF_CON0 data_bank=1",
    );
    assert_ne!(source, changed);
    fs::write(file("changed.s"), &changed).unwrap();
    let output = done(&["asm", &file("changed.s")]);
    assert!(
        String::from_utf8(output)
            .unwrap()
            .contains("\n0201000000a11040\n")
    );
    fs::write(
        file("wrong.s"),
        source.replace("data_bank=2", "data_bank=1"),
    )
    .unwrap();
    let output = run(&["asm", &file("wrong.s"), "-o", &file("never")]);
    assert_eq!(output.status.code(), Some(2));
    let err = stderr(&output);
    assert!(
        err.contains("wrong.s: line 14, column 39: the value 0x000000a2 has data_bank=2, not 1"),
        "{err}"
    );
    assert!(!Path::new(&file("never")).exists());

    let output = run(&["asm", &words, "-o", "/nonexistent/out"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
}

#[test]
fn a_plan_needs_no_device() {
    let plan = |more: &[&str]| json(&[&["plan", "512x4096x4096"], more].concat());
    let all = plan(&[]);
    let ms = |plan: &Value| plan["modelled_npu_ms"].as_f64().unwrap();
    let chosen = &all["chosen"];
    assert!(chosen["k_tiles"].as_u64() > Some(1));
    assert!(chosen["over_bound"].as_f64() >= Some(1.0));
    // A faster clock takes less; what is forced is obeyed.
    assert!(ms(&plan(&["--clock", "600"])["chosen"]) < ms(chosen));
    let forced = plan(&["--k-tile", "1024"]);
    assert_eq!(forced["chosen"]["tile"][0], 1024);

    // Two sums of three K tiles.
    let cut = plan(&["--k-tile", "1376"]);
    let number = |name: &str| cut["chosen"][name].as_u64().unwrap();
    let c = 512 * 4096 * 4;
    assert_eq!(number("partial_sums"), 2 * c / 4);
    assert_eq!(number("bytes_read"), 3 * c);
    assert_eq!(number("bytes_outputs"), 3 * c);

    let text = stdout(&run(&["plan", "8x64x64", "--dtype", "fp16"]));
    assert!(
        text.contains("modelled") && text.contains("tiling   1 K tile(s)"),
        "{text}"
    );
    for nonsense in ["0x1x1", "1x1x99999999999999"] {
        let output = run(&["plan", nonsense]);
        assert_eq!(output.status.code(), Some(2), "{nonsense}");
    }
}

#[test]
fn products_are_measured() {
    let rest = ["--repeat", "2", "--fds", "2"];
    let sizes = ["bench", "8x64x96", "3x100x32"];
    let report = json(&[&sizes[..], &rest].concat());
    let measured = report["measurements"].as_array().unwrap();
    assert_eq!(measured.len(), 6, "{report:#}");
    for one in measured {
        let number = |name: &str| one[name].as_f64().unwrap();
        assert!((1.0..=2.0).contains(&number("submits")), "{one:#}");
        assert!(number("bytes_to_device") > 0.0 && number("gops") > 0.0);
        assert!(number("modelled_npu_ms") > number("bound_ms"), "{one:#}");
        // Nothing was reached on an NPU.
        assert!(one["share_of_bound"].is_null(), "{one:#}");
    }
    assert_eq!(report["conditions"]["clock_mhz"], 200);

    let text = stdout(&run(&["bench", "2x32x32", "--dtype", "fp16"]));
    assert!(
        text.contains("not an NPU") && text.contains("modelled"),
        "{text}"
    );
    for nonsense in [
        &["bench", "8x64"][..],
        &["bench", "0x1x1"],
        &["bench", "99999999999x99999999999x1"],
    ] {
        assert_eq!(run(nonsense).status.code(), Some(2), "{nonsense:?}");
    }
}

/// As shells say it of a command.
#[test]
fn a_program_that_cannot_be_run_has_its_own_exit_codes() {
    if test_support::emulated() {
        println!(
            "SKIP a_program_that_cannot_be_run_has_its_own_exit_codes: the emulator does not say \
             that a program could not be started"
        );
        return;
    }
    // Nothing is loaded into a program that does not start: any file will do.
    let library = env!("CARGO_BIN_EXE_npu-probe");
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let output = run(&["run", "--preload", library, "--", program]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(program), "{}", stderr(&output));
    }
}

#[test]
fn rust_log_chooses_what_is_logged() {
    let logged = |filter: &str| {
        let output = command(&["--shape", "8x64x64"])
            .env("RUST_LOG", filter)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    assert_eq!(logged("info"), "");
    assert_eq!(logged("no_such_crate=trace"), "");
    assert_eq!(logged("no=such=filter"), "");
    let all = logged("trace");
    assert!(all.contains("npu_matmul"), "{all}");
    let rest = logged("trace,npu_matmul=off");
    assert!(!rest.contains("npu_matmul"), "{rest}");
}

#[test]
fn only_who_wants_colours_gets_them() {
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = command(&[]);
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"] {
            command.env_remove(name);
        }
        let output = command
            .env("RUST_LOG", "trace")
            .envs(variables.iter().copied());
        let output = output.output().unwrap();
        [stdout(&output), stderr(&output)].map(|text| text.contains('\x1b'))
    };
    assert_eq!(coloured(&[]), [false; 2]);
    assert_eq!(coloured(&[("CLICOLOR_FORCE", "1")]), [true; 2]);
    assert_eq!(
        coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]),
        [false; 2]
    );
}
