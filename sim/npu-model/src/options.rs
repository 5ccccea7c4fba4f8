// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of a model, also as text: `driver=linux-6.18,bugs=all,cores=1`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rknpu_chip::{Contested, Level, UnknownSwitch};
use rknpu_regcmd::timing::Machine;

use crate::damage::Damage;
use crate::driver::{Backing, Bug, Caches, DriverBugs, DriverProfile, Iommu};

/// Options of a [`Model`](crate::Model).
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Number of cores, 1 to 16 (values outside count as the nearest).
    /// RK3588: 3.
    pub cores: u32,
    /// What happens when a program breaks a rule of the silicon.
    pub level: Level,
    /// The chosen side of each contested fact about the chip.
    pub contested: Contested,
    /// How long a hung job holds its core, wall clock. 500 ms in the real
    /// driver; tests shorten it. [`Level::Strict`] does not wait at all.
    pub hang_timeout: Duration,
    /// The kernel and its IOMMU. A task that alone takes longer than
    /// [`DriverProfile::job_limit`] is not computed but hangs.
    pub driver: DriverProfile,
    /// The enabled bugs of the kernel. A trigger of any bug is an
    /// [`Event::KernelBug`](crate::event::Event::KernelBug).
    pub bugs: DriverBugs,
    /// Whether a core loses its registers after it had no job for
    /// [`DriverProfile::autosuspend`], by the clock of the host.
    pub registers_lost: bool,
    /// Whether CPU and NPU see the same bytes of buffer objects. They do not on a board:
    /// [`Caches::Manual`] shows forgotten PREP_BO and FINI_BO.
    pub caches: Caches,
    /// Memory of the board for buffer objects, bytes. `None`: no limit; the host gives
    /// pages as they are touched.
    pub memory: Option<u64>,
    /// Cores that do not work.
    pub damage: Damage,
    /// The host memory of buffer objects.
    pub backing: Backing,
    /// Whether jobs are recorded for [`Model::timeline`](crate::Model::timeline).
    pub timeline: bool,
    /// The constants of modelled time: clock (by default the one that boards boot with
    /// and mainline keeps), memory, and the driver's costs. Its number of cores is
    /// [`Self::cores`].
    pub machine: Machine,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            cores: Machine::RK3588.chip.cores,
            level: Level::default(),
            contested: Contested::default(),
            hang_timeout: DriverProfile::default().job_limit,
            driver: DriverProfile::default(),
            bugs: DriverBugs::NONE,
            registers_lost: false,
            caches: Caches::default(),
            memory: None,
            damage: Damage::default(),
            backing: if cfg!(miri) {
                Backing::Heap
            } else {
                Backing::default()
            },
            timeline: false,
            machine: Machine::RK3588.at_clock(Machine::BOOT_CLOCK_HZ),
        }
    }
}

/// The error of a text that does not describe a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// No option has that name.
    #[error("the model has no option `{name}`. It has: {known}")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The names of all options, with commas between them.
        known: String,
    },
    /// An option does not take that value.
    #[error("the option `{name}` of the model does not accept `{value}`; it accepts {takes}")]
    Value {
        /// Name of the option.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The values that it takes, in words.
        takes: String,
    },
    /// A contested fact has no such side.
    #[error(transparent)]
    Side(#[from] UnknownSwitch),
}

/// An option: its setter (`None` for a value that it does not take), and the values that
/// it takes.
struct Entry {
    name: &'static str,
    set: fn(&mut ModelOptions, &str) -> Option<()>,
    takes: fn() -> String,
}

const OPTIONS: &[Entry] = &[
    Entry {
        name: "driver",
        set: |options, value| {
            // Keep the fields that other options set.
            let old = &options.driver;
            options.driver = DriverProfile {
                iommu: old.iommu,
                ..DriverProfile::by_name(value)?
            };
            Some(())
        },
        takes: || list(DriverProfile::ALL.iter().map(|profile| profile.name)),
    },
    Entry {
        name: "iommu",
        set: |options, value| {
            options.driver.iommu = pick(value, &IOMMUS)?;
            Some(())
        },
        takes: || names(&IOMMUS),
    },
    Entry {
        name: "job-limit",
        set: |options, value| {
            let milliseconds = value.parse().ok().filter(|limit| *limit > 0)?;
            options.driver.job_limit = Duration::from_millis(milliseconds);
            Some(())
        },
        takes: || "a number of modelled milliseconds".to_owned(),
    },
    Entry {
        name: "bugs",
        set: |options, value| {
            options.bugs = match value {
                "all" => DriverBugs::all(),
                "none" => DriverBugs::NONE,
                _ => value.split('+').map(Bug::by_name).collect::<Option<_>>()?,
            };
            Some(())
        },
        takes: || {
            let names = list(Bug::ALL.iter().map(|bug| bug.name()));
            format!("all, none, or some of these, separated by +: {names}")
        },
    },
    Entry {
        name: "registers",
        set: |options, value| {
            options.registers_lost = pick(value, &REGISTERS)?;
            Some(())
        },
        takes: || names(&REGISTERS),
    },
    Entry {
        name: "caches",
        set: |options, value| {
            options.caches = pick(value, &CACHES)?;
            Some(())
        },
        takes: || names(&CACHES),
    },
    Entry {
        name: "memory",
        set: |options, value| {
            let mebibytes: u64 = value.parse().ok()?;
            options.memory = Some(mebibytes.checked_mul(BYTES_PER_MEBIBYTE)?);
            Some(())
        },
        takes: || "a number of MiB".to_owned(),
    },
    Entry {
        name: "power",
        set: |options, value| {
            options.damage.power_fails = pick(value, &POWER)?;
            Some(())
        },
        takes: || names(&POWER),
    },
    Entry {
        name: "wedged",
        set: |options, value| {
            let cores = value.split('+').map(str::parse).collect::<Result<_, _>>();
            options.damage.wedged = cores.ok()?;
            Some(())
        },
        takes: || "core numbers, separated by +".to_owned(),
    },
    Entry {
        name: "wedge-memory",
        set: |options, value| {
            let file = (!value.is_empty()).then(|| PathBuf::from(value));
            options.damage.memory = Some(file?);
            Some(())
        },
        takes: || "a file, which keeps the numbers of cores that need a power cycle".to_owned(),
    },
    Entry {
        name: "cores",
        set: |options, value| {
            options.cores = value.parse().ok().filter(|cores| *cores > 0)?;
            Some(())
        },
        takes: || "a number, at least 1".to_owned(),
    },
    Entry {
        name: "clock",
        set: |options, value| {
            let megahertz: u64 = value.parse().ok().filter(|clock| *clock > 0)?;
            options.machine.clock_hz = megahertz.checked_mul(HERTZ_PER_MEGAHERTZ)?;
            Some(())
        },
        takes: || "a number of MHz, for modelled times".to_owned(),
    },
    Entry {
        name: "level",
        set: |options, value| {
            options.level = pick(value, &LEVELS)?;
            Some(())
        },
        takes: || names(&LEVELS),
    },
];

const HERTZ_PER_MEGAHERTZ: u64 = 1_000_000;
const IOMMUS: [(&str, Iommu); 2] = [("rockchip", Iommu::Rockchip), ("smmuv3", Iommu::SmmuV3)];
const REGISTERS: [(&str, bool); 2] = [("kept", false), ("lost", true)];
const CACHES: [(&str, Caches); 2] = [("coherent", Caches::Coherent), ("manual", Caches::Manual)];
const POWER: [(&str, bool); 2] = [("works", false), ("fails", true)];
const LEVELS: [(&str, Level); 3] = [
    ("faithful", Level::Faithful),
    ("strict", Level::Strict),
    ("silent", Level::Silent),
];
const BYTES_PER_MEBIBYTE: u64 = 1 << 20;

fn pick<T: Copy>(value: &str, choices: &[(&str, T)]) -> Option<T> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|(_, choice)| *choice)
}

fn names<T>(choices: &[(&'static str, T)]) -> String {
    list(choices.iter().map(|(name, _)| *name))
}

fn list(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

impl FromStr for ModelOptions {
    type Err = OptionError;

    /// Parses options as `name=value`, separated by commas. The names of contested facts
    /// ([`Contested::SWITCHES`]) are options too. Unnamed options keep the value of
    /// [`ModelOptions::default`].
    ///
    /// ```
    /// use npu_model::ModelOptions;
    /// use npu_model::driver::{Bug, DriverProfile};
    ///
    /// let options: ModelOptions = "driver=linux-6.18,bugs=huge-bo+get-unique".parse()?;
    /// assert_eq!(options.driver, DriverProfile::LINUX_6_18);
    /// assert!(options.bugs.contains(Bug::HugeBo));
    /// # Ok::<(), npu_model::OptionError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(entry) = OPTIONS.iter().find(|entry| entry.name == name) else {
                let facts = Contested::SWITCHES.iter().map(|switch| switch.name);
                if facts.clone().any(|fact| fact == name) {
                    options.contested.set(part)?;
                    continue;
                }
                return Err(OptionError::Unknown {
                    name: name.to_owned(),
                    known: list(OPTIONS.iter().map(|entry| entry.name).chain(facts)),
                });
            };
            (entry.set)(&mut options, value).ok_or_else(|| OptionError::Value {
                name: entry.name,
                value: value.to_owned(),
                takes: (entry.takes)(),
            })?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_takes_what_it_says() {
        let text = "driver=linux-7.0,iommu=smmuv3,bugs=all,registers=lost,\
                    memory=8192,cores=2,level=strict,caches=manual,power=fails,\
                    wedged=0+2,wedge-memory=/tmp/wedged";
        let options: ModelOptions = text.parse().unwrap();
        let expected = DriverProfile {
            iommu: Iommu::SmmuV3,
            ..DriverProfile::by_name("linux-7.0").unwrap()
        };
        assert_eq!(options.driver, expected);
        assert_eq!(options.bugs, DriverBugs::all());
        assert!(options.registers_lost);
        assert_eq!((options.memory, options.cores), (Some(8 << 30), 2));
        assert_eq!(options.level, Level::Strict);
        assert_eq!(options.caches, Caches::Manual);
        assert!(options.damage.power_fails);
        assert_eq!(options.damage.wedged, [0, 2].into());
        assert_eq!(options.damage.memory, Some("/tmp/wedged".into()));
        let order = "iommu=smmuv3,driver=linux-7.0".parse::<ModelOptions>();
        assert_eq!(order.unwrap().driver.iommu, Iommu::SmmuV3);
    }

    #[test]
    fn contested_facts_are_options() {
        let options: ModelOptions = "cores=1,tf32-operand=nearest".parse().unwrap();
        let mut sides = options.contested.sides();
        assert!(sides.any(|side| side == ("tf32-operand", "nearest")));
        assert_eq!(options.cores, 1);
    }

    #[test]
    fn errors_say_what_would_do() {
        for (text, part) in [
            ("drivers=linux-7.2", "driver, iommu"),
            ("driver=linux-5", "linux-7.2"),
            ("bugs=all+huge-bo", "dangling-handle"),
            ("cores=0", "at least 1"),
            ("level", "strict"),
            ("wedged=0+x", "core numbers"),
            ("wedge-memory=", "a file"),
            ("memory=99999999999999999999", "MiB"),
            ("tf32-operand=rounded", "tf32-operand=truncated|nearest"),
            ("tf32=nearest", "tf32-operand"),
        ] {
            let error = text.parse::<ModelOptions>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!("".parse::<ModelOptions>().is_ok());
    }
}
