// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe run`: a program with the software NPU as its /dev/accel/accel0, or
//! with a real one that is watched.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use npu_capture::{Recorder, RecorderOptions, Recording};
use npu_model::{Model, Selector};
use npu_server::{ForwardService, LayeredService, ModelService, Server, Service};
use rocket_uapi::DeviceInfo;

use crate::exit::Failure;
use crate::flags::RunFlags;
use crate::output::{self, OutputFile};
use crate::served::{self, UseReport};

/// File name of the library that is loaded into the program.
const LIBRARY: &str = "librocket_preload.so";

/// Where it is looked for, from where npu-probe is: a target directory, an
/// installation, a package.
const PLACES: [&str; 3] = ["", "../lib", "../lib/npu-probe"];

/// Environment variable of the dynamic linker.
const LD_PRELOAD: &str = "LD_PRELOAD";

/// Added to the number of the signal that ended a program, as shells do.
const SIGNAL_CODE: i32 = 128;

/// How long the end of clients, and of jobs, is waited for that outlive the
/// program.
const LINGER: Duration = Duration::from_secs(5);

/// Signals meant for the program: those of the terminal reach it by
/// themselves, the others are passed on.
const FROM_TERMINAL: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];
const PASSED_ON: [Signal; 2] = [Signal::SIGTERM, Signal::SIGHUP];

pub(crate) fn run(run: &RunFlags) -> Result<u8, Failure> {
    let shown = Shown::choose(run)?;
    let library = library(run)?;
    // Before there are other threads: they take it over.
    let signals: SigSet = FROM_TERMINAL.into_iter().chain(PASSED_ON).collect();
    signals
        .thread_block()
        .context("cannot keep signals for the program")
        .map_err(Failure::Device)?;
    // Before the program runs: what it did would be lost with them.
    let recorder = recorder(run)?;
    let [to_report, to_trace] = [&run.report, &run.files.trace].map(|file| {
        let file = file.as_deref();
        file.map(OutputFile::create).transpose()
    });
    let (to_report, to_trace) = (to_report?, to_trace?);
    let recording = recorder
        .clone()
        .map(|recorder| Recording::new(recorder, &shown.info()));
    let service = match &recording {
        Some(recording) => Arc::new(LayeredService::recording(
            shown.service(),
            recording.clone(),
        )),
        None => shown.service(),
    };
    let server = Server::start(service)
        .context("cannot serve the device")
        .map_err(Failure::Device)?;

    // The program's signals are not kept: it has the mask of this thread.
    let child = signals
        .thread_unblock()
        .context("cannot let signals through")
        .map_err(Failure::Device)
        .and_then(|()| start(run, &server, &library));
    signals
        .thread_block()
        .context("cannot keep signals for the program")
        .map_err(Failure::Device)?;
    let child = child?;
    // Not before: the program has the limit that it would have had.
    npu_server::raise_descriptor_limit();
    let status = wait(child, signals)?;
    server.wait_for_clients(LINGER);
    // Jobs in flight go on when their file is closed.
    if let Shown::Model(model) = &shown {
        model.wait_until_idle(LINGER);
    }
    let counts = server.counts();
    let report = match &shown {
        Shown::Model(model) => UseReport::new(&counts, model),
        Shown::Node(node) => {
            let ended = recording.map(|recording| recording.outcomes());
            UseReport::of_node(&counts, node, ended)
        }
    };
    drop(server);
    if let (Some(file), Some(trace)) = (to_trace, report.trace()) {
        file.write(&trace)?;
    }
    let text = report.text(run.form.json)?;
    match to_report {
        Some(file) => file.write(&text)?,
        // Standard output is the program's.
        None => output::tell(&text),
    }
    if let Some(recorder) = recorder {
        recorder
            .finish()
            .map_err(|error| Failure::Output(error.into()))?;
    }
    Ok(code(status))
}

/// The device that the program is shown.
enum Shown {
    Model(Arc<Model>),
    Node(Arc<ForwardService>),
}

impl Shown {
    fn choose(run: &RunFlags) -> Result<Self, Failure> {
        let Selector::Path(path) = run.model.device.selector() else {
            let mut options = served::options(&run.model)?;
            options.timeline = true;
            return Ok(Self::Model(Model::new(options)));
        };
        if run.files.trace.is_some() || run.model.cores.is_some() || run.model.strict.is_some() {
            return Err(Failure::Usage(anyhow!(
                "--trace, --cores and --strict are the software model's; {} is a device",
                path.display()
            )));
        }
        let node = ForwardService::new(&path).map_err(|error| Failure::NoDevice(error.into()))?;
        Ok(Self::Node(Arc::new(node)))
    }

    fn service(&self) -> Arc<dyn Service> {
        match self {
            Self::Model(model) => Arc::new(ModelService::new(Arc::clone(model))),
            Self::Node(node) => Arc::clone(node) as Arc<dyn Service>,
        }
    }

    fn info(&self) -> DeviceInfo {
        match self {
            Self::Model(model) => model.open_device().info(),
            Self::Node(node) => node.info().clone(),
        }
    }
}

/// What records the program's jobs, if that is wanted.
fn recorder(run: &RunFlags) -> Result<Option<Recorder>, Failure> {
    let Some(file) = &run.files.record else {
        return Ok(None);
    };
    let program = run.command.first().map(PathBuf::from).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let options = RecorderOptions {
        zero_data: run.zero_data,
        // Not its arguments, which may be private.
        notes: vec![("program".to_owned(), name.into_owned())],
        ..RecorderOptions::default()
    };
    Recorder::create(file, options)
        .with_context(|| file.display().to_string())
        .map_err(Failure::Output)
        .map(Some)
}

/// Path of the preload library: `--preload`, or a place beside this program.
fn library(run: &RunFlags) -> Result<PathBuf, Failure> {
    if let Some(path) = &run.preload {
        return fs::canonicalize(path)
            .with_context(|| format!("no library at {}", path.display()))
            .map_err(Failure::Usage);
    }
    let tool = env::current_exe()
        .context("cannot find out where npu-probe is")
        .map_err(Failure::Usage)?;
    let folder = tool.parent().unwrap_or(Path::new("/"));
    let places = PLACES.map(|place| folder.join(place).join(LIBRARY));
    if let Some(found) = places.iter().find(|path| path.exists()) {
        return Ok(found.clone());
    }
    let places: Vec<_> = places
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Err(Failure::Usage(anyhow!(
        "no {LIBRARY} at {}. `cargo build -p rocket-preload` makes it; --preload names another place",
        places.join(" or ")
    )))
}

/// The libraries to load: those asked for already, then ours.
fn preload(library: &Path) -> OsString {
    let mut all = env::var_os(LD_PRELOAD).unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

fn start(run: &RunFlags, server: &Server, library: &Path) -> Result<Child, Failure> {
    let Some((program, arguments)) = run.command.split_first() else {
        return Err(Failure::Usage(anyhow!("no program to run")));
    };
    Command::new(program)
        .args(arguments)
        .env(LD_PRELOAD, preload(library))
        .env(
            npu_wire::ENVIRONMENT,
            OsStr::from_bytes(server.address().name()),
        )
        .spawn()
        .map_err(|error| {
            let failure = match error.kind() {
                ErrorKind::NotFound => Failure::NoProgram,
                _ => Failure::NotExecutable,
            };
            failure(anyhow::Error::new(error).context(format!("cannot run {}", program.display())))
        })
}

/// Waits for the program and passes signals on to it.
fn wait(mut child: Child, signals: SigSet) -> Result<ExitStatus, Failure> {
    // It fits: it came from there.
    let pid = Pid::from_raw(child.id().cast_signed());
    let passer = thread::Builder::new()
        .name("npu-signals".to_owned())
        .spawn(move || {
            while let Ok(signal) = signals.wait() {
                if PASSED_ON.contains(&signal) && kill(pid, signal).is_err() {
                    return;
                }
            }
        });
    passer
        .context("no thread for signals")
        .map_err(Failure::Device)?;
    child
        .wait()
        .context("cannot wait for the program")
        .map_err(Failure::Device)
}

/// The exit code that stands for the program's end.
fn code(status: ExitStatus) -> u8 {
    let code = match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => SIGNAL_CODE + signal,
        (None, None) => 1,
    };
    // Exit codes have eight bits.
    code as u8
}
