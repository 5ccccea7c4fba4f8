// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of servers, and detection of the device's descriptors.
//!
//! Names are abstract (no file in the file system), so a name ends with its server.

use std::ffi::CStr;
use std::fmt;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Environment variable with the server's name, as a C string.
pub const C_ENVIRONMENT: &CStr = c"ROCKET_SERVER";

/// Environment variable with the server's name.
pub const ENVIRONMENT: &str = match C_ENVIRONMENT.to_str() {
    Ok(name) => name,
    Err(_) => "",
};

const PREFIX: &str = "rocket-npu/";

const ROOT: u32 = 0;

/// Longest wait for a server with a full queue of connections.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest name, bytes: far below the limit of a socket address.
const NAME_BYTES: usize = 64;

/// The name of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Address {
    bytes: [u8; NAME_BYTES],
    len: usize,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.name().escape_ascii())
    }
}

impl Address {
    /// Parses a name from the environment variable; `None` if it is not valid.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        if !name.starts_with(PREFIX.as_bytes()) || name.len() > NAME_BYTES {
            return None;
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name);
        Some(Self {
            bytes,
            len: name.len(),
        })
    }

    /// A unique name for a server, from numbers that no other server has.
    #[must_use]
    pub fn unique(process: u32, number: u64) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let mut room = &mut bytes[..];
        // The longest name fits.
        let _ = write!(room, "{PREFIX}run-{process}-{number}");
        let len = NAME_BYTES - room.len();
        Self { bytes, len }
    }

    /// The name, as in the environment variable.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The socket address.
    ///
    /// # Errors
    /// None for a name made here; otherwise `ENAMETOOLONG`.
    pub fn socket(&self) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new_abstract_name(self.name())
    }

    /// Connects to the server. The connection becomes an open file by [`RequestKind::Open`].
    ///
    /// [`RequestKind::Open`]: crate::RequestKind::Open
    ///
    /// # Errors
    /// `ECONNREFUSED` if there is no server; `EACCES` if it belongs to another user, to
    /// whom nothing is sent; `ETIMEDOUT` if it does not accept within [`CONNECT_TIMEOUT`];
    /// `EMFILE`.
    pub fn connect(&self, flags: SocketFlags) -> Result<OwnedFd, Errno> {
        let socket = new_socket(flags)?;
        self.connect_socket(&socket)?;
        Ok(socket)
    }

    /// Like [`Address::connect`], with a socket of [`new_socket`] that the caller closes.
    /// The preload library does so without its own `close`, which sends the server a
    /// message.
    ///
    /// # Errors
    /// As [`Address::connect`].
    pub fn connect_socket(&self, socket: &impl AsFd) -> Result<(), Errno> {
        // Another user who has taken the name and accepts no connection must not block this
        // process for ever.
        set_socket_timeout(socket, Timeout::Send, Some(CONNECT_TIMEOUT))?;
        loop {
            match rustix::net::connect(socket, &self.socket()?) {
                Err(Errno::INTR) => (),
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                other => break other?,
            }
        }
        set_socket_timeout(socket, Timeout::Send, None)?;
        // Anybody can take an abstract name.
        let server = peer_uid(socket)?;
        if server != rustix::process::geteuid().as_raw() && server != ROOT {
            return Err(Errno::ACCESS);
        }
        Ok(())
    }
}

/// A socket to connect to a server.
///
/// # Errors
/// `EMFILE`, `ENFILE`.
pub fn new_socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    // Other flags are set later, because they would change connect.
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC & flags,
        None,
    )
}

/// User id of the process on the other side of a connection.
///
/// # Errors
/// `ENOTCONN` or another error if the socket is not connected.
pub fn peer_uid(socket: &impl AsFd) -> Result<u32, Errno> {
    // This uses nix, since rustix has no value for a process of another PID namespace.
    nix::sys::socket::getsockopt(socket, nix::sys::socket::sockopt::PeerCredentials)
        .map(|peer| peer.uid())
        .map_err(|errno| Errno::from_raw_os_error(errno as i32))
}

/// Whether a descriptor belongs to the device: whether it is a connection to a server.
#[must_use]
pub fn is_device(fd: impl AsFd) -> bool {
    let peer = rustix::net::getpeername(fd).ok().flatten();
    let peer = peer.and_then(|peer| SocketAddrUnix::try_from(peer).ok());
    let name = peer.as_ref().and_then(SocketAddrUnix::abstract_name);
    name.is_some_and(|name| name.starts_with(PREFIX.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_they_were_made_of() {
        let longest = Address::unique(u32::MAX, u64::MAX);
        assert_eq!(
            longest.name(),
            b"rocket-npu/run-4294967295-18446744073709551615"
        );
        let least = Address::unique(0, 0);
        assert_eq!(least.name(), b"rocket-npu/run-0-0");
        assert_eq!(Address::new(least.name()), Some(least));
        for bad in [&b""[..], b"rocket", b"/tmp/x", &[b'r'; 200]] {
            assert_eq!(Address::new(bad), None);
        }
    }

    #[test]
    fn only_connections_to_a_server_are_the_device() {
        let address = Address::unique(std::process::id(), 1);
        assert_eq!(
            address.connect(SocketFlags::CLOEXEC).err(),
            Some(Errno::CONNREFUSED)
        );
        let listener = new_socket(SocketFlags::CLOEXEC).unwrap();
        rustix::net::bind(&listener, &address.socket().unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let client = address.connect(SocketFlags::CLOEXEC).unwrap();
        let server = rustix::net::accept(&listener).unwrap();
        assert!(is_device(&client));
        assert!(is_device(client.try_clone().unwrap()));
        assert!(!is_device(&server));
        assert!(!is_device(&listener));
        assert!(!is_device(std::io::stdin()));
        let (one, _other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        assert!(!is_device(&one));
        // The answer stays the same after the server has ended; calls then fail.
        drop((server, listener));
        assert!(is_device(&client));
    }
}
