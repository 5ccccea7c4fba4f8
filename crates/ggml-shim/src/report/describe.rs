// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the device: chip, cores, clock and driver for `--list-devices`, and one line at start.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use npu_matmul::{Dtype, PlanOptions};
use npu_offload::OffloadRules;
use rocket_uapi::DeviceInfo;

use crate::weights::budget::MIB;

/// Vendor of the chips, in the device tree.
const VENDOR: &str = "rockchip,";
/// The board's compatible strings, from the board to the chip, each with NUL at its end (Devicetree
/// Specification, 2.3.1).
const COMPATIBLE: &str = "proc/device-tree/compatible";
/// Where kernels that scale the NPU's clock report it, in one directory per device. Linux's
/// `rocket` has none: the firmware sets the clock.
const DEVFREQ: &str = "sys/class/devfreq";
pub(crate) const MEGAHERTZ: u64 = 1_000_000;

/// Name of the device, and of its buffer type and backends. The software model has another name, so
/// that its benchmark tables do not pass for a board's.
pub(crate) fn name_of(is_model: bool) -> &'static CStr {
    if is_model {
        c"ROCKET-MODEL0"
    } else {
        c"ROCKET0"
    }
}

/// Describes the device in one line. `root` is where `/proc` and `/sys` are.
pub(crate) fn description(info: &DeviceInfo, root: &Path) -> String {
    if info.is_model {
        return "software model: for testing".to_owned();
    }
    let chip = chip(root).map_or_else(|| "NPU".to_owned(), |chip| format!("{chip} NPU"));
    let plural = if info.cores == 1 { "" } else { "s" };
    let clock = match clock_hz(root) {
        Some(clock) => format!("{} MHz", clock / MEGAHERTZ),
        None => "clock unknown".to_owned(),
    };
    let (major, minor, patch) = info.driver.version;
    format!(
        "{chip}, {} core{plural}, {clock}, {} {major}.{minor}.{patch}",
        info.cores,
        info.driver.name.display()
    )
}

/// Returns the line about the device at start. `rules` plan its matmuls, and this library may keep
/// `limit` bytes.
pub(crate) fn start_line(
    info: &DeviceInfo,
    description: &str,
    rules: &OffloadRules,
    limit: u64,
) -> String {
    let name = name_of(info.is_model).to_string_lossy();
    let place = if info.is_model {
        "and much slower than the CPU (unset GGML_ROCKET_DEVICE to disable it)"
    } else {
        &info.name
    };
    let limit = match limit {
        u64::MAX => "no limit for memory".to_owned(),
        limit => format!("at most {} MiB of memory", limit / MIB),
    };
    let source = if rules.is_calibrated {
        "as calibrated"
    } else {
        "assumed, until `npu-probe calibrate` measures this board"
    };
    let (precision, clock) = (rules.choice.word(), rules.target.megahertz());
    let weights = weights(rules.target.options());
    format!(
        "{name}: {description}, {place}; precision {precision}; {limit}; {clock} MHz {source}; \
         {weights}"
    )
}

/// Whether weights stream through CBUF.
fn weights(options: &PlanOptions) -> &'static str {
    match [Dtype::Int8, Dtype::Fp16].map(|dtype| options.streams(dtype)) {
        [false, false] => {
            "weights stay in CBUF, until `npu-probe first` finds that they may stream"
        }
        [true, false] => "int8 weights stream through CBUF",
        [false, true] => "fp16 weights stream through CBUF",
        [true, true] => "weights stream through CBUF",
    }
}

/// The chip of the board, such as RK3588.
fn chip(root: &Path) -> Option<String> {
    let compatible = fs::read(root.join(COMPATIBLE)).ok()?;
    let strings = compatible.split(|byte| *byte == 0);
    let mut chips = strings.filter_map(|name| std::str::from_utf8(name).ok()?.strip_prefix(VENDOR));
    // The board comes first and the chip last.
    let chip = chips.next_back()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (!chip.is_empty() && chip.chars().all(plain)).then(|| chip.to_ascii_uppercase())
}

/// The NPU's current clock, if the kernel reports it.
fn clock_hz(root: &Path) -> Option<u64> {
    let devices = fs::read_dir(root.join(DEVFREQ)).ok()?;
    let npus = devices.filter_map(Result::ok).filter(|entry| {
        // Such as `fdab0000.npu`.
        entry.file_name().to_string_lossy().ends_with("npu")
    });
    let clock = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("cur_freq")).ok()?;
        let hz = text.trim().parse::<u64>().ok()?;
        (hz >= MEGAHERTZ).then_some(hz)
    };
    npus.filter_map(|entry| clock(entry.path())).max()
}

#[cfg(test)]
mod tests {
    use npu_offload::PlanTarget;

    use super::*;

    /// Describes `info` on a machine with these files below `/`.
    fn describe(info: &DeviceInfo, files: &[(&str, &[u8])]) -> String {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        description(info, root.path())
    }

    fn board() -> DeviceInfo {
        DeviceInfo {
            name: "/dev/accel/accel0".to_owned(),
            driver: drm::Driver {
                version: (1, 0, 2),
                name: "rocket".into(),
                date: "0".into(),
                desc: "Rockchip NPU".into(),
            },
            is_model: false,
            cores: 3,
        }
    }

    #[test]
    fn a_board_tells_its_chip_clock_and_driver() {
        let files: [(_, &[u8]); 3] = [
            (COMPATIBLE, b"radxa,rock-5b\0rockchip,rk3588\0"),
            ("sys/class/devfreq/fb000000.gpu/cur_freq", b"300000000\n"),
            ("sys/class/devfreq/fdab0000.npu/cur_freq", b"1000000000\n"),
        ];
        let expected = "RK3588 NPU, 3 cores, 1000 MHz, rocket 1.0.2";
        assert_eq!(describe(&board(), &files), expected);
        let one = DeviceInfo {
            cores: 1,
            ..board()
        };
        let vendor = &b"rockchip,evb1\0rockchip,rk3588s\0"[..];
        let expected = "RK3588S NPU, 1 core, clock unknown, rocket 1.0.2";
        assert_eq!(describe(&one, &[(COMPATIBLE, vendor)]), expected);
    }

    #[test]
    fn unknown_properties_are_left_out() {
        let nothing = "NPU, 3 cores, clock unknown, rocket 1.0.2";
        for files in [
            &[][..],
            &[(COMPATIBLE, &b"fsl,imx8mp\0"[..])],
            &[(COMPATIBLE, b"rockchip,\xff\0\0")],
            &[(COMPATIBLE, b"rockchip,\n\x1b\0")],
            &[("sys/class/devfreq/fdab0000.npu/cur_freq", b"fast")],
            &[("sys/class/devfreq/fdab0000.npu/cur_freq", b"0")],
            &[("sys/class/devfreq/fdab0000.npu/load", b"1000000000")],
        ] {
            assert_eq!(describe(&board(), files), nothing, "{files:?}");
        }
    }

    #[test]
    fn the_first_line_tells_what_a_user_wants_to_know() {
        let mut rules = OffloadRules::new(PlanTarget::at_clock(600_000_000));
        rules.is_calibrated = true;
        let description = "RK3588 NPU, 3 cores, clock unknown, rocket 0.0.0";
        assert_eq!(
            start_line(&board(), description, &rules, 5 << 30),
            "ROCKET0: RK3588 NPU, 3 cores, clock unknown, rocket 0.0.0, /dev/accel/accel0; \
             precision auto; at most 5120 MiB of memory; 600 MHz as calibrated; weights stay in \
             CBUF, until `npu-probe first` finds that they may stream"
        );
        rules.is_calibrated = false;
        let options = PlanOptions {
            unmeasured_tiles: Some(true),
            ..rules.target.options().clone()
        };
        rules.target = PlanTarget::new(rules.target.fds, options);
        let model = DeviceInfo {
            is_model: true,
            ..board()
        };
        let line = start_line(&model, &describe(&model, &[]), &rules, u64::MAX);
        for part in [
            "ROCKET-MODEL0: software model: for testing, and much slower",
            "; no limit for memory;",
            "600 MHz assumed, until `npu-probe calibrate`",
            "; weights stream through CBUF",
        ] {
            assert!(line.contains(part), "{line}");
        }
    }
}
