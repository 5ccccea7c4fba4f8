// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for tests of several members: the number of cases of a property test,
//! starting a program of this workspace, a limit of descriptors, and, with the
//! feature `server`, servers whose ioctls go through a hook.

#[cfg(feature = "server")]
mod hooked;

#[cfg(feature = "server")]
pub use hooked::hooked;

use std::path::Path;
use std::process::Command;

use proptest::test_runner::Config;
use rustix::process::{Resource, Rlimit};

/// Checks that a type, the key of a cache, tells values apart by each of its fields: `one` with a
/// field of `other` equals `one` only if that field does. Names all fields: a type with a new one
/// does not compile until it is named too.
#[macro_export]
macro_rules! assert_each_field_counts {
    ($type:ident { $($field:ident),+ $(,)? }, $one:expr, $other:expr) => {{
        let (one, other) = (&$one, &$other);
        let $type { $($field: _),+ } = one;
        $({
            let mixed = $type { $field: other.$field.clone(), ..one.clone() };
            assert_eq!(mixed == *one, other.$field == one.$field, stringify!($field));
        })+
    }};
}

/// The variable with the program that runs tests for the board's processor on another
/// host.
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";

/// Whether an emulator of the board's processor (qemu-user) runs this test. It makes
/// forks of vforks, so a program that cannot start seems to start and end. And
/// programs cannot start programs for another processor.
#[must_use]
pub fn emulated() -> bool {
    cfg!(target_arch = "aarch64") && std::env::var_os(RUNNER).is_some()
}

/// Starts the program `binary` as this test was started: under the same
/// emulator, if there is one.
#[must_use]
pub fn program(binary: impl AsRef<Path>) -> Command {
    let binary = binary.as_ref();
    let runner = std::env::var(RUNNER).unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        Some(emulator) if cfg!(target_arch = "aarch64") => {
            let mut command = Command::new(emulator);
            command.args(words).arg(binary);
            command
        }
        _ => Command::new(binary),
    }
}

/// Limits this process to `most` file descriptors from now on.
///
/// # Panics
/// If the system refuses.
pub fn limit_descriptors(most: u64) {
    let limit = Rlimit {
        current: Some(most),
        ..rustix::process::getrlimit(Resource::Nofile)
    };
    let limited = rustix::process::setrlimit(Resource::Nofile, limit);
    assert_eq!(limited, Ok(()), "a limit of {most} descriptors");
}

/// Environment variable that proptest itself reads, but only for tests that do
/// not choose a number of cases.
const VARIABLE: &str = "PROPTEST_CASES";

/// `usual` cases, or as many as PROPTEST_CASES says; one under Miri, which is
/// some hundred times slower. Failing cases are printed, not written into the
/// source tree.
#[must_use]
pub fn cases(usual: u32) -> Config {
    let wanted = std::env::var(VARIABLE).ok();
    let cases = wanted
        .and_then(|text| text.parse().ok())
        .unwrap_or(if cfg!(miri) { 1 } else { usual });
    Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    }
}
