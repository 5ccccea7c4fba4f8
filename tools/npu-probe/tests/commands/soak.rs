// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe selftest --seconds`; it runs until its processes have finished.

use crate::common::{json, says};

#[test]
fn processes_multiply_and_some_are_killed() {
    if test_support::emulated() {
        println!(
            "SKIP processes_multiply_and_some_are_killed: the emulator's programs start no others"
        );
        return;
    }
    for (line, clients) in [
        ("selftest --seconds 0 --processes 2", 2),
        ("selftest --seconds 0 --processes 8 --kill", 8),
    ] {
        let report = json(line);
        let killed = report["killed"].as_u64().unwrap();
        assert_eq!(killed > 0, line.contains("kill"), "{report:#}");
        assert!(killed < clients, "{report:#}");
        assert_eq!(report["clients"], clients);
        assert_eq!(report["wrong"], 0, "{report:#}");
        let matmuls = report["products"].as_object().unwrap();
        let matmuls = matmuls.values().map(|number| number.as_u64().unwrap());
        assert!(matmuls.sum::<u64>() >= clients, "{report:#}");
    }
    says(
        "selftest --seconds 0 --processes 1",
        &["RESULT PASS (software model): "],
    );
}
