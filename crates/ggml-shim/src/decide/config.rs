// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings from environment variables.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::num::NonZeroU64;
use std::path::PathBuf;

use npu_matmul::{THREADS_VARIABLE, Threads};
use npu_offload::{AttentionChoice, DEFAULT_MIN_ROWS, PrecisionChoice};
use rocket_uapi::Selector;

use crate::decide::patterns::Patterns;

/// Prefix of all our variables.
const PREFIX: &str = "GGML_ROCKET_";

/// The value that leaves the number of rows to the modelled times.
const COMPUTED: &str = "auto";

const MIN_M: &str = "GGML_ROCKET_MIN_M";
const ATTENTION: &str = "GGML_ROCKET_ATTENTION";
const PRECISION: &str = "GGML_ROCKET_PRECISION";
const CPU_JOBS: &str = "GGML_ROCKET_CPU_JOBS";
const MEM: &str = "GGML_ROCKET_MEM";
const TENSORS: &str = "GGML_ROCKET_TENSORS";
const STATS: &str = "GGML_ROCKET_STATS";
const TRACE: &str = "GGML_ROCKET_TRACE";
const VERIFY: &str = "GGML_ROCKET_VERIFY";
const DEVICE: &str = "GGML_ROCKET_DEVICE";
/// Messages of other modules name these.
pub(crate) const SERVE: &str = "GGML_ROCKET_SERVE";
pub(crate) const FALLBACK: &str = "GGML_ROCKET_FALLBACK";

/// All variables of this backend.
const VARIABLES: [&str; 12] = [
    MIN_M, ATTENTION, PRECISION, CPU_JOBS, MEM, TENSORS, STATS, TRACE, VERIFY, DEVICE, SERVE,
    FALLBACK,
];

/// Where the statistics go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum StatsOutput {
    #[default]
    Never,
    /// To standard error, when the process ends.
    AtExit,
    /// Into a file, after graphs.
    File(PathBuf),
}

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
    /// `GGML_ROCKET_CPU_JOBS`: whether the CPU computes jobs that wait for the NPU; `None` leaves
    /// it to [`PlanOptions::cpu_jobs`](npu_matmul::PlanOptions::cpu_jobs).
    pub(crate) cpu_jobs: Option<bool>,
    /// `GGML_ROCKET_MEM`: bytes that this library may keep; `None` leaves it
    /// to [`npu_offload::AvailableMemory::default_budget`].
    pub(crate) memory: Option<u64>,
    /// `GGML_ROCKET_TENSORS`: which weights to offload.
    pub(crate) tensors: Patterns,
    /// `GGML_ROCKET_STATS`: where the statistics go.
    pub(crate) stats: StatsOutput,
    /// `GGML_ROCKET_SERVE`: whether to take whole graphs from ggml's RPC server.
    pub(crate) serve: bool,
    /// `GGML_ROCKET_FALLBACK`: whether the CPU computes what the NPU could not; otherwise a failure
    /// of the NPU is an error.
    pub(crate) fallback: bool,
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
        let mut complaints = misspelt(set);
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
        let mut variables = Variables {
            get: &get,
            complaints: Vec::new(),
        };
        let min_m = variables.parse(MIN_M, "the default", |text| match text.parse() {
            _ if text == COMPUTED => Ok(None),
            Ok(rows) if rows > 0 => Ok(Some(rows)),
            _ => Err("a number of rows of at least 1, or auto"),
        });
        let attention = variables.parse(ATTENTION, "the default", |text| match text.parse() {
            _ if text == COMPUTED => Ok(AttentionChoice::Auto),
            Ok(0) => Ok(AttentionChoice::Never),
            Ok(rows) => Ok(AttentionChoice::From(rows)),
            Err(_) => Err("0, a number of rows, or auto"),
        });
        let precision = variables.parse(PRECISION, "auto", |text| {
            let words = PrecisionChoice::WORDS;
            let found = words.into_iter().find(|(word, _)| *word == text);
            let wanted = || match text {
                "w4a8-hadamard" => "a precision any more: take w8a8-hadamard".to_owned(),
                _ => format!("one of {}", words.map(|(word, _)| word).join(", ")),
            };
            found.map(|(_, choice)| choice).ok_or_else(wanted)
        });
        let memory = variables.parse(MEM, "half of the free memory", |text| {
            npu_offload::parse_bytes(text).ok_or("a number of bytes, optionally with K, M or G")
        });
        let tensors = variables.parse(TENSORS, "all tensors", |text| {
            Patterns::parse(text).map_err(|error| format!("a list of patterns ({error})"))
        });
        let stats = variables.parse(STATS, "0", |text| match text {
            "0" => Ok(StatsOutput::Never),
            "1" => Ok(StatsOutput::AtExit),
            // Not any word: `yes` would become a file.
            file if file.contains(['/', '.']) => Ok(StatsOutput::File(file.into())),
            _ => Err("0, 1 or the path of a file, with a slash or a dot"),
        });
        let [cpu_jobs, serve, fallback] =
            [(CPU_JOBS, "the default"), (SERVE, "0"), (FALLBACK, "1")].map(|(name, instead)| {
                variables.parse(name, instead, |text| match text {
                    "0" => Ok(false),
                    "1" => Ok(true),
                    _ => Err("0 or 1"),
                })
            });
        let verify = variables.parse(VERIFY, "0", |text| match text.parse() {
            Ok(every) => Ok(NonZeroU64::new(every)),
            Err(_) => Err("a number of matmuls"),
        });
        let threads = variables.parse(THREADS_VARIABLE, "the program's threads", |text| {
            let wanted = "a number of threads or auto, optionally with ,pin or ,free";
            text.parse().map_err(|_| wanted)
        });
        let path = |name: &str| get(name).filter(|path| !path.is_empty());
        // Any other value is a path. A wrong path shows when it is opened.
        let device = [DEVICE, rocket_uapi::DEVICE_VARIABLE]
            .into_iter()
            .find_map(path)
            .map_or(Some(Selector::Auto), |value| match value.to_str() {
                Some(text) => match text.trim() {
                    "none" | "off" => None,
                    text => Some(Selector::from(OsStr::new(text))),
                },
                None => Some(Selector::from(value.as_os_str())),
            });
        let config = Self {
            min_m: min_m.unwrap_or(DEFAULT_MIN_ROWS),
            attention: attention.unwrap_or_default(),
            precision: precision.unwrap_or_default(),
            cpu_jobs,
            memory,
            tensors: tensors.unwrap_or_default(),
            stats: stats.unwrap_or_default(),
            serve: serve.unwrap_or(false),
            fallback: fallback.unwrap_or(true),
            trace: path(TRACE).map(PathBuf::from),
            verify: verify.flatten(),
            threads,
            device,
        };
        (config, variables.complaints)
    }
}

/// Environment variables, and complaints about their values.
struct Variables<G> {
    get: G,
    complaints: Vec<String>,
}

impl<G: Fn(&str) -> Option<OsString>> Variables<G> {
    /// Returns the value of `name`, parsed; `None` if it is unset or empty, or if `parse` wants
    /// something else. Then a complaint says what, and that `instead` is used.
    fn parse<T, W: Display>(
        &mut self,
        name: &str,
        instead: &str,
        parse: impl Fn(&str) -> Result<T, W>,
    ) -> Option<T> {
        let value = (self.get)(name)?;
        let value = value.to_string_lossy();
        let value = value.trim();
        if value.is_empty() {
            return None;
        }
        let complain = |wanted: W| {
            let line = format!("{name}={value:?} is not {wanted}; using {instead}");
            self.complaints.push(line);
        };
        parse(value).map_err(complain).ok()
    }
}

/// Returns a complaint for each of the names `set` that begins like ours and is not one, in the
/// order of the names: otherwise a misspelt setting would be ignored without notice.
fn misspelt(set: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let mut strange: Vec<String> = set
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| is_like_ours(name) && !VARIABLES.contains(&&**name))
        .collect();
    strange.sort_unstable();
    let complaint = |name: &String| {
        let upper = name.to_ascii_uppercase();
        let distance = |known: &&str| strsim::levenshtein(&upper, known);
        let nearest = VARIABLES.into_iter().min_by_key(distance).unwrap_or(name);
        format!("unknown variable {name:?} is ignored; did you mean {nearest}?")
    };
    strange.iter().map(complaint).collect()
}

fn is_like_ours(name: &str) -> bool {
    let beginning = name.as_bytes().get(..PREFIX.len());
    beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::ffi::OsStringExt as _;
    use std::path::Path;

    use npu_offload::ComputeType;

    use super::*;

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
            let is_ours = |name: &&str| name.len() > PREFIX.len() && name.starts_with(PREFIX);
            for name in names.filter(is_ours) {
                assert!(VARIABLES.contains(&name), "{}: {name}", page.display());
                named += 1;
            }
        }
        assert!(named > 0);
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        let (config, complaints) = parse(&[]);
        assert_eq!((config.min_m, config.cpu_jobs), (None, None));
        assert!(config.stats == StatsOutput::Never && config.fallback);
        assert_eq!(config.device, Some(Selector::Auto));
        assert!(complaints.is_empty());
        for same in [" ", "auto"] {
            assert_eq!(parse(&[(MIN_M, same)]), (config.clone(), Vec::new()));
        }
    }

    #[test]
    fn good_values_are_taken() {
        type IsTaken = fn(&Config) -> bool;
        let fp16 = |config: &Config| config.precision == PrecisionChoice::Always(ComputeType::Fp16);
        let pinned = |config: &Config| config.threads.is_some_and(|it| it.to_string() == "4,pin");
        let table: [(&str, &str, IsTaken); 16] = [
            (MIN_M, "1", |c| c.min_m == Some(1)),
            (ATTENTION, "0", |c| c.attention == AttentionChoice::Never),
            (ATTENTION, "32", |c| {
                c.attention == AttentionChoice::From(32)
            }),
            (ATTENTION, "auto", |c| c.attention == AttentionChoice::Auto),
            (PRECISION, "f16", fp16),
            (CPU_JOBS, "0", |c| c.cpu_jobs == Some(false)),
            (CPU_JOBS, "1", |c| c.cpu_jobs == Some(true)),
            (MEM, "2G", |c| c.memory == Some(2 << 30)),
            (TENSORS, "!output*", |c| !c.tensors.include("output.weight")),
            (STATS, "1", |c| c.stats == StatsOutput::AtExit),
            (STATS, "./table", |c| {
                c.stats == StatsOutput::File("./table".into())
            }),
            (SERVE, "1", |c| c.serve),
            (FALLBACK, "0", |c| !c.fallback),
            (TRACE, "a file.json", |c| {
                c.trace == Some("a file.json".into())
            }),
            (VERIFY, "3", |c| c.verify == NonZeroU64::new(3)),
            (THREADS_VARIABLE, " 4,pin ", pinned),
        ];
        for (name, value, is_taken) in table {
            let (config, complaints) = parse(&[(name, value)]);
            assert!(is_taken(&config) && complaints.is_empty(), "{name}={value}");
        }
    }

    #[test]
    fn the_general_variable_holds_where_ours_is_unset_and_either_may_disable_the_npu() {
        let accel = "/dev/accel/accel7";
        let path = Some(Selector::Path(accel.into()));
        for (ours, general, device) in [
            ("", accel, path),
            ("model", accel, Some(Selector::Model)),
            ("model", "none", Some(Selector::Model)),
            ("none", "", None),
            ("", "off", None),
            (" none ", accel, None),
        ] {
            let set = [(DEVICE, ours), (rocket_uapi::DEVICE_VARIABLE, general)];
            let (config, complaints) = parse(&set);
            assert_eq!((config.device, complaints.len()), (device, 0), "{set:?}");
        }
    }

    #[test]
    fn bad_values_are_named_and_replaced() {
        let precisions = "is not one of auto, f16, w8a8-hadamard; using auto";
        let rows = "is not a number of rows of at least 1, or auto; using the default";
        let (defaults, _) = parse(&[]);
        for (name, value, said) in [
            (MIN_M, "0", rows),
            (MIN_M, "-3", rows),
            (MIN_M, "many", rows),
            (MIN_M, "1.5", rows),
            (MIN_M, "99999999999999999999999", rows),
            (ATTENTION, "off", "not 0, a number of rows"),
            (PRECISION, "F16", precisions),
            // Values of earlier versions.
            (PRECISION, "w8a8", precisions),
            (PRECISION, "w4a8", precisions),
            (PRECISION, "w4a4-hadamard", precisions),
            (
                PRECISION,
                "w4a8-hadamard",
                "any more: take w8a8-hadamard; using auto",
            ),
            (CPU_JOBS, "2", "not 0 or 1; using the default"),
            (MEM, "lots", "using half of the free memory"),
            (TENSORS, "blk.[0", "not closed"),
            (STATS, "yes", "not 0, 1 or the path"),
            (SERVE, "on", "not 0 or 1; using 0"),
            (FALLBACK, "off", "not 0 or 1; using 1"),
            (VERIFY, "all", "not a number of matmuls"),
            (THREADS_VARIABLE, "many", "using the program's threads"),
        ] {
            let (config, complaints) = parse(&[(name, value)]);
            assert_eq!(config, defaults, "{name}={value}");
            let [line] = &complaints[..] else {
                panic!("{complaints:?}");
            };
            let names = line.starts_with(&format!("{name}={value:?} is not"));
            assert!(names && line.contains(said), "{line}");
        }
    }

    #[test]
    fn a_misspelt_name_is_told_with_the_nearest_one() {
        for (name, meant) in [
            ("GGML_ROCKET_PRECISON", Some("GGML_ROCKET_PRECISION")),
            ("GGML_ROCKET_precision", Some("GGML_ROCKET_PRECISION")),
            ("ggml_rocket_mem", Some("GGML_ROCKET_MEM")),
            ("GGML_ROCKET_MINM", Some("GGML_ROCKET_MIN_M")),
            ("GGML_ROCKET_", Some("GGML_ROCKET_MEM")),
            // Good names, and those of others.
            ("GGML_ROCKET_MEM", None),
            ("GGML_BACKEND_PATH", None),
            ("GGML_ROCKE", None),
            ("", None),
        ] {
            let line =
                |meant| format!("unknown variable {name:?} is ignored; did you mean {meant}?");
            assert_eq!(misspelt([name.into()]), Vec::from_iter(meant.map(line)));
        }
        // Each is told once, in one line, whatever bytes it has.
        let odd = OsString::from_vec(b"GGML_ROCKET_\xff\n\x1b".to_vec());
        let said = misspelt([odd, "GGML_ROCKET_A".into()]);
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("ROCKET_A\""), "{said:?}");
        assert!(!said[1].contains(['\n', '\u{1b}']), "{said:?}");
    }
}
