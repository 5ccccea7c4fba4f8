// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server: takes connections, and knows how many there are.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use npu_wire::{Address, Frame, FrameKind, peer_uid, send, status_of};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};
use zerocopy::IntoBytes;

use crate::connection::{self, Served};
use crate::counts::{CallCounters, Counts};
use crate::pool::ThreadPool;
use crate::service::Service;
use crate::shadow::{Shadow, ShadowError};

/// How often is looked for what nobody uses any more.
const COLLECT_EVERY: Duration = Duration::from_secs(1);

/// Pause when there is no descriptor for a new connection.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

/// Connections that may wait to be taken; the kernel cuts it to its limit.
const BACKLOG: i32 = 4096;

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Another server has the name.
    #[error("another server listens at {0} already")]
    InUse(String),
    /// The kernel refuses.
    #[error("no socket to listen at: {0}")]
    Socket(#[from] Errno),
    /// There is no place for the shadow directory.
    #[error(transparent)]
    Shadow(#[from] ShadowError),
    /// No thread to be had.
    #[error("no thread for the server: {0}")]
    Thread(std::io::Error),
}

/// What the threads of a server share.
struct ServerShared {
    served: Arc<Served>,
    clients: Mutex<Clients>,
    changed: Condvar,
}

#[derive(Debug)]
struct Clients {
    /// Connections that are open now.
    now: usize,
    /// Since when there is none; at first, since the start.
    idle_since: Instant,
}

/// A server that runs; it stops when this is dropped.
pub struct Server {
    address: Address,
    shared: Arc<ServerShared>,
    stopping: Arc<AtomicBool>,
    wake: OwnedFd,
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
    /// Starts to serve at an address of its own.
    ///
    /// # Errors
    /// [`ServerError`]
    pub fn start(service: Arc<dyn Service>) -> Result<Self, ServerError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self::start_at(service, Address::unique(std::process::id(), number))
    }

    /// Starts to serve at `address`.
    ///
    /// # Errors
    /// [`ServerError::InUse`] if a server is there, and the others.
    pub fn start_at(service: Arc<dyn Service>, address: Address) -> Result<Self, ServerError> {
        let listener = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        match rustix::net::bind(&listener, &address.socket()?) {
            Err(Errno::ADDRINUSE) => {
                let name = String::from_utf8_lossy(address.name()).into_owned();
                return Err(ServerError::InUse(name));
            }
            other => other?,
        }
        let shadow = service.is_emulated().then(Shadow::create).transpose()?;
        let shared = Arc::new(ServerShared {
            served: Arc::new(Served {
                service,
                shadow,
                counters: CallCounters::default(),
                pool: ThreadPool::default(),
            }),
            clients: Mutex::new(Clients {
                now: 0,
                idle_since: Instant::now(),
            }),
            changed: Condvar::new(),
        });
        rustix::net::listen(&listener, BACKLOG)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = {
            let (shared, stopping) = (Arc::clone(&shared), Arc::clone(&stopping));
            let wake = rustix::io::fcntl_dupfd_cloexec(&wake, 0)?;
            thread::Builder::new()
                .name("npu-server".to_owned())
                .spawn(move || shared.listen(&listener, &wake, &stopping))
                .map_err(ServerError::Thread)?
        };
        Ok(Self {
            address,
            shared,
            stopping,
            wake,
            thread: Some(thread),
        })
    }

    /// Its name, as [`npu_wire::ENVIRONMENT`] has it.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What its clients did so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.served.counters.snapshot()
    }

    /// Waits until there has been no client for so long, or `ended` says so,
    /// which is asked every second.
    pub fn wait_until_idle(&self, so_long: Duration, ended: impl Fn() -> bool) {
        let mut clients = self.shared.lock();
        loop {
            let idle = clients.idle_since.elapsed();
            if ended() || (clients.now == 0 && idle >= so_long) {
                return;
            }
            let left = if clients.now == 0 {
                COLLECT_EVERY.min(so_long - idle)
            } else {
                // Told when the last one goes.
                COLLECT_EVERY
            };
            let waited = self.shared.changed.wait_timeout(clients, left);
            clients = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until there is no client, but not longer than so long. Returns
    /// whether there is none.
    pub fn wait_for_clients(&self, at_most: Duration) -> bool {
        let clients = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(clients, at_most, |clients| clients.now > 0);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Err(errno) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            tracing::error!(%errno, "cannot stop the server");
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the server's thread had panicked");
        }
    }
}

impl ServerShared {
    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(self: &Arc<Self>, listener: &OwnedFd, wake: &OwnedFd, stopping: &AtomicBool) {
        // A second, in the kernel's words.
        let every = Timespec {
            tv_sec: COLLECT_EVERY.as_secs() as i64,
            tv_nsec: 0,
        };
        let mut spare = None;
        while !stopping.load(Ordering::Acquire) {
            let mut fds = [
                PollFd::new(listener, PollFlags::IN),
                PollFd::new(wake, PollFlags::IN),
            ];
            match rustix::event::poll(&mut fds, Some(&every)) {
                Ok(_) | Err(Errno::INTR) => (),
                Err(errno) => {
                    tracing::error!(%errno, "the server stops");
                    return;
                }
            }
            self.take_connections(listener, &mut spare);
            self.served.service.collect();
        }
    }

    /// `spare` is a descriptor to be had where there is no other.
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
                }
                Err(errno) => {
                    tracing::warn!(%errno, "a client cannot be taken");
                    thread::sleep(NO_DESCRIPTOR_PAUSE);
                    return;
                }
            }
        }
    }

    fn take_connection(self: &Arc<Self>, socket: OwnedFd) {
        let own = rustix::process::geteuid().as_raw();
        if peer_uid(&socket).is_ok_and(|uid| uid != own && uid != 0 && own != 0) {
            tracing::warn!("another user's process is no client");
            return;
        }
        self.lock().now += 1;
        let shared = Arc::clone(self);
        let started = thread::Builder::new()
            .name("npu-client".to_owned())
            .spawn(move || {
                connection::serve(socket, Arc::clone(&shared.served));
                shared.client_gone();
            });
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for a client");
            self.client_gone();
        }
    }

    fn client_gone(&self) {
        let mut clients = self.lock();
        clients.now -= 1;
        if clients.now == 0 {
            clients.idle_since = Instant::now();
            self.changed.notify_all();
        }
    }
}

/// Takes a client, which then hears only that there is no descriptor for it.
fn refuse(listener: &OwnedFd, errno: Errno) {
    tracing::warn!(%errno, "a client cannot be taken");
    let taken = rustix::net::accept_with(listener, SocketFlags::CLOEXEC);
    if let Ok(socket) = taken {
        let frame = Frame::with_status(FrameKind::Done, status_of(Err(errno)));
        if let Err(error) = send(&socket, [frame.as_bytes(), &[]], &[]) {
            tracing::debug!(%error, "and it does not hear of it");
        }
    }
}

/// Raises the limit of this process's descriptors as far as it may: each buffer
/// object of each client takes one in the server. Children started later have
/// the limit too, so who runs a program starts that first.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(errno) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%errno, "the limit of open files stays");
    }
}
