// SPDX-License-Identifier: MIT OR Apache-2.0
//! Architectures that programs run on, with their names in Debian, Rust and qemu-user.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// An architecture that stock binaries can be run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    /// x86-64
    Amd64,
    /// 64-bit ARM; under qemu-user on other machines
    Arm64,
}

impl Arch {
    /// The architecture of this machine, or amd64 if it is neither, so that errors can name what is
    /// missing.
    pub(crate) fn native() -> Self {
        if cfg!(target_arch = "aarch64") {
            Self::Arm64
        } else {
            Self::Amd64
        }
    }

    /// Debian's name of the architecture.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Directory of its libraries.
    pub(crate) fn triplet(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// File name of its dynamic loader.
    pub(crate) fn loader(self) -> &'static str {
        match self {
            Self::Amd64 => "ld-linux-x86-64.so.2",
            Self::Arm64 => "ld-linux-aarch64.so.1",
        }
    }

    /// Rust's target for programs of the architecture.
    pub(crate) const fn rust_target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The CPU, as in `std::env::consts::ARCH`.
    pub(crate) fn cpu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Whether this machine runs programs of this architecture without an emulator.
    pub(crate) fn is_native(self) -> bool {
        self.cpu() == std::env::consts::ARCH
    }

    /// The emulator that runs its programs elsewhere, and the first arguments. It emulates a
    /// Cortex-A76, the RK3588's big core, since ggml selects its kernels by the CPU.
    pub(crate) fn emulator(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["qemu-x86_64-static"],
            Self::Arm64 => &["qemu-aarch64-static", "-cpu", "cortex-a76"],
        }
    }

    /// A command that runs `program` of this architecture, on other machines under the emulator and
    /// with the C library of Debian's cross compiler.
    pub(crate) fn run(self, program: &Path) -> Command {
        if self.is_native() {
            return Command::new(program);
        }
        let emulator = self.emulator();
        let mut command = Command::new(emulator[0]);
        command
            .args(&emulator[1..])
            .args(["-L", &format!("/usr/{}", self.triplet())])
            .arg(program);
        command
    }

    /// How the kernel recognises programs of this architecture and starts the emulator, if this
    /// machine needs one: name and line of a binfmt_misc format. The kernel opens the emulator at
    /// once (`F`), so programs in a chroot find it.
    pub(crate) fn binary_format(self) -> Option<[String; 2]> {
        // ELF header: 64 bits, little-endian, the machine. The type (2, 3) and the ABI vary.
        let machine = match self {
            Self::Amd64 => "\\x3e",
            Self::Arm64 => "\\xb7",
        };
        let zeros = |count| "\\x00".repeat(count);
        let ones = |count| "\\xff".repeat(count);
        let magic = format!(
            "\\x7fELF\\x02\\x01\\x01{}\\x02\\x00{machine}\\x00",
            zeros(9)
        );
        let mask = format!("{}\\x00{}\\xfe{}", ones(7), ones(8), ones(3));
        let name = self.emulator()[0].trim_end_matches("-static").to_owned();
        let line = format!(":{name}:M::{magic}:{mask}:/usr/bin/{name}-static:F");
        (!self.is_native()).then_some([name, line])
    }

    /// Linker for this architecture on other machines.
    pub(crate) fn cross_linker(self) -> String {
        format!("{}-gcc", self.triplet())
    }

    /// C compiler for this architecture.
    pub(crate) fn compiler(self) -> String {
        if self.is_native() {
            "cc".to_owned()
        } else {
            self.cross_linker()
        }
    }

    /// Returns the first missing program of `others` and of those that fetch, build and run for
    /// this architecture.
    pub(crate) fn missing_program(self, others: &[&str]) -> Option<String> {
        let mut programs = vec!["apt-get".to_owned(), "dpkg-deb".into()];
        programs.extend(others.iter().map(|&program| program.to_owned()));
        if !self.is_native() {
            programs.push(self.emulator()[0].into());
            programs.push(self.cross_linker());
        }
        first_missing(programs)
    }
}

/// The first of `programs` that this machine does not have.
pub(crate) fn first_missing<P: AsRef<Path>>(programs: impl IntoIterator<Item = P>) -> Option<P> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    programs.into_iter().find(|program| {
        !std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    })
}

impl fmt::Display for Arch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.debian())
    }
}
