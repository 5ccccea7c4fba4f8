// SPDX-License-Identifier: MIT OR Apache-2.0
//! Architectures that programs are run on, and their names with Debian, Rust and
//! qemu-user.

use std::fmt;
use std::path::Path;

/// An architecture that stock binaries can be run for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Arch {
    /// x86-64
    Amd64,
    /// 64-bit ARM; under qemu-user on other machines
    Arm64,
}

impl Arch {
    /// That of this machine; amd64 where it is neither, so that what is
    /// missing gets a name.
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

    /// The CPU, as `std::env::consts::ARCH` has it.
    fn cpu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Whether this machine runs its programs without an emulator.
    pub(crate) fn is_native(self) -> bool {
        self.cpu() == std::env::consts::ARCH
    }

    /// The program and its first arguments that run it elsewhere. The RK3588's
    /// big cores are Cortex-A76, which decides about ggml's kernels.
    pub(crate) fn emulator(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["qemu-x86_64-static"],
            Self::Arm64 => &["qemu-aarch64-static", "-cpu", "cortex-a76"],
        }
    }

    /// How the kernel recognises its programs and starts the emulator, if this machine needs one:
    /// the name and the line of a format of binfmt_misc. The emulator is opened at once (`F`), so
    /// programs in a chroot find it.
    pub(crate) fn binary_format(self) -> Option<[String; 2]> {
        // The header of an ELF file: 64 bits, little-endian; the machine. The type (2, 3) and the
        // ABI vary.
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

    /// Linker for it, on a machine of another architecture.
    pub(crate) fn cross_linker(self) -> String {
        format!("{}-gcc", self.triplet())
    }

    /// C compiler for it.
    pub(crate) fn compiler(self) -> String {
        match self.is_native() {
            true => "cc".to_owned(),
            false => self.cross_linker(),
        }
    }

    /// A program that fetching, building for and running on it takes, or one of
    /// `others`, and that this machine does not have.
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
