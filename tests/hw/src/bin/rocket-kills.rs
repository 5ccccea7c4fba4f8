// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kills clients in the middle of their work and counts what the kernel says.
//!
//! For a kernel with KASAN in a virtual machine: bug `use-after-close` (see
//! tests/hw/bugs) is one of the driver, and every client that is killed may meet
//! it. This tells which of its three causes did. After a complaint the kernel's
//! memory is not to be trusted, so that the program ends there; `cargo xtask vm
//! kills` boots again and goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use clap::Parser;
use rknpu_regcmd::{Binding, BufferId, ChipProfile, MatmulTask, MatmulType};
use rocket_uapi::{Bo, ByteLen, Deadline, Device, DmaBuf, Job, PAGE_BYTES, ProgramBo};

/// Kills clients of the rocket driver, and tells what the kernel says to it.
///
/// A kernel of today uses freed memory where a client is killed at the wrong
/// moment, which can damage whatever it has in memory, and what is on its disks.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The device node
    #[arg(long, default_value = "/dev/accel/accel0")]
    device: PathBuf,
    /// Run, although the kernel may come to harm
    #[arg(long)]
    destructive: bool,
    /// How many clients to kill, unless the kernel complains before
    #[arg(long, default_value_t = 200)]
    kills: u32,
    /// Kill between two products, when the driver has dropped all of the last
    /// job, instead of at any moment
    #[arg(long)]
    between: bool,
    /// Clients have an exported buffer object, as they must to have fences
    #[arg(long)]
    export: bool,
    /// Where the random moments start from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Be a client: multiply until killed
    #[arg(long, hide = true)]
    client: bool,
}

/// A client is killed within so many microseconds after its first product.
const MOMENTS: u64 = 40_000;
/// The driver drops a finished job's references within 20 ms (docs/driver.md).
const SETTLED: Duration = Duration::from_millis(100);
/// A client that waits to be killed between products does so this long.
const PAUSE: Duration = Duration::from_secs(60);
/// What the kernel frees late is freed then: a killed job after 500 ms.
const LATE: Duration = Duration::from_millis(700);
/// A record of the kernel's log is shorter, in bytes (CONSOLE_EXT_LOG_MAX, 8192).
const RECORD: usize = 8192;
/// How complaints begin.
const COMPLAINTS: [&str; 5] = ["BUG: ", "WARNING: ", "Oops", "Unable to handle", "KASAN: "];

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match (arguments.client, arguments.destructive) {
        (true, _) => client(&arguments),
        (false, true) => kill_clients(&arguments),
        (false, false) => {
            Err("the kernel may come to harm; --destructive runs it all the same".into())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rocket-kills: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Kills one after the other. Ends with a line `killed N complaint WHAT`, WHAT
/// being `none`, `exported` (an exported object outlived its file) or `late` (a
/// job's reference did, or a job).
fn kill_clients(arguments: &Arguments) -> Result<(), Failure> {
    let mut log = log_from_now()?;
    let mut random = fastrand::Rng::with_seed(arguments.seed);
    for killed in 1..=arguments.kills {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["--client", "--device"])
            .arg(&arguments.device);
        command.args(arguments.between.then_some("--between"));
        command.args(arguments.export.then_some("--export"));
        let mut client = command.stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = client.stdout.take().ok_or("no output")?;
        BufReader::new(output).read_line(&mut line)?;
        if arguments.between {
            thread::sleep(SETTLED);
        } else {
            thread::sleep(Duration::from_micros(random.u64(..MOMENTS)));
        }
        client.kill()?;
        client.wait()?;
        thread::sleep(LATE);
        if line.is_empty() {
            return Err("a client ended before its first product".into());
        }
        if let Some(what) = complaint(&mut log)? {
            println!("killed {killed} complaint {what}");
            return Ok(());
        }
    }
    println!("killed {} complaint none", arguments.kills);
    Ok(())
}

fn log_from_now() -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let mut log = options.open("/dev/kmsg")?;
    log.seek(SeekFrom::End(0))?;
    Ok(log)
}

/// What the kernel has complained of since it was asked last. The stack tells
/// whether a dma-buf's end was the cause.
fn complaint(log: &mut File) -> io::Result<Option<&'static str>> {
    let (mut complains, mut exported) = (false, false);
    let mut record = [0; RECORD];
    loop {
        match log.read(&mut record) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&record[..length]);
                complains |= COMPLAINTS.iter().any(|word| text.contains(word));
                exported |= text.contains("dma_buf_release");
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // Records that were lost meanwhile.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => return Err(error),
        }
    }
    let what = if exported { "exported" } else { "late" };
    Ok(complains.then_some(what))
}

/// Multiplies the same matrices until killed; says so after the first time.
fn client(arguments: &Arguments) -> Result<(), Failure> {
    let device = Device::open(&arguments.device)?;
    let [a, b, c] = [0, 1, 2].map(BufferId);
    let task = MatmulTask {
        ty: MatmulType::Int8ToInt32,
        m: 64,
        k: 256,
        n: 256,
        a: a.at(0),
        b: b.at(0),
        c: c.at(0),
    };
    let alloc = |bytes: u64| -> Result<Bo, Failure> {
        Ok(device.alloc(ByteLen::new(usize::try_from(bytes)?)?)?)
    };
    let inputs = [alloc(task.a_bytes())?, alloc(task.b_bytes())?].map(Bo::freeze);
    let mut output = alloc(task.c_bytes())?;
    let bindings = [
        (a, inputs[0].iova(), inputs[0].len()),
        (b, inputs[1].iova(), inputs[1].len()),
        (c, output.iova(), output.len()),
    ];
    let bindings = bindings.map(|(id, iova, len)| Binding {
        id,
        iova,
        len: len as u32,
    });
    let linked = task.program(&ChipProfile::RK3588)?.link(&bindings)?;
    let program = ProgramBo::new(&device, &[linked])?;
    let export = || -> Result<DmaBuf, Failure> {
        let page = alloc(PAGE_BYTES as u64)?;
        page.export().map_err(|(error, _)| error.into())
    };
    let _exported = arguments.export.then(export).transpose()?;
    let mut first = true;
    loop {
        let job = Job::builder(&device)
            .program(&program)
            .reads(&inputs[0])
            .reads(&inputs[1])
            .writes(output)
            .build()
            .map_err(|error| error.to_string())?;
        let pending = device
            .submit(vec![job])
            .map_err(|error| error.to_string())?;
        let pending = pending.into_iter().next().ok_or("no job")?;
        let finished = pending
            .wait(Deadline::FOREVER)
            .map_err(|error| error.to_string())?;
        output = finished.writes.into_iter().next().ok_or("no output")?;
        if first {
            println!("a product");
            io::stdout().flush()?;
            first = false;
        }
        if arguments.between {
            thread::sleep(PAUSE);
        }
    }
}
