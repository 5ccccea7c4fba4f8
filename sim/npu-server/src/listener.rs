// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server: accepts connections and counts them.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use npu_wire::{Address, Frame, FrameKind, peer_uid, send, status_of};
use rocket_uapi::NO_THREAD_REMEDY;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};
use zerocopy::IntoBytes;

use crate::connection::{self, Served};
use crate::counts::Counts;
use crate::pool::ThreadPool;
use crate::service::{OpenFile, Service};
use crate::shadow::{NO_DESCRIPTOR_REMEDY, Shadow, ShadowError};

/// How often the server releases what is not used any more.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// Pause when there is no descriptor for a new connection.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

/// Connections that may wait for accept; the kernel limits it further.
const BACKLOG: i32 = 4096;

/// Advice for an error of the kernel.
fn advice(errno: &Errno) -> &'static str {
    match *errno {
        Errno::MFILE => NO_DESCRIPTOR_REMEDY,
        _ => "",
    }
}

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The kernel refused a socket.
    #[error("cannot listen on a socket: {0}{advice}", advice = advice(.0))]
    Socket(#[from] Errno),
    /// The shadow directory cannot be made.
    #[error(transparent)]
    Shadow(#[from] ShadowError),
    /// No thread could be started.
    #[error("no thread could be started for the server: {0}; {NO_THREAD_REMEDY}")]
    Thread(std::io::Error),
}

/// State that the threads of a server share.
struct ServerShared {
    served: Arc<Served>,
    /// Connections that are open now.
    clients: Mutex<usize>,
    changed: Condvar,
}

/// A running server; dropping it stops it.
pub struct Server {
    address: Address,
    shared: Arc<ServerShared>,
    /// An eventfd. A write stops the server.
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Numbers the servers of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Server {
    /// Starts to serve at a new address.
    ///
    /// # Errors
    /// [`ServerError`]
    pub fn start(service: Arc<dyn Service>) -> Result<Self, ServerError> {
        Self::start_through(service, |file| file)
    }

    /// Like [`Server::start`], but `add_layer` puts a layer in front of each open
    /// file, for example a [`Recorder`](npu_capture::Recorder).
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_through(
        service: Arc<dyn Service>,
        add_layer: impl Fn(Box<dyn OpenFile>) -> Box<dyn OpenFile> + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = Address::unique(std::process::id(), number);
        let listener = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        rustix::net::bind(&listener, &address.socket()?)?;
        let shadow = || Shadow::create_in(&std::env::temp_dir());
        let shadow = service.is_emulated().then(shadow).transpose()?;
        let shared = Arc::new(ServerShared {
            served: Arc::new(Served {
                service,
                add_layer: Box::new(add_layer),
                shadow,
                counts: Mutex::default(),
                pool: ThreadPool::default(),
            }),
            clients: Mutex::default(),
            changed: Condvar::new(),
        });
        rustix::net::listen(&listener, BACKLOG)?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let thread = {
            let shared = Arc::clone(&shared);
            let stop = rustix::io::fcntl_dupfd_cloexec(&stop, 0)?;
            // With it, a server without a free descriptor can still refuse a
            // client.
            let spare = rustix::io::fcntl_dupfd_cloexec(&listener, 0)?;
            thread::Builder::new()
                .name("npu-server".to_owned())
                .spawn(move || shared.listen(&listener, &stop, spare))
                .map_err(ServerError::Thread)?
        };
        Ok(Self {
            address,
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Its address, the value of [`npu_wire::ENVIRONMENT`].
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Counts of its clients' calls so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.shared.served.counts()
    }

    /// Waits until there is no client, at most `at_most`. Returns whether there is
    /// none.
    pub fn wait_for_clients(&self, at_most: Duration) -> bool {
        let clients = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(clients, at_most, |clients| *clients > 0);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(errno) = rustix::io::write(&self.stop, &1u64.to_ne_bytes()) {
            tracing::error!(%errno, "cannot stop the server");
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the server's thread panicked");
        }
    }
}

impl ServerShared {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts connections until `stop` is readable. `spare` is a descriptor to free when
    /// there is no other.
    fn listen(self: &Arc<Self>, listener: &OwnedFd, stop: &OwnedFd, spare: OwnedFd) {
        let every = Timespec {
            tv_sec: COLLECT_EVERY.as_secs() as i64,
            tv_nsec: 0,
        };
        let mut spare = Some(spare);
        loop {
            let mut fds = [
                PollFd::new(listener, PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, Some(&every)) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => {
                    tracing::error!(%errno, "cannot wait for clients, so the server stops");
                    return;
                }
            }
            let must_stop = !fds[1].revents().is_empty();
            self.take_connections(listener, &mut spare);
            self.served.service.collect();
            if must_stop {
                return;
            }
        }
    }

    fn take_connections(self: &Arc<Self>, listener: &OwnedFd, spare: &mut Option<OwnedFd>) {
        if spare.is_none() {
            *spare = rustix::io::fcntl_dupfd_cloexec(listener, 0).ok();
        }
        loop {
            match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.take_connection(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => (),
                Err(errno @ (Errno::MFILE | Errno::NFILE)) if spare.take().is_some() => {
                    refuse(listener, errno);
                    *spare = rustix::io::fcntl_dupfd_cloexec(listener, 0).ok();
                    // The next accept would fail again, even without a client. poll
                    // shows whether one waits, and whether to stop.
                    return;
                }
                Err(errno) => {
                    tracing::warn!(%errno, "cannot accept a client");
                    thread::sleep(NO_DESCRIPTOR_PAUSE);
                    return;
                }
            }
        }
    }

    fn take_connection(self: &Arc<Self>, socket: OwnedFd) {
        let own = rustix::process::geteuid().as_raw();
        if !is_client(peer_uid(&socket), own) {
            tracing::warn!("refused a process of another user");
            return;
        }
        *self.lock() += 1;
        let shared = Arc::clone(self);
        // The socket stays here if there is no thread.
        let socket = Arc::new(socket);
        let taken = Arc::clone(&socket);
        let started = thread::Builder::new()
            .name("npu-client".to_owned())
            .spawn(move || {
                connection::serve(taken, Arc::clone(&shared.served));
                shared.client_gone();
            });
        if let Err(error) = started {
            tracing::warn!(%error, "cannot start a thread for a client");
            say_why_not(&socket, Errno::AGAIN);
            self.client_gone();
        }
    }

    fn client_gone(&self) {
        let mut clients = self.lock();
        *clients -= 1;
        if *clients == 0 {
            self.changed.notify_all();
        }
    }
}

/// Whether a server of user `own` serves a process of user `peer`. It refuses a
/// process whose user cannot be read.
fn is_client(peer: Result<u32, Errno>, own: u32) -> bool {
    const ROOT: u32 = 0;
    peer.is_ok_and(|uid| uid == own || uid == ROOT || own == ROOT)
}

/// Accepts a client, if one waits, and only sends it the error.
fn refuse(listener: &OwnedFd, errno: Errno) {
    // Without a free descriptor accept fails in the same way if no client waits.
    let taken = rustix::net::accept_with(listener, SocketFlags::CLOEXEC);
    if let Ok(socket) = taken {
        tracing::warn!(%errno, "cannot accept a client");
        say_why_not(&socket, errno);
    }
}

/// Sends a client the reason why it is not served.
fn say_why_not(socket: &OwnedFd, errno: Errno) {
    let frame = Frame::with_status(FrameKind::Done, status_of(Err(errno)));
    if let Err(error) = send(socket, [frame.as_bytes(), &[]], &[]) {
        tracing::debug!(%error, "cannot send the refusal to a client");
    }
}

/// Raises this process's limit of descriptors as far as allowed: each buffer object
/// that a client maps takes one in the server. Children inherit the limit, so start
/// a program before this call.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(errno) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%errno, "cannot raise the limit of descriptors");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_user_cannot_be_read_is_no_client() {
        for own in [0, 1000] {
            assert!(!is_client(Err(Errno::NOTCONN), own));
            assert!(is_client(Ok(own), own));
            assert!(is_client(Ok(0), own));
        }
        assert!(!is_client(Ok(1001), 1000));
        // The server of root serves every user.
        assert!(is_client(Ok(1001), 0));
    }
}
