// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds programs and libraries that use the NPU.

use super::root::SystemRoot;
use super::row::DoctorRow;
use crate::base::table::joined;

/// Directories of programs if PATH is not set.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const MOST_DIRECTORIES: usize = 64;
/// Directories of libraries; each may have a subdirectory for an architecture.
const LIBRARIES: [&str; 4] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
];
/// The variable that names an additional library for ggml to load.
const BACKEND_PATH: &str = "GGML_BACKEND_PATH";
/// The variable that chooses the device; `Selector::from_env` reads it.
const DEVICE_VARIABLE: &str = "ROCKET_DEVICE";
/// Libraries, one of which each program needs that does not have ggml within itself.
const GGML_LIBRARIES: [&str; 4] = [
    "libggml.so",
    "libggml-base.so",
    "libllama.so",
    "libwhisper.so",
];
/// Beginning of the names of backends that only ggml's packages have.
const OF_CPU: &str = "libggml-cpu";
const BACKEND: &str = "libggml-rocket.so";
/// Name of the library in packages, beside ggml's own: one that ggml looks for.
const FOUND_BACKEND: &str = "libggml-hexagon-rocket.so";

pub(super) fn rows(root: &SystemRoot) -> Vec<DoctorRow> {
    let directories = libraries(root);
    let mut rows = vec![
        programs(
            root,
            &["llama-cli", "llama-completion", "llama-server"],
            "To run language models, install llama.cpp with ggml 0.9.1 or later (Debian sid: \
             `apt install llama.cpp-tools`; others: docs/start.md).",
        )
        .about("llama.cpp"),
        programs(
            root,
            &["whisper-cli", "whisper-server"],
            "To recognise speech, install whisper.cpp with a ggml that loads backends (Debian \
             sid: `apt install whisper.cpp-tools`).",
        )
        .about("whisper.cpp"),
        backend(root, &directories).about("ggml backend"),
        teflon(root, &directories).about("Mesa's Teflon"),
    ];
    rows.extend(device_choice(root).map(|row| row.about("device choice")));
    rows
}

/// The row of the variable that chooses the device for programs of this project.
fn device_choice(root: &SystemRoot) -> Option<DoctorRow> {
    let device = root.variable(DEVICE_VARIABLE)?;
    let found = format!("{DEVICE_VARIABLE}={}", root.shown(&device));
    let remedy = "Programs of this project use this device, whatever else is usable. Unset the \
                  variable to let them choose.";
    (device != "auto").then(|| DoctorRow::note(found, remedy))
}

/// The row of a kind of program: the paths of programs with these names.
fn programs(root: &SystemRoot, names: &[&str], remedy: &'static str) -> DoctorRow {
    let path = root.variable("PATH");
    let path = path.as_deref().unwrap_or(USUAL_PATH);
    let absolute = path.split(':').filter(|folder| folder.starts_with('/'));
    let found = names.iter().filter_map(|name| {
        let folders = absolute.clone().take(MOST_DIRECTORIES);
        let mut paths = folders.map(|folder| format!("{folder}/{name}"));
        paths.find(|path| root.is_file(path))
    });
    let found: Vec<String> = found.collect();
    if found.is_empty() {
        return DoctorRow::note("not found", remedy);
    }
    let is_static = found.iter().all(|path| is_static(root, path));
    let shown = joined(found.iter().map(|path| root.shown(path)), ", ");
    if is_static {
        DoctorRow::note(
            format!("{shown}: linked without libggml.so"),
            "Such a build loads no backend. Use packages, or build with GGML_BACKEND_DL \
             (docs/start.md).",
        )
    } else {
        DoctorRow::ok(shown)
    }
}

/// Whether a program has ggml within itself, and so loads no backends.
fn is_static(root: &SystemRoot, path: &str) -> bool {
    let bytes = root.bytes(path).unwrap_or_default();
    let names = |library: &&str| {
        let library = library.as_bytes();
        bytes.windows(library.len()).any(|part| part == library)
    };
    bytes.starts_with(b"\x7fELF") && !GGML_LIBRARIES.iter().any(names)
}

/// Directories of libraries: the usual ones, and their subdirectories for
/// architectures.
fn libraries(root: &SystemRoot) -> Vec<String> {
    let mut all = Vec::new();
    for directory in LIBRARIES {
        all.push(directory.to_owned());
        let below = root.names(directory).into_iter();
        let below = below.filter(|name| name.ends_with("-linux-gnu"));
        all.extend(below.map(|name| format!("{directory}/{name}")));
    }
    all.truncate(MOST_DIRECTORIES);
    all
}

/// The row of this project's library in the directory of ggml's backends.
fn backend(root: &SystemRoot, libraries: &[String]) -> DoctorRow {
    let mut directories = Vec::new();
    for library in libraries {
        let ggml = format!("{library}/ggml");
        let below = root.names(&ggml).into_iter();
        let below = below.filter(|name| name.starts_with("backends"));
        directories.extend(below.map(|name| format!("{ggml}/{name}")));
    }
    let find = |name: &str| {
        let mut all = directories.iter();
        all.find(|directory| root.is_file(&format!("{directory}/{name}")))
    };
    // Our package makes the directory too.
    let has_own = |directory: &&String| {
        let names = root.names(directory);
        names.iter().any(|name| name.starts_with(OF_CPU))
    };
    let own = directories.iter().filter(has_own);
    let own = own.map(|directory| format!("ggml's own are in {}", root.shown(directory)));
    let blas = "its BLAS backend takes the matmuls first: `apt remove libggml0-backend-blas`";
    let blas = find("libggml-blas.so").map(|_| blas.to_owned());
    let unset = "Install the package libggml-rocket (docs/start.md), or set GGML_BACKEND_PATH \
                 to libggml-rocket.so.";
    let variable = root.variable(BACKEND_PATH).filter(|path| !path.is_empty());
    let row = if let Some(path) = variable {
        let found = format!("{BACKEND_PATH}={}", root.shown(&path));
        if root.is_file(&path) {
            DoctorRow::ok(found)
        } else {
            let remedy = "Set GGML_BACKEND_PATH to the path of libggml-rocket.so (docs/llama.md).";
            DoctorRow::note(format!("{found}: no such file"), remedy)
        }
    } else if let Some(directory) = find(FOUND_BACKEND) {
        DoctorRow::ok(format!("{}/{FOUND_BACKEND}", root.shown(directory)))
    } else {
        let place = find(BACKEND).map(|directory| root.shown(directory));
        let found = match place {
            Some(place) => format!("{BACKEND} is in {place}, {BACKEND_PATH} is not set"),
            None => format!("{BACKEND} not found, {BACKEND_PATH} not set"),
        };
        DoctorRow::note(found, unset)
    };
    row.with(own).with(blas)
}

fn teflon(root: &SystemRoot, libraries: &[String]) -> DoctorRow {
    let mut paths = libraries.iter().flat_map(|library| {
        ["teflon/libteflon.so", "libteflon.so"].map(|name| format!("{library}/{name}"))
    });
    match paths.find(|path| root.is_file(path)) {
        Some(path) => DoctorRow::ok(root.shown(&path)),
        None => DoctorRow::note(
            "libteflon.so not found",
            "To run TensorFlow Lite networks, install it (Debian: `apt install \
             mesa-teflon-delegate`).",
        ),
    }
}
