// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings from environment variables.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU64;
use std::path::PathBuf;

use npu_matmul::{THREADS_VARIABLE, Threads};
use npu_offload::{AttentionChoice, PrecisionChoice};
use rocket_uapi::Selector;

use crate::patterns::Patterns;
use crate::spelling;

/// Values that select no device.
const NO_DEVICE: [&str; 2] = ["none", "off"];

/// The value that leaves the number of rows to the modelled times.
const COMPUTED: &str = "auto";

const MIN_M: &str = "GGML_ROCKET_MIN_M";
const ATTENTION: &str = "GGML_ROCKET_ATTENTION";
const PRECISION: &str = "GGML_ROCKET_PRECISION";
const MEM: &str = "GGML_ROCKET_MEM";
const TENSORS: &str = "GGML_ROCKET_TENSORS";
const STATS: &str = "GGML_ROCKET_STATS";
const TRACE: &str = "GGML_ROCKET_TRACE";
const VERIFY: &str = "GGML_ROCKET_VERIFY";
const DEVICE: &str = "GGML_ROCKET_DEVICE";
/// Messages of other modules name it.
pub(crate) const SERVE: &str = "GGML_ROCKET_SERVE";

/// All variables of this backend.
const VARIABLES: [&str; 10] = [
    MIN_M, ATTENTION, PRECISION, MEM, TENSORS, STATS, TRACE, VERIFY, DEVICE, SERVE,
];

/// The user's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// `GGML_ROCKET_MIN_M`: fewest activation rows (tokens of a batch) of a matmul that is
    /// offloaded; `None` leaves it to the modelled times.
    pub(crate) min_m: Option<usize>,
    /// `GGML_ROCKET_ATTENTION`: which attention is offloaded.
    pub(crate) attention: AttentionChoice,
    /// `GGML_ROCKET_PRECISION`: the precision of matmuls.
    pub(crate) precision: PrecisionChoice,
    /// `GGML_ROCKET_MEM`: bytes that packed weights may take; `None` leaves it
    /// to [`npu_offload::AvailableMemory::default_budget`].
    pub(crate) memory: Option<u64>,
    /// `GGML_ROCKET_TENSORS`: which weights to offload.
    pub(crate) tensors: Patterns,
    /// `GGML_ROCKET_STATS`: whether to print a table at exit.
    pub(crate) stats: bool,
    /// `GGML_ROCKET_SERVE`: whether to take whole graphs from ggml's RPC server.
    pub(crate) serve: bool,
    /// `GGML_ROCKET_TRACE`: the file for a trace.
    pub(crate) trace: Option<PathBuf>,
    /// `GGML_ROCKET_VERIFY=N`: the CPU computes every Nth matmul or attention node again.
    pub(crate) verify: Option<NonZeroU64>,
    /// `NPU_THREADS`: threads for the engine's work, instead of the program's.
    pub(crate) threads: Option<Threads>,
    /// `GGML_ROCKET_DEVICE`, else `ROCKET_DEVICE`: `auto`, `model` or a path; `None` for `none` and
    /// `off`, which disable the NPU.
    pub(crate) device: Option<Selector>,
}

impl Config {
    /// Reads the process's environment. Also returns complaints, one line each, about unknown names
    /// and about values that the default replaces.
    pub(crate) fn from_env() -> (Self, Vec<String>) {
        let set = std::env::vars_os().map(|(name, _)| name);
        let mut complaints = spelling::complaints(set, &VARIABLES);
        let (config, others) = Self::parse(|name| std::env::var_os(name));
        complaints.extend(others);
        (config, complaints)
    }

    /// The fewest rows of an offloaded matmul, as the variable spells them.
    pub(crate) fn min_m(&self) -> String {
        let fixed = self.min_m.map(|rows| rows.to_string());
        fixed.unwrap_or_else(|| COMPUTED.to_owned())
    }

    fn parse(get: impl Fn(&str) -> Option<OsString>) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        let mut complain = |name: &str, value: &str, wanted: &str, instead: &str| {
            complaints.push(format!("{name}={value:?} is not {wanted}; using {instead}"));
        };
        // An empty variable counts as unset.
        let text = |name: &str| {
            get(name)
                .map(|value| value.to_string_lossy().trim().to_owned())
                .filter(|value| !value.is_empty())
        };

        let mut min_m = None;
        if let Some(value) = text(MIN_M) {
            match value.parse::<usize>() {
                _ if value == COMPUTED => {}
                Ok(rows) if rows > 0 => min_m = Some(rows),
                _ => complain(
                    MIN_M,
                    &value,
                    "a number of rows of at least 1, or auto",
                    "the default",
                ),
            }
        }
        let mut attention = AttentionChoice::default();
        if let Some(value) = text(ATTENTION) {
            match value.parse::<usize>() {
                _ if value == COMPUTED => {}
                Ok(0) => attention = AttentionChoice::Never,
                Ok(rows) => attention = AttentionChoice::From(rows),
                Err(_) => complain(
                    ATTENTION,
                    &value,
                    "0, a number of rows, or auto",
                    "the default",
                ),
            }
        }
        let mut precision = PrecisionChoice::default();
        if let Some(value) = text(PRECISION) {
            match PrecisionChoice::WORDS
                .iter()
                .find(|(word, _)| *word == value)
            {
                Some((_, choice)) => precision = *choice,
                None => {
                    let words = PrecisionChoice::WORDS.map(|(word, _)| word).join(", ");
                    complain(PRECISION, &value, &format!("one of {words}"), "auto");
                }
            }
        }
        let mut memory = None;
        if let Some(value) = text(MEM) {
            memory = npu_offload::parse_bytes(&value);
            if memory.is_none() {
                let wanted = "a number of bytes, optionally with K, M or G";
                complain(MEM, &value, wanted, "half of the free memory");
            }
        }
        let mut tensors = Patterns::default();
        if let Some(value) = text(TENSORS) {
            match Patterns::parse(&value) {
                Ok(patterns) => tensors = patterns,
                Err(error) => {
                    let wanted = format!("a list of patterns ({error})");
                    complain(TENSORS, &value, &wanted, "all tensors");
                }
            }
        }
        let [mut stats, mut serve] = [false; 2];
        for (name, switch) in [(STATS, &mut stats), (SERVE, &mut serve)] {
            match text(name).as_deref() {
                Some("1") => *switch = true,
                Some("0") | None => {}
                Some(value) => complain(name, value, "0 or 1", "0"),
            }
        }
        let path = |name: &str| get(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let trace = path(TRACE);
        let mut verify = None;
        if let Some(value) = text(VERIFY) {
            match value.parse() {
                Ok(every) => verify = NonZeroU64::new(every),
                Err(_) => complain(VERIFY, &value, "a number of matmuls", "0"),
            }
        }
        let mut threads = None;
        if let Some(value) = text(THREADS_VARIABLE) {
            threads = value.parse().ok();
            if threads.is_none() {
                let wanted = "a number of threads or auto, optionally with ,pin or ,free";
                complain(THREADS_VARIABLE, &value, wanted, "the program's threads");
            }
        }
        // Any other value is a path. A wrong path shows when it is opened.
        let device = [DEVICE, rocket_uapi::DEVICE_VARIABLE]
            .into_iter()
            .filter_map(&get)
            .find(|value| !value.is_empty())
            .map_or(Some(Selector::Auto), |value| match value.to_str() {
                Some(text) if NO_DEVICE.contains(&text.trim()) => None,
                Some(text) => Some(Selector::from(OsStr::new(text.trim()))),
                None => Some(Selector::from(value.as_os_str())),
            });
        (
            Self {
                min_m,
                attention,
                precision,
                memory,
                tensors,
                stats,
                serve,
                trace,
                verify,
                threads,
                device,
            },
            complaints,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::path::Path;

    use npu_offload::ComputeType;

    use super::*;
    use crate::spelling::PREFIX;

    fn parse(set: &[(&str, &str)]) -> (Config, Vec<String>) {
        Config::parse(|name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn every_variable_that_is_read_is_known() {
        let read = RefCell::new(Vec::new());
        Config::parse(|name| {
            read.borrow_mut().push(name.to_owned());
            None
        });
        let mut read = read.into_inner();
        read.retain(|name| name.starts_with("GGML_ROCKET_"));
        read.sort_unstable();
        let mut known = VARIABLES;
        known.sort_unstable();
        assert_eq!(read, known);
    }

    #[test]
    fn pages_name_known_variables_only() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let docs = fs::read_dir(root.join("docs")).unwrap();
        let pages = docs.map(|page| page.unwrap().path());
        let mut named = 0;
        for page in pages.chain([root.join("README.md")]) {
            if page.extension().is_none_or(|kind| kind != "md") {
                continue;
            }
            let text = fs::read_to_string(&page).unwrap();
            let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let of_ours = |name: &&str| name.len() > PREFIX.len() && name.starts_with(PREFIX);
            for name in names.filter(of_ours) {
                assert!(VARIABLES.contains(&name), "{}: {name}", page.display());
                named += 1;
            }
        }
        assert!(named > 0);
    }

    #[test]
    fn threads_are_as_set_or_the_programs() {
        let (config, complaints) = parse(&[("NPU_THREADS", " 4,pin ")]);
        let threads = config.threads.map(|threads| threads.to_string());
        assert_eq!((threads.as_deref(), complaints.len()), (Some("4,pin"), 0));
        let (config, complaints) = parse(&[("NPU_THREADS", "many")]);
        assert_eq!((config.threads, complaints.len()), (None, 1));
        assert!(complaints[0].contains("NPU_THREADS=\"many\""));
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        let (config, complaints) = parse(&[]);
        assert_eq!(config.min_m, None);
        assert!(!config.stats);
        assert_eq!(config.device, Some(Selector::Auto));
        assert!(complaints.is_empty());
        assert_eq!(parse(&[("GGML_ROCKET_MIN_M", " ")]).0, config);
    }

    #[test]
    fn good_values_are_taken() {
        let (config, complaints) = parse(&[
            ("GGML_ROCKET_MIN_M", "1"),
            ("GGML_ROCKET_PRECISION", "f16"),
            ("GGML_ROCKET_MEM", "2G"),
            ("GGML_ROCKET_TENSORS", "!output*"),
            ("GGML_ROCKET_STATS", "1"),
            ("GGML_ROCKET_SERVE", "1"),
            ("GGML_ROCKET_TRACE", "a trace.json"),
            ("GGML_ROCKET_DEVICE", "model"),
            ("ROCKET_DEVICE", "/dev/accel/accel7"),
        ]);
        assert_eq!(config.min_m, Some(1));
        assert_eq!(config.precision, PrecisionChoice::Always(ComputeType::Fp16));
        assert_eq!(config.memory, Some(2 << 30));
        assert!(!config.tensors.include("output.weight"));
        assert!(config.stats && config.serve);
        assert_eq!(config.trace, Some("a trace.json".into()));
        assert_eq!(config.device, Some(Selector::Model));
        assert!(complaints.is_empty());
    }

    #[test]
    fn rows_can_be_computed_on_demand() {
        let (config, complaints) = parse(&[("GGML_ROCKET_MIN_M", "auto")]);
        assert_eq!(config.min_m, None);
        assert!(complaints.is_empty());
    }

    #[test]
    fn the_general_variable_holds_where_ours_is_unset() {
        let (config, _) = parse(&[("ROCKET_DEVICE", "/dev/accel/accel7")]);
        let path = Selector::Path("/dev/accel/accel7".into());
        assert_eq!(config.device, Some(path));
    }

    #[test]
    fn the_npu_can_be_left_alone() {
        for word in ["none", "off", " none "] {
            for name in ["GGML_ROCKET_DEVICE", "ROCKET_DEVICE"] {
                let (config, complaints) = parse(&[(name, word)]);
                assert_eq!((config.device, complaints.len()), (None, 0), "{word}");
            }
        }
        let (config, _) = parse(&[("GGML_ROCKET_DEVICE", "model"), ("ROCKET_DEVICE", "none")]);
        assert_eq!(config.device, Some(Selector::Model));
    }

    #[test]
    fn attention_is_off_with_zero() {
        for (value, expected) in [
            ("0", AttentionChoice::Never),
            ("32", AttentionChoice::From(32)),
            ("auto", AttentionChoice::Auto),
        ] {
            let (config, complaints) = parse(&[("GGML_ROCKET_ATTENTION", value)]);
            assert_eq!((config.attention, complaints.len()), (expected, 0));
        }
        let (config, complaints) = parse(&[("GGML_ROCKET_ATTENTION", "off")]);
        assert_eq!(config.attention, AttentionChoice::Auto);
        assert!(
            complaints[0].contains("not 0, a number of rows"),
            "{complaints:?}"
        );
    }

    #[test]
    fn bad_values_are_named_and_replaced() {
        for bad in ["0", "-3", "many", "1.5", "99999999999999999999999"] {
            let (config, complaints) = parse(&[("GGML_ROCKET_MIN_M", bad)]);
            assert_eq!(config.min_m, None);
            assert_eq!(complaints.len(), 1);
            assert!(complaints[0].contains(bad) && complaints[0].contains("default"));
        }
        let (config, complaints) = parse(&[("GGML_ROCKET_PRECISION", "F16")]);
        assert_eq!(config.precision, PrecisionChoice::Auto);
        let words = "is not one of auto, f16, w8a8-hadamard, w4a8-hadamard; using auto";
        assert!(complaints[0].contains(words), "{complaints:?}");
        // Values of earlier versions.
        for gone in ["w8a8", "w4a8", "w4a4-hadamard"] {
            let (config, complaints) = parse(&[("GGML_ROCKET_PRECISION", gone)]);
            assert_eq!(config.precision, PrecisionChoice::Auto);
            assert!(complaints[0].contains(words), "{complaints:?}");
        }
        let (config, complaints) = parse(&[("GGML_ROCKET_MEM", "lots")]);
        assert_eq!(config.memory, None);
        assert!(complaints[0].contains("lots"), "{complaints:?}");
        let (config, complaints) = parse(&[("GGML_ROCKET_TENSORS", "blk.[0")]);
        assert_eq!(config.tensors, Patterns::default());
        assert!(complaints[0].contains("not closed"), "{complaints:?}");
        let (config, complaints) = parse(&[("GGML_ROCKET_STATS", "yes")]);
        assert!(!config.stats);
        assert!(complaints[0].contains("GGML_ROCKET_STATS"));
        let (config, complaints) = parse(&[("GGML_ROCKET_SERVE", "on")]);
        assert!(!config.serve && complaints[0].contains("GGML_ROCKET_SERVE"));
    }
}
