// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers of a test: hostile or broken ones that ask for memory and descriptors
//! that the program's call does not name, one that refuses every client, and one
//! with an ioctl that no code here knows, whose argument the preload library
//! carries there and back.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::os::fd::{AsFd, OwnedFd};
use std::process::{self, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use client_tests::{Client, listen};
use npu_model::{Model, ModelOptions};
use npu_server::Server;
use npu_wire::{Address, Frame, FrameKind, REQUEST_BYTES, Request, receive, send};
use rocket_uapi::sys::ARG_LEN_MAX;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use test_support::hooked;
use zerocopy::IntoBytes;

/// The program's call, as the server sees it.
struct Call {
    channel: OwnedFd,
    arg: u64,
    /// The argument's words.
    words: Vec<u64>,
}

impl Call {
    fn take(connection: &OwnedFd) -> Self {
        let mut message = vec![0; REQUEST_BYTES + ARG_LEN_MAX];
        let received = receive(connection, &mut message).unwrap();
        let [channel, _] = received.descriptors;
        let (request, _, arg) = Request::parse(&message[..received.len]).unwrap();
        let words = arg.as_chunks().0.iter();
        Self {
            channel: channel.unwrap(),
            arg: request.arg,
            words: words.map(|&word| u64::from_le_bytes(word)).collect(),
        }
    }

    fn say(&self, frame: Frame, data: &[u8], file: Option<&OwnedFd>) {
        let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        send(&self.channel, [frame.as_bytes(), data], &files).unwrap();
    }

    fn done(&self, status: i32, data: &[u8]) {
        let frame = Frame {
            len: data.len() as u64,
            ..Frame::with_status(FrameKind::Done, status)
        };
        self.say(frame, data, None);
    }

    /// The answer of the program's side; `None` if it has ended the call.
    fn answer(&self) -> Option<(Frame, Vec<u8>)> {
        let mut message = vec![0; 4096];
        let len = receive(&self.channel, &mut message).map_or(0, |received| received.len);
        let (frame, _, data) = Frame::parse(&message[..len]).ok()?;
        Some((frame, data.to_vec()))
    }

    fn read(&self, addr: u64, len: u64) -> Option<Vec<u8>> {
        let frame = Frame::with_value(FrameKind::Read, addr);
        self.say(Frame { len, ..frame }, &[], None);
        self.answer().map(|(_, data)| data)
    }

    fn write(&self, addr: u64, data: &[u8]) -> bool {
        let len = data.len() as u64;
        let frame = Frame::with_value(FrameKind::Write, addr);
        self.say(Frame { len, ..frame }, data, None);
        self.answer().is_some()
    }

    fn ask(&self, kind: FrameKind, value: u64) -> bool {
        self.say(Frame::with_value(kind, value), &[], None);
        self.answer().is_some()
    }

    fn install(&self) -> u64 {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        self.say(Frame::new(FrameKind::InstallFd), &[], Some(&file));
        let (frame, _) = self.answer().unwrap();
        frame.result().unwrap() as u64
    }
}

/// The client that uses the server at `address`.
fn connected(name: &str, address: &Address) -> Command {
    Client::compile(name, &[]).preloaded(Some(address))
}

/// The program is told what it lacks.
#[test]
fn without_a_server_there_is_no_device() {
    let gone = Address::unique(0, 0);
    for (server, why) in [
        (None, "start the program with `npu-probe run`"),
        (Some(&gone), "no server with the name in ROCKET_SERVER"),
    ] {
        let output = Client::compile("plain", &[]).preloaded(server).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(why), "{said}");
    }
}

/// Runs the program, which makes the call `what`, on a server that answers with
/// `deed`. The program fails unless the call fails without any effect. Returns
/// what the program printed.
fn run(what: &str, deed: impl Fn(&Call) + Sync) -> String {
    static SERVERS: AtomicU64 = AtomicU64::new(1 << 40);
    let address = Address::unique(process::id(), SERVERS.fetch_add(1, Ordering::Relaxed));
    let listener = listen(&address, 1);
    let mut client = connected("unnamed", &address);
    client.arg(what);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            // Connections for the shadow directory have no second call.
            loop {
                let connection = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
                let open = Call::take(&connection);
                open.done(0, &[]);
                drop(open);
                if rustix::net::recv(&connection, &mut [0_u8; 1], rustix::net::RecvFlags::PEEK)
                    .is_ok_and(|(_, len)| len > 0)
                {
                    return deed(&Call::take(&connection));
                }
            }
        });
        client.output().unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{what}: {said}");
    said
}

/// [`run`], and checks that the program's side refuses something.
fn refused(what: &str, deed: impl Fn(&Call) + Sync) {
    let said = run(what, deed);
    assert!(said.contains("did not name"), "{what}: {said}");
}

/// Words of the uAPI's structures: `drm_version`, `drm_rocket_submit`.
const NAME: usize = 3;
const JOBS: usize = 0;
/// Bytes of the program's name buffer, of a job and of a task.
const NAME_BYTES: u64 = 8;
const JOB_BYTES: u64 = 40;
const TASK_BYTES: u64 = 8;

#[test]
fn memory_that_a_call_does_not_name_is_not_written() {
    type Place = fn(&Call) -> u64;
    let places: [(&str, Place, usize); 7] = [
        // Beside the argument, in it (it comes back with the result), behind it.
        ("version", |call| call.arg - 8, 8),
        ("version", |call| call.arg, 8),
        ("version", |call| call.arg + 64, 8),
        // Behind the name buffer, and partly there.
        ("version", |call| call.words[NAME] + NAME_BYTES, 1),
        ("version", |call| call.words[NAME] + 1, NAME_BYTES as usize),
        ("version", |_| u64::MAX, 8),
        // The data that a SUBMIT names is only read.
        ("submit", |call| call.words[JOBS], 8),
    ];
    for (what, place, len) in places {
        refused(what, |call| {
            assert!(!call.write(place(call), &[1; 8][..len]))
        });
    }
}

#[test]
fn memory_that_a_call_does_not_name_is_not_read() {
    refused("version", |call| {
        assert_eq!(call.read(call.words[NAME], NAME_BYTES), None);
    });
    refused("submit", |call| {
        let jobs = call.read(call.words[JOBS], 2 * JOB_BYTES).unwrap();
        let word = |at: usize| u64::from_le_bytes(jobs[at..at + 8].try_into().unwrap());
        // Tasks and handles of both jobs, then the first tasks again.
        for at in [0, 16, 40, 56, 0] {
            let len = if at % 40 == 0 { TASK_BYTES } else { 4 };
            assert_eq!(call.read(word(at), len).unwrap(), vec![0; len as usize]);
        }
        assert_eq!(call.read(word(40), TASK_BYTES + 1), None);
    });
    refused("submit", |call| {
        assert_eq!(call.read(call.words[JOBS], 2 * JOB_BYTES + 1), None);
    });
}

#[test]
fn an_argument_that_is_only_read_is_not_written_back() {
    run("submit", |call| {
        call.done(-Errno::PROTO.raw_os_error(), &[1; 24]);
    });
}

#[test]
fn descriptors_that_a_call_does_not_name_stay() {
    refused("version", |call| assert!(!call.ask(FrameKind::TakeFd, 1)));
    refused("import", |call| assert!(!call.ask(FrameKind::TakeFd, 2)));
    // The program's own descriptors, and an invalid one.
    for number in [0, 2, u64::MAX] {
        refused("export", move |call| {
            assert!(!call.ask(FrameKind::CloseFd, number));
        });
    }
    refused("export", |call| {
        let installed = call.install();
        assert!(!call.ask(FrameKind::CloseFd, installed - 1));
    });
    refused("export", |call| {
        let installed = call.install();
        assert!(call.ask(FrameKind::CloseFd, installed));
        // Not twice: the number may belong to another descriptor by now.
        assert!(!call.ask(FrameKind::CloseFd, installed));
    });
}

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// The server is often gone before the client has asked for anything. The
/// client must still learn the reason.
#[test]
fn why_is_told_however_early_the_server_goes() {
    let address = Address::unique(process::id(), u64::MAX);
    let listener = listen(&address, BACKLOG);
    let ended = AtomicBool::new(false);
    let mut client = connected("refused", &address);
    let output = thread::scope(|scope| {
        let ended = &ended;
        // The listener closes with the thread; then no connection waits.
        scope.spawn(move || {
            let status = -Errno::MFILE.raw_os_error();
            let refusal = Frame::with_status(FrameKind::Done, status);
            while let Ok(client) = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC) {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                // The client may have been killed.
                let _ = send(&client, [refusal.as_bytes(), &[]], &[]);
            }
        });
        let output = client.output();
        // Wakes the server, which waits for one more connection.
        ended.store(true, Ordering::Relaxed);
        address.connect(SocketFlags::CLOEXEC).unwrap();
        output.unwrap()
    });
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The driver's ioctl number 8, with 8 bytes in both directions.
const MADE_UP: u32 = 0xc008_6448;

#[test]
fn the_preload_library_carries_an_ioctl_that_no_code_here_knows() {
    let model = Model::new(ModelOptions::default());
    let adds_one = hooked(|below, request, arg, caller| {
        if request == MADE_UP {
            arg[0] += 1;
            return Ok(0);
        }
        // SAFETY: what the caller promises.
        unsafe { below.ioctl(request, arg, caller) }
    });
    let server = Server::start_through(model, adds_one).unwrap();
    let mut client = connected("made_up", server.address());
    let output = client.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(server.counts().ioctls >= 2, "{:?}", server.counts());
}
