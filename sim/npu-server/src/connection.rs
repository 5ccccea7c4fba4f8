// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: an open file of the device, or calls without one.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::Duration;

use npu_wire::{REQUEST_BYTES, Request, RequestKind, WireError, receive};
use rocket_uapi::{MapRequest, sys};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::channel::{Channel, has_hung_up};
use crate::counts::{Counts, synced_handle};
use crate::pool::ThreadPool;
use crate::process;
use crate::service::{AddLayer, OpenFile, Service, ioctl_for};
use crate::shadow::Shadow;

/// Maximum number of concurrent calls of one connection; more wait.
const CALLS: usize = 512;

/// How often the server checks whether a closed file is still mapped.
const LOOK_FOR_MAPPINGS: Duration = Duration::from_millis(200);

/// State that all connections of a server share.
pub(crate) struct Served {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) add_layer: Box<AddLayer>,
    /// The shadow directory, if this system lacks the device.
    pub(crate) shadow: Option<Shadow>,
    pub(crate) counts: Mutex<Counts>,
    pub(crate) pool: ThreadPool,
}

impl Served {
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection of a client, from accept to its end.
struct Connection {
    socket: Arc<OwnedFd>,
    served: Arc<Served>,
    /// The open file, from its open to its end.
    file: RwLock<Option<Box<dyn OpenFile>>>,
    /// The process that called last, as its client claims.
    process: AtomicU32,
    /// Whether a client was gone when its SUBMIT ended. The SUBMIT may have failed
    /// for that reason, or taken long, like a recorded one.
    gone_in_submit: AtomicBool,
    /// Channels of the clients that wait for the file's release.
    closers: Mutex<Vec<Channel>>,
    calls: Mutex<Calls>,
    fewer_calls: Condvar,
}

/// Numbers of current calls.
#[derive(Default)]
struct Calls {
    all: usize,
    /// Those of them that close a descriptor.
    closing: usize,
    /// Threads of calls. A thread may outlive its call.
    threads: usize,
}

/// Serves a connection to its end.
pub(crate) fn serve(socket: Arc<OwnedFd>, served: Arc<Served>) {
    let connection = Arc::new(Connection {
        socket,
        served,
        file: RwLock::new(None),
        process: AtomicU32::new(0),
        gone_in_submit: AtomicBool::new(false),
        closers: Mutex::default(),
        calls: Mutex::default(),
        fewer_calls: Condvar::new(),
    });
    let mut message = vec![0; REQUEST_BYTES + sys::ARG_LEN_MAX];
    loop {
        let received = match receive(&connection.socket, &mut message) {
            Ok(received) => received,
            // Any process with the descriptor may write to it.
            Err(WireError::Malformed(_) | WireError::Os(Errno::INTR)) => continue,
            Err(error) => {
                tracing::warn!(%error, "a connection failed");
                break;
            }
        };
        if received.len == 0 && has_hung_up(&connection.socket) {
            break;
        }
        let [Some(channel), file] = received.descriptors else {
            continue;
        };
        let channel = Channel::new(channel);
        match Request::parse(&message[..received.len]) {
            Ok((request, ask, arg)) => connection.take(Call {
                request,
                ask,
                arg: arg.to_vec(),
                channel,
                file,
            }),
            Err(error) => {
                tracing::debug!(%error, "an invalid request");
                channel.done(Err(Errno::PROTO), &[]);
            }
        }
    }
    connection.end();
}

struct Call {
    request: Request,
    ask: RequestKind,
    arg: Vec<u8>,
    channel: Channel,
    file: Option<OwnedFd>,
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at most `most` calls are under way.
    fn wait_for_calls(&self, most: usize) -> MutexGuard<'_, Calls> {
        self.fewer_calls
            .wait_while(self.lock(), |calls| calls.all > most)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self) -> RwLockReadGuard<'_, Option<Box<dyn OpenFile>>> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, call: Call) {
        self.process.store(call.request.process, Ordering::Relaxed);
        if call.ask == RequestKind::Open {
            call.channel.done(self.open(), &[]);
            return;
        }
        let closing = usize::from(call.ask == RequestKind::Close);
        let mut calls = self.wait_for_calls(CALLS - 1);
        calls.all += 1;
        calls.closing += closing;
        calls.threads += 1;
        drop(calls);
        let connection = Arc::clone(self);
        self.served.pool.run(Box::new(move || {
            let _thread = CallThread(&connection);
            let under_way = UnderWay {
                connection: &connection,
                closing,
            };
            connection.answer(call, under_way);
        }));
    }

    fn open(&self) -> Result<i32, Errno> {
        if self.file().is_some() {
            return Err(Errno::BUSY);
        }
        // Only this thread receives requests, so nothing else opens it meanwhile.
        let file = (self.served.add_layer)(self.served.service.open()?);
        self.served.counts().opens += 1;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(0)
    }

    /// Does a call. It counts as ended before its client gets the result, because
    /// the client may then close the file.
    fn answer(&self, mut call: Call, under_way: UnderWay<'_>) {
        let channel = &call.channel;
        match call.ask {
            RequestKind::Open => (),
            RequestKind::Ioctl => {
                let result = self.ioctl(call.request.number, &mut call.arg, channel);
                // An argument that is only read does not go back: it may lie in
                // memory that cannot be written.
                let back = if sys::writes_arg(call.request.number) {
                    &call.arg[..]
                } else {
                    &[]
                };
                drop(under_way);
                if !channel.done(result, back) && sys::is_call(call.request.number, sys::SUBMIT) {
                    self.gone_in_submit.store(true, Ordering::Relaxed);
                }
            }
            RequestKind::Mmap => {
                let map = self.mmap(&call.request);
                drop(under_way);
                match map {
                    Ok((file, offset)) => channel.give(file, offset),
                    Err(errno) => {
                        channel.done(Err(errno), &[]);
                    }
                }
            }
            RequestKind::FileIoctl => {
                let Request { number, arg, .. } = call.request;
                let file = call.file.as_ref().ok_or(Errno::BADF);
                let service = &self.served.service;
                channel.done_file(
                    file.and_then(|file| service.file_ioctl(file.as_fd(), number, arg, channel)),
                );
            }
            RequestKind::FileMmap => {
                let file = call.file.as_ref().ok_or(Errno::BADF);
                let result = file.and_then(|file| self.file_mmap(&call.request, file));
                channel.done_file(result.map(|ours| ours.map(|()| 0)));
            }
            RequestKind::Close => self.close(call.channel),
            RequestKind::Shadow => {
                // Empty if the system itself shows the device.
                let path = self.served.shadow.as_ref().map(Shadow::path);
                channel.done(Ok(0), path.map_or(&[], |path| path.as_os_str().as_bytes()));
            }
            RequestKind::SwSync => match self.served.service.open_sw_sync() {
                Ok(file) => channel.give(file, 0),
                Err(errno) => {
                    channel.done(Err(errno), &[]);
                }
            },
        }
    }

    fn ioctl(&self, number: u32, arg: &mut [u8], channel: &Channel) -> Result<i32, Errno> {
        let file = self.file();
        let file = file.as_ref().ok_or(Errno::BADF)?;
        self.served.counts().ioctls += 1;
        // Look this up before the call, since another thread may close the handle.
        let synced = synced_handle(number, arg).and_then(|handle| file.bo_bytes(handle));
        let result = ioctl_for(&**file, number, arg, channel);
        self.served.counts().note(number, arg, synced, result);
        result
    }

    fn mmap(&self, request: &Request) -> Result<(OwnedFd, u64), Errno> {
        let file = self.file();
        let file = file.as_ref().ok_or(Errno::BADF)?;
        let map = file.client_map(&map_request(request).ok_or(Errno::INVAL)?)?;
        self.served.counts().mmaps += 1;
        Ok(map)
    }

    fn file_mmap(&self, request: &Request, file: &OwnedFd) -> Result<Option<()>, Errno> {
        let request = map_request(request).ok_or(Errno::NOMEM)?;
        self.served.service.file_mmap(file.as_fd(), &request)
    }

    /// A client closes one of its descriptors.
    fn close(&self, channel: Channel) {
        if channel.wait_for_client().is_err() {
            return;
        }
        // The socket shows at once whether it was the last one. A call of another
        // thread still has the file.
        let calls = self.lock();
        let is_last = calls.all == calls.closing && has_hung_up(&self.socket);
        drop(calls);
        if is_last {
            let mut closers = self.closers.lock().unwrap_or_else(PoisonError::into_inner);
            closers.push(channel);
        } else {
            channel.done(Ok(0), &[]);
        }
    }

    /// Releases the file after its last descriptor is closed.
    fn end(&self) {
        // Waiting calls have been woken: their channels have hung up too, or their
        // client thread still has to read the result.
        let ended = self
            .fewer_calls
            .wait_while(self.lock(), |calls| calls.threads > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        let process = self.process.load(Ordering::Relaxed);
        let closers = self.closers.lock();
        let mut closers = closers.unwrap_or_else(PoisonError::into_inner);
        let file = self
            .file
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(file) = file {
            if file.is_mapped() {
                // So the last close does not release it.
                all_done(closers.drain(..));
                wait_until_unmapped(&*file, process);
            }
            let is_ending =
                || process::is_dying(process) || closers.iter().any(Channel::has_hung_up);
            let counted = Cell::new(false);
            let died = || {
                if !counted.replace(true) {
                    self.served.counts().died += 1;
                }
            };
            file.close(&is_ending, &died);
            if self.gone_in_submit.load(Ordering::Relaxed) && is_ending() {
                died();
            }
        }
        all_done(closers.drain(..));
    }
}

fn all_done(closers: impl Iterator<Item = Channel>) {
    for closer in closers {
        closer.done(Ok(0), &[]);
    }
}

/// Waits while a closed file is mapped. It notices the end of the file's process at
/// once, an munmap a little later.
fn wait_until_unmapped(file: &dyn OpenFile, process: u32) {
    let mut process = process::handle(process);
    while file.is_mapped() {
        let ended = match &process {
            Some(handle) => process::wait_for_end(handle, LOOK_FOR_MAPPINGS),
            None => {
                thread::sleep(LOOK_FOR_MAPPINGS);
                false
            }
        };
        if ended {
            // Remaining mappings belong to another process.
            process = None;
        }
    }
}

/// Counts a call until it ends, also by a panic.
struct UnderWay<'a> {
    connection: &'a Connection,
    closing: usize,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut calls = self.connection.lock();
        calls.all -= 1;
        calls.closing -= self.closing;
        drop(calls);
        self.connection.fewer_calls.notify_all();
    }
}

/// Counts the thread of a call until it ends, when the client has the result.
struct CallThread<'a>(&'a Connection);

impl Drop for CallThread<'_> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
        self.0.fewer_calls.notify_all();
    }
}

/// The mmap that a client asks for; `None` if it is longer than any memory.
fn map_request(request: &Request) -> Option<MapRequest> {
    Some(MapRequest {
        offset: request.offset,
        len: usize::try_from(request.len).ok()?,
        prot: ProtFlags::from_bits_retain(request.prot),
        flags: MapFlags::from_bits_retain(request.flags),
    })
}
