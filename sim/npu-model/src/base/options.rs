// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of a model, also as text: `driver=linux-6.18,bugs=all,cores=1`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rknpu_chip::{Contested, Level, UnknownSwitch};
use rknpu_regcmd::timing::Machine;

use crate::base::bugs::Bug;
use crate::base::cache::Caches;
use crate::base::damage::Damage;
use crate::base::job_fault::JobFault;
use crate::base::memory::Backing;
use crate::base::profile::{DriverProfile, Iommu};

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
    /// [`Event::KernelBug`](crate::base::event::Event::KernelBug).
    pub bugs: BTreeSet<Bug>,
    /// Whether a core loses its registers after it had no job for
    /// [`DriverProfile::autosuspend`], by the clock of the host.
    pub registers_lost: bool,
    /// Whether CPU and NPU see the same bytes of buffer objects. They do not on a board:
    /// [`Caches::Manual`] shows forgotten PREP_BO and FINI_BO.
    pub caches: Caches,
    /// Memory of the board for buffer objects, bytes. `None`: no limit; the host gives
    /// pages as they are touched.
    pub memory: Option<u64>,
    /// Cores that do not work, and jobs that do not start.
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
            bugs: BTreeSet::new(),
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

/// Sets an option. The error is the values that it takes, in words.
type SetOption = fn(&mut ModelOptions, &str) -> Result<(), String>;

const OPTIONS: &[(&str, SetOption)] = &[
    ("driver", |options, value| {
        let known = || list(DriverProfile::ALL.iter().map(|profile| profile.name));
        let mut driver = DriverProfile::by_name(value).ok_or_else(known)?;
        // Keep the fields that other options set.
        driver.iommu = options.driver.iommu;
        driver.job_limit = options.driver.job_limit;
        options.driver = driver;
        Ok(())
    }),
    ("iommu", |options, value| {
        pick(&mut options.driver.iommu, value, &IOMMUS)
    }),
    ("job-limit", |options, value| {
        let limit = positive(value).map(Duration::from_millis);
        let takes = || "a number of modelled milliseconds".to_owned();
        set(&mut options.driver.job_limit, limit, takes)
    }),
    ("bugs", |options, value| {
        let bugs = match value {
            "all" => Some(Bug::ALL.into()),
            "none" => Some(BTreeSet::new()),
            _ => value.split('+').map(Bug::by_name).collect(),
        };
        set(&mut options.bugs, bugs, || {
            let names = list(Bug::ALL.iter().map(|bug| bug.name()));
            format!("all, none, or some of these, separated by +: {names}")
        })
    }),
    ("registers", |options, value| {
        pick(&mut options.registers_lost, value, &REGISTERS)
    }),
    ("caches", |options, value| {
        pick(&mut options.caches, value, &CACHES)
    }),
    ("memory", |options, value| {
        let mebibytes = value.parse::<u64>().ok();
        let bytes = mebibytes.and_then(|count| count.checked_mul(BYTES_PER_MEBIBYTE));
        let takes = || "a number of MiB".to_owned();
        set(&mut options.memory, bytes.map(Some), takes)
    }),
    ("power", |options, value| {
        pick(&mut options.damage.power_fails, value, &POWER)
    }),
    ("wedged", |options, value| {
        let cores = value.split('+').map(|core| core.parse().ok()).collect();
        let takes = || "core numbers, separated by +".to_owned();
        set(&mut options.damage.wedged, cores, takes)
    }),
    ("wedge-memory", |options, value| {
        let file = (!value.is_empty()).then(|| Some(PathBuf::from(value)));
        let takes =
            || "a file, which keeps the numbers of cores that need a power cycle".to_owned();
        set(&mut options.damage.memory, file, takes)
    }),
    ("stall", |options, value| {
        let takes = || "a number N, at least 1: each Nth job never starts".to_owned();
        set(
            &mut options.damage.stall,
            value.parse().ok().map(Some),
            takes,
        )
    }),
    ("fault", |options, value| {
        let fault = JobFault::NAMES.iter().find(|(name, _)| *name == value);
        let takes = || list(JobFault::NAMES.iter().map(|(name, _)| *name));
        let fault = fault.map(|(_, fault)| Some(*fault));
        set(&mut options.damage.fault, fault, takes)
    }),
    ("cores", |options, value| {
        let takes = || "a number, at least 1".to_owned();
        set(&mut options.cores, positive(value), takes)
    }),
    ("clock", |options, value| {
        let clock = positive(value).and_then(|count: u64| count.checked_mul(HERTZ_PER_MEGAHERTZ));
        let takes = || "a number of MHz, for modelled times".to_owned();
        set(&mut options.machine.clock_hz, clock, takes)
    }),
    ("level", |options, value| {
        pick(&mut options.level, value, &LEVELS)
    }),
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

fn set<T>(option: &mut T, value: Option<T>, takes: impl FnOnce() -> String) -> Result<(), String> {
    *option = value.ok_or_else(takes)?;
    Ok(())
}

fn pick<T: Copy>(option: &mut T, value: &str, choices: &[(&'static str, T)]) -> Result<(), String> {
    let found = choices.iter().find(|(name, _)| *name == value);
    let names = || list(choices.iter().map(|(name, _)| *name));
    set(option, found.map(|(_, choice)| *choice), names)
}

fn positive<T: FromStr + Default + PartialEq>(value: &str) -> Option<T> {
    let number = value.parse().ok();
    number.filter(|number| *number != T::default())
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
    /// assert!(options.bugs.contains(&Bug::HugeBo));
    /// # Ok::<(), npu_model::OptionError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let Some(&(name, set)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
                let facts = Contested::SWITCHES.iter().map(|switch| switch.name);
                if facts.clone().any(|fact| fact == name) {
                    options.contested.set(part)?;
                    continue;
                }
                return Err(OptionError::Unknown {
                    name: name.to_owned(),
                    known: list(OPTIONS.iter().map(|(name, _)| *name).chain(facts)),
                });
            };
            set(&mut options, value).map_err(|takes| OptionError::Value {
                name,
                value: value.to_owned(),
                takes,
            })?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn every_option_takes_what_it_says() {
        let text = "driver=linux-7.0,iommu=smmuv3,bugs=all,registers=lost,\
                    memory=8192,cores=2,level=strict,caches=manual,power=fails,\
                    wedged=0+2,wedge-memory=/tmp/wedged,stall=20,fault=idle";
        let options: ModelOptions = text.parse().unwrap();
        let expected = DriverProfile {
            iommu: Iommu::SmmuV3,
            ..DriverProfile::by_name("linux-7.0").unwrap()
        };
        assert_eq!(options.driver, expected);
        assert_eq!(options.bugs, BTreeSet::from(Bug::ALL));
        assert!(options.registers_lost);
        assert_eq!((options.memory, options.cores), (Some(8 << 30), 2));
        assert_eq!(options.level, Level::Strict);
        assert_eq!(options.caches, Caches::Manual);
        assert!(options.damage.power_fails);
        assert_eq!(options.damage.wedged, [0, 2].into());
        assert_eq!(options.damage.memory, Some("/tmp/wedged".into()));
        assert_eq!(options.damage.stall, NonZeroU64::new(20));
        assert_eq!(options.damage.fault, Some(JobFault::Idle));
        let order = "iommu=smmuv3,job-limit=9,driver=linux-7.0".parse::<ModelOptions>();
        let driver = order.unwrap().driver;
        assert_eq!(driver.iommu, Iommu::SmmuV3);
        assert_eq!(driver.job_limit, Duration::from_millis(9));
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
            ("stall=0", "never starts"),
            ("fault=idles", "many-tasks, idle"),
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
