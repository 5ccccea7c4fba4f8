// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the device: chip, cores, clock and driver for `--list-devices`, and one line at start.

use std::fmt;
use std::fs;
use std::path::Path;

use rocket_uapi::DeviceInfo;

use crate::budget::MIB;

/// Vendor of the chips, in the device tree.
const VENDOR: &str = "rockchip,";
/// The board's compatible strings, from the board to the chip, each with NUL at its end (Devicetree
/// Specification, 2.3.1).
const COMPATIBLE: &str = "proc/device-tree/compatible";
/// Where kernels that scale the NPU's clock report it, in one directory per device. Linux's
/// `rocket` has none: the firmware sets the clock.
const DEVFREQ: &str = "sys/class/devfreq";
pub(crate) const MEGAHERTZ: u64 = 1_000_000;

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
    let (major, minor, patch) = info.version;
    format!(
        "{chip}, {} core{plural}, {clock}, {} {major}.{minor}.{patch}",
        info.cores, info.driver
    )
}

/// The line about the device at start.
#[derive(Debug)]
pub(crate) struct StartLine<'a> {
    pub(crate) name: &'a str,
    pub(crate) description: &'a str,
    /// The node of a board's device; `None` for the software model.
    pub(crate) node: Option<&'a str>,
    /// The precision, as the user writes it.
    pub(crate) precision: &'static str,
    /// Bytes that packed weights may take.
    pub(crate) limit: u64,
    /// The clock that times are modelled for.
    pub(crate) megahertz: u64,
    /// Whether that clock was measured.
    pub(crate) is_calibrated: bool,
}

impl fmt::Display for StartLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.description)?;
        match self.node {
            Some(node) => write!(f, ", {node}")?,
            None => f.write_str(
                ", and much slower than the CPU (unset GGML_ROCKET_DEVICE to disable it)",
            )?,
        }
        write!(f, "; precision {}", self.precision)?;
        match self.limit {
            u64::MAX => f.write_str("; no limit for packed weights")?,
            limit => write!(f, "; at most {} MiB of packed weights", limit / MIB)?,
        }
        write!(f, "; {} MHz", self.megahertz)?;
        f.write_str(match self.is_calibrated {
            true => " as calibrated",
            false => " assumed, until `npu-probe calibrate` measures this board",
        })
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
    let of_npu = devices.filter_map(Result::ok).filter(|entry| {
        // Such as `fdab0000.npu`.
        entry.file_name().to_string_lossy().ends_with("npu")
    });
    let clock = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("cur_freq")).ok()?;
        let hz = text.trim().parse::<u64>().ok()?;
        (hz >= MEGAHERTZ).then_some(hz)
    };
    of_npu.filter_map(|entry| clock(entry.path())).max()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A directory in place of the root.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
            let name = format!("rocket-root-{}-{name}", std::process::id());
            let root = Self(std::env::temp_dir().join(name));
            let _ = fs::remove_dir_all(&root.0);
            for (path, content) in files {
                let path = root.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
            root
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn board() -> DeviceInfo {
        DeviceInfo {
            name: "/dev/accel/accel0".to_owned(),
            driver: "rocket".to_owned(),
            version: (1, 0, 2),
            description: "Rockchip NPU".to_owned(),
            is_model: false,
            cores: 3,
        }
    }

    #[test]
    fn a_board_tells_its_chip_clock_and_driver() {
        let root = Root::new(
            "board",
            &[
                (COMPATIBLE, b"radxa,rock-5b\0rockchip,rk3588\0"),
                ("sys/class/devfreq/fb000000.gpu/cur_freq", b"300000000\n"),
                ("sys/class/devfreq/fdab0000.npu/cur_freq", b"1000000000\n"),
            ],
        );
        assert_eq!(
            description(&board(), &root.0),
            "RK3588 NPU, 3 cores, 1000 MHz, rocket 1.0.2"
        );
        let vendor = (COMPATIBLE, &b"rockchip,evb1\0rockchip,rk3588s\0"[..]);
        let root = Root::new("vendor", &[vendor]);
        let one = DeviceInfo {
            cores: 1,
            ..board()
        };
        assert_eq!(
            description(&one, &root.0),
            "RK3588S NPU, 1 core, clock unknown, rocket 1.0.2"
        );
    }

    #[test]
    fn what_is_not_told_is_not_claimed() {
        let nothing = "NPU, 3 cores, clock unknown, rocket 1.0.2";
        for (index, files) in [
            &[][..],
            &[(COMPATIBLE, &b"fsl,imx8mp\0"[..])],
            &[(COMPATIBLE, b"rockchip,\xff\0\0")],
            &[(COMPATIBLE, b"rockchip,\n\x1b\0")],
            &[("sys/class/devfreq/fdab0000.npu/cur_freq", b"fast")],
            &[("sys/class/devfreq/fdab0000.npu/cur_freq", b"0")],
            &[("sys/class/devfreq/fdab0000.npu/load", b"1000000000")],
        ]
        .into_iter()
        .enumerate()
        {
            let root = Root::new(&format!("nothing-{index}"), files);
            assert_eq!(description(&board(), &root.0), nothing, "{files:?}");
        }
    }

    #[test]
    fn the_first_line_tells_what_a_user_wants_to_know() {
        let board = StartLine {
            name: "ROCKET0",
            description: "RK3588 NPU, 3 cores, clock unknown, rocket 0.0.0",
            node: Some("/dev/accel/accel1"),
            precision: "auto",
            limit: 5 << 30,
            megahertz: 600,
            is_calibrated: true,
        };
        assert_eq!(
            board.to_string(),
            "ROCKET0: RK3588 NPU, 3 cores, clock unknown, rocket 0.0.0, /dev/accel/accel1; \
             precision auto; at most 5120 MiB of packed weights; 600 MHz as calibrated"
        );
        let model = StartLine {
            name: "ROCKET-MODEL0",
            description: "software model: for testing",
            node: None,
            limit: u64::MAX,
            is_calibrated: false,
            ..board
        };
        let line = model.to_string();
        assert!(
            line.starts_with("ROCKET-MODEL0: software model: for testing, and much slower"),
            "{line}"
        );
        assert!(line.contains("; no limit for packed weights;"), "{line}");
        assert!(
            line.contains("600 MHz assumed, until `npu-probe calibrate`"),
            "{line}"
        );
    }

    #[test]
    fn software_is_called_software() {
        let model = DeviceInfo {
            is_model: true,
            ..board()
        };
        let said = description(&model, Path::new("/"));
        assert_eq!(said, "software model: for testing");
    }
}
