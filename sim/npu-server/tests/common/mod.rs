// SPDX-License-Identifier: MIT OR Apache-2.0
//! A client that speaks the protocol itself.
#![allow(clippy::unwrap_used, dead_code, reason = "helpers of several tests")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use npu_model::{Model, ModelOptions};
use npu_server::Server;
use npu_wire::{DATA_BYTES, Frame, FrameKind, Request, RequestKind, receive, send};
use rocket_uapi::sys;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use zerocopy::IntoBytes;

/// A server of a device that never kills a hung job.
pub(crate) fn server() -> Server {
    serve(&model(Duration::MAX))
}

pub(crate) fn serve(model: &Arc<Model>) -> Server {
    Server::start(model.clone()).unwrap()
}

/// A device of one core, which a hung job holds for `hang_timeout`.
pub(crate) fn model(hang_timeout: Duration) -> Arc<Model> {
    Model::new(ModelOptions {
        cores: 1,
        hang_timeout,
        ..ModelOptions::default()
    })
}

pub(crate) fn request(ask: RequestKind) -> Request {
    Request {
        process: std::process::id(),
        ..Request::new(ask)
    }
}

pub(crate) fn connect(server: &Server) -> OwnedFd {
    server.address().connect(SocketFlags::CLOEXEC).unwrap()
}

pub(crate) fn channel() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap()
}

/// Begins a call; returns our end of its channel.
pub(crate) fn begin(connection: &OwnedFd, request: &[u8], arg: &[u8]) -> OwnedFd {
    let (own, theirs) = channel();
    send(connection, [request, arg], &[theirs.as_fd()]).unwrap();
    own
}

/// The next frame of the server on a channel.
pub(crate) fn next(channel: &OwnedFd) -> (Frame, Option<FrameKind>) {
    let mut message = vec![0; size_of::<Frame>() + DATA_BYTES];
    let received = receive(channel, &mut message).unwrap();
    match Frame::parse(&message[..received.len]) {
        Ok((frame, kind, _)) => (frame, Some(kind)),
        Err(_) => (Frame::default(), None),
    }
}

/// Makes a call in which the server asks nothing.
pub(crate) fn call(connection: &OwnedFd, request: &Request, arg: &[u8]) -> Result<i32, Errno> {
    let (frame, kind) = next(&begin(connection, request.as_bytes(), arg));
    assert_eq!(kind, Some(FrameKind::Done));
    frame.result()
}

pub(crate) fn ioctl(number: u32) -> Request {
    Request {
        number,
        ..request(RequestKind::Ioctl)
    }
}

pub(crate) fn open(server: &Server) -> OwnedFd {
    let connection = connect(server);
    assert_eq!(call(&connection, &request(RequestKind::Open), &[]), Ok(0));
    connection
}

/// Checks that a client that keeps to the rules is served.
pub(crate) fn assert_serves(server: &Server) {
    create(&open(server), 4096);
}

pub(crate) fn create(client: &OwnedFd, size: u32) -> sys::CreateBo {
    let bo = sys::CreateBo {
        size,
        ..sys::CreateBo::default()
    };
    done(&begin(
        client,
        ioctl(sys::CREATE_BO).as_bytes(),
        bo.as_bytes(),
    ))
}

/// Submits a job that hangs: a program of zeroes. Returns the object that it
/// writes, which also has the program.
pub(crate) fn hang(client: &OwnedFd) -> sys::CreateBo {
    let bo = create(client, 4096);
    let task = sys::Task {
        regcmd: bo.dma_address as u32,
        regcmd_count: 16,
    };
    // Arbitrary addresses: the server asks for their contents, which follow
    // below.
    let job = sys::Job {
        tasks: 1 << 20,
        in_bo_handles: 0,
        out_bo_handles: 2 << 20,
        task_count: 1,
        task_struct_size: size_of::<sys::Task>() as u32,
        in_bo_handle_count: 0,
        out_bo_handle_count: 1,
    };
    let submit = sys::Submit {
        jobs: 3 << 20,
        job_count: 1,
        job_struct_size: size_of::<sys::Job>() as u32,
        reserved: 0,
    };
    let channel = begin(client, ioctl(sys::SUBMIT).as_bytes(), submit.as_bytes());
    loop {
        let (frame, kind) = next(&channel);
        if kind == Some(FrameKind::Done) {
            assert_eq!(frame.result(), Ok(0));
            return bo;
        }
        assert_eq!(kind, Some(FrameKind::Read));
        let memory = match frame.value {
            address if address == job.tasks => task.as_bytes(),
            address if address == job.out_bo_handles => bo.handle.as_bytes(),
            address if address == submit.jobs => job.as_bytes(),
            other => unreachable!("{other:#x}"),
        };
        let answer = Frame::new(FrameKind::Answer);
        send(&channel, [answer.as_bytes(), memory], &[]).unwrap();
    }
}

/// The argument that comes back with the result of a call.
pub(crate) fn done<T: zerocopy::FromBytes>(channel: &OwnedFd) -> T {
    let mut message = vec![0; size_of::<Frame>() + DATA_BYTES];
    let received = receive(channel, &mut message).unwrap();
    let (frame, _, rest) = Frame::parse(&message[..received.len]).unwrap();
    assert_eq!(frame.result(), Ok(0));
    T::read_from_bytes(rest).unwrap()
}
