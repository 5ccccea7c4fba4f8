// SPDX-License-Identifier: MIT OR Apache-2.0
//! `npu-probe run`: runs a program on the software NPU as /dev/accel/accel0, or records it on
//! a real one.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::anyhow;
use clap::Args;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawnp};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use npu_capture::{Recorder, RecorderOptions};
use npu_model::{Model, ModelOptions};
use npu_server::{ForwardService, Server, Service};
use rocket_uapi::{DeviceInfo, Selector};
use rustix::process::{WaitOptions, WaitStatus};

use crate::base::end_signals::SIGNAL_CODE;
use crate::base::exit::Failure;
use crate::base::flags::{DeviceFlags, ReportFlags, RunFiles};
use crate::base::output;
use crate::base::table::joined;
use crate::matmul::report::SERVED_MODEL;
use crate::served::{ModelUse, NodeUse};

#[derive(Debug, Args)]
pub(crate) struct RunFlags {
    #[command(flatten)]
    pub(crate) device: DeviceFlags,

    // The name `report` is taken: that field is a file.
    #[command(flatten)]
    pub(crate) form: ReportFlags,

    #[command(flatten)]
    pub(crate) files: RunFiles,

    /// Record command words only, and leave out all other contents
    #[arg(long, requires = "record")]
    pub(crate) zero_data: bool,

    /// Write the report to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Preload library to load into the program
    ///
    /// The default is searched for beside npu-probe, and in ../lib and ../lib/npu-probe from
    /// there.
    #[arg(long, value_name = "PATH")]
    pub(crate) preload: Option<PathBuf>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// File name of the library that is loaded into the program.
const LIBRARY: &str = "librocket_preload.so";

/// Places of the library, relative to npu-probe: a target directory, an installation, a
/// package.
const PLACES: [&str; 3] = ["", "../lib", "../lib/npu-probe"];

const LD_PRELOAD: &str = "LD_PRELOAD";

/// How long to wait for clients and jobs that outlive the program.
const LINGER: Duration = Duration::from_secs(5);

/// Signals for the program. The terminal sends the first ones to it directly; this process
/// forwards the others.
const FROM_TERMINAL: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];
const PASSED_ON: [Signal; 2] = [Signal::SIGTERM, Signal::SIGHUP];

pub(crate) fn run(run: &RunFlags) -> Result<u8, Failure> {
    let shown = ServedDevice::choose(run)?;
    let library = library(run)?;
    let before = SigSet::thread_get_mask()
        .map_err(Failure::device("cannot block signals for the program"))?;
    // Set before other threads start, so that they inherit the mask. Signals that arrive
    // before the program starts stay pending.
    let signals: SigSet = FROM_TERMINAL.into_iter().chain(PASSED_ON).collect();
    signals
        .thread_block()
        .map_err(Failure::device("cannot block signals for the program"))?;
    // Created before the program runs, since a later failure would lose its results.
    let recorder = recorder(run, &shown.info())?;
    let to_report = run.report.as_deref().map(output::writer).transpose()?;
    let to_trace = run.files.trace.as_deref();
    let to_trace = to_trace.map(output::writer).transpose()?;
    let started = match recorder.clone() {
        Some(recorder) => {
            Server::start_through(shown.service(), move |file| Box::new(recorder.of(file)))
        }
        None => Server::start(shown.service()),
    };
    let server = started.map_err(Failure::device("cannot serve the device"))?;

    // The program starts only if the thread that forwards signals exists.
    let (to_passer, child) = mpsc::channel();
    pass_signals_on(child, signals)?;
    let child = start(run, &server, &library, &before, shown.is_model())?;
    // The thread ends only when no signal can arrive any more.
    let _ = to_passer.send(child);
    // Raised only now, so that the program keeps its original limit.
    npu_server::raise_descriptor_limit();
    let status = wait(child)?;
    server.wait_for_clients(LINGER);
    // Jobs in flight continue after their file is closed.
    if let ServedDevice::Model(model) = &shown {
        model.wait_until_idle(LINGER);
    }
    let counts = server.counts();
    let text = match &shown {
        ServedDevice::Model(model) => {
            let report = ModelUse::new(counts, model);
            run.form.render(&report, || report.text())
        }
        ServedDevice::Node(node) => {
            let ended = recorder.as_ref().map(Recorder::outcomes);
            let report = NodeUse::new(counts, node, ended);
            run.form.render(&report, || report.text())
        }
    }?;
    drop(server);
    if let (Some(write), ServedDevice::Model(model)) = (to_trace, &shown)
        && let Some(timeline) = model.timeline()
    {
        write(&timeline.to_chrome_trace())?;
    }
    match to_report {
        Some(write) => write(&text)?,
        // Standard output belongs to the program.
        None => output::tell(&text),
    }
    if let Some(recorder) = recorder {
        recorder
            .finish()
            .map_err(|error| Failure::Output(error.into()))?;
    }
    Ok(code(status))
}

/// The device that the program uses.
enum ServedDevice {
    Model(Arc<Model>),
    Node(Arc<ForwardService>),
}

impl ServedDevice {
    fn choose(run: &RunFlags) -> Result<Self, Failure> {
        let mut options = match run.device.selector() {
            Selector::Path(path) => return Self::node(run, &path),
            Selector::Auto | Selector::Model => ModelOptions::default(),
            Selector::ModelWith(text) => text
                .parse()
                .map_err(Failure::usage("wrong options of the model"))?,
        };
        options.timeline = true;
        Ok(Self::Model(Model::new(options)))
    }

    fn node(run: &RunFlags, path: &Path) -> Result<Self, Failure> {
        if run.files.trace.is_some() {
            return Err(Failure::Usage(anyhow!(
                "--trace needs the software model; {} is a device",
                path.display()
            )));
        }
        let node = ForwardService::new(path).map_err(|error| Failure::NoDevice(error.into()))?;
        Ok(Self::Node(Arc::new(node)))
    }

    const fn is_model(&self) -> bool {
        matches!(self, Self::Model(_))
    }

    fn service(&self) -> Arc<dyn Service> {
        match self {
            Self::Model(model) => Arc::clone(model) as Arc<dyn Service>,
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

/// The recorder of the program's jobs, if requested.
fn recorder(run: &RunFlags, info: &DeviceInfo) -> Result<Option<Recorder>, Failure> {
    let Some(file) = &run.files.record else {
        return Ok(None);
    };
    let program = run.command.first().map(PathBuf::from).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let options = RecorderOptions {
        zero_data: run.zero_data,
        // The arguments are left out: they may be private.
        notes: vec![("program".to_owned(), name.into_owned())],
        ..RecorderOptions::default()
    };
    Recorder::create(file, info, options)
        .map_err(Failure::output(file.display().to_string()))
        .map(Some)
}

/// Path of the preload library: `--preload`, or a place beside this program.
fn library(run: &RunFlags) -> Result<PathBuf, Failure> {
    if let Some(path) = &run.preload {
        return fs::canonicalize(path)
            .map_err(Failure::usage(format!("no library at {}", path.display())));
    }
    let tool = super::own_path()?;
    let folder = tool.parent().unwrap_or(Path::new("/"));
    let places = PLACES.map(|place| folder.join(place).join(LIBRARY));
    if let Some(found) = places.iter().find(|path| path.exists()) {
        return Ok(found.clone());
    }
    let places = places.iter().map(|path| path.display());
    Err(Failure::Usage(anyhow!(
        "no {LIBRARY} at {}. Build it with `cargo build -p rocket-preload`, or name its path \
         with --preload",
        joined(places, " or ")
    )))
}

/// LD_PRELOAD: libraries that the user already loads, then this project's.
fn preload(library: &Path) -> OsString {
    let mut all = env::var_os(LD_PRELOAD).unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

/// Starts the program with the signal mask `before`, and resets signals that Rust's runtime
/// ignores. This process keeps its mask meanwhile; otherwise a signal would end it and leave
/// the program without a server.
fn start(
    run: &RunFlags,
    server: &Server,
    library: &Path,
    before: &SigSet,
    is_model: bool,
) -> Result<Pid, Failure> {
    let Some(program) = run.command.first() else {
        return Err(Failure::Usage(anyhow!("no program to run")));
    };
    let mut environment = BTreeMap::<OsString, OsString>::new();
    for (name, value) in env::vars_os() {
        // If a variable occurs twice, the first counts, as for getenv.
        environment.entry(name).or_insert(value);
    }
    environment.insert(LD_PRELOAD.into(), preload(library));
    let address = OsStr::from_bytes(server.address().name()).to_owned();
    environment.insert(npu_wire::ENVIRONMENT.into(), address);
    environment.remove(OsStr::new(SERVED_MODEL));
    if is_model {
        environment.insert(SERVED_MODEL.into(), "1".into());
    }
    let spawn = || {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::from);
        let arguments = run.command.iter().map(|word| text(word.as_bytes()));
        let arguments = arguments.collect::<io::Result<Vec<_>>>()?;
        let environment = environment
            .iter()
            .map(|(name, value)| text(&[name.as_bytes(), b"=", value.as_bytes()].concat()));
        let environment = environment.collect::<io::Result<Vec<_>>>()?;
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK | PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF,
        )?;
        attributes.set_sigmask(before)?;
        attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
        let actions = PosixSpawnFileActions::init()?;
        let child = posix_spawnp(
            &text(program.as_bytes())?,
            &actions,
            &attributes,
            &arguments,
            &environment,
        )?;
        Ok(child)
    };
    spawn().map_err(|error: io::Error| {
        let failure = match error.kind() {
            ErrorKind::NotFound => Failure::NoProgram,
            _ => Failure::NotExecutable,
        };
        failure(anyhow::Error::new(error).context(format!("cannot run {}", program.display())))
    })
}

/// Starts the thread that forwards signals to the program; `child` receives its process id.
fn pass_signals_on(child: Receiver<Pid>, signals: SigSet) -> Result<(), Failure> {
    let passer = thread::Builder::new()
        .name("npu-signals".to_owned())
        .spawn(move || {
            let Ok(child) = child.recv() else {
                return;
            };
            while let Ok(signal) = signals.wait() {
                if PASSED_ON.contains(&signal) && kill(child, signal).is_err() {
                    return;
                }
            }
        });
    passer.map(drop).map_err(Failure::no_thread)
}

fn wait(child: Pid) -> Result<WaitStatus, Failure> {
    let child = rustix::process::Pid::from_raw(child.as_raw());
    loop {
        match rustix::process::waitpid(child, WaitOptions::empty()) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => (),
            Err(errno) => return Err(Failure::device("cannot wait for the program")(errno)),
        }
    }
}

/// The exit code for the way the program ended.
fn code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => SIGNAL_CODE + signal,
        (None, None) => 1,
    };
    // Exit codes have eight bits.
    code as u8
}
