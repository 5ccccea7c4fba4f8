// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the packages contain: data.

/// A Debian package.
#[derive(Debug)]
pub(super) struct Package {
    pub(super) name: &'static str,
    pub(super) section: &'static str,
    pub(super) summary: &'static str,
    /// Lines of the long description.
    pub(super) text: &'static [&'static str],
    /// More fields of the control file.
    pub(super) fields: &'static [&'static str],
    /// Packages of this workspace that are in it.
    pub(super) members: &'static [&'static str],
    pub(super) files: &'static [(Source, &'static str)],
}

/// Where the contents of a file come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// A program of the build.
    Program(&'static str),
    /// A library of the build.
    Library(&'static str),
    /// A file of the repository.
    Repository(&'static str),
    /// The same, with its variables for pkg-config set.
    PkgConfig(&'static str),
    /// A file of this one line, for dpkg.
    Line(&'static str),
    /// A file that a program writes about itself.
    Manual(&'static str),
    /// All man pages whose names begin so; the place is a directory.
    ManPages(&'static str),
    /// A symbolic link to this.
    Link(&'static str),
}

/// Tags of lintian that do not apply, after the reason as a comment.
pub(super) const OVERRIDES: &[&str] = &[
    "# The project has no address for mail.",
    "bogus-mail-host",
    "bogus-mail-host-in-debian-changelog",
];

pub(super) const PACKAGES: [Package; 5] = [
    Package {
        name: "npu-probe",
        section: "utils",
        summary: "self-test and tools for the NPU of the RK3588",
        text: &[
            "Multiplies matrices on the NPU of a Rockchip RK3588 through the mainline",
            "Linux driver rocket and compares the result with the CPU's; tells why the",
            "NPU of a machine works or does not (npu-probe doctor); records, replays and",
            "disassembles jobs; measures products. Without an NPU it uses a software",
            "model, which it also shows to other programs as /dev/accel/accel0",
            "(npu-probe run).",
        ],
        fields: &["Suggests: libggml-rocket, rocket-conformance"],
        members: &["npu-probe", "rocket-preload"],
        files: &[
            (Source::Program("npu-probe"), "usr/bin/npu-probe"),
            (
                Source::Library("librocket_preload.so"),
                "usr/lib/npu-probe/librocket_preload.so",
            ),
            (Source::ManPages("npu-probe"), "usr/share/man/man1"),
            (
                Source::Manual("npu-probe.bash"),
                "usr/share/bash-completion/completions/npu-probe",
            ),
            (
                Source::Manual("npu-probe.fish"),
                "usr/share/fish/vendor_completions.d/npu-probe.fish",
            ),
            (
                Source::Manual("_npu-probe"),
                "usr/share/zsh/vendor-completions/_npu-probe",
            ),
            (
                Source::Repository("xtask/src/dist/60-rocket-npu.rules"),
                "usr/lib/udev/rules.d/60-rocket-npu.rules",
            ),
        ],
    },
    Package {
        name: "libggml-rocket",
        section: "libs",
        summary: "NPU of the RK3588 for llama.cpp and whisper.cpp",
        text: &[
            "A backend of ggml that computes the matrix products of prompts and of speech",
            "on the NPU of a Rockchip RK3588, through the mainline Linux driver rocket.",
            "Debian's llama.cpp and whisper.cpp find it by themselves. Programs with a",
            "ggml of their own load it by",
            "GGML_BACKEND_PATH=/usr/lib/aarch64-linux-gnu/ggml/libggml-rocket.so.",
        ],
        fields: &[
            "Enhances: libggml0, llama.cpp, whisper.cpp",
            "Recommends: npu-probe",
        ],
        members: &["ggml-shim"],
        files: &[
            (
                Source::Library("libggml_rocket.so"),
                "usr/lib/{triplet}/ggml/libggml-rocket.so",
            ),
            // ggml looks there for a list of names that has no place for others. This
            // one is of a processor that is never beside an RK3588's NPU.
            (
                Source::Link("../libggml-rocket.so"),
                "usr/lib/{triplet}/ggml/backends0/libggml-hexagon-rocket.so",
            ),
        ],
    },
    Package {
        name: "rocket-conformance",
        section: "devel",
        summary: "regression tests for the Linux driver rocket",
        text: &[
            "Checks what the kernel driver of the RK3588's NPU answers to each call, row",
            "by row, on a board or on a software model of the driver. For kernel",
            "developers.",
        ],
        fields: &[],
        members: &["rocket-hw-tests"],
        files: &[
            (
                Source::Program("rocket-conformance"),
                "usr/bin/rocket-conformance",
            ),
            (Source::ManPages("rocket-conformance"), "usr/share/man/man1"),
        ],
    },
    Package {
        name: "librocket-npu0",
        section: "libs",
        summary: "matrix products on the NPU of the RK3588",
        text: &[
            "Multiplies matrices of 8-bit integers, of binary16 numbers, and of floats by",
            "way of 8-bit integers, on the NPU of a Rockchip RK3588 through the mainline",
            "Linux driver rocket; without an NPU on a software model.",
        ],
        fields: &[],
        members: &["npu-matmul-c"],
        files: &[
            (
                Source::Library("librocket_npu.so"),
                "usr/lib/{triplet}/librocket_npu.so.0",
            ),
            (
                Source::Line("librocket_npu 0 librocket-npu0"),
                "DEBIAN/shlibs",
            ),
            (Source::Line("activate-noawait ldconfig"), "DEBIAN/triggers"),
        ],
    },
    Package {
        name: "librocket-npu-dev",
        section: "libdevel",
        summary: "matrix products on the NPU of the RK3588 (for developers)",
        text: &[
            "Header and link of librocket_npu.so, which multiplies matrices on the NPU of",
            "a Rockchip RK3588, and programs in C and Python that use it.",
        ],
        fields: &["Depends: librocket-npu0 (= {version})"],
        members: &[],
        files: &[
            (
                Source::Repository("crates/npu-matmul-c/include/rocket_npu.h"),
                "usr/include/rocket_npu.h",
            ),
            (
                Source::PkgConfig("crates/npu-matmul-c/rocket-npu.pc.in"),
                "usr/lib/{triplet}/pkgconfig/rocket-npu.pc",
            ),
            (
                Source::Link("librocket_npu.so.0"),
                "usr/lib/{triplet}/librocket_npu.so",
            ),
            (
                Source::Repository("crates/npu-matmul-c/examples/multiply.c"),
                "usr/share/doc/librocket-npu-dev/examples/multiply.c",
            ),
            (
                Source::Repository("crates/npu-matmul-c/examples/multiply.py"),
                "usr/share/doc/librocket-npu-dev/examples/multiply.py",
            ),
        ],
    },
];
