// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: an open file, or someone who asks.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use npu_wire::{ARG_BYTES, Ask, REQUEST_BYTES, Request, WireError, receive};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::mm::MapFlags;

use crate::channel::Channel;
use crate::counts::CacheSync;
use crate::listener::Shared;
use crate::process;
use crate::service::OpenFile;
use crate::shadow::Shadow;

/// Most calls of one connection at the same time; more wait for their turn.
const CALLS: usize = 512;

/// A connection.
struct Connection {
    shared: Arc<Shared>,
    /// Once it is an open file.
    file: OnceLock<Box<dyn OpenFile>>,
    /// The process that called last, by its own word.
    process: AtomicU32,
    /// Calls under way.
    calls: Mutex<usize>,
    fewer_calls: Condvar,
}

/// Serves a connection to its end.
pub(crate) fn serve(socket: &OwnedFd, shared: Arc<Shared>) {
    let connection = Arc::new(Connection {
        shared,
        file: OnceLock::new(),
        process: AtomicU32::new(0),
        calls: Mutex::new(0),
        fewer_calls: Condvar::new(),
    });
    let mut message = vec![0; REQUEST_BYTES + ARG_BYTES];
    loop {
        let received = match receive(socket, &mut message) {
            Ok(received) => received,
            // Whoever has the descriptor may write to it.
            Err(WireError::Malformed(_) | WireError::Os(Errno::INTR)) => continue,
            Err(error) => {
                tracing::warn!(%error, "a connection breaks");
                break;
            }
        };
        if received.len == 0 && has_hung_up(socket) {
            break;
        }
        let [Some(channel), file] = received.descriptors else {
            continue;
        };
        let channel = Channel::new(channel);
        match Request::parse(&message[..received.len]) {
            Ok((request, ask, arg)) => connection.take(request, ask, arg, channel, file),
            Err(error) => {
                tracing::debug!(%error, "a wrong request");
                channel.done(Err(Errno::PROTO), &[]);
            }
        }
    }
    connection.end();
}

/// Whether nobody has the other end any more.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = rustix::event::poll(&mut fds, Some(&at_once));
    polled.is_err() || !fds[0].revents().is_empty()
}

/// A call to be answered.
struct Call {
    request: Request,
    ask: Ask,
    arg: Vec<u8>,
    channel: Channel,
    file: Option<OwnedFd>,
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until at most so many calls are under way.
    fn wait_for_calls(&self, most: usize) -> MutexGuard<'_, usize> {
        self.fewer_calls
            .wait_while(self.lock(), |calls| *calls > most)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call in.
    fn take(
        self: &Arc<Self>,
        request: Request,
        ask: Ask,
        arg: &[u8],
        channel: Channel,
        file: Option<OwnedFd>,
    ) {
        self.process.store(request.process, Ordering::Relaxed);
        if ask == Ask::Open {
            channel.done(self.open(), &[]);
            return;
        }
        *self.wait_for_calls(CALLS - 1) += 1;
        let call = Call {
            request,
            ask,
            arg: arg.to_vec(),
            channel,
            file,
        };
        let connection = Arc::clone(self);
        self.shared.pool.run(Box::new(move || {
            let _under_way = UnderWay(&connection);
            connection.answer(call);
        }));
    }

    fn open(&self) -> Result<i32, Errno> {
        if self.file.get().is_some() {
            return Err(Errno::BUSY);
        }
        let file = self.shared.service.open()?;
        self.shared.counters.opened();
        self.file.set(file).map(|()| 0).map_err(|_| Errno::BUSY)
    }

    fn answer(&self, mut call: Call) {
        let channel = &call.channel;
        match call.ask {
            Ask::Open => (),
            Ask::Ioctl => {
                let result = self.ioctl(call.request.number, &mut call.arg, channel);
                // To an argument that is only read nothing goes back: it may
                // lie in memory that cannot be written.
                let back = if Request::writes_arg(call.request.number) {
                    &call.arg[..]
                } else {
                    &[]
                };
                channel.done(result, back);
            }
            Ask::Mmap => match self.mmap(&call.request, channel) {
                Ok(()) => (),
                Err(errno) => channel.done(Err(errno), &[]),
            },
            Ask::FileIoctl => {
                let Request { number, arg, .. } = call.request;
                let result = match &call.file {
                    Some(file) => {
                        let service = &self.shared.service;
                        service.file_ioctl(file.as_fd(), number, arg, channel)
                    }
                    None => Err(Errno::BADF),
                };
                channel.done_file(result);
            }
            Ask::Shadow => {
                // None, where the system itself shows the device.
                let path = self.shared.shadow.as_ref().map(Shadow::path);
                channel.done(Ok(0), path.map_or(&[], |path| path.as_os_str().as_bytes()));
            }
        }
    }

    fn ioctl(&self, number: u32, arg: &mut [u8], channel: &Channel) -> Result<i32, Errno> {
        let file = self.file.get().ok_or(Errno::BADF)?;
        let counters = &self.shared.counters;
        counters.called();
        // Before the call: another thread may close the handle meanwhile.
        let sync = CacheSync::of(number, arg, |handle| file.bo_bytes(handle));
        let result = file.ioctl(number, arg, channel);
        if let Some(sync) = sync {
            counters.synced(sync, result);
        } else if result.is_ok() {
            counters.done(number, arg);
        }
        result
    }

    fn mmap(&self, request: &Request, channel: &Channel) -> Result<(), Errno> {
        let file = self.file.get().ok_or(Errno::BADF)?;
        let len = usize::try_from(request.len).map_err(|_| Errno::INVAL)?;
        let flags = MapFlags::from_bits_retain(request.flags);
        let map = file.mmap(request.offset, len, flags)?;
        self.shared.counters.mapped();
        channel.map(map.file, map.offset);
        Ok(())
    }

    /// The last descriptor is closed.
    fn end(self: Arc<Self>) {
        // Those that wait have been woken: their channels have hung up too, or
        // their thread is still to hear the result.
        drop(self.wait_for_calls(0));
        let process = self.process.load(Ordering::Relaxed);
        if let Some(file) = alone(self).file.into_inner() {
            file.close(process::is_dying(process));
        }
    }
}

/// The connection itself, once the threads of its calls have let go of it:
/// they have ended all calls by now, and are about to.
fn alone(mut connection: Arc<Connection>) -> Connection {
    loop {
        connection = match Arc::try_unwrap(connection) {
            Ok(alone) => return alone,
            Err(shared) => shared,
        };
        std::thread::yield_now();
    }
}

/// Counts a call until it ends, however it does.
struct UnderWay<'a>(&'a Connection);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
        self.0.fewer_calls.notify_all();
    }
}
